"""Who is left out has no place: nodes nobody uses are given back, and rules count the nodes they are about."""

from __future__ import annotations

from cProfile import Profile
from dataclasses import replace

import pytest

from tests.checker.check import check
from tests.packer.problems import (
    HOST,
    ZONE,
    existing,
    option,
    pending,
    problem,
    replicas,
    running,
    sound,
    spread,
    term,
    where,
    zones_of,
)
from tidemill.decide.packer import attempt, solve
from tidemill.decide.packer.placement_order import USUAL
from tidemill.model.labels import Taint

TAINTED = (Taint("team", "red"),)


# A gang that no zone can hold is put on a node, found out, and taken off again.
QUARREL = {"labels": {"app": "x"}, "anti_affinity": (term(ZONE, app="x"),), "selector": {"gen": "5"}}
SHARED = [{"stock": "few"}, {"budget": "pool", "consumes": {"nodes": 1}}]


@pytest.mark.parametrize("shared", SHARED, ids=["stock", "limits"])
def test_a_node_that_is_emptied_again_gives_back_what_it_took(shared):
    stated = problem(
        [*replicas(2, "member", gang="g", **QUARREL), pending("single", selector={"gen": "3"})],
        options=[
            option("new", labels={"gen": "5"}, **shared),
            option("old", labels={"gen": "3"}, **shared),
        ],
        stocks={"few": 1},
        budgets={"pool": {"nodes": 1}},
    )
    solution = attempt(stated, USUAL)  # other strategies would hide it: they begin with somebody else
    assert check(stated, solution) == []
    assert solution.unplaced.keys() == {0, 1}


def tainted_in_a(honor_taints: bool, count: int, **rest):
    rule = replace(spread(ZONE, {"app": "x"}, 1), honor_taints=honor_taints)
    there = existing("red", "a", free={}, taints=TAINTED, existing_pods=(running(2, labels={"app": "x"}),))
    return problem(
        replicas(count, labels={"app": "x"}, spread=(rule,)),
        [there],
        [option("m", "a"), option("m", "b", stock="b")],
        **rest,
    )


def test_pods_on_a_node_that_a_spread_does_not_count_keep_nobody_out():
    assert where(tainted_in_a(True, 1, stocks={"b": 0})) == ["m@a:0"]
    assert where(tainted_in_a(False, 1, stocks={"b": 0})) == ["-"]


@pytest.mark.parametrize(("honor_taints", "zones"), [(True, "aabb"), (False, "abbb")])
def test_a_spread_is_level_over_the_nodes_it_counts(honor_taints, zones):
    assert zones_of(tainted_in_a(honor_taints, 4, stocks={"b": 9})) == list(zones)


# --- somebody makes way -----------------------------------------------------------------------------------


def test_a_pod_that_has_a_choice_makes_way_for_one_that_has_none():
    """Where nobody is tried again (a large batch), too: the small pod goes second and fits one node only."""
    stated = problem(
        [*replicas(2, "anywhere", cpu=2000), pending("here", cpu=1000, selector={ZONE: "a"})],
        [
            existing("n0", "a", free={"cpu": 2000, "pods": 9}),
            existing("n1", "b", free={"cpu": 3000, "pods": 9}),
        ],
        [option("m", "b", cpu=2000)],
    )
    solution = attempt(stated, USUAL)
    assert check(stated, solution) == []
    assert not solution.unplaced
    assert 2 in solution.existing[0]


def test_who_has_no_other_place_comes_first_another_time():
    """Pods called z may stand in either zone, and keep x out of the one they are in: the only one x could use."""
    picky = pending("x", labels={"app": "x"}, anti_affinity=(term(ZONE, app="z"),), selector={ZONE: "a"})
    stated = problem(
        [picky, *replicas(3, "z", labels={"app": "z"})],
        [existing("n0", "a", free={"cpu": 5000, "pods": 9})],
        [option("m", "b")],
    )
    assert where(stated) == ["n0", "m@b:0", "m@b:0", "m@b:0"]


# --- many without a place ---------------------------------------------------------------------------------


def half_have_a_place(pods: int):
    """Pods of many sizes, some spread, some apart; nodes for half of them, and hardly any in one of the zones."""
    waiting = [
        *(pending(f"p{n}", cpu=100 + 7 * (n % 97), labels={"app": "p"}) for n in range(pods // 2)),
        *replicas(pods // 4, "s", cpu=1200, labels={"app": "s"}, spread=(spread(ZONE, {"app": "s"}, 1),)),
        *replicas(pods // 4, "a", cpu=400, labels={"app": "a"}, anti_affinity=(term(HOST, app="a"),)),
    ]
    kinds = [option("m", zone, stock=zone) for zone in "abc"]
    return problem(waiting, options=kinds, stocks={"a": pods // 40, "b": pods // 40, "c": 1})


def calls(stated) -> int:
    """What a solution takes, counted and not timed."""
    profile = Profile()
    profile.runcall(solve, stated)
    return sum(entry.callcount for entry in profile.getstats())


def test_thousands_without_a_place_cost_in_proportion():
    small, large = half_have_a_place(1000), half_have_a_place(4000)
    assert len(sound(large).unplaced) > 1000
    assert calls(large) < 6 * calls(small)
