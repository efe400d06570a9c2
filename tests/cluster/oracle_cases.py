"""Random packing problems for the oracle: each from its seed alone, with every rule that kube-scheduler has too.

Wider than tests/packer/random_clusters in what one pod may ask (several operators, effects, addresses, namespaces),
because here Kubernetes itself says what is right. Rules of our own (gangs, refusals, stocks) and preferences are here
as well: they must never make a plan that the scheduler refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NodeOption, PendingPod, Problem
from tidemill.model.labels import Expression, Pairs, Selector, Taint, Toleration
from tidemill.model.pods import Gang, PodShape, PodTerm, Spread
from tidemill.spec.names import EFA, LABEL_HOSTNAME, LABEL_SOURCE, LABEL_ZONE, NVIDIA_GPU

T = TypeVar("T")

RACK, GENERATION, TEAM = "example.com/rack", "example.com/generation", "example.com/team"
GIB = 2**30
ZONES = ("a", "b", "c")
TOPOLOGY = (LABEL_ZONE, LABEL_ZONE, LABEL_HOSTNAME, LABEL_HOSTNAME, RACK)
# Numbers as they are and as they look like: Gt and Lt read whole numbers and nothing else.
GENERATIONS = ("3", "5", "5", "007", "10", "five", "1_0", "9223372036854775808")


def case(seed: int) -> Problem:
    """The problem of this seed: up to forty pods, eight nodes and six node options."""
    random = Random(f"oracle-{seed}")
    options = tuple(_option(random, number) for number in range(random.randint(1, 6)))
    return Problem(
        _pending(random),
        tuple(_node(random, number) for number in range(random.randint(0, 8))),
        options,
        stocks={"few": random.randint(0, 3), "block": random.randint(2, 8)},
        budgets={"pool": {"cpu": random.choice((10**9, 10**9, 24_000)), "nodes": random.choice((50, 6))}},
    )


def _one_in(random: Random, times: int, draw: Callable[[Random], T], otherwise: T) -> T:
    return draw(random) if random.randrange(times) == 0 else otherwise


# --- what a pod asks --------------------------------------------------------------------------------


def _shape(random: Random) -> PodShape:
    requests = {"cpu": random.choice((0, 100, 500, 1000, 1500, 2500, 4000))}
    if random.randrange(3) == 0:
        requests["memory"] = random.choice((0, GIB // 2, GIB, 3 * GIB + 1, 8 * GIB))
    if random.randrange(3) == 0:
        requests[NVIDIA_GPU] = random.choice((0, 1, 1, 2, 4, 8))
    if random.randrange(8) == 0:
        requests[EFA] = random.choice((1, 4))
    return PodShape(
        requests=tuple(sorted(requests.items())),
        labels=(("app", random.choice("xyz")), ("rev", random.choice("12"))),
        node_selector=_one_in(random, 6, _node_selector, ()),
        tolerations=_one_in(random, 2, _tolerations, ()),
        node_terms=_one_in(random, 4, _node_terms, ()),
        affinity=_one_in(random, 5, _terms, ()),
        anti_affinity=_one_in(random, 4, _terms, ()),
        preferred_nodes=_one_in(
            random, 6, lambda random: ((random.randint(1, 100), _node_term(random)),), ()
        ),
        preferred_affinity=_one_in(random, 8, _preferred, ()),
        preferred_anti_affinity=_one_in(random, 8, _preferred, ()),
        spread=_one_in(random, 3, _spreads, ()),
        host_ports=_one_in(random, 5, _ports, ()),
        volume_zones=_one_in(random, 8, lambda random: random.choice((("a",), ("a", "c"))), ()),
    )


def _node_selector(random: Random) -> Pairs:
    return random.choice((((LABEL_ZONE, "a"),), ((LABEL_ZONE, "b"),), ((GENERATION, "5"),), ((TEAM, ""),)))


def _node_terms(random: Random) -> tuple[Selector, ...]:
    return tuple(_node_term(random) for _ in range(random.choice((1, 1, 2))))


def _node_term(random: Random) -> Selector:
    found = []
    for _ in range(random.choice((1, 1, 2))):
        match random.randrange(6):
            case 0:
                found.append(Expression(LABEL_ZONE, "In", tuple(random.sample(ZONES, 2))))
            case 1:
                found.append(Expression(LABEL_ZONE, "NotIn", ("b",)))
            case 2:
                found.append(Expression(GENERATION, random.choice(("Exists", "DoesNotExist"))))
            case 3:
                found.append(Expression(GENERATION, random.choice(("Gt", "Lt")), (random.choice("345"),)))
            case 4:
                found.append(Expression(RACK, "NotIn", ("r1",)))
            case _:
                found.append(Expression(TEAM, "In", ("red", "")))
    return tuple(found)


def _tolerations(random: Random) -> tuple[Toleration, ...]:
    every = (
        Toleration(TEAM, "Equal", "red"),
        Toleration(TEAM, "Equal", "red", "NoSchedule"),
        Toleration(TEAM, "Equal", "red", "NoExecute"),
        Toleration(TEAM, "Equal", ""),
        Toleration(TEAM, "Exists"),
        Toleration("", "Exists", "", "NoSchedule"),
        Toleration("", "Exists"),
    )
    return tuple(random.sample(every, random.choice((1, 1, 2))))


def _selector(random: Random) -> Selector:
    match random.randrange(8):
        case 0:
            return ()
        case 1:
            return (Expression("app", "NotIn", (random.choice("xyz"),)),)
        case 2:
            return (Expression("app", "In", ("x", "y")), Expression("rev", "In", ("1",)))
        case 3:
            return (Expression("absent", "DoesNotExist"), Expression("app", "In", (random.choice("xyz"),)))
    return (Expression("app", "In", (random.choice("xyz"),)),)


def _terms(random: Random) -> tuple[PodTerm, ...]:
    namespaces: tuple[tuple[str, ...], ...] = ((), (), (), ("other",), ("default", "other"))
    return tuple(
        PodTerm(random.choice(TOPOLOGY), _selector(random), random.choice(namespaces))
        for _ in range(random.choice((1, 1, 1, 2)))
    )


def _preferred(random: Random) -> tuple[tuple[int, PodTerm], ...]:
    return tuple((random.randint(1, 100), term) for term in _terms(random))


def _spreads(random: Random) -> tuple[Spread, ...]:
    """One or two. The API server takes a topology key once."""
    keys = random.sample(sorted(set(TOPOLOGY)), random.choice((1, 1, 2)))
    return tuple(
        Spread(
            key,
            _selector(random),
            random.choice((1, 1, 2, 3)),
            hard=random.randrange(5) > 0,
            min_domains=random.choice((1, 1, 1, 2, 3)),
            match_label_keys=random.choice(((), (), ("pod-template-hash",))),
            honor_affinity=random.choice((True, True, False)),
            honor_taints=random.choice((False, False, True)),
        )
        for key in keys
    )


def _ports(random: Random) -> tuple[tuple[str, int, str], ...]:
    every = (
        ("TCP", 80, ""), ("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.2"), ("TCP", 80, "0.0.0.0"), ("UDP", 80, ""),
        ("TCP", 81, ""),
    )  # fmt: skip
    return tuple(random.sample(every, random.choice((1, 1, 2))))


# --- pods, nodes, options ---------------------------------------------------------------------------


def _pending(random: Random) -> tuple[PendingPod, ...]:
    found: list[PendingPod] = []
    for number in range(random.randint(1, 5)):
        count = random.randint(1, 8)
        gang = None
        if random.randrange(4) == 0:
            count = min(count, 4)
            gang = Gang(f"gang-{number}", count)
        template = PendingPod(
            "", _shape(random), random.choice(("default", "default", "other")), random.choice((0, 0, 1)), gang=gang,
            refuses=frozenset(random.sample(("n0", "n1", "o1"), random.choice((0, 0, 1)))),
        )  # fmt: skip
        found += [replace(template, id=f"t{number}-{copy}") for copy in range(count)]
    return tuple(found)


def _labels(random: Random) -> dict[str, str]:
    labels = {LABEL_ZONE: random.choice(ZONES), LABEL_SOURCE: random.choice(("cr-1", "on-demand"))}
    if random.randrange(3):
        labels[RACK] = random.choice(("r1", "r2"))
    if random.randrange(3):
        labels[GENERATION] = random.choice(GENERATIONS)
    if random.randrange(4) == 0:
        labels[TEAM] = random.choice(("red", ""))
    return labels


def _taints(random: Random) -> tuple[Taint, ...]:
    every = (
        Taint(TEAM, "red"), Taint(TEAM, "red", "NoExecute"), Taint(TEAM, ""), Taint(TEAM, "blue", "PreferNoSchedule"),
        Taint("example.com/other"),
    )  # fmt: skip
    chosen = random.sample(every, random.choice((1, 1, 2)))
    # The API server takes a key and effect once.
    return tuple({(taint.key, taint.effect): taint for taint in chosen}.values())


def _node(random: Random, number: int) -> ExistingNode:
    there = tuple(
        ExistingPods(_shape(random), random.choice(("default", "default", "other")), random.randint(1, 3))
        for _ in range(random.randint(0, 2))
    )
    free = {
        "cpu": random.choice((0, 600, 2000, 5000, 8000)),
        "memory": random.choice((0, 2 * GIB, 32 * GIB)),
        "pods": random.choice((0, 1, 3, 20)),
    }
    if random.randrange(2):
        free |= {NVIDIA_GPU: random.choice((0, 1, 4, 8)), EFA: random.choice((0, 4))}
    name = f"n{number}"
    labels = {**_labels(random), LABEL_HOSTNAME: name}
    return ExistingNode(
        name, labels, free, _one_in(random, 3, _taints, ()), there, group=random.choice(("", name))
    )


def _option(random: Random, number: int) -> NodeOption:
    size, gpus = random.randint(1, 8), random.choice((0, 0, 1, 4, 8))
    capacity: dict[str, int] = {
        "cpu": size * 1000, "memory": size * 4 * GIB, "pods": random.choice((2, 10, 50))
    }  # fmt: skip
    if gpus:
        capacity |= {NVIDIA_GPU: gpus, EFA: gpus // 2}
    rest: dict[str, Any] = {
        "stock": random.choice(("", "", "few", "block")),
        "group": random.choice(("", "o1")),
    }
    if random.randrange(2):
        rest |= {"budget": "pool", "consumes": {"cpu": size * 1000, "nodes": 1}}
    return NodeOption(
        f"o{number}", _labels(random), capacity, (size + 5 * gpus) * random.choice((0.0, 0.9, 1.0, 1.3)),
        _one_in(random, 3, _taints, ()), rank=(random.randint(0, 1),), **rest,
    )  # fmt: skip
