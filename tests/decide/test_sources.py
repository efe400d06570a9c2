"""Where a node comes from: blocks, reservations, spot and on-demand in order, back-off, and back again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ON_DEMAND, SPOT, ago, ahead, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.plan import Launch, Plan, SettleLaunch
from tidemill.model.purchases import LaunchState
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-14")

CAPS = {"maxHourlyUsd": 10_000, "maxMonthlyUsd": 1_000_000}
FOUR = given.pool(
    sources=[{"type": "block"}, {"type": "odcr"}, {"type": "spot", **CAPS}, {"type": "on-demand", **CAPS}],
    warm=False,
)
BUDGET = {"monthlyUsd": 1_000_000}
ODCR = Source(SourceKind.ODCR, "cr-o")


def sources(plan: Plan) -> list[str]:
    return [launch.intent.source.label for launch in of(plan, Launch)]


def four(*things: Any, **fields: Any) -> Plan:
    return decide(spec(FOUR, budget=BUDGET), world(given.pod(gpus=8, overflow=True), *things, **fields))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([given.block(free=1), given.block("cr-o", kind="odcr", ends_in=None, free=1)], "cr-1"),
        ([given.block(free=0), given.block("cr-o", kind="odcr", ends_in=None, free=1)], "cr-o"),
        ([given.block(free=0), given.block("cr-o", kind="odcr", ends_in=None, free=0)], "spot"),
        ([], "spot"),
    ],
)
def test_sources_are_asked_in_the_order_the_pool_gives(there: list, expected: str):
    assert sources(four(there)) == [expected]


def test_a_pool_may_put_on_demand_first():
    swapped = given.pool(sources=[{"type": "on-demand", **CAPS}, {"type": "block"}], warm=False)
    waiting = given.pod(gpus=8, overflow=True)
    plan = decide(spec(swapped, budget=BUDGET), world(given.block(free=4), waiting))
    assert sources(plan) == ["on-demand"]


def test_no_capacity_leads_to_the_next_source_and_then_back():
    tried = [
        given.failed_launch("ti-a", source=SPOT),
        given.failed_launch("ti-b", source=SPOT, zone="us-west-2b"),
    ]
    assert sources(four(tried)) == ["on-demand"]
    assert sources(four(tried, now=ahead("29s"))) == ["on-demand"]
    assert sources(four(tried, now=ahead("30s"))) == ["spot"]


def test_no_capacity_in_one_zone_leads_to_the_other_zone_first():
    plan = four(given.failed_launch(source=SPOT))
    assert [(launch.intent.source.label, launch.intent.zone) for launch in of(plan, Launch)] == [
        ("spot", "us-west-2b")
    ]


@pytest.mark.parametrize(
    ("failures", "rest"), [(1, "30s"), (2, "1m"), (3, "2m"), (4, "4m"), (5, "8m"), (6, "10m"), (20, "10m")]
)
def test_a_source_that_keeps_failing_rests_longer_each_time(failures: int, rest: str):
    times = [NOW - timedelta(seconds=place) for place in range(failures)]
    tried = [given.failed_launch(f"ti-{place}", at=at) for place, at in enumerate(times)]
    waiting = given.pod(gpus=8)
    documents = spec(given.pool(warm=False))
    plan = decide(documents, world(given.block(free=4), tried, waiting))
    assert not of(plan, Launch)
    told = why(plan, waiting)
    assert (told.code, told.earliest, plan.wake_at) == ("no-capacity", ahead(rest), ahead(rest))
    assert sources(decide(documents, world(given.block(free=4), tried, waiting, now=ahead(rest)))) == ["cr-1"]


def test_old_failures_are_forgiven():
    old = [given.failed_launch(f"ti-{place}", at=ago("45m")) for place in range(6)]
    fresh = given.failed_launch("ti-now")
    plan = decide(spec(given.pool(warm=False)), world(given.block(free=4), old, fresh, given.pod(gpus=8)))
    assert plan.wake_at == ahead("30s")


def test_a_failure_on_one_type_does_not_rest_another():
    failed = given.failed_launch(pool="g6", source=ON_DEMAND, instance_type="g6.xlarge")
    other_zone = given.failed_launch(
        "ti-b", pool="g6", source=ON_DEMAND, instance_type="g6.xlarge", zone="us-west-2b"
    )
    plan = decide(spec(given.hourly_pool()), world(failed, other_zone, given.pod(gpus=1)))
    assert [launch.intent.instance_type for launch in of(plan, Launch)] == ["g6.2xlarge"]


@pytest.mark.requirement("PE-23", "CB-17")
def test_a_reservation_that_is_not_ours_is_never_used():
    plan = decide(spec(), world(given.block(free=4, owner="somebody"), given.pod(gpus=8)))
    assert not of(plan, Launch)
    pinned = spec(given.pool(sources=[{"type": "block", "ids": ["cr-1"]}]))
    assert not of(decide(pinned, world(given.block(free=4, owner=""), given.pod(gpus=8))), Launch)


def test_a_source_can_be_kept_to_a_zone():
    only_b = given.hourly_pool("g6", "g6.xlarge", sources=[{"type": "on-demand", "zones": ["us-west-2b"]}])
    (launch,) = of(decide(spec(only_b), world(given.pod(gpus=1))), Launch)
    assert launch.intent.zone == "us-west-2b"


def test_hourly_and_block_pools_work_side_by_side():
    documents = spec(given.pool(), given.hourly_pool("g6", "g6.xlarge"))
    plan = decide(
        documents, world(given.block(free=4), given.pod("big", gpus=8), given.pod("small", gpus=1, cpu="1"))
    )
    assert ("p5", "cr-1") in [(one.intent.pool, one.intent.source.label) for one in of(plan, Launch)]
    assert sources(decide(documents, world(given.pod("small", gpus=1)))) == ["on-demand"]


def test_a_type_whose_price_is_not_known_is_never_launched_by_the_hour():
    waiting = given.pod(gpus=8)
    plan = decide(spec(given.hourly_pool("p5e", "p5e.48xlarge")), world(waiting))
    assert not of(plan, Launch)
    assert why(plan, waiting)


def test_the_job_goes_to_the_free_slots_of_the_block_that_ends_first_among_those_that_last():
    documents = spec(given.pool(warm=False))
    blocks = [given.block("cr-long", ends_in="100h", free=2), given.block("cr-mid", ends_in="30h", free=2)]
    assert sources(decide(documents, world(blocks, given.pod(gpus=8, expected="20h")))) == ["cr-mid"]
    assert sources(decide(documents, world(blocks, given.pod(gpus=8, expected="40h")))) == ["cr-long"]


# --- launches that were written down -------------------------------------------------------------------


def settled(plan: Plan) -> list[str]:
    return [action.intent_id for action in of(plan, SettleLaunch)]


@pytest.mark.requirement("PE-5")
def test_a_launch_whose_answer_was_lost_is_repeated_with_the_same_id():
    lost = given.launch_intent(written_at=ago("30s"))
    (again,) = of(decide(spec(), world(given.block(), lost)), Launch)
    assert again.intent is lost
    fresh = given.launch_intent(written_at=ago("29s"))
    plan = decide(spec(), world(given.block(), fresh))
    assert not of(plan, Launch)
    assert plan.wake_at == ahead("1s")


@pytest.mark.requirement("PE-5")
def test_a_repeat_waits_for_its_own_answer():
    repeated = given.launch_intent(written_at=ago("5m"), state_at=ago("10s"))
    assert not of(decide(spec(), world(given.block(), repeated)), Launch)


def test_a_launch_is_settled_once_all_it_made_is_seen():
    called = given.launch_intent(state=LaunchState.LAUNCHED, count=2, instance_ids=("i-1", "i-2"))
    assert settled(decide(spec(), world(given.block(), called, given.node("i-1")))) == []
    assert settled(decide(spec(), world(given.block(), called, given.node("i-1"), given.node("i-2")))) == [
        "ti-1"
    ]


def test_what_was_asked_of_a_group_counts_until_it_is_seen_and_is_not_asked_again():
    asked = given.launch_intent(state=LaunchState.ASKED, count=2, written_at=ago("9m"))
    there = given.node("i-1", "launched", intent_id="ti-1", launched="1m")
    two = [given.pod("a", gpus=8), given.pod("b", gpus=8)]
    plan = decide(spec(FOUR), world(given.block(free=3), asked, there, *two))
    assert (settled(plan), of(plan, Launch)) == ([], [])
    both = given.node("i-2", "launched", intent_id="ti-1", launched="1m")
    assert settled(decide(spec(FOUR), world(given.block(free=2), asked, there, both, *two))) == ["ti-1"]


def test_a_group_that_made_nothing_in_time_is_a_source_that_failed():
    asked = given.launch_intent(state=LaunchState.ASKED, written_at=ago("10m"))
    (given_up,) = of(decide(spec(), world(given.block(), asked)), SettleLaunch)
    assert given_up.failure == "no-capacity"
    partly = given.launch_intent(state=LaunchState.ASKED, count=2, written_at=ago("10m"))
    there = given.node("i-1", "launched", intent_id="ti-1", launched="1m")
    (given_up,) = of(decide(spec(), world(given.block(), partly, there)), SettleLaunch)
    assert given_up.failure == ""


def test_a_launch_that_shows_nothing_is_given_up_after_ten_minutes():
    for state in (LaunchState.WRITTEN, LaunchState.LAUNCHED):
        old = given.launch_intent(
            state=state, instance_ids=("i-9",), written_at=ago("10m"), state_at=ago("10m")
        )
        assert settled(decide(spec(), world(given.block(), old))) == ["ti-1"]


@pytest.mark.parametrize("away", ["cloud_ok", "ledger_ok"])
def test_nothing_is_launched_while_aws_or_the_ledger_cannot_be_reached(away: str):
    lost = given.launch_intent(written_at=ago("1m"))
    waiting = given.pod(gpus=8, overflow=True)
    plan = decide(spec(FOUR, budget=BUDGET), world(given.block(free=4), lost, waiting, **{away: False}))
    assert not of(plan, Launch)
    alone = decide(spec(FOUR, budget=BUDGET), world(waiting, **{away: False}))
    assert (
        sentence(why(alone, waiting).reason) == "AWS or the ledger cannot be reached, so nothing is launched"
    )
