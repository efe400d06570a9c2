"""UltraServers and Trainium: bought, delivered, worked on and emptied like any block, each by its own rules."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.scenario_builder import after, block, job, plan, platform, pool, scenario_with
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan

pytestmark = pytest.mark.requirement("CB-15")

ULTRA, TRAINIUM = "p6e-gb200.36xlarge", "trn2.48xlarge"
BUYS = platform(
    approval={"mode": "auto", "autoMaxFeeUsd": 500_000},
    budget={"perPurchaseUsd": 500_000, "monthlyUsd": 1_000_000},
)


def wanted(type_: str, instances: int) -> CapacityPlan:
    window = {
        "name": "sprint", "from": "2026-11-18T11:30:00Z", "to": "2026-11-19T11:00:00Z",
        "instanceType": type_, "instances": instances,
    }  # fmt: skip
    return plan(demand=[window])


def test_three_ultraservers_are_one_purchase_and_three_blocks() -> None:
    """27 instances are three servers of nine; each is a reservation of its own, and all belong to the intent."""
    rehearsal = scenario_with(
        pool(requirements={"instanceTypes": [ULTRA]}, limits={"nodes": 27}),
        on=BUYS,
        plans=[wanted(ULTRA, 27)],
        duration="30h",
    ).run()
    (bought,) = rehearsal.cloud.purchases
    (intent,) = [
        purchase for purchase in rehearsal.ledger.purchases() if purchase.state is PurchaseState.CONFIRMED
    ]
    assert len(bought.reservation_ids) == 3
    assert intent.reservation_ids == tuple(sorted(bought.reservation_ids))
    nodes = [
        history
        for history in rehearsal.cloud.instance_histories.values()
        if history.now.source.kind is SourceKind.BLOCK
    ]
    assert len(nodes) == 27


def test_an_ultraserver_is_empty_an_hour_before_its_end() -> None:
    rehearsal = scenario_with(
        pool(requirements={"instanceTypes": [ULTRA]}, limits={"nodes": 9}),
        reservations=[block(instanceType=ULTRA, count=9)],
        jobs=[job("fit", lasts="20h", gpus=4, cpu="100", memory="400Gi", checkpointEvery="20m")],
        duration="5h",
    ).run()
    last = max(row.at for row in rehearsal.cluster.evictions)
    assert last < after("4h") - timedelta(minutes=60)
    assert not rehearsal.cluster.cut_short


def test_a_trainium_block_is_bought_delivered_and_worked_on() -> None:
    rehearsal = scenario_with(
        pool(requirements={"instanceTypes": [TRAINIUM]}, limits={"nodes": 2}),
        on=BUYS,
        plans=[wanted(TRAINIUM, 2)],
        jobs=[job("fit", at=("29h",), gpus=0, neuron=16, cpu="100", memory="400Gi", lasts="2h")],
        duration="52h",
    ).run()
    (bought,) = rehearsal.cloud.purchases
    assert (bought.offer.instance_type, bought.offer.count, bought.paid) == (TRAINIUM, 2, True)
    assert rehearsal.cluster.jobs["fit-1"].finished is not None
