"""Demand calendars, and ten recorded ones on which the plan is set against a plain rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from benchmarks.purchase import RULE_LENGTHS, Question, compare, draw, first_offer, question, recorded
from tidemill.decide.purchasing.planner.inputs import (
    CombinedCalendar,
    Constant,
    Step,
    Weekly,
    WeekSpan,
    Windows,
    levels,
)
from tidemill.decide.purchasing.planner.result import PurchasePlan
from tidemill.model.errors import SpecError

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize("question", recorded(), ids=lambda one: one.name)
def test_the_plan_is_cheaper_than_always_taking_the_first_offer_of_one_length(question: Question):
    found = compare(question)
    assert found.ours.gap <= 0.01
    assert found.ours.cover.cost.total_usd < found.rule.cost.total_usd
    for usd in by_month(question, found.ours).values():
        assert usd <= question.policy.ceilings.monthly_usd + 1e-6


def by_month(question: Question, found: PurchasePlan) -> dict[tuple[int, int], float]:
    """Money out, hour by hour; warm-ups, which are also within the ceiling, left aside."""
    now = question.policy.now
    months = {(now.year, now.month): float(found.cover.cost.fees_usd)}
    for run in found.cover.on_demand:
        usd_h = question.prices[run.instance_type].on_demand_usd_h or 0.0
        at = run.start
        while at < run.end:
            until = min(run.end, at.replace(minute=0) + HOUR)
            usd = usd_h * run.instances * ((until - at) / HOUR)
            months[at.year, at.month] = months.get((at.year, at.month), 0.0) + usd
            at = until
    return months


def test_there_are_ten_calendars_and_the_simple_rule_buys_in_each():
    found = recorded()
    assert len(found) == 10
    assert all(len(first_offer(one, days)) >= 2 for one in found for days in RULE_LENGTHS)


def test_a_week_repeats_and_is_clipped():
    office = Weekly((WeekSpan(8 * HOUR, 20 * HOUR, 3),))
    steps = office.steps(MONDAY + 10 * HOUR, MONDAY + 8 * DAY)
    assert steps == (
        Step(MONDAY + 10 * HOUR, MONDAY + 20 * HOUR, 3),
        Step(MONDAY + 7 * DAY + 8 * HOUR, MONDAY + 7 * DAY + 20 * HOUR, 3),
    )


def test_calendars_together_add_up_without_gaps():
    both = CombinedCalendar(
        (Constant(2), Windows((Step(MONDAY, MONDAY + DAY, 4), Step(MONDAY, MONDAY + 2 * DAY, 1))))
    )
    found = levels(both, MONDAY - DAY, MONDAY + 3 * DAY)
    assert [step.amount for step in found] == [2, 7, 3, 2]
    assert all(one.end == other.start for one, other in pairwise(found))


def test_steps_that_run_backwards_are_refused():
    with pytest.raises(SpecError, match="end after"):
        Step(MONDAY, MONDAY, 1)
    with pytest.raises(SpecError, match="one week"):
        WeekSpan(6 * DAY, 8 * DAY, 1)


def test_one_zone_questions_are_answered_within_the_promise_and_alike_every_time():
    asked = question(draw(104, offers=60, weeks=3, pools=1, one_zone=True))
    first, again = asked.plan(), asked.plan()
    assert first == again
    assert first.gap <= 0.01
    assert first.runner_up is not None
    assert first.runner_up.cover.ids != first.cover.ids


def test_pools_that_share_nothing_cost_together_what_each_costs_alone():
    both = question(draw(104, offers=60, weeks=3, pools=2, one_zone=True))
    found = both.plan()
    alone = [replace(both, demand=(pool,)).plan() for pool in both.demand]
    assert found.gap <= 0.01
    assert found.cover.cost.total_usd == pytest.approx(
        sum(one.cover.cost.total_usd for one in alone), rel=0.01
    )
    assert found.bound_usd <= sum(one.cover.cost.total_usd for one in alone)
