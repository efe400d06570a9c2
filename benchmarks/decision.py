"""How long does one decision take on a large cluster: thousands of nodes, tens of thousands of pods, a queue?

    python -m benchmarks.decision

Two decisions are timed. The first starts from nothing; the second follows it after a hundred pods have finished, as
one tick follows another. `python -m benchmarks decide` does the same for other sizes.
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tidemill.catalog import load
from tidemill.decide import Memory, decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Toleration
from tidemill.model.nodes import Instance, InstanceState, KubeNode, Node
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.resources import Amounts
from tidemill.model.world import World
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
TYPE = "g6.12xlarge"
POD_MEMORY = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Timing:
    nodes: int
    running: int
    pending: int
    cold_s: float
    warm_s: float
    actions: int
    unmet: int


def spec(nodes: int) -> Spec:
    platform = {
        "region": "us-east-1",
        "deployment": "bench",
        "cluster": {"name": "bench"},
        "subnets": {zone: [f"subnet-{zone}"] for zone in ZONES},
    }
    pool: dict[str, Any] = {
        "nodeClassName": "gpu",
        "sources": [{"type": "on-demand"}],
        "requirements": {"instanceFamilies": ["g6"]},
        "labels": {"workload-type": "small"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
        "limits": {"nodes": nodes + 200},
    }
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "bench"}, "spec": platform}),
        catalog=load(),
        pools={"small": ComputePool.model_validate({"metadata": {"name": "small"}, "spec": pool})},
    )


def world(documents: Spec, nodes: int, running: int, pending: int, seed: int = 1) -> World:
    draw = Random(seed)
    kind = documents.catalog.types[TYPE]
    shapes = [_shape(gpus, cpu) for gpus in (0, 1, 2) for cpu in (1000, 2000, 4000)]
    terms = [Terms(team=team, expected=timedelta(hours=hours)) for team in "abc" for hours in (1, 4, 12)]
    made = [_node(number, kind.allocatable, draw.choice(ZONES)) for number in range(nodes)]
    pods = [
        _pod(f"run-{number}", shapes[number % 3], draw.choice(terms), made[number % nodes])
        for number in range(running)
    ]
    pods += [
        _pod(f"wait-{number}", draw.choice(shapes), draw.choice(terms), None) for number in range(pending)
    ]
    return _indexed(World(now=NOW, nodes=tuple(made), pods=tuple(pods)))


def _shape(gpus: int, cpu: int) -> PodShape:
    asked = {names.CPU: cpu // 4 if not gpus else cpu, names.MEMORY: POD_MEMORY // 8, names.NVIDIA_GPU: gpus}
    return PodShape(
        requests=tuple(sorted((name, amount) for name, amount in asked.items() if amount)),
        node_selector=(("workload-type", "small"),),
        tolerations=(Toleration("nvidia.com/gpu", "Exists"),),
    )


def _node(number: int, allocatable: Amounts, zone: str) -> Node:
    instance = Instance(
        f"i-{number:05}", TYPE, zone, Source(SourceKind.ON_DEMAND), InstanceState.RUNNING, NOW - timedelta(hours=9),
        owner="bench", pool="small", intent_id=f"ti-{number}", provisioner="native",
    )  # fmt: skip
    labels = {
        "workload-type": "small",
        names.LABEL_POOL: "small",
        names.LABEL_SOURCE: "on-demand",
        names.LABEL_ZONE: zone,
        names.LABEL_TYPE: TYPE,
        names.LABEL_HOSTNAME: f"n-{number:05}",
    }
    kube = KubeNode(
        f"n-{number:05}", instance.id, NOW - timedelta(hours=8), True, allocatable,
        labels=tuple(sorted(labels.items())), accelerators_registered_at=NOW - timedelta(hours=8), check="passed",
    )  # fmt: skip
    return Node(instance, kube)


def _pod(name: str, shape: PodShape, terms: Terms, on: Node | None) -> Pod:
    return Pod(
        f"uid-{name}", "bench", name, shape, terms, PodPhase.RUNNING if on else PodPhase.PENDING,
        NOW - timedelta(minutes=10), workload=f"Job/{name}", gated=on is None, node=on.name if on else "",
        started_at=NOW - timedelta(minutes=9) if on else None,
    )  # fmt: skip


def _indexed(there: World) -> World:
    index: dict[str, list[Pod]] = {}
    for pod in there.pods:
        if pod.node:
            index.setdefault(pod.node, []).append(pod)
    return replace(there, pods_by_node={name: tuple(pods) for name, pods in index.items()})


def a_little_later(before: World, changes: int = 100) -> World:
    """The same world after some pods have finished. What did not change is the same object, as an adapter keeps it."""
    gone = {pod.uid for pod in before.pods[:changes]}
    pods = tuple(pod for pod in before.pods if pod.uid not in gone)
    touched = {pod.node for pod in before.pods[:changes] if pod.node}
    by_node = dict(before.pods_by_node)
    for name in touched:
        by_node[name] = tuple(pod for pod in by_node[name] if pod.uid not in gone)
    return replace(before, now=before.now + timedelta(seconds=1), pods=pods, pods_by_node=by_node)


def measure(nodes: int, running: int, pending: int, seed: int = 1) -> Timing:
    documents = spec(nodes)
    first = world(documents, nodes, running, pending, seed)
    second = a_little_later(first)
    began = time.perf_counter()
    memory = Memory()
    decide(documents, first, memory)
    cold_s = time.perf_counter() - began
    began = time.perf_counter()
    plan = decide(documents, second, memory)
    warm_s = time.perf_counter() - began
    return Timing(
        nodes, running, pending, round(cold_s, 3), round(warm_s, 3), len(plan.actions), len(plan.unmet)
    )


def report(nodes: int = 5_000, running: int = 50_000, pending: int = 1_000, *, as_json: bool = False) -> str:
    timing = asdict(measure(nodes, running, pending))
    timing["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if as_json:
        return json.dumps(timing, indent=2)
    return "\n".join(f"{name:>10}  {value:,}" for name, value in timing.items())


if __name__ == "__main__":
    print(report())
