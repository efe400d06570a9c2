"""Random small problems with every rule, as a Hypothesis strategy."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.benchmarks import problems as make
from tests.benchmarks.problems import HOST, SOURCE, ZONE, having, problem
from tidemill.model.labels import Taint, Toleration

LETTERS = st.sampled_from("xyz")
KEYS = st.sampled_from([ZONE, HOST])
# Groups of nodes that a pod may not use: it would outlast them, or it may not cost money by the hour.
REFUSED = ((), (), (), ("node-0", "node-2"), ("node-0", "node-2", "cr-2"), ("on-demand",))
TAINTS = st.sampled_from([(), (), (), (Taint("team", "red"),), (Taint("soft", effect="PreferNoSchedule"),)])


def maybe(strategy, often: int = 3):
    """Nothing, `often` times out of `often` + 1."""
    return st.one_of(*[st.just(())] * often, strategy)


@st.composite
def rules(draw) -> dict:
    """Labels, and rules about nodes and other pods."""
    return {
        "labels": {"app": draw(LETTERS)},
        "affinity": draw(maybe(st.tuples(st.builds(lambda k, v: make.term(k, app=v), KEYS, LETTERS)), 5)),
        "anti_affinity": draw(
            maybe(st.tuples(st.builds(lambda k, v: make.term(k, app=v), KEYS, LETTERS)), 5)
        ),
        "spread": draw(
            maybe(
                st.tuples(
                    st.builds(
                        lambda k, v, skew, least: make.spread(k, {"app": v}, skew, min_domains=least),
                        KEYS,
                        LETTERS,
                        st.integers(1, 2),
                        st.integers(1, 3),
                    )
                )
            )
        ),
        "node_terms": draw(maybe(st.just((having(ZONE, "a", "b"),)), 5)),
        "tolerations": draw(maybe(st.just((Toleration("team", "Equal", "red"),)))),
        "host_ports": draw(maybe(st.just((("TCP", 80, ""),)), 9)),
        "volume_zones": draw(maybe(st.just(("a",)), 9)),
    }


@st.composite
def replicas(draw, most: int):
    templates = draw(st.lists(st.tuples(rules(), st.integers(1, 8)), min_size=1, max_size=3))
    found, gangs = [], draw(st.integers(0, 2))
    for number in range(gangs):
        kind, cpu = draw(st.sampled_from(templates))
        size = draw(st.integers(1, 3))
        found += [
            make.pending(f"gang{number}-{member}", gang=f"gang{number}", size=size, cpu=cpu * 500, **kind)
            for member in range(size)
        ]
    for number in range(draw(st.integers(1, most))):
        kind, cpu = draw(st.sampled_from(templates))
        refuses = draw(st.sampled_from(REFUSED))
        found.append(make.pending(f"pod{number}", cpu=cpu * 500, refuses=refuses, **kind))
    return found


@st.composite
def existing_nodes(draw):
    found = []
    for number in range(draw(st.integers(0, 4))):
        there = [
            make.running(draw(st.integers(1, 2)), **{**draw(rules()), "spread": (), "affinity": ()})
            for _ in range(draw(st.integers(0, 2)))
        ]
        found.append(
            make.existing(
                f"n{number}",
                draw(st.sampled_from("abc")),
                labels={SOURCE: draw(st.sampled_from(["cr-1", "on-demand"]))},
                free={"cpu": draw(st.integers(0, 6)) * 1000, "pods": draw(st.integers(0, 4))},
                existing_pods=tuple(there),
                taints=draw(TAINTS),
                group=f"node-{number}",
            )
        )
    return found


@st.composite
def options(draw):
    """Random ones; and mostly one that takes every pod in every zone, so that most pods can be placed."""
    roomy = {"capacity": {"cpu": 8_000, "pods": 8}, "price": 9.0, "rank": (1,), "group": "on-demand"}
    found = [make.option("roomy", zone, labels={SOURCE: "on-demand"}, **roomy) for zone in "abc"]
    if not draw(st.sampled_from([True, True, True, False])):
        found = []
    for number in range(draw(st.integers(0, 5))):
        size, prepaid = draw(st.integers(1, 8)), draw(st.sampled_from([False, False, True]))
        found.append(
            make.option(
                f"type{number}",
                draw(st.sampled_from("abc")),
                labels={SOURCE: "cr-2" if prepaid else "on-demand"},
                capacity={"cpu": size * 1000, "pods": draw(st.integers(1, 6))},
                price=0.0 if prepaid else size * draw(st.sampled_from([0.9, 1.0, 1.3])),
                stock="cr-2" if prepaid else draw(st.sampled_from(["", "few"])),
                budget="pool",
                consumes={"cpu": size * 1000, "nodes": 1},
                taints=draw(TAINTS),
                rank=(0,) if prepaid else (1,),
                group="cr-2" if prepaid else "on-demand",
            )
        )
    return found


@st.composite
def problems(draw, most_asks: int = 12):
    return problem(
        draw(replicas(most_asks)),
        draw(existing_nodes()),
        draw(options()),
        stocks={"cr-2": draw(st.integers(0, 3)), "few": draw(st.integers(0, 3))},
        budgets={"pool": {"cpu": draw(st.sampled_from([10**9, 12_000, 4_000])), "nodes": 10}},
    )
