"""Builders of packing problems for the tests of the packer, and solutions written as one word per pod."""

from __future__ import annotations

from tests.benchmarks import problems as bench
from tests.benchmarks.problems import HOST, SOURCE, ZONE, existing, having, problem, running, spread, term
from tidemill.bench.checker.check import check
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem, Solution
from tidemill.model.pods import Gang
from tidemill.spec.names import EFA, NVIDIA_GPU

__all__ = [
    "HOST", "SOURCE", "ZONE", "existing", "gpus", "having", "kind_of", "option", "pending", "problem", "replicas",
    "running", "sound", "spread", "term", "unplaced_ids", "where",
]  # fmt: skip

TEN = {"cpu": 10_000, "pods": 10}


def pending(
    name="pod", *, gpus=0, efa=0, requests=None, gang=None, size=2, priority=0, pending_since=0.0, namespace="default",
    refuses=(), selector=None, **rest,
) -> PendingPod:  # fmt: skip
    """A pending pod, of 100 millicores by default. `selector` is its node selector."""
    devices = {key: count for key, count in ((NVIDIA_GPU, gpus), (EFA, efa)) if count}
    return PendingPod(
        name,
        bench.shape(
            requests={**devices, **(requests or {})},
            node_selector=tuple(sorted((selector or {}).items())),
            **rest,
        ),
        namespace=namespace,
        priority=priority,
        pending_since=pending_since,
        gang=Gang(gang, size) if gang else None,
        refuses=frozenset(refuses),
    )


def replicas(count: int, name="pod", **rest) -> list[PendingPod]:
    """Pods of one template: they share one shape object, as pods of one controller do."""
    first = pending(f"{name}0", **rest)
    return [
        PendingPod(
            f"{name}{number}", first.shape, first.namespace, first.priority, first.pending_since, first.gang,
            first.refuses,
        )
        for number in range(count)
    ]  # fmt: skip


def option(name="m", zone="a", *, cpu=None, gpus=0, efa=0, capacity=None, price=1.0, **rest) -> NodeOption:
    """A node option with ten cores and ten pods by default."""
    devices = {key: count for key, count in ((NVIDIA_GPU, gpus), (EFA, efa)) if count}
    held = {**TEN, **({"cpu": cpu} if cpu is not None else {}), **devices, **(capacity or {})}
    return bench.option(name, zone, capacity=held, price=price, **rest)


def gpus(name: str, count: int, price: float, zone="a", **rest) -> NodeOption:
    """An instance type with accelerators, and CPU in proportion."""
    return option(name, zone, cpu=count * 12_000, gpus=count, price=price, capacity={"pods": 100}, **rest)


def sound(stated: Problem) -> Solution:
    """The packer's solution; fails if the checker finds a fault."""
    solution = solve(stated)
    assert check(stated, solution) == []
    return solution


def faults(stated: Problem) -> list[str]:
    """The faults that the checker finds in the packer's solution."""
    return [str(fault) for fault in check(stated, solve(stated))]


def as_words(stated: Problem, solution: Solution) -> list[str]:
    """One word per pod: the name of an existing node, `type@zone:number` of an opened node, or `-`."""
    placed = ["-"] * len(stated.pods)
    for index, pods in solution.existing.items():
        for pod in pods:
            placed[pod] = stated.nodes[index].name
    for number, node in enumerate(solution.opened):
        for pod in node.pods:
            placed[pod] = f"{node.option.name}@{node.option.labels.get(ZONE, '')}:{number}"
    return placed


def where(stated: Problem) -> list[str]:
    """The node of each pod in a sound solution."""
    return as_words(stated, sound(stated))


def kind_of(stated: Problem) -> list[str]:
    """As `where`, but of an opened node just its type."""
    return [word.partition("@")[0] for word in where(stated)]


def zones_of(stated: Problem) -> list[str]:
    """The zones of all pods, sorted; `-` for an unplaced pod."""
    zones = {p.name: p.labels.get(ZONE, "") for p in stated.nodes}
    return sorted(
        zones.get(word) or word.partition("@")[2].partition(":")[0] or "-" for word in where(stated)
    )


def unplaced_ids(stated: Problem) -> set[str]:
    return {stated.pods[index].id for index in sound(stated).unplaced}
