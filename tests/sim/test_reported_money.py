"""Invariant 16: the money in every view adds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import scenario_with
from tidemill.model.capacity import Reservation
from tidemill.model.errors import InvariantViolated
from tidemill.report.costs import Costs, PoolCost
from tidemill.report.savings import savings
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.invariants.reported_money import check_summary
from tidemill.sim.scenario.rehearsal import Rehearsal

BUYER = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000}, approval={"mode": "one"})
BOUGHT = scenario_with(
    on=BUYER,
    plans=[given.plan()],
    duration="20h",
    decisions=[{"at": "2h", "window": "sprint", "verdict": "approve", "by": "finance"}],
)
HOURLY = scenario_with(
    given.pool(sources=[{"type": "on-demand"}]), jobs=[given.job(lasts="9h", at=("0s", "1h"))], duration="20h"
)


class OverchargingCloud(SimCloud):
    """Charges a little more than its offer said, still within what was approved."""

    def purchase(self, offer_id: str, tags: Any) -> tuple[Reservation, ...]:
        sold = super().purchase(offer_id, tags)
        self.purchases[-1].fee_usd += 7
        return sold


def test_an_account_that_charges_another_fee_than_the_ledger_counts_trips_number_16() -> None:
    with pytest.raises(InvariantViolated) as caught:
        BOUGHT.run(cloud=OverchargingCloud)
    assert caught.value.number == 16, str(caught.value)
    BOUGHT.run()


def meters_nothing(rehearsal: Rehearsal) -> None:
    rehearsal.ledger.meter = lambda line: None  # type: ignore[method-assign]


def counts_fees_twice(rehearsal: Rehearsal) -> None:
    real = rehearsal.ledger.spending
    rehearsal.ledger.spending = lambda now: replace(  # type: ignore[method-assign]
        real(now), fees_usd=2 * real(now).fees_usd
    )


@pytest.mark.parametrize(
    ("scenario", "wrong", "view"), [(HOURLY, meters_nothing, "costs"), (BOUGHT, counts_fees_twice, "ledger")]
)
def test_a_ledger_that_counts_wrongly_trips_number_16_and_the_real_one_does_not(
    scenario: Any, wrong: Any, view: str
) -> None:
    rehearsal = scenario.prepare()
    wrong(rehearsal)
    with pytest.raises(InvariantViolated) as caught:
        rehearsal.run()
    assert caught.value.number == 16, str(caught.value)
    assert caught.value.objects[0] == view
    scenario.run()


class ForgettingCloud(SimCloud):
    """Lists blocks without what was paid for them."""

    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(replace(block, fee_usd=0) for block in super().reservations())


def test_a_list_of_blocks_with_another_fee_than_was_charged_trips_number_16() -> None:
    with pytest.raises(InvariantViolated) as caught:
        BOUGHT.run(cloud=ForgettingCloud)
    assert caught.value.number == 16, str(caught.value)
    assert caught.value.objects[0] == "blocks"


def test_a_summary_whose_parts_do_not_add_up_is_a_violation() -> None:
    bill = {"blocks": 100.0, "on_demand": 10.0, "spot": 0.0, "total": 110.0, "idle": 20.0}
    costs = Costs(pools=(PoolCost("train", 8.0, 2.0, 90.0, 20.0, 0.0, 150.0, 40.0, 180.0),))
    assert not list(check_summary(bill, costs, savings(costs), 100.0))
    for wrong in ({"total": 120.0}, {"blocks": 90.0}, {"spot": 5.0}):
        assert list(check_summary({**bill, **wrong}, costs, savings(costs), 100.0))
    assert list(check_summary(bill, costs, replace(savings(costs), saved_usd=50.0), 100.0))


@pytest.mark.requirement("CB-3")
def test_a_payment_that_failed_is_no_money_spent_and_the_block_is_bought_again() -> None:
    """The budget is for one block of $1,696; number 3 counted both."""
    rehearsal = scenario_with(
        on=given.platform(
            budget={"perPurchaseUsd": 3000, "monthlyUsd": 3000},
            approval={"mode": "auto", "autoMaxFeeUsd": 3000},
        ),
        plans=[given.plan(proposeBefore="5d")],
        faults=[given.fault("0s", "payment-fails")],
        duration="2d",
    ).run()
    assert [purchase.paid for purchase in rehearsal.cloud.purchases] == [False, True]
    unpaid, paid = (
        rehearsal.cloud.reservation(purchase.reservation_ids[0]) for purchase in rehearsal.cloud.purchases
    )
    assert unpaid is not None
    assert paid is not None
    assert (unpaid.charged_usd, paid.charged_usd) == (0, paid.fee_usd)
