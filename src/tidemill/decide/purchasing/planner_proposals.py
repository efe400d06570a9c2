"""Proposals for calendars: search for the offers a planning round needs, then propose what the planner chose.

A planner result counts only while it is fresh, the blocks it counts on are the same, and EC2 still shows the offer. The
name of a proposal says what it covers, so that nothing is covered twice. Without a planner, a block a week is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from math import ceil

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import ANSWER_FRESH, fresh_answer
from tidemill.decide.purchasing.planner.demand import calendar_demand, gpus_each, plans_with_calendar
from tidemill.decide.purchasing.planner.inputs import WEEK, Step
from tidemill.decide.purchasing.purchase_intents import planned_intent, propose, propose_again_at, window_name
from tidemill.decide.purchasing.replan_schedule import (
    basis,
    missing_from_now,
    next_round_at,
    planning_round,
    schedule_changes_at,
)
from tidemill.decide.purchasing.usability import why_offer_unusable
from tidemill.decide.purchasing.window_proposals import cover_window
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import MAX_INSTANCES_PER_BLOCK
from tidemill.model.offers import ExtensionOffer, Offer, OfferQuery
from tidemill.model.plan import SearchExtensions, SearchOffers
from tidemill.model.planner_result import PlannedPurchase, PlannerFailure
from tidemill.model.purchase_reasons import (
    ProposalReason,
    PurchaseWarning,
    PurchaseWarningKind,
    SearchKind,
    SearchReason,
)
from tidemill.model.purchases import OPEN, PurchaseIntent, PurchaseState
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

# EC2 throttles, and a tick must stay short; the rest follows a second later.
MAX_SEARCHES_PER_TICK = 12
Intents = Mapping[tuple[str, str], list[PurchaseIntent]]


def propose_for_calendars(context: DecisionContext, intents: Intents, held: list[Reservation]) -> None:
    if not plans_with_calendar(context.spec):
        return
    at = next_round_at(context.spec, context.world)
    context.wake(at)
    context.wake(schedule_changes_at(context.spec, context.world))
    if at is not None and context.now >= at:
        _search(context)
    planned = context.world.planner_result
    if planned is not None and planned.failure is not None:
        _propose_weekly_blocks(context, planned.failure, intents, held)
    elif planned is not None:
        _propose(context, intents, held)


def _search(context: DecisionContext) -> None:
    wanted = planning_round(context.spec, context.world, learned_gpus(context.spec, context.world))
    context.wake(wanted.stale_at(context.world))
    for query in wanted.unanswered(context.world)[:MAX_SEARCHES_PER_TICK]:
        if isinstance(query, OfferQuery):
            context.do(SearchOffers(query, SearchReason(SearchKind.REPLAN)))
        else:
            context.do(SearchExtensions(query, SearchReason(SearchKind.REPLAN)))


def _propose_weekly_blocks(
    context: DecisionContext, failure: PlannerFailure, intents: Intents, held: list[Reservation]
) -> None:
    no_solver = failure is PlannerFailure.NO_SOLVER
    kind = PurchaseWarningKind.NO_SOLVER if no_solver else PurchaseWarningKind.PLANNER_CRASHED
    context.warn("calendars", PurchaseWarning(kind))
    for plan in plans_with_calendar(context.spec):
        assert plan.spec.calendar is not None
        for window in weekly_windows(
            context.spec, plan, missing_from_now(context.spec, context.world, plan), context.now
        ):
            opens = window.start - plan.spec.calendar.buy_ahead
            if context.now >= opens:
                cover_window(context, plan, window, intents.get((plan.name, window.name), []), held)
            context.wake(opens)


# --- proposals ----------------------------------------------------------------------------------------


def _propose(context: DecisionContext, intents: Intents, held: list[Reservation]) -> None:
    world, planned = context.world, context.world.planner_result
    assert planned is not None
    if planned.asks or context.now - planned.at >= ANSWER_FRESH:
        return
    if planned.basis != basis(context.spec, world.reservations, world.purchases, world.now):
        return
    for purchase in planned.choices:
        plan = context.spec.plans.get(purchase.plan)
        if plan is None or not _is_due(
            context, purchase, intents.get((purchase.plan, window_name(purchase)), [])
        ):
            continue
        why_not = why_offer_unusable(context.spec, plan.spec.pool, purchase.offer, held)
        if why_not is not None:
            context.warn(plan.name, why_not)
            continue
        attempt = len(intents.get((purchase.plan, window_name(purchase)), []))
        intent = planned_intent(context, plan, purchase, attempt)
        propose(context, intent, ProposalReason(purchase.offer, saves_usd=purchase.saves_usd), held)


def _is_due(context: DecisionContext, purchase: PlannedPurchase, before: list[PurchaseIntent]) -> bool:
    if any(intent.state in OPEN or intent.state is PurchaseState.CONFIRMED for intent in before):
        return False
    at = max(purchase.propose_from, propose_again_at(before) or purchase.propose_from)
    if context.now < at:
        assert context.world.planner_result is not None
        # After that there will be a newer result, or none that is fresh.
        context.wake(at if at < context.world.planner_result.at + ANSWER_FRESH else None)
        return False
    return is_still_offered(context.world, purchase.offer)


def is_still_offered(world: World, offer: Offer | ExtensionOffer) -> bool:
    """Whether the newest answer to the same query still has it."""
    if isinstance(offer, ExtensionOffer):
        return any(offer in search.offers for search in world.extension_searches)
    asked = [search.query for search in world.searches if offer in search.offers]
    return any(
        (newest := fresh_answer(world, query)) is not None and offer in newest.offers for query in asked
    )


# --- without a plan: a block a week -------------------------------------------------------------------


_A_MONDAY = datetime(2024, 1, 1, 11, 30, tzinfo=UTC)  # any Monday on the grid: weeks are counted from it
# A shorter week is over before a block bought for it would serve.
SHORTEST = timedelta(hours=2)


def weekly_windows(
    spec: Spec, plan: CapacityPlan, lacks: Iterable[Step], now: datetime
) -> tuple[DemandWindow, ...]:
    """A window for each week in which something is missing, as high as its peak. Named by its Monday, so that each week
    is bought once. Dearer than a plan; but what it buys is needed, and it needs no solver."""
    calendar = plan.spec.calendar
    assert calendar is not None
    demand, each = calendar_demand(spec, plan.name, 0), gpus_each(spec, calendar)
    by_week: dict[datetime, list[Step]] = {}
    for step in lacks:
        monday = _A_MONDAY + (step.start - _A_MONDAY) // WEEK * WEEK
        while monday < step.end:
            part = Step(max(step.start, monday), min(step.end, monday + WEEK), step.amount)
            by_week.setdefault(monday, []).append(part)
            monday += WEEK
    found = []
    for monday, steps in sorted(by_week.items()):
        start, end = max(monday, min(step.start for step in steps) - demand.warm_up), monday + WEEK
        end = min(end, max(step.end for step in steps) + demand.wind_down)
        if end - max(start, now) >= SHORTEST:
            instances = min(MAX_INSTANCES_PER_BLOCK, ceil(max(step.amount for step in steps) / each))
            found.append(
                DemandWindow.model_validate(
                    {
                        "name": f"week-{monday:%Y-%m-%d}",
                        "from": start,
                        "to": end,
                        "instanceType": calendar.instance_types[0],
                        "instances": instances,
                        "zones": calendar.zones,
                    }
                )
            )
    return tuple(found)
