"""Cases that a hard look at the first version found: money that leaked, drains that went in circles."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW, ahead, block, block_ends, node, of, pool, replica, spec, world
from tests.decide.purchases import buying, intent, offer, search
from tidemill.decide import decide
from tidemill.model.plan import (
    CancelDrain,
    ForceDelete,
    ProposePurchase,
    SearchOffers,
    StartDrain,
    SubmitPurchase,
)
from tidemill.model.pods import DisruptionBudget
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.wording import sentence


def plan_of(**window: object) -> CapacityPlan:
    demand = {
        "name": "week", "from": ahead("2d"), "to": ahead("9d"), "instanceType": "p5.48xlarge", "instances": 4, **window,
    }  # fmt: skip
    return CapacityPlan.model_validate(
        {"metadata": {"name": "november"}, "spec": {"pool": "p5", "demand": [demand]}}
    )


@pytest.mark.requirement("CB-3")
def test_a_window_that_may_cost_less_than_the_cheapest_offer_is_not_proposed():
    documents = buying("auto", document=plan_of(maxFeeUsd=100), approval={"autoMaxFeeUsd": 50_000})
    asked = of(decide(documents, world()), SearchOffers)[0].query
    plan = decide(documents, world(searches=(search(asked, offer(fee_usd=25_000)),)))
    assert not of(plan, ProposePurchase)
    assert any("more than the $100" in sentence(warning.reason) for warning in plan.warnings)


@pytest.mark.requirement("CB-3")
def test_an_approved_purchase_over_what_its_window_may_cost_is_not_submitted():
    documents = buying("one", document=plan_of(maxFeeUsd=100))
    assert not of(decide(documents, world(intent("approved"))), SubmitPurchase)


def test_a_drain_is_not_taken_back_because_its_pods_have_left():
    """The lead was long while a slow replica was there; without it there would be time again, but not for long."""
    leaving = node("i-1", "draining")
    assert leaving.kube is not None
    reason = block_ends(ahead("12m"))
    leaving = replace(leaving, kube=replace(leaving.kube, drain_reason=reason, draining_since=NOW))
    plan = decide(spec(), world(block(ends_in="42m"), leaving))
    assert not of(plan, CancelDrain)


def test_a_budget_that_never_allows_an_eviction_is_passed_one_replica_at_a_time():
    leaving = node("i-1", "draining")
    pods = [replica(f"chat-{place}", on=leaving, ready=True, ends_at=ahead("9m")) for place in range(2)]
    budget = DisruptionBudget("Deployment/chat", min_available=2, allowed=0)
    plan = decide(spec(), world(block(ends_in="39m"), leaving, pods, budget))
    assert len(of(plan, ForceDelete)) == 1


def test_an_empty_node_of_a_block_that_two_pools_share_goes_back_to_both():
    idle = node("i-1", pool="serve")
    two = spec(pool("serve"), pool("train"))
    plan = decide(two, world(block(ends_in="100h", count=1), idle, now=NOW + timedelta(hours=2)))
    assert [action.node for action in of(plan, StartDrain)] == [idle.name]
