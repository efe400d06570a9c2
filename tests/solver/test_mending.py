"""Who is left out has no place: nodes nobody uses are given back, and rules count the nodes they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.solver.problems import (
    ZONE,
    ask,
    asks,
    flavour,
    place,
    problem,
    resident,
    spread,
    term,
    where,
    zones_of,
)
from tidemill.bench.checker import check
from tidemill.decide.solver import attempt
from tidemill.decide.solver.strategy import USUAL
from tidemill.world import Taint

TAINTED = (Taint("team", "red"),)


# A gang that no zone can hold is put on a node, found out, and taken off again.
QUARREL = {"labels": {"app": "x"}, "anti_affinity": (term(ZONE, app="x"),), "selector": {"gen": "5"}}
SHARED = [{"stock": "few"}, {"budget": "pool", "consumes": {"nodes": 1}}]


@pytest.mark.parametrize("shared", SHARED, ids=["stock", "limits"])
def test_a_node_that_is_emptied_again_gives_back_what_it_took(shared):
    stated = problem(
        [*asks(2, "member", gang="g", **QUARREL), ask("single", selector={"gen": "3"})],
        flavours=[
            flavour("new", labels={"gen": "5"}, **shared),
            flavour("old", labels={"gen": "3"}, **shared),
        ],
        stocks={"few": 1},
        budgets={"pool": {"nodes": 1}},
    )
    solution = attempt(stated, USUAL)  # other strategies would hide it: they begin with somebody else
    assert check(stated, solution) == []
    assert solution.unplaced.keys() == {0, 1}


def tainted_in_a(honor_taints: bool, count: int, **rest):
    rule = replace(spread(ZONE, {"app": "x"}, 1), honor_taints=honor_taints)
    there = place("red", "a", free={}, taints=TAINTED, residents=(resident(2, labels={"app": "x"}),))
    return problem(
        asks(count, labels={"app": "x"}, spread=(rule,)),
        [there],
        [flavour("m", "a"), flavour("m", "b", stock="b")],
        **rest,
    )


def test_pods_on_a_node_that_a_spread_does_not_count_keep_nobody_out():
    assert where(tainted_in_a(True, 1, stocks={"b": 0})) == ["m@a:0"]
    assert where(tainted_in_a(False, 1, stocks={"b": 0})) == ["-"]


@pytest.mark.parametrize(("honor_taints", "zones"), [(True, "aabb"), (False, "abbb")])
def test_a_spread_is_level_over_the_nodes_it_counts(honor_taints, zones):
    assert zones_of(tainted_in_a(honor_taints, 4, stocks={"b": 9})) == list(zones)
