"""The outcome of a rehearsal: reasons, purchases, kills, downtime and idle money."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import BLOCK_END, PreparedScenario, actions_done, after, scenario_with
from tidemill.catalog import load
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.offers import OfferQuery
from tidemill.model.plan import Plan, StartDrain, Unmet, UnmetCode
from tidemill.model.reasons import DrainKind, HoldKind, HoldReason
from tidemill.model.world import World
from tidemill.sim.scenario.costs import on_demand_equivalent
from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.reason_history import ReasonHistory
from tidemill.sim.scenario.tally import tally
from tidemill.spec.units import parse_duration

NOW = datetime(2026, 11, 17, 8, 0, tzinfo=UTC)
DAY_BEFORE = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
ON_DEMAND = given.pool(sources=[{"type": "on-demand"}], disruption={"consolidateAfter": "10h"})


def outcome(rehearsal: PreparedScenario) -> Outcome:
    return tally(rehearsal.run(), scenario="test", wall_s=0.0)


# --- why it waited ------------------------------------------------------------------------------------


def test_a_held_job_is_reported_with_what_held_it_while_there_was_capacity() -> None:
    """Hours after the block's end it waits for capacity like everybody else: that is not why it never ran."""
    long = given.job(lasts="20h", at=("5m",))
    row = outcome(scenario_with(reservations=[given.block()], jobs=[long], duration="9h")).jobs[0]
    assert row.state == "held"
    assert "lasts that long" in row.reason


def test_a_job_that_came_when_there_was_no_capacity_waits_for_capacity() -> None:
    row = outcome(
        scenario_with(reservations=[given.block()], jobs=[given.job(at=("5h",))], duration="9h")
    ).jobs[0]
    assert (row.state, row.reason) == ("held", "pool train has no active capacity")


TOO_LONG = HoldReason(HoldKind.NOTHING_LASTS, "train", need=timedelta(hours=9))
TAKEN = HoldReason(HoldKind.NODES_TAKEN, "train")
NOTHING = HoldReason(HoldKind.NO_ACTIVE_CAPACITY, "train")


def next_try(after: str) -> HoldReason:
    return HoldReason(HoldKind.NO_EC2_CAPACITY, "train", at=NOW + parse_duration(after))


def heard(*said: tuple[float, HoldReason | None, UnmetCode, bool]) -> ReasonHistory:
    """(hours from the start, reason, code, whether a block is active) of one pod, tick after tick."""
    active = Reservation(
        "cr-1", SourceKind.BLOCK, "p5.48xlarge", "us-east-1a", 1, 0, ReservationState.ACTIVE, NOW, None
    )
    reasons = ReasonHistory()
    for hours, reason, code, stands in said:
        unmet = (Unmet("uid", "ns/pod", code, reason),) if reason is not None else ()
        world = World(NOW + timedelta(hours=hours), reservations=(active,) if stands else ())
        reasons.record(world, Plan(unmet=unmet))
    return reasons


def longest(reasons: ReasonHistory, hours: float) -> HoldReason | None:
    found = reasons.held_longest(["uid"], NOW + timedelta(hours=hours))
    return found.reason if found is not None else None


def test_the_reason_that_held_longest_wins_however_often_it_was_interrupted() -> None:
    reasons = heard((0, TOO_LONG, "held", True), (2, TAKEN, "no-capacity", True), (5, TOO_LONG, "held", True))
    assert longest(reasons, 5.5) == TAKEN
    assert longest(reasons, 7) == TOO_LONG


def test_reasons_that_differ_only_in_figures_are_one_reason_with_the_last_figures() -> None:
    reasons = heard(
        (0, next_try("3m"), "no-capacity", True),
        (1.2, next_try("2m"), "no-capacity", True),
        (2.4, HoldReason(HoldKind.LIMITS_REACHED, "train"), "limit", True),
    )
    assert longest(reasons, 4) == next_try("2m")


def test_a_pod_that_waits_for_a_starting_node_is_not_held() -> None:
    reasons = heard(
        (0, HoldReason(HoldKind.NODE_JOINS, name="i-1"), "starting", True), (9, TAKEN, "no-capacity", True)
    )
    assert longest(reasons, 10) == TAKEN


def test_a_reason_given_just_before_the_end_does_not_count_for_the_days_after_it() -> None:
    reasons = heard((0, TOO_LONG, "held", True), (0.1, NOTHING, "no-capacity", False))
    assert longest(reasons, 30) == NOTHING


def test_a_pod_that_waits_no_longer_has_no_open_reason() -> None:
    reasons = heard((0, TAKEN, "no-capacity", True), (1, None, "held", True))
    assert reasons.waiting_now(["uid"]) == []
    assert reasons.reason("uid") == TAKEN


def test_the_replicas_of_a_service_do_not_add_up_to_a_longer_wait() -> None:
    """Two of them held half an hour each were not held for an hour."""
    rehearsal = scenario_with(reservations=[given.block()], services=[given.service()], duration="9h").run()
    (row,) = tally(rehearsal, scenario="test", wall_s=0.0).services
    assert row.waiting == 2
    assert row.reason == "pool train has no active capacity"


def test_the_journal_says_one_gpu_in_the_singular() -> None:
    told = outcome(
        scenario_with(
            reservations=[given.block()], jobs=[given.job(gpus=1), given.job("large")], duration="1h"
        )
    )
    submitted = [line[3] for line in told.journal if line[1] == "job-submitted"]
    assert [", 1 GPU, " in line for line in submitted] == [True, False]
    assert ", 8 GPUs, " in submitted[1]


# --- purchases ----------------------------------------------------------------------------------------


def buying(**platform_spec: Any) -> Outcome:
    return outcome(
        scenario_with(
            on=given.platform(**platform_spec),
            plans=[given.plan()],
            start=DAY_BEFORE,
            duration="6h",
            decisions=[{"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}],
        )
    )


@pytest.mark.requirement("CB-4")
def test_a_purchase_that_did_not_happen_is_a_row_with_the_reason() -> None:
    told = buying(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000})
    row = told.purchases[0]
    assert (row.window, row.plan, row.state, row.fee_usd, row.reservations) == (
        "sprint", "november", "proposed", 0, (),
    )  # fmt: skip
    assert row.max_fee_usd > 0
    assert "only proposes" in row.note
    assert [(warning.about, warning.sentence) for warning in told.warnings] == [
        ("november/sprint", "the platform only proposes: to buy, set approval.mode to one, two or auto")
    ]
    assert told.warnings[0].first < told.warnings[0].last
    assert told.as_json()["purchases"][0]["note"] == row.note
    assert told.as_json()["warnings"][0]["about"] == "november/sprint"


def test_nothing_is_proposed_where_the_policy_forbids_buying() -> None:
    told = buying(budget={"perPurchaseUsd": 100, "monthlyUsd": 20000}, approval={"mode": "one"})
    assert not told.purchases
    assert told.cost_usd["blocks"] == 0


def test_a_purchase_that_was_made_names_its_block_and_fee() -> None:
    told = buying(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"})
    (row,) = told.purchases
    assert (row.state, row.note) == ("confirmed", "")
    assert row.reservations == (told.blocks[0].id,)
    assert row.fee_usd == told.blocks[0].fee_usd > 0


def test_an_extension_asked_for_too_late_is_in_the_journal_with_the_rule_that_forbids_it() -> None:
    late = {"at": "3h25m", "block": "a", "by": "1d", "settlesAfter": "30m"}
    told = outcome(scenario_with(reservations=[given.block()], extensions=[late]))
    (line,) = [line for line in told.journal if line[1] == "extension-refused"]
    assert line[2] == "a"
    assert line[3].startswith("the extension by 1d was refused: ")
    assert "1 hour before its end" in line[3]


# --- pods that died with their node -------------------------------------------------------------------


def test_pods_that_died_without_their_grace_are_rows_and_counted() -> None:
    absent = given.fault("2h", "engine-absent", duration="2h")
    endless = given.job(lasts="9h", expected="30m", grace="5m")
    told = outcome(scenario_with(reservations=[given.block()], jobs=[endless], faults=[absent]))
    (row,) = told.kills
    assert (row.at, row.grace_s, row.grace_had_s) == (after("3h30m"), 300, 0)
    assert row.pod.startswith("training/fit-1")
    assert told.as_json()["jobs"]["killed"] == told.as_json()["jobs"]["killed_without_grace"] == 1


# --- downtime -----------------------------------------------------------------------------------------


def test_a_service_that_never_reaches_its_minimum_is_down_from_half_an_hour_after_its_start() -> None:
    large = given.service(replicas=5, minAvailable=4)
    (row,) = outcome(scenario_with(reservations=[given.block()], services=[large], duration="3h")).services
    assert row.downtime_s == timedelta(hours=2, minutes=30).total_seconds()
    assert row.down == ((after("30m"), after("3h")),)
    assert row.waiting == 3
    assert row.reason


def test_a_service_that_is_slow_to_come_up_within_half_an_hour_was_not_down() -> None:
    (row,) = outcome(
        scenario_with(reservations=[given.block()], services=[given.service()], duration="3h")
    ).services
    assert (row.downtime_s, row.down, row.waiting, row.reason) == (0, (), 0, "")


# --- idle money ---------------------------------------------------------------------------------------


def test_hours_of_a_block_that_lie_ahead_are_not_idle() -> None:
    told = outcome(scenario_with(reservations=[given.block()], duration="1h"))
    fee = told.blocks[0].fee_usd
    assert told.cost_usd["idle"] == pytest.approx(fee / 4, rel=0.03)
    assert told.cost_usd["total"] == fee


def test_a_block_that_delivered_nothing_was_idle_for_all_its_time() -> None:
    told = outcome(scenario_with(reservations=[given.block(delivered=0)]))
    assert told.cost_usd["idle"] == pytest.approx(told.blocks[0].fee_usd, rel=0.03)
    assert told.cost_usd["idle"] > 0


def test_hourly_capacity_that_runs_no_work_is_idle() -> None:
    told = outcome(scenario_with(ON_DEMAND, jobs=[given.job(lasts="1h")], duration="4h"))
    spent, hours = told.cost_usd["on_demand"], told.gpu_hours
    assert spent > 0
    assert told.cost_usd["idle"] == pytest.approx(spent * (1 - hours["used"] / hours["paid"]), rel=0.02)
    assert told.cost_usd["idle"] > spent / 2


def test_a_reservation_by_the_hour_is_idle_where_no_pod_has_its_accelerators() -> None:
    held = {"name": "r", "type": "odcr", "instanceType": "p5.48xlarge", "count": 2, "zone": "us-east-1a"}
    half = given.job(lasts="3h50m")
    on_odcr = given.pool(sources=[{"type": "odcr"}])
    told = outcome(scenario_with(on_odcr, reservations=[held], jobs=[half], duration="4h"))
    assert told.cost_usd["idle"] == pytest.approx(told.cost_usd["on_demand"] / 2, rel=0.1)


# --- the price on demand ------------------------------------------------------------------------------


@pytest.mark.requirement("PE-16")
def test_a_blocks_hours_are_priced_on_demand_those_delivered_and_those_used() -> None:
    told = outcome(scenario_with(reservations=[given.block()], jobs=[given.job(lasts="1h")], duration="2h"))
    (row,) = told.blocks
    price = load().types["p5.48xlarge"].on_demand_usd_h
    assert price is not None
    assert row.delivered_on_demand_usd == pytest.approx(2 * 2 * price)  # two instances, two of four hours
    assert row.used_on_demand_usd == pytest.approx(row.gpu_hours_used / 8 * price, abs=0.01)
    assert row.used_on_demand_usd is not None
    assert row.delivered_on_demand_usd is not None
    assert 0 < row.used_on_demand_usd < row.delivered_on_demand_usd
    same = told.on_demand_equivalent
    assert (same.delivered_usd, same.used_usd) == (row.delivered_on_demand_usd, row.used_on_demand_usd)
    assert same.fees_usd == pytest.approx(row.fee_usd / 2, rel=0.03)


@pytest.mark.requirement("PE-16")
def test_a_block_of_a_type_without_a_price_is_left_out_and_named() -> None:
    p5e = given.pool(requirements={"instanceTypes": ["p5e.48xlarge"]})
    same = outcome(
        scenario_with(p5e, reservations=[given.block(instanceType="p5e.48xlarge")])
    ).on_demand_equivalent
    assert (same.delivered_usd, same.fees_usd, same.unpriced) == (0.0, 0.0, ("p5e.48xlarge",))


@pytest.mark.requirement("PE-16")
def test_a_block_that_was_never_paid_is_in_no_sum_on_demand() -> None:
    (row,) = outcome(scenario_with(reservations=[given.block()])).blocks
    unpaid = replace(row, state="payment-failed", fee_usd=9_999)
    start, end = row.start, row.end
    assert on_demand_equivalent((row, unpaid), start, end) == on_demand_equivalent((row,), start, end)


def test_without_subnets_the_simulated_zone_lies_in_the_platforms_region() -> None:
    rehearsal = scenario_with(on=given.platform(region="eu-west-1", subnets={})).prepare()
    query = OfferQuery("p5.48xlarge", 1, timedelta(days=1), after("0s"), after("0s") + timedelta(days=14))
    offers = rehearsal.cloud.search_offers(query)
    assert {offer.zone for offer in offers} == {"eu-west-1a"}


def test_a_block_drains_from_when_its_end_is_drained_for_and_not_from_a_node_that_was_replaced() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()],
        jobs=[given.job(lasts="9h", checkpointEvery="20m")],
        faults=[given.fault("1h", "gpu-fails")],
    ).run()
    (row,) = tally(rehearsal, scenario="test", wall_s=1.0).blocks
    assert any(
        one.reason.kind is DrainKind.NODE_CHECK_FAILED for _, one in actions_done(rehearsal, StartDrain)
    )
    assert row.drain_from is not None
    assert row.drain_from >= BLOCK_END - timedelta(hours=1)
