"""Every pod that waits has one sentence saying why, and a code for machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ago, ahead, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.plan import Launch
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-13")

WAITING = given.pod(gpus=8, expected="2h")

SITUATIONS: dict[str, tuple[list[Any], list[Any], str, list[str]]] = {
    # name: (documents, world, code, words)
    "launching": (
        [given.hourly_pool("p5", "p5.48xlarge")],
        [],
        "launching",
        ["p5.48xlarge on on-demand", "being launched"],
    ),
    "launched in vain, and again in another zone": (
        [given.hourly_pool("p5", "p5.48xlarge")],
        [given.failed_launch(at=ago("20m"), source=Source(SourceKind.ON_DEMAND), zone="us-east-1b")],
        "no-capacity",
        ["the last launch of a p5.48xlarge on on-demand failed", "being tried again"],
    ),
    "launched in vain an hour ago": (
        [given.hourly_pool("p5", "p5.48xlarge")],
        [given.failed_launch(at=ago("1h"), source=Source(SourceKind.ON_DEMAND), zone="us-east-1b")],
        "launching",
        ["being launched"],
    ),
    "launch written": ([], [given.block(), given.launch_intent()], "launching", ["being launched"]),
    "joining": (
        [],
        [given.block(), given.node(phase="launched", launched="1m")],
        "starting",
        ["its node i-1 is joining"],
    ),
    "not Ready": (
        [],
        [given.block(), given.node(phase="joined", joined="1m")],
        "starting",
        ["not Ready yet"],
    ),
    "registering": (
        [],
        [given.block(), given.node(phase="registering", joined="1m")],
        "starting",
        ["60-90 s"],
    ),
    "being checked": (
        [],
        [given.block(), given.node(phase="verifying", joined="2m")],
        "starting",
        ["being checked"],
    ),
    "all taken": (
        [],
        [given.block(), given.node(), given.pod("other", gpus=8, on=given.node(), ends_at=ahead("23h30m"))],
        "no-capacity",
        ["every node pool p5 can have is taken"],
    ),
    "no block yet": ([], [], "no-capacity", ["pool p5 has no active capacity"]),
    "a block to come": (
        [],
        [given.block(starts_in="5h", ends_in="53h")],
        "no-capacity",
        ["no active capacity", "block cr-1 starts 2026-11-16T17:00:00Z"],
    ),
    "too little time": (
        [],
        [given.block(ends_in="2h"), given.node()],
        "held",
        ["it needs 2h1m", "in pool p5 lasts"],
    ),
    "limits reached": (
        [given.hourly_pool("p5", "p5.48xlarge", limits={"gpus": 4})],
        [],
        "limit",
        ["reached its limits (gpus 4)"],
    ),
    "no limits": ([given.hourly_pool("p5", "p5.48xlarge", limits=None)], [], "limit", ["no limits"]),
    "EC2 has none": (
        [given.pool(warm=False)],
        [given.block(free=4), given.failed_launch()],
        "no-capacity",
        ["EC2 had no capacity at the last launch for pool p5", "next try 2026-11-16T12:00:30Z"],
    ),
    "the documents do not allow it": (
        [given.pool(warm=False)],
        [given.block(free=4), given.failed_launch(failure="refused")],
        "no-capacity",
        [
            "the last launch for pool p5 was refused",
            "next try 2026-11-16T12:00:30Z, or when the documents change",
        ],
    ),
    "AWS does not let us": (
        [given.pool(warm=False)],
        [given.block(free=4), given.failed_launch(failure="not-allowed")],
        "no-capacity",
        ["the last launch for pool p5 failed (not-allowed; the log says more)"],
    ),
    "too big": (
        [given.hourly_pool("g6", "g6.xlarge")],
        [],
        "impossible",
        ["8 nvidia.com/gpu", "more than any"],
    ),
    "taint": (
        [given.pool(taints=[{"key": "gpu"}])],
        [given.block()],
        "impossible",
        ["does not tolerate the taint gpu"],
    ),
    "namespace": (
        [given.pool(allowedNamespaces=["x"])],
        [given.block()],
        "impossible",
        ["does not serve namespace ml"],
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_pod_that_waits_is_told_why(situation: str):
    documents, there, code, words = SITUATIONS[situation]
    told = why(decide(spec(*documents), world(there, WAITING)), WAITING)
    assert told.code == code
    for word in words:
        assert word in sentence(told.reason)
    assert told.name == "ml/train-1"
    assert "\n" not in sentence(told.reason)


def test_a_label_that_no_pool_has_is_named():
    picky = given.pod(gpus=8, selector={"team": "moon"})
    told = why(decide(spec(), world(given.block(), given.node(), picky)), picky)
    assert (told.code, sentence(told.reason)) == (
        "impossible",
        "no pool has nodes with the labels it selects (team=moon)",
    )


def test_the_pool_that_came_closest_gives_the_reason():
    documents = spec(
        given.hourly_pool("tiny", "g6.xlarge"), given.hourly_pool("full", "p5.48xlarge", limits={"nodes": 0})
    )
    assert sentence(why(decide(documents, world(WAITING)), WAITING).reason).startswith(
        "pool full has reached its limits"
    )


def test_the_earliest_instant_is_told_where_it_is_known():
    coming = decide(spec(), world(given.block(starts_in="5h", ends_in="53h"), WAITING))
    assert why(coming, WAITING).earliest == ahead("5h7m")
    launching = decide(spec(given.hourly_pool("p5", "p5.48xlarge")), world(WAITING))
    assert why(launching, WAITING).earliest == ahead("7m")


def test_a_pod_that_somebody_else_holds_is_none_of_our_business():
    plan = decide(spec(), world(given.block(free=4), given.pod(gpus=8, held_by_others=True)))
    assert not plan.unmet


def test_a_pod_that_is_going_away_or_bound_does_not_wait():
    here = given.node()
    gone = given.pod("gone", gpus=8, deleting_until=ahead("10s"))
    bound = given.pod("bound", gpus=8, on=here)
    assert not decide(spec(), world(given.block(), here, gone, bound)).unmet


def test_a_gang_with_a_reason_has_it_on_every_member():
    pods = given.gang(size=3, expected="400h")
    plan = decide(spec(), world(given.block(), [given.node(f"i-{place}") for place in range(3)], pods))
    assert {why(plan, one).code for one in pods} == {"held"}


def test_a_pod_of_a_closed_batch_is_told_that_a_node_comes():
    fresh = given.pod(gpus=8, created_at=ago("0s"))
    plan = decide(spec(given.hourly_pool("p5", "p5.48xlarge")), world(fresh))
    assert not of(plan, Launch)
    assert why(plan, fresh).code == "launching"


def test_the_reason_does_not_change_before_the_plan_said_that_it_could():
    waits = given.pod("waits", gpus=8, expected="1h")
    there = given.node()
    at = world(
        given.block(ends_in="4h", count=1), there, given.pod("busy", gpus=8, on=there, expected="8h"), waits
    )
    documents = spec(given.pool())
    first = decide(documents, at)
    assert "taken" in sentence(why(first, waits).reason)
    changed = next(
        minute
        for minute in range(240)
        if why(decide(documents, replace(at, now=ahead(f"{minute}m"))), waits).reason
        != why(first, waits).reason
    )
    assert first.wake_at is not None
    assert first.wake_at <= ahead(f"{changed}m")


@pytest.mark.parametrize("later", ["1m", "1h"])
def test_a_plan_that_sleeps_is_the_same_plan_until_it_wakes(later: str):
    """Neither a block that is still to come nor money that nobody spends moves the instant to wake at."""
    mixed = spec(
        given.pool(
            sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 1, "maxMonthlyUsd": 90000}]
        ),
        budget={"monthlyUsd": 90000},
    )
    coming = given.block("cr-2", starts_in="20h", ends_in="90h")
    at = world(coming, given.pod("waits", gpus=8, expected="2h", overflow=True))
    first = decide(mixed, at)
    assert not first.actions
    assert decide(mixed, replace(at, now=ahead(later))) == first
