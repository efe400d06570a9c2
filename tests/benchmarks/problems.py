"""Builders of small packing problems and of solutions written by hand, for the tests of the checker and the bounds."""

from __future__ import annotations

from tidemill.bench.checker.check import check
from tidemill.decide.packer.problem import (
    ExistingNode,
    ExistingPods,
    NewNode,
    NodeOption,
    PendingPod,
    Problem,
    Solution,
)
from tidemill.model.labels import Expression
from tidemill.model.pods import Gang, PodShape, PodTerm, Spread

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SOURCE = "tidemill.dev/source"


def shape(cpu=100, labels=None, requests=None, **rest) -> PodShape:
    wanted = {"cpu": cpu, **(requests or {})}
    return PodShape(
        requests=tuple(sorted(wanted.items())), labels=tuple(sorted((labels or {}).items())), **rest
    )


def pending(name="pod", *, gang=None, size=2, namespace="default", refuses=(), **rest) -> PendingPod:
    return PendingPod(
        name,
        shape(**rest),
        namespace=namespace,
        gang=Gang(gang, size) if gang else None,
        refuses=frozenset(refuses),
    )


def running(count=1, namespace="default", **rest) -> ExistingPods:
    return ExistingPods(shape(**rest), namespace, count)


def existing(name="n1", zone="a", *, labels=None, free=None, **rest) -> ExistingNode:
    return ExistingNode(
        name,
        {**({ZONE: zone} if zone else {}), **(labels or {})},
        free if free is not None else {"cpu": 10_000, "pods": 10},
        **rest,
    )


def option(name="m", zone="a", *, labels=None, capacity=None, price=1.0, **rest) -> NodeOption:
    return NodeOption(
        name,
        {**({ZONE: zone} if zone else {}), **(labels or {})},
        capacity if capacity is not None else {"cpu": 10_000, "pods": 10},
        price,
        **rest,
    )


def problem(pods, nodes=(), options=(), **rest) -> Problem:
    return Problem(tuple(pods), tuple(nodes), tuple(options), **rest)


def written_solution(stated: Problem, where: str) -> Solution:
    """A solution from one word per pod: `n1 m m:2 -` puts the first on node n1, the second on an opened node of
    option m, the third on the second opened node of option m; `-` leaves it unplaced."""
    names = [p.name for p in stated.nodes]
    options = {f"{f.name}@{f.labels.get(ZONE, '')}": f for f in reversed(stated.options)}
    options |= {f.name: f for f in reversed(stated.options)}
    solution, opened = Solution(), {}
    for index, word in enumerate(where.split()):
        if word == "-":
            solution.unplaced[index] = "no node fits"
        elif word in names:
            solution.existing.setdefault(names.index(word), []).append(index)
        else:
            if word not in opened:
                opened[word] = NewNode(options[word.partition(":")[0]])
                solution.opened.append(opened[word])
            opened[word].pods.append(index)
    return solution


def fault_kinds(stated: Problem, where: str) -> list[str]:
    """The kinds of fault that the checker finds in a solution, in order and each once."""
    return list(dict.fromkeys(fault.kind for fault in check(stated, written_solution(stated, where))))


def having(key: str, *values: str, operator="In") -> tuple[Expression, ...]:
    return (Expression(key, operator, values),)


def term(key: str, namespaces=(), **labels: str) -> PodTerm:
    return PodTerm(key, tuple(Expression(k, "In", (v,)) for k, v in labels.items()), namespaces)


def spread(key: str, selector: dict[str, str] | None = None, skew=1, **rest) -> Spread:
    return Spread(key, tuple(Expression(k, "In", (v,)) for k, v in (selector or {}).items()), skew, **rest)
