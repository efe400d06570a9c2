"""The ledger in memory: compare-and-set, failures kept for an hour, and money by calendar month."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.decide.builders import NOW, failed_launch, launch_intent
from tests.decide.purchases import intent
from tests.engine.ports import Hands
from tidemill.errors import Refused
from tidemill.store.memory import MemoryLedger
from tidemill.world import CostLine, LaunchState, PurchaseState, SourceKind

KEY = ("g6", SourceKind.ON_DEMAND)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def ledger(clock: Hands) -> MemoryLedger:
    return MemoryLedger(clock)


def line(since: datetime, until: datetime | None = None, usd_h: float = 2.0) -> CostLine:
    return CostLine("i-1", *KEY, usd_h, since, until)


@pytest.mark.requirement("CB-4")
def test_it_does_not_call_itself_durable(ledger: MemoryLedger):
    assert not ledger.durable


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "meanwhile",
    [
        {"state": PurchaseState.VOIDED},
        {"verdicts": intent(approved_by=("ana",)).verdicts},
    ],
    ids=["its state moved", "a verdict came"],
)
def test_a_write_on_an_outdated_reading_is_refused(ledger: MemoryLedger, meanwhile: dict):
    read = intent()
    ledger.propose(read)
    moved = replace(read, **meanwhile)
    ledger.advance(read, moved)
    with pytest.raises(Refused, match="tp-1"):
        ledger.advance(read, replace(read, state=PurchaseState.SUBMITTED))
    assert ledger.purchases() == (moved,)


@pytest.mark.requirement("CB-4")
def test_an_intent_nobody_wrote_cannot_be_advanced(ledger: MemoryLedger):
    with pytest.raises(Refused):
        ledger.advance(intent(), intent("approved"))


def test_launches_are_replaced_by_id_and_settled_ones_leave(ledger: MemoryLedger):
    ledger.write_launch(launch_intent())
    ledger.write_launch(launch_intent(state=LaunchState.LAUNCHED))
    assert [one.state for one in ledger.launches()] == [LaunchState.LAUNCHED]
    ledger.write_launch(launch_intent(state=LaunchState.SETTLED))
    assert ledger.launches() == ()


def test_failures_are_remembered_for_an_hour(ledger: MemoryLedger, clock: Hands):
    ledger.write_launch(failed_launch())
    clock.pass_time(hours=1)
    assert len(ledger.launches()) == 1
    clock.pass_time(seconds=1)
    assert ledger.launches() == ()


@pytest.mark.requirement("PE-18")
def test_a_running_line_grows_and_an_ended_one_stays(ledger: MemoryLedger):
    ledger.meter(line(NOW))
    assert ledger.spending(NOW + timedelta(hours=3)).hourly(*KEY) == pytest.approx(6.0)
    ledger.meter(line(NOW, NOW + timedelta(hours=4)))
    assert ledger.spending(NOW + timedelta(hours=9)).hourly(*KEY) == pytest.approx(8.0)


@pytest.mark.requirement("PE-18")
def test_the_same_end_told_twice_is_billed_once(ledger: MemoryLedger):
    for _ in range(2):
        ledger.meter(line(NOW, NOW + timedelta(hours=4)))
    assert ledger.spending(NOW + timedelta(hours=5)).total_usd == pytest.approx(8.0)


@pytest.mark.requirement("PE-18")
@pytest.mark.parametrize("ended", [True, False])
def test_money_is_split_where_a_calendar_month_begins(ledger: MemoryLedger, ended: bool):
    since, turn = datetime(2026, 11, 30, 22, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    until = turn + timedelta(hours=5)
    ledger.meter(line(since, until if ended else None))
    assert ledger.spending(until).total_usd == pytest.approx(10.0)
    if ended:
        assert ledger.spending(turn - timedelta(seconds=1)).total_usd == pytest.approx(4.0)


@pytest.mark.requirement("CB-3")
def test_the_fees_of_this_month_are_spent(ledger: MemoryLedger):
    ledger.propose(intent("confirmed", id="tp-a", fee_usd=700, state_at=NOW))
    ledger.propose(intent("confirmed", id="tp-b", fee_usd=90, state_at=NOW - timedelta(days=31)))
    ledger.propose(intent("voided", id="tp-c", fee_usd=5, state_at=NOW))
    assert ledger.spending(NOW).fees_usd == 700


# Not found is not "not bought": until it is certain, the fee of an unknown outcome may be spent.
@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("state", ["submitted", "unknown"])
def test_a_fee_in_doubt_counts_as_spent(ledger: MemoryLedger, state: str):
    ledger.propose(intent(state, fee_usd=25_000, state_at=NOW))
    assert ledger.spending(NOW).fees_usd == 25_000
