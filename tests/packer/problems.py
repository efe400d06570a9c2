"""Builders of packing problems for the tests of the solver, and its answers written as one word an ask."""

from __future__ import annotations

from tests.benchmarks import problems as bench
from tests.benchmarks.problems import (
    HOST,
    SOURCE,
    ZONE,
    existing,
    having,
    problem,
    running,
    spread,
    term,
)
from tests.checker.check import check
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem, Solution
from tidemill.model.pods import Gang
from tidemill.spec.names import EFA, NVIDIA_GPU

__all__ = [
    "HOST", "SOURCE", "ZONE", "option", "pending", "replicas", "gpus", "having", "kind_of", "left_out",
    "existing", "problem", "running", "sound", "spread", "term", "where",
]  # fmt: skip

TEN = {"cpu": 10_000, "pods": 10}


def pending(
    name="pod", *, gpus=0, efa=0, requests=None, gang=None, size=2, priority=0, pending_since=0.0, namespace="default",
    refuses=(), selector=None, **rest,
) -> PendingPod:  # fmt: skip
    """A pod that waits, of 100 millicores unless told. `selector` is its node selector."""
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
    """So many of one template: they share one shape object, as pods of one controller do."""
    first = pending(f"{name}0", **rest)
    return [
        PendingPod(
            f"{name}{number}", first.shape, first.namespace, first.priority, first.pending_since, first.gang,
            first.refuses,
        )
        for number in range(count)
    ]  # fmt: skip


def option(name="m", zone="a", *, cpu=None, gpus=0, efa=0, capacity=None, price=1.0, **rest) -> NodeOption:
    """A kind of node of ten cores and ten pods, unless told."""
    devices = {key: count for key, count in ((NVIDIA_GPU, gpus), (EFA, efa)) if count}
    held = {**TEN, **({"cpu": cpu} if cpu is not None else {}), **devices, **(capacity or {})}
    return bench.option(name, zone, capacity=held, price=price, **rest)


def gpus(name: str, count: int, price: float, zone="a", **rest) -> NodeOption:
    """An instance type with accelerators, and CPU and network in step with them."""
    return option(name, zone, cpu=count * 12_000, gpus=count, price=price, capacity={"pods": 100}, **rest)


def sound(stated: Problem) -> Solution:
    """The solver's answer, after the checker has found nothing wrong with it."""
    solution = solve(stated)
    assert check(stated, solution) == []
    return solution


def faults(stated: Problem) -> list[str]:
    """What the checker finds wrong with the solver's answer."""
    return [str(one) for one in check(stated, solve(stated))]


def words(stated: Problem, solution: Solution) -> list[str]:
    """An answer, one word an ask: the place's name, `type@zone:number` of an opened node, or `-`."""
    said = ["-"] * len(stated.pods)
    for index, there in solution.existing.items():
        for one in there:
            said[one] = stated.nodes[index].name
    for number, node in enumerate(solution.opened):
        for one in node.pods:
            said[one] = f"{node.option.name}@{node.option.labels.get(ZONE, '')}:{number}"
    return said


def where(stated: Problem) -> list[str]:
    """Where a sound answer puts each ask."""
    return words(stated, sound(stated))


def kind_of(stated: Problem) -> list[str]:
    """As `where`, with the zone and the number of an opened node left out: just its type."""
    return [word.partition("@")[0] for word in where(stated)]


def zones_of(stated: Problem) -> list[str]:
    """The zone each ask got, sorted; `-` for who got none."""
    zones = {p.name: p.labels.get(ZONE, "") for p in stated.nodes}
    return sorted(
        zones.get(word) or word.partition("@")[2].partition(":")[0] or "-" for word in where(stated)
    )


def left_out(stated: Problem) -> set[str]:
    return {stated.pods[index].id for index in sound(stated).unplaced}
