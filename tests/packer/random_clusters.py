"""Random small clusters as a Hypothesis strategy: templates with several pods each, and any choice of rules.

`clusters("spread", "gangs")` has those rules and no others, so that a failure names its rule; `EVERY` has all of them.
Unlike the problems of tests/benchmarks, pods of one template share a shape, as in a real cluster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from tests.packer.problems import HOST, SOURCE, ZONE, existing, having, option, pending, problem, spread, term
from tidemill.decide.packer.problem import ExistingPods
from tidemill.model.labels import Expression, Taint, Toleration
from tidemill.model.pods import Gang

RACK = "example.com/rack"
RULES = (
    "devices", "labels", "taints", "ports", "volumes", "refusals", "priorities", "stocks", "limits",
    "affinity", "anti-affinity", "spread", "gangs",
)  # fmt: skip
EVERY = frozenset(RULES)
NAMESPACES = st.sampled_from(["default", "default", "default", "other"])
LETTERS = st.sampled_from("xyz")
# Nodes of one group are alike to every pod, so each existing node has one of its own.
GROUPS = (*(f"g{number}" for number in range(8)), "o1", "o2", "o3")
TOPOLOGY = st.sampled_from([ZONE, ZONE, HOST, HOST, RACK])


def rarely(strategy, otherwise=(), often: int = 3):
    """`otherwise`, `often` times out of `often` + 1."""
    return st.integers(0, often).flatmap(lambda n: strategy if n == 0 else st.just(otherwise))


TERMS = st.builds(lambda key, app: (term(key, app=app),), TOPOLOGY, LETTERS)
SPREADS = st.builds(
    lambda key, app, skew, least, keys, affinity, taints: (
        replace(
            spread(key, {"app": app}, skew, min_domains=least),
            match_label_keys=keys,
            honor_affinity=affinity,
            honor_taints=taints,
        ),
    ),
    TOPOLOGY,
    LETTERS,
    st.integers(1, 3),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([(), (), ("rev",)]),
    st.sampled_from([True, True, False]),
    st.sampled_from([False, False, True]),
)
NODE_TERMS = st.sampled_from(
    [
        (having(ZONE, "a", "b"),),
        (having(ZONE, "b", operator="NotIn"),),
        ((Expression("gen", "Gt", ("3",)),), having("gen", operator="DoesNotExist")),
        ((Expression("gen", "Lt", ("4",)), *having("gen", operator="Exists")),),
    ]
)
TOLERATIONS = st.sampled_from([(Toleration("team", "Equal", "red"),), (Toleration(operator="Exists"),)])
TAINTS = st.sampled_from([(Taint("team", "red"),), (Taint("soft", effect="PreferNoSchedule"),)])
PORTS = st.sampled_from([(("TCP", 80, ""),), (("TCP", 80, "10.0.0.1"),), (("UDP", 80, ""),)])


@st.composite
def shapes(draw, rules):
    """The requests and rules of a template."""
    drawn = {
        "cpu": draw(st.sampled_from([100, 500, 1000, 1500, 2500, 4000])),
        "labels": {"app": draw(LETTERS)},
    }
    if "devices" in rules:
        drawn["gpus"] = draw(st.sampled_from([0, 0, 1, 2, 4]))
    if "labels" in rules:
        drawn["node_terms"] = draw(rarely(NODE_TERMS))
        drawn["selector"] = draw(rarely(st.sampled_from([{ZONE: "a"}, {"gen": "5"}]), {}, 6))
    if "taints" in rules:
        drawn["tolerations"] = draw(rarely(TOLERATIONS, (), 1))
    if "ports" in rules:
        drawn["host_ports"] = draw(rarely(PORTS))
    if "volumes" in rules:
        drawn["volume_zones"] = draw(rarely(st.sampled_from([("a",), ("a", "c")])))
    if "affinity" in rules:
        drawn["affinity"] = draw(rarely(TERMS))
    if "anti-affinity" in rules:
        drawn["anti_affinity"] = draw(rarely(TERMS))
    if "spread" in rules:
        drawn["spread"] = draw(rarely(SPREADS, (), 1))
        drawn["labels"] = {**drawn["labels"], "rev": draw(st.sampled_from("12"))}
    return drawn


@st.composite
def templates(draw, rules):
    """A pod of which others are copies."""
    drawn = draw(shapes(rules))
    if "refusals" in rules:
        drawn["refuses"] = draw(st.sets(st.sampled_from(GROUPS), max_size=6))
    if "priorities" in rules:
        drawn["priority"] = draw(st.sampled_from([0, 0, 1, 5]))
    return pending(**drawn, namespace=draw(NAMESPACES))


@st.composite
def workloads(draw, rules, most: int):
    found = []
    for number in range(draw(st.integers(1, 5))):
        template, count = draw(templates(rules)), draw(st.integers(1, most))
        gang = None
        if "gangs" in rules and draw(st.integers(0, 2)) == 0:
            count = min(count, 4)
            gang = Gang(f"g{draw(st.integers(0, 4))}", count)
        found += [replace(template, id=f"t{number}-{n}", gang=gang) for n in range(count)]
    members = Counter((one.namespace, one.gang.name) for one in found if one.gang is not None)
    return [
        one
        if one.gang is None
        else replace(one, gang=_sized(one.gang, members[one.namespace, one.gang.name]))
        for one in found
    ]


def _sized(gang: Gang, members: int) -> Gang:
    """Templates with the same gang name are one gang with all members; only g4 misses one."""
    return Gang(gang.name, members + (gang.name == "g4"))


# With the rack and the generation missing now and then.
LABELS = st.builds(
    lambda rack, gen, source: {**rack, **gen, SOURCE: source},
    st.sampled_from([{}, {RACK: "r1"}, {RACK: "r2"}]),
    st.sampled_from([{}, {"gen": "3"}, {"gen": "5"}]),
    st.sampled_from(["cr-1", "on-demand"]),
)


@st.composite
def existing_nodes(draw, rules, number):
    there = [
        ExistingPods(pending(**draw(shapes(rules))).shape, draw(NAMESPACES), draw(st.integers(1, 3)))
        for _ in range(draw(st.integers(0, 2)))
    ]
    free = {
        "cpu": draw(st.sampled_from([0, 600, 2000, 5000, 8000])),
        "pods": draw(st.sampled_from([0, 1, 3, 20])),
    }
    if "devices" in rules:
        free["nvidia.com/gpu"] = draw(st.sampled_from([0, 0, 1, 4, 8]))
    rest = {}
    if "refusals" in rules:
        rest["group"] = draw(st.sampled_from(["", f"g{number}"]))
    if "taints" in rules:
        rest["taints"] = draw(rarely(TAINTS))
    labels = {HOST: f"n{number}", **draw(LABELS)}
    return existing(
        f"n{number}",
        draw(st.sampled_from("abc")),
        labels=labels,
        free=free,
        existing_pods=tuple(there),
        **rest,
    )


@st.composite
def options(draw, rules, number):
    """Capacity, consumption and price grow together, with a little noise in the price."""
    size, count = draw(st.integers(1, 8)), draw(st.sampled_from([0, 1, 4, 8])) if "devices" in rules else 0
    rest = {"rank": (draw(st.integers(0, 1)),)}
    if "stocks" in rules:
        rest["stock"] = draw(st.sampled_from(["", "", "few", "block"]))
    if "limits" in rules:
        rest["budget"] = draw(st.sampled_from(["", "p1", "p1", "p2"]))
        rest["consumes"] = {"cpu": size * 1000, "gpus": count, "nodes": 1}
    if "taints" in rules:
        rest["taints"] = draw(rarely(TAINTS))
    if "refusals" in rules:
        rest["group"] = draw(st.sampled_from(["", "o1", "o2", "o3"]))
    return option(
        f"f{number}", draw(st.sampled_from("abc")), labels=draw(LABELS), cpu=size * 1000, gpus=count,
        capacity={"pods": draw(st.sampled_from([2, 10, 50]))},
        price=(size + 5 * count) * draw(st.sampled_from([0.0, 0.9, 1.0, 1.3])), **rest,
    )  # fmt: skip


@st.composite
def clusters(draw, *rules: str, most_alike: int = 8):
    """Two to forty pods, up to eight nodes, up to six options."""
    chosen = frozenset(rules) or EVERY
    limits = st.fixed_dictionaries(
        {"cpu": st.sampled_from([10**9, 12_000, 4_000, 0])},
        optional={"gpus": st.sampled_from([8, 4]), "nodes": st.integers(0, 5)},
    )
    return problem(
        draw(workloads(chosen, most_alike)),
        [draw(existing_nodes(chosen, number)) for number in range(draw(st.integers(0, 8)))],
        [draw(options(chosen, number)) for number in range(draw(st.integers(1, 6)))],
        stocks={"few": draw(st.integers(0, 3)), "block": draw(st.integers(0, 8))}
        if "stocks" in chosen
        else {},
        budgets={"p1": draw(limits), "p2": draw(limits)} if "limits" in chosen else {},
    )
