"""From the planner's advice to proposals: ask what a round needs, then put forward what must be decided now.

Advice is acted upon only while it is fresh, its ground has not moved and EC2 still shows the offer. Each proposal has
a name made of what it covers, so that nothing is covered twice. Where nothing can be planned, the simple rule buys a
block a week.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.approval import fee_to_approve_usd
from tidemill.decide.purchasing.extensions import extension_envelope
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import ANSWER_FRESH, fresh_answer
from tidemill.decide.purchasing.planner.demand import plans_with_calendar
from tidemill.decide.purchasing.planner.offer_filter import starts_now
from tidemill.decide.purchasing.proposal_backoff import propose_again_at
from tidemill.decide.purchasing.replan_schedule import (
    basis,
    missing_from_now,
    next_round_at,
    planning_round,
    schedule_changes_at,
)
from tidemill.decide.purchasing.weekly_windows import weekly_windows
from tidemill.decide.purchasing.window_cover import ENGINE, cover_window, intent_id
from tidemill.model.capacity import Reservation
from tidemill.model.offers import ExtensionOffer, Offer, OfferQuery
from tidemill.model.plan import ProposePurchase, SearchExtensions, SearchOffers
from tidemill.model.planner_result import PlannedPurchase
from tidemill.model.purchases import OPEN, Envelope, PurchaseIntent, PurchaseState
from tidemill.model.world import World
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.units import format_instant

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
    if planned is not None and planned.unable:
        _propose_weekly_blocks(context, planned.unable, intents, held)
    elif planned is not None:
        _propose(context, intents)


def _search(context: DecisionContext) -> None:
    wanted = planning_round(context.spec, context.world, learned_gpus(context.spec, context.world))
    context.wake(wanted.stale_at(context.world))
    for query in wanted.unanswered(context.world)[:MAX_SEARCHES_PER_TICK]:
        if isinstance(query, OfferQuery):
            context.do(SearchOffers(query, "the calendars are planned anew"))
        else:
            context.do(SearchExtensions(query, "the calendars are planned anew"))


def _propose_weekly_blocks(
    context: DecisionContext, why: str, intents: Intents, held: list[Reservation]
) -> None:
    context.warn("calendars", f"a block is bought for each week, because nothing can be planned: {why}")
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


def _propose(context: DecisionContext, intents: Intents) -> None:
    world, planned = context.world, context.world.planner_result
    assert planned is not None
    if context.now - planned.at >= ANSWER_FRESH:
        return
    if planned.basis != basis(context.spec, world.reservations, world.purchases, world.now):
        return
    for purchase in planned.choices:
        plan = context.spec.plans.get(purchase.plan)
        if plan is None or not _is_due(
            context, purchase, intents.get((purchase.plan, window_name(purchase)), [])
        ):
            continue
        attempt = len(intents.get((purchase.plan, window_name(purchase)), []))
        context.do(ProposePurchase(_intent(context, plan, purchase, attempt), _proposal_text(purchase)))


def _is_due(context: DecisionContext, purchase: PlannedPurchase, before: list[PurchaseIntent]) -> bool:
    if any(one.state in OPEN or one.state is PurchaseState.CONFIRMED for one in before):
        return False
    at = max(purchase.propose_from, propose_again_at(before) or purchase.propose_from)
    if context.now < at:
        assert context.world.planner_result is not None
        # Later than that there will be newer advice, or none that may be acted upon.
        context.wake(at if at < context.world.planner_result.at + ANSWER_FRESH else None)
        return False
    return is_still_offered(context.world, purchase.offer)


def is_still_offered(world: World, offer: Offer | ExtensionOffer) -> bool:
    """By the newest answer to the question it was an answer to."""
    if isinstance(offer, ExtensionOffer):
        return any(offer in search.offers for search in world.extension_searches)
    asked = [search.query for search in world.searches if offer in search.offers]
    return any(
        (newest := fresh_answer(world, query)) is not None and offer in newest.offers for query in asked
    )


def window_name(purchase: PlannedPurchase) -> str:
    """What it covers: the same purchase has the same name in every round, and another has another."""
    offer = purchase.offer
    if isinstance(offer, ExtensionOffer):
        return f"{offer.reservation_id}-until-{offer.end:%y%m%d}"
    days = f"{offer.start:%y%m%d}-{offer.end:%y%m%d}"
    return f"{days}-{offer.count}x{offer.instance_type}-{offer.zone}"


def _intent(
    context: DecisionContext, plan: CapacityPlan, purchase: PlannedPurchase, attempt: int
) -> PurchaseIntent:
    offer, window = purchase.offer, window_name(purchase)
    return PurchaseIntent(
        id=intent_id(context.owner, plan.name, window, str(attempt)),
        plan=plan.name,
        pool=plan.spec.pool,
        window=window,
        envelope=_extension_envelope(context, plan, offer)
        if isinstance(offer, ExtensionOffer)
        else _block_envelope(context, plan, purchase, offer),
        proposer=ENGINE,
        proposed_at=context.now,
        extends=offer.reservation_id if isinstance(offer, ExtensionOffer) else "",
    )


def _block_envelope(
    context: DecisionContext, plan: CapacityPlan, purchase: PlannedPurchase, offer: Offer
) -> Envelope:
    assert plan.spec.calendar is not None
    zones = plan.spec.calendar.zones or tuple(sorted(context.spec.platform.spec.subnets))
    views = context.spec.platform.spec.approval.expires_after
    earliest, latest = offer.start, offer.start
    if starts_now(offer):  # whenever somebody says yes; the sooner the better
        earliest, latest = context.now, max(latest, min(latest + views, offer.end - timedelta(days=1)))
    return Envelope(
        instance_type=offer.instance_type,
        count=offer.count,
        duration=purchase.duration,
        earliest_start=earliest,
        latest_start=latest,
        earliest_end=offer.end,
        zones=(offer.zone,) if plan.spec.calendar.one_zone else zones,
        max_fee_usd=fee_to_approve_usd(context.spec.platform, plan, None, offer.fee_usd),
        expires_at=_expires_at(context),
    )


def _extension_envelope(context: DecisionContext, plan: CapacityPlan, offer: ExtensionOffer) -> Envelope:
    block = context.reservations[offer.reservation_id]
    fee_usd = fee_to_approve_usd(context.spec.platform, plan, None, offer.fee_usd)
    return extension_envelope(context.spec.platform, block, offer, fee_usd, context.now)


def _expires_at(context: DecisionContext) -> datetime:
    return context.now + context.spec.platform.spec.approval.expires_after


def _proposal_text(purchase: PlannedPurchase) -> str:
    offer = purchase.offer
    if isinstance(offer, ExtensionOffer):
        what = f"{offer.reservation_id} until {format_instant(offer.end)}"
    else:
        what = f"{offer.count} {offer.instance_type} from {format_instant(offer.start)}"
    return f"{what}, about ${offer.fee_usd:,}: {purchase.why}"
