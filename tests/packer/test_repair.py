"""Repair: nodes without pods are closed, rules are checked exactly, pods with a choice make room for others."""

from __future__ import annotations

from cProfile import Profile
from dataclasses import replace

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, problem, sound, where, zones_of
from tidemill.bench.checker.check import check
from tidemill.decide.packer import attempt, solve
from tidemill.decide.packer.placement_order import USUAL
from tidemill.model.labels import Taint

TAINTED = (Taint("team", "red"),)


# A gang whose members exclude each other: it is placed, its rules do not hold, and it is removed again.
EXCLUSIVE = {"labels": {"app": "x"}, "anti_affinity": (make.term(ZONE, app="x"),), "selector": {"gen": "5"}}
SHARED = [{"stock": "few"}, {"budget": "pool", "consumes": {"nodes": 1}}]


@pytest.mark.parametrize("shared", SHARED, ids=["stock", "limits"])
def test_a_node_that_is_closed_gives_back_stock_and_limits(shared):
    stated = problem(
        [*make.replicas(2, "member", gang="g", **EXCLUSIVE), make.pending("single", selector={"gen": "3"})],
        options=[
            make.option("new", labels={"gen": "5"}, **shared),
            make.option("old", labels={"gen": "3"}, **shared),
        ],
        stocks={"few": 1},
        budgets={"pool": {"nodes": 1}},
    )
    solution = attempt(stated, USUAL)  # other strategies would hide it: they place other pods first
    assert check(stated, solution) == []
    assert solution.unplaced.keys() == {0, 1}


def tainted_in_a(honor_taints: bool, count: int, **rest):
    rule = replace(make.spread(ZONE, {"app": "x"}, 1), honor_taints=honor_taints)
    there = make.existing(
        "red", "a", free={}, taints=TAINTED, existing_pods=(make.running(2, labels={"app": "x"}),)
    )
    return problem(
        make.replicas(count, labels={"app": "x"}, spread=(rule,)),
        [there],
        [make.option("m", "a"), make.option("m", "b", stock="b")],
        **rest,
    )


def test_pods_on_a_node_that_a_spread_does_not_count_keep_no_pod_out():
    assert where(tainted_in_a(True, 1, stocks={"b": 0})) == ["m@a:0"]
    assert where(tainted_in_a(False, 1, stocks={"b": 0})) == ["-"]


@pytest.mark.parametrize(("honor_taints", "zones"), [(True, "aabb"), (False, "abbb")])
def test_a_spread_is_even_over_the_nodes_it_counts(honor_taints, zones):
    assert zones_of(tainted_in_a(honor_taints, 4, stocks={"b": 9})) == list(zones)


# --- ejection ---------------------------------------------------------------------------------------------


def test_a_pod_with_another_choice_is_ejected_for_one_without():
    """In a single attempt, as for a large batch: the small pod goes second and fits one node only."""
    stated = problem(
        [*make.replicas(2, "anywhere", cpu=2000), make.pending("here", cpu=1000, selector={ZONE: "a"})],
        [
            make.existing("n0", "a", free={"cpu": 2000, "pods": 9}),
            make.existing("n1", "b", free={"cpu": 3000, "pods": 9}),
        ],
        [make.option("m", "b", cpu=2000)],
    )
    solution = attempt(stated, USUAL)
    assert check(stated, solution) == []
    assert not solution.unplaced
    assert 2 in solution.existing[0]


def test_an_unplaced_pod_goes_first_in_another_attempt():
    """Pods z may use either zone and keep x out of the zone they are in: the only one that x may use."""
    selective = make.pending(
        "x", labels={"app": "x"}, anti_affinity=(make.term(ZONE, app="z"),), selector={ZONE: "a"}
    )
    stated = problem(
        [selective, *make.replicas(3, "z", labels={"app": "z"})],
        [make.existing("n0", "a", free={"cpu": 5000, "pods": 9})],
        [make.option("m", "b")],
    )
    assert where(stated) == ["n0", "m@b:0", "m@b:0", "m@b:0"]


# --- many unplaced pods -----------------------------------------------------------------------------------


def half_can_be_placed(pods: int):
    """Pods of many sizes, some with spread, some with anti-affinity; nodes for half of them, few in one zone."""
    waiting = [
        *(make.pending(f"p{n}", cpu=100 + 7 * (n % 97), labels={"app": "p"}) for n in range(pods // 2)),
        *make.replicas(
            pods // 4, "s", cpu=1200, labels={"app": "s"}, spread=(make.spread(ZONE, {"app": "s"}, 1),)
        ),
        *make.replicas(
            pods // 4, "a", cpu=400, labels={"app": "a"}, anti_affinity=(make.term(HOST, app="a"),)
        ),
    ]
    kinds = [make.option("m", zone, stock=zone) for zone in "abc"]
    return problem(waiting, options=kinds, stocks={"a": pods // 40, "b": pods // 40, "c": 1})


def calls(stated) -> int:
    """The work of a solution, counted and not timed."""
    profile = Profile()
    profile.runcall(solve, stated)
    return sum(entry.callcount for entry in profile.getstats())


def test_the_cost_of_thousands_of_unplaced_pods_grows_in_proportion():
    small, large = half_can_be_placed(1000), half_can_be_placed(4000)
    assert len(sound(large).unplaced) > 1000
    assert calls(large) < 6 * calls(small)
