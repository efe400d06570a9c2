"""A plan says what it read of what moves by itself, and is used again only while that is the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.decide.builders import ahead, hourly_pool, node, pod, spec, world
from tests.decide.purchases import buying, intent
from tests.decide.worlds import SPEC, worlds
from tidemill.decide import decide
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import Plan
from tidemill.model.purchases import NOTHING_SPENT, Spending
from tidemill.model.world import World
from tidemill.wording import sentence

SOME = Spending(hourly_usd=((("g6", SourceKind.ON_DEMAND), 60.0),))


def moved(there: World, minutes: int, usd: float) -> World:
    """Nothing happened but time, and money that is spent by the hour."""
    spent = Spending(
        there.spending.fees_usd,
        ((("g6", SourceKind.ON_DEMAND), usd), (("p5", SourceKind.ON_DEMAND), usd / 2)),
        there.spending.plan_fees_usd,
    )
    return replace(there, now=there.now + timedelta(minutes=minutes), spending=spent)


def without_wake(plan: Plan) -> Plan:
    return replace(plan, wake_at=None)


@given(there=worlds(), minutes=st.sampled_from((1, 7, 10, 45)), usd=st.sampled_from((0.0, 55.0, 900.0)))
def test_a_plan_that_holds_is_what_would_be_decided_again(there: World, minutes: int, usd: float):
    plan, later = decide(SPEC, there), moved(there, minutes, usd)
    if not plan.actions and plan.holds_at(later.now, later.spending, there.spending):
        assert without_wake(decide(SPEC, later)) == without_wake(plan)


def test_a_purchase_over_the_months_budget_reads_what_is_spent():
    """Its warning says how much is spent, and that moves with every hour of an instance."""
    documents = buying(budget={"perPurchaseUsd": 100_000, "monthlyUsd": 30_050})
    there = replace(world(intent("approved", approved_by=("ana",))), spending=SOME)
    plan, later = decide(documents, there), moved(there, 10, 1_000.0)
    assert "on top of $60 is over the monthly budget" in sentence(plan.warnings[0].reason)
    assert plan.holds_at(later.now, SOME, SOME)
    assert not plan.holds_at(later.now, later.spending, SOME)
    assert "on top of $1,500" in sentence(decide(documents, later).warnings[0].reason)


def test_a_plan_that_reads_no_money_holds_whatever_is_spent():
    plan = decide(spec(hourly_pool("g6", "g6.xlarge")), world(node("i-1", pool="g6")))
    assert plan.figures_read == frozenset()
    assert plan.holds_at(ahead("1m"), SOME, NOTHING_SPENT)


def test_a_plan_holds_until_it_wakes():
    plan = Plan(wake_at=ahead("10m"))
    assert plan.holds_at(ahead("9m"), SOME, NOTHING_SPENT)
    assert not plan.holds_at(ahead("10m"), SOME, SOME)


def test_a_plan_that_tells_when_a_node_is_up_holds_for_its_instant_only():
    documents = spec(hourly_pool("g6", "g6.xlarge"))
    plan = decide(documents, world(pod(gpus=1)))
    assert plan.made_at == ahead("0s")
    assert plan.holds_at(ahead("0s"), SOME, NOTHING_SPENT)
    assert not plan.holds_at(ahead("1s"), NOTHING_SPENT, NOTHING_SPENT)
