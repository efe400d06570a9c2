"""One batch of pending pods, the same instance types and prices: what each controller launches for it, and how soon.

`tidemill run` with a simulated AWS in real time, and Karpenter's controller with its kwok provider, one after the other
beside the same real API server. Both know the g6 types with our catalog's resources and on-demand prices. No pod runs:
what is compared is what was launched when every pod has its place.

    python -m benchmarks.cluster_batch --pods 400 --seed 1
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.cluster import karpenter_kwok
from benchmarks.cluster.large_cluster import NAMESPACE, pending
from benchmarks.cluster.measured import cpu_s, memory_mib
from controlplane.api import Api, eventually
from controlplane.build import MODULES, build
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.controller import LEADS
from tests.cluster.documents import by_the_hour
from tests.cluster.stage import Stage
from tidemill.catalog import InstanceType, load
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.model.resources import amount

FAMILY = "g6"
QUIET_S = 12.0  # nothing was launched for this long: it is done
GPUS = (1, 1, 1, 2, 4, 8)  # of a pod
KWOK_OVERHEAD = {"cpu": 100, "memory": 10 << 20}  # what the kwok provider takes off each node


@dataclass(frozen=True, slots=True)
class Launched:
    controller: str
    first_s: float  # from the first pod's creation to the first node
    last_s: float
    nodes: Mapping[str, int]
    usd_h: float
    cpu_s: float
    memory_mib: float


def types() -> dict[str, InstanceType]:
    return {name: kind for name, kind in load().types.items() if kind.family == FAMILY}


def batch(count: int, seed: int, selector: dict[str, str]) -> list[dict[str, Any]]:
    """Three CPUs and 12 GiB for each GPU: the smallest type takes one."""
    rng = random.Random(seed)
    pods = []
    for number in range(count):
        gpus = rng.choice(GPUS)
        made = pending(f"batch-{number}", gpus, selector)
        asked = {"cpu": str(3 * gpus), "memory": f"{12 * gpus}Gi", "nvidia.com/gpu": str(gpus)}
        made["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
        pods.append(made)
    return pods


def price(nodes: Mapping[str, int]) -> float:
    known = types()
    return sum(count * (known[name].on_demand_usd_h or 0.0) for name, count in nodes.items())


def watch(controller: str, api: Api, pods: list[dict[str, Any]], nodes: Any, pid: int) -> Launched:
    """Create the pods at once, and count nodes until none has come for a while."""
    before_s = cpu_s(pid)
    began = time.monotonic()
    for made in pods:
        api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", made)
    first = last = 0.0
    seen: Counter[str] = Counter()
    while not last or time.monotonic() - began - last < QUIET_S:
        now: Counter[str] = nodes()
        if now != seen:
            last = time.monotonic() - began
            first, seen = first or last, now
        time.sleep(0.2)
    used_s = cpu_s(pid) - before_s
    for made in pods:
        api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{made['metadata']['name']}", gracePeriodSeconds=0)
    return Launched(controller, first, last, dict(seen), price(seen), used_s, memory_mib(pid, "VmHWM"))


def by_tidemill(plane: ControlPlane, folder: Path, count: int, seed: int) -> Launched:
    pool = by_the_hour(
        "bench", requirements={"instanceFamilies": [FAMILY]}, limits={"nodes": 1000}, labels={}, taints=[]
    )
    with contextlib.closing(Processes(folder / "log")) as processes:
        stage = Stage.open(plane, processes, folder, [pool], speed=1, start="", admission=False)
        controller = stage.run("run")
        controller.wait_for(LEADS, timeout_s=120)
        eventually(controller.is_ready, timeout_s=120, what="tidemill run is ready")

        def nodes() -> Counter[str]:
            return Counter(one["InstanceType"] for one in stage.account.instances())

        selector = {"tidemill.dev/pool": "bench"}
        return watch("tidemill run", plane.admin(), batch(count, seed, selector), nodes, processes.pid("run"))


def by_karpenter(plane: ControlPlane, folder: Path, binary: Path, count: int, seed: int) -> Launched:
    api = plane.admin()
    file = folder / "instance_types.json"
    file.write_text(json.dumps([as_kwok(kind) for kind in types().values()]))
    karpenter_kwok.install(api)
    with karpenter_kwok.running(binary, plane, INSTANCE_TYPES_FILE_PATH=str(file)) as (pid, metrics):
        synced = lambda: karpenter_kwok.is_synced(metrics)  # noqa: E731
        eventually(synced, timeout_s=karpenter_kwok.SYNCED_S, what="Karpenter is synced")

        def nodes() -> Counter[str]:
            claims = api.items(karpenter_kwok.NODE_CLAIMS)
            label = "node.kubernetes.io/instance-type"
            found = [claim["metadata"].get("labels", {}).get(label, "") for claim in claims]
            return Counter(name for name in found if name)

        return watch("Karpenter", api, batch(count, seed, {"karpenter.sh/nodepool": "bench"}), nodes, pid)


def as_kwok(kind: InstanceType) -> dict[str, Any]:
    """Less our usual daemon pods, as `tidemill run` reckons: there is no DaemonSet that Karpenter could count."""
    room = {
        name: amount(kind.allocatable, name) - amount(USUAL_DAEMONS, name) for name, _ in kind.allocatable
    }
    resources = {name: str(value) for name, value in room.items()}
    resources["cpu"] = f"{room['cpu'] + KWOK_OVERHEAD['cpu']}m"
    resources["memory"] = str(room["memory"] + KWOK_OVERHEAD["memory"])
    resources["ephemeral-storage"] = "200Gi"
    offering = {
        "Price": kind.on_demand_usd_h,
        "Available": True,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
        ],
    }
    return {
        "name": kind.name, "architecture": kind.arch, "operatingSystems": ["linux"], "resources": resources,
        "offerings": [offering],
    }  # fmt: skip


@click.command()
@click.option("--pods", type=click.IntRange(1), default=400, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(pods: int, seed: int) -> None:
    binary = build(MODULES["karpenter-kwok"]) / "karpenter-kwok"
    found = []
    for number in range(2):
        with ControlPlane() as plane:
            folder = plane.folder / "bench"
            folder.mkdir()
            plane.admin().create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            found.append(
                by_karpenter(plane, folder, binary, pods, seed)
                if number
                else by_tidemill(plane, folder, pods, seed)
            )
    click.echo("| controller | nodes | price | first node | last node | CPU | peak memory |")
    click.echo("|---|---|---|---|---|---|---|")
    for one in found:
        click.echo(
            f"| {one.controller} | {sum(one.nodes.values())} | ${one.usd_h:,.2f}/h | {one.first_s:.1f} s | "
            f"{one.last_s:.1f} s | {one.cpu_s:.1f} s | {one.memory_mib:.0f} MiB |"
        )
    ours, theirs = found
    click.echo(
        f"tidemill run / Karpenter: price {ours.usd_h / theirs.usd_h:.3f}, CPU {ours.cpu_s / theirs.cpu_s:.2f}"
    )
    click.echo(f"{dict(ours.nodes)}\n{dict(theirs.nodes)}", err=True)


if __name__ == "__main__":
    main()
