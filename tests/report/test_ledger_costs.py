"""What a ledger says everything cost: fees by the hours of their blocks, idle to the owner, and it adds up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW
from tests.decide.purchases import intent
from tidemill.catalog import load
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import BlockHours, CostLine, PurchaseIntent
from tidemill.report.costs import Costs
from tidemill.report.ledger_costs import ledger_costs

pytestmark = pytest.mark.requirement("PE-16")
# Four p5.48xlarge for ten days: 4 x 8 x 240 = 7,680 GPU-hours for $15,360, $2 each.
TEN_DAYS = {"duration": timedelta(days=10)}
HELD = BlockHours("cr-1", "p5", held_h=3200.0)
VISION = BlockHours("cr-1", "p5", "vision", used_h=1000.0)
SPEECH = BlockHours("cr-1", "guest", "speech", used_h=200.0)


def bought(**fields: object) -> PurchaseIntent:
    facts: dict = {"reservation_ids": ("cr-1",), "fee_usd": 15_360, "inside": TEN_DAYS, **fields}
    return intent("confirmed", **facts)


def told(*things: PurchaseIntent | BlockHours | CostLine) -> Costs:
    def of(kind: type) -> list:
        return [thing for thing in things if isinstance(thing, kind)]

    return ledger_costs(load(), of(PurchaseIntent), of(BlockHours), of(CostLine), NOW)


def test_a_fee_is_spread_over_the_hours_it_pays_for():
    costs = told(bought(), HELD, VISION, SPEECH)
    pools = {pool.pool: pool for pool in costs.pools}
    assert pools["p5"].used_usd == pytest.approx(2000)
    assert pools["guest"].used_usd == pytest.approx(400)
    assert (pools["p5"].gpu_hours_idle, pools["p5"].idle_usd) == pytest.approx((2000, 4000))
    assert pools["guest"].gpu_hours_idle == 0
    assert {team.team: team.usd for team in costs.teams} == pytest.approx({"vision": 2000, "speech": 400})
    price = load().types["p5.48xlarge"].on_demand_usd_h
    assert price is not None
    assert pools["p5"].on_demand_usd == pytest.approx(1000 * price / 8)


def test_unseen_and_future_hours_are_outside_and_the_sum_is_the_fee():
    costs = told(bought(), HELD, VISION, SPEECH)
    assert sum(pool.outside_usd for pool in costs.pools) == pytest.approx(15_360 - 3200 * 2)
    assert costs.total_usd == pytest.approx(15_360)


def test_an_extension_adds_to_its_block_in_any_order():
    longer = replace(bought(fee_usd=7_680), id="tp-2", extends="cr-1")
    for order in ((bought(), longer), (longer, bought())):
        costs = told(*order, HELD)
        # Twenty days for $23,040: $1.50 an hour.
        assert costs.pools[0].idle_usd == pytest.approx(3200 * 1.5)
        assert costs.total_usd == pytest.approx(23_040)


def test_several_blocks_of_one_purchase_share_one_fee():
    both = bought(reservation_ids=("cr-1", "cr-2"))
    costs = told(both, HELD, replace(HELD, reservation_id="cr-2"))
    assert costs.pools[0].idle_usd == pytest.approx(6400 * 2)
    assert costs.total_usd == pytest.approx(15_360)


def test_purchases_that_were_not_confirmed_cost_nothing():
    assert (
        told(intent("failed", fee_usd=9, reservation_ids=("cr-1",)), intent("unknown", id="tp-2")) == Costs()
    )


def test_an_adopted_block_has_hours_and_no_fee():
    (pool,) = told(HELD, VISION).pools
    assert (pool.gpu_hours_used, pool.gpu_hours_idle, pool.used_usd, pool.idle_usd) == (1000, 2200, 0, 0)
    assert pool.on_demand_usd is None


def test_hourly_costs_are_charged_to_the_team():
    hour = timedelta(hours=1)
    ended = CostLine("i-1", "g6", SourceKind.ON_DEMAND, 2.0, NOW - 5 * hour, NOW - hour, "vision", 1)
    runs = CostLine("i-2", "g6", SourceKind.ON_DEMAND, 3.0, NOW - 2 * hour, None, "", 4)
    costs = told(ended, runs)
    (pool,) = costs.pools
    assert (pool.used_usd, pool.gpu_hours_used, pool.on_demand_usd, pool.saving_usd) == (14, 12, 14, 0)
    assert {team.team: team.usd for team in costs.teams} == {"vision": 8, "": 6}
