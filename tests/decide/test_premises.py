"""A plan says what it read of what moves by itself, and is used again only while that is the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.decide.builders import (
    ON_DEMAND,
    ago,
    ahead,
    block,
    hourly_pool,
    node,
    of,
    pod,
    pool,
    replica,
    spec,
    world,
)
from tests.decide.builders import plan as capacity_plan
from tests.decide.purchases import buying, intent, search
from tests.decide.worlds import SPEC, worlds
from tidemill.decide import decide
from tidemill.decide.placement.candidate_nodes import BOOT
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import Plan, SearchOffers
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
        assert without_wake(decide(SPEC, later)) == without_wake(plan.told_at(later.now))


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


def test_a_plan_that_tells_when_a_node_is_up_tells_it_anew_when_it_is_used_again():
    documents = spec(pool(provisioner="karpenter"))
    there = world(block(free=4), replica(gpus=8, pinned_to="cr-1"))
    plan, later = decide(documents, there), replace(there, now=ahead("7m"))
    assert not plan.actions
    assert [one.earliest for one in plan.unmet] == [ahead("0s") + BOOT]
    assert plan.holds_at(later.now, NOTHING_SPENT, NOTHING_SPENT)
    assert plan.told_at(later.now) == decide(documents, later)
    assert [one.earliest for one in plan.told_at(later.now).unmet] == [ahead("7m") + BOOT]


def test_a_plan_without_an_offer_holds_until_the_question_to_ec2_is_another_one():
    """A window that has begun is asked for from now on: as it becomes shorter, so does the block."""
    span = {
        "name": "week",
        "from": ago("1h"),
        "to": ahead("2d10m"),
        "instanceType": "p5.48xlarge",
        "instances": 4,
    }
    documents = buying(document=capacity_plan(demand=[span]))
    (asked,) = of(decide(documents, world()), SearchOffers)
    there = world(search(asked.query))
    found = decide(documents, there)
    assert not found.actions
    for minutes in range(1, 30):
        later = replace(there, now=there.now + timedelta(minutes=minutes))
        if found.holds_at(later.now, NOTHING_SPENT, NOTHING_SPENT):
            assert without_wake(decide(documents, later)) == without_wake(found)
    assert found.wake_at == ahead("10m")


def test_a_plan_beside_money_that_nobody_spends_yet_wakes_no_later_than_a_new_one_would():
    """A node by the hour is on its way: its money runs out ever later, and by the minute a job that needs just so long
    fits into what is left, and does not, and does."""
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": 50}]
    documents = spec(pool(sources=sources), budget={"monthlyUsd": 1000})
    coming = node("i-1", "launched", launched="10s", source=ON_DEMAND)
    first = pod("first", gpus=8, overflow=True, expected="5m", created_at=ago("2h"))
    for need_s in range(2160, 2190, 10):
        job = pod("job", gpus=4, overflow=True, expected=f"{need_s}s", created_at=ago("1h"))
        there = world(coming, first, job)
        plan = decide(documents, there)
        for seconds in range(0, 60, 10):
            later = replace(there, now=there.now + timedelta(seconds=seconds))
            fresh = decide(documents, later)
            assert plan.wake_at is not None
            assert fresh.wake_at is not None
            assert later.now >= plan.wake_at or plan.wake_at <= fresh.wake_at
