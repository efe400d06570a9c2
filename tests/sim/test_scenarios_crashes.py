"""The engine crashes, is absent, throttled or gets stale reads at any step: nothing is lost or done twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, scenario_with
from tidemill.model.capacity import ReservationState
from tidemill.model.plan import SubmitPurchase
from tidemill.model.purchases import PurchaseState
from tidemill.sim.invariants import still_unknown
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.script import CRASH_STEPS

BUYER = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"})
APPROVAL = {"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}
PURCHASE_STEPS = [step for step in CRASH_STEPS if step.endswith(("purchase", "advance"))]
LAUNCH_STEPS = [step for step in CRASH_STEPS if step.endswith("launch")]


def buying(*faults: dict[str, Any], duration: str = "6h") -> Rehearsal:
    return scenario_with(
        on=BUYER, plans=[given.plan()], decisions=[APPROVAL], faults=list(faults), duration=duration
    ).run()


def working(*faults: dict[str, Any]) -> Rehearsal:
    """A service, a job and a gang on two blocks, one of which ends within the scenario."""
    return scenario_with(
        given.pool(
            sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": 900}]
        ),
        on=given.platform(budget={"monthlyUsd": 1000}),
        reservations=[
            given.block("a", count=3),
            given.block("b", count=4, zone="us-east-1b", **{"from": "30m"}, duration="28h"),
        ],
        services=[given.service()],
        jobs=[
            given.job(at=("1m",), lasts="40m"),
            given.job("pair", at=("20m",), nodes=2, lasts="2h", checkpointEvery="15m"),
            given.job("urgent", at=("25m",), lasts="20m", overflow=True),
        ],
        faults=list(faults),
        duration="8h",
    ).run()


def assert_all_work_is_done(rehearsal: Rehearsal) -> None:
    states = {name: one.state for name, one in rehearsal.cluster.jobs.items()}
    assert set(states.values()) == {"finished"}, states
    assert rehearsal.cluster.services["chat"].ready == 2
    assert not rehearsal.ledger.launches()  # every launch is settled


def assert_bought_once(rehearsal: Rehearsal) -> None:
    (bought,) = rehearsal.cloud.purchases
    (intent,) = rehearsal.ledger.purchases()
    assert intent.state is PurchaseState.CONFIRMED
    assert intent.reservation_ids == bought.reservation_ids
    assert not still_unknown(rehearsal.ledger)


# --- crashes ------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("step", CRASH_STEPS, ids=lambda step: step or "between-ticks")
def test_an_engine_that_dies_around_a_purchase_never_buys_twice(step: str) -> None:
    rehearsal = buying(given.fault("59m", "engine-crash", step=step))
    assert bool(journal_lines(rehearsal, "engine-crashed")) == (step in ("", *PURCHASE_STEPS))
    assert len(rehearsal.cloud.purchases) <= 1
    if step == "before:purchase":
        # It was written down and never made: nobody can know that, so a person must look first.
        assert not rehearsal.cloud.purchases
        assert still_unknown(rehearsal.ledger)
    elif step == "after:advance":
        # Submitted on paper only: the same doubt.
        assert not rehearsal.cloud.purchases
        assert still_unknown(rehearsal.ledger)
    else:
        assert_bought_once(rehearsal)


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize("step", CRASH_STEPS, ids=lambda step: step or "between-ticks")
def test_an_engine_that_dies_at_any_step_of_its_work_leaves_everything_to_the_next(step: str) -> None:
    rehearsal = working(*(given.fault(at, "engine-crash", step=step) for at in ("0s", "29m", "1h", "3h15m")))
    if step not in PURCHASE_STEPS:
        assert journal_lines(rehearsal, "engine-crashed")
    assert_all_work_is_done(rehearsal)
    # Never more nodes on a block than it has, and none that nobody asked for: one launch per slot.
    per_source = Counter(history.now.source.label for history in rehearsal.cloud.instance_histories.values())
    blocks = {rehearsal.cloud.names["a"]: 3, rehearsal.cloud.names["b"]: 4, "on-demand": 1}
    assert all(per_source[source] <= slots for source, slots in blocks.items()), per_source


@pytest.mark.parametrize("step", LAUNCH_STEPS)
def test_a_launch_that_was_cut_off_is_found_again_by_its_token(step: str) -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], faults=[given.fault("0s", "engine-crash", step=step)], duration="1h"
    ).run()
    assert journal_lines(rehearsal, "engine-crashed")
    assert len(rehearsal.cloud.instance_histories) == 2
    assert rehearsal.cluster.gpus_ready() == 16


# --- absence ------------------------------------------------------------------------------------------


def test_an_engine_that_was_absent_for_hours_reads_everything_and_goes_on() -> None:
    rehearsal = working(given.fault("35m", "engine-absent", duration="2h"))
    away = (after("35m"), after("2h35m"))
    assert not [one for one in rehearsal.done if away[0] < one.at < away[1]]
    assert_all_work_is_done(rehearsal)


def test_nodes_that_died_while_the_engine_was_absent_are_seen_when_it_returns() -> None:
    rehearsal = working(
        given.fault("1h", "engine-absent", duration="45m"), given.fault("1h10m", "node-dies", target="b")
    )
    assert_all_work_is_done(rehearsal)
    replaced = [line.at for line in journal_lines(rehearsal, "instance-launched") if line.at > after("1h")]
    assert len(replaced) == 1
    assert replaced[0] >= after("1h45m")


# --- an AWS that does not answer, or answers too late ---------------------------------------------------


def test_throttled_calls_are_repeated_until_they_pass() -> None:
    rehearsal = working(
        given.fault("0s", "throttle", duration="10m"), given.fault("30m", "throttle", duration="10m")
    )
    assert_all_work_is_done(rehearsal)
    launched = [line.at for line in journal_lines(rehearsal, "instance-launched")]
    assert len(launched) == 7
    assert not [at for at in launched if at < after("10m") or after("30m") < at < after("40m")]


def test_a_drain_goes_on_while_aws_is_throttled() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()],
        jobs=[given.job(lasts="9h", checkpointEvery="20m", grace="2m")],
        faults=[given.fault("3h15m", "throttle", duration="20m")],
    ).run()
    assert rehearsal.cluster.evictions
    assert not rehearsal.cluster.kills


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "lost",
    [
        given.fault("30m", "lost-answer", call="purchase"),
        given.fault("30m", "timeout-after-commit", target="purchase"),  # as it was written before
        given.fault("30m", "timeout-after-commit", call="purchase"),
    ],
)
def test_a_purchase_whose_answer_was_lost_is_found_by_its_tag(lost: dict[str, Any]) -> None:
    rehearsal = buying(lost)
    assert [one.error for one in rehearsal.done if isinstance(one.action, SubmitPurchase)] == [
        "outcome-unknown"
    ]
    assert_bought_once(rehearsal)
    (bought,) = rehearsal.cloud.all_reservations()
    assert bought.state is ReservationState.SCHEDULED


@pytest.mark.requirement("CB-4")
def test_a_purchase_whose_request_was_lost_is_made_again_once_it_is_known_to_have_failed() -> None:
    rehearsal = buying(given.fault("30m", "lost-request", call="purchase"))
    assert "outcome-unknown" in [
        one.error for one in rehearsal.done if isinstance(one.action, SubmitPurchase)
    ]
    assert len(rehearsal.cloud.purchases) <= 1


@pytest.mark.requirement("CB-4")
def test_a_purchase_that_may_have_been_made_counts_as_money_spent() -> None:
    """Two windows are approved within a second, the budget covers one, and the first answer is lost."""
    days = {"one": "18", "two": "20"}
    windows = [
        {
            "name": name, "from": f"2026-11-{day}T11:30:00Z", "to": f"2026-11-{int(day) + 1}T11:00:00Z",
            "instanceType": given.P5, "instances": 2,
        }
        for name, day in days.items()
    ]  # fmt: skip
    rehearsal = scenario_with(
        on=given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 2500}, approval={"mode": "one"}),
        plans=[given.plan(demand=windows)],
        decisions=[
            {**APPROVAL, "window": "one"},
            {**APPROVAL, "window": "two", "at": "1h1s"},
        ],
        faults=[given.fault("30m", "lost-answer", call="purchase")],
        duration="3h",
    ).run()
    assert len(rehearsal.cloud.purchases) == 1


def test_a_launch_whose_answer_was_lost_is_not_made_twice() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], faults=[given.fault("0s", "lost-answer", count=2)], duration="1h"
    ).run()
    assert len(rehearsal.cloud.instance_histories) == 2
    assert rehearsal.cluster.gpus_ready() == 16
    assert not rehearsal.ledger.launches()


# --- notices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["event-lost", "event-doubled", "event-late"])
def test_lost_doubled_and_late_events_cost_only_time(kind: str) -> None:
    rehearsal = working(*(given.fault(at, kind, count=5) for at in ("0s", "30m", "1h", "3h")))
    assert_all_work_is_done(rehearsal)
    assert len(journal_lines(rehearsal, "instance-launched")) == 7  # as with every event
    assert not rehearsal.cluster.kills


def test_a_block_whose_delivery_event_was_lost_is_found_at_the_next_tick() -> None:
    late = given.block(**{"from": "1h"}, duration="3h")
    rehearsal = scenario_with(
        reservations=[late], faults=[given.fault("55m", "event-lost", count=9)], duration="2h"
    ).run()
    assert rehearsal.cluster.gpus_ready() == 16
    assert actions_done(rehearsal, SubmitPurchase) == []
