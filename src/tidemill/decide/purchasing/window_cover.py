"""What the plans still lack: more time on a block that is there, else a new one, searched for and proposed.

Nothing is bought here: a proposal is an envelope that people, or an explicit policy, say yes to.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.approval import fee_to_approve_usd, highest_fee_usd
from tidemill.decide.purchasing.coverage import (
    MAX_OVERSIZE,
    first_gap,
    missing_instance_hours,
    with_bought,
)
from tidemill.decide.purchasing.extensions import extendable, extension_envelope, extension_offer
from tidemill.decide.purchasing.planner.calendar import Step
from tidemill.decide.purchasing.proposal_backoff import PROPOSE_AGAIN_AFTER, propose_again_at
from tidemill.decide.purchasing.utilization import lets_lapse
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import LEGAL_DURATIONS, grid_at_or_before, round_up_duration
from tidemill.model.offers import ExtensionOffer, Offer, OfferQuery, OfferSearch
from tidemill.model.plan import ProposePurchase, SearchOffers
from tidemill.model.purchases import OPEN, Envelope, PurchaseIntent, PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.units import format_instant

ENGINE = "tidemill-engine"
# Offers are first come, first served: an answer older than this is asked for again before it is used.
SEARCH_FRESH = timedelta(minutes=30)
# More time keeps the nodes: nothing boots and nothing moves. It may cost a quarter more than a new block.
EXTENSION_WORTH_PERCENT = 125


def cover_window(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    intents: list[PurchaseIntent],
    held: list[Reservation],
) -> None:
    """`held` counts what is under way too."""
    opens = window.start - plan.spec.propose_before
    if context.now >= window.end:
        return
    if context.now < opens:
        context.wake(opens)
        return
    if any(intent.state in OPEN for intent in intents):
        return
    gap = first_gap(context.spec, held, plan.spec.pool, window, context.now)
    if gap is None or _just_bought(context, intents) or lets_lapse(context, plan, window):
        return
    again = propose_again_at(intents)
    if again is not None and context.now < again:
        context.wake(again)
        return
    _propose(context, plan, window, gap, intents, held)


def _propose(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    intents: list[PurchaseIntent],
    held: list[Reservation],
) -> None:
    """More time on a block that is there is asked for first; the price of a new one decides whether it is worth it."""
    longer = _extension_offers(context, plan, window, gap, intents)
    if longer is None:
        return  # asked, and not answered yet
    query = query_for(context, plan, window, gap)
    found = _block_offers(context, plan, window, gap, query, held) if query is not None else []
    if found is None:
        return
    block = min(found, key=lambda offer: (offer.fee_usd, offer.start, offer.id), default=None)
    if longer and _is_worth(longer[0], gap, block):
        one, offer = longer[0]
        beside = "" if block is None else f"; a new block would be ${block.fee_usd:,}"
        said = f"{one.id} until {format_instant(offer.end)}, about ${offer.fee_usd:,}{beside}"
        if not _is_too_dear(context, plan, window, offer.fee_usd):
            intent = extension_intent(context, plan, window, one, offer, len(intents))
            context.do(ProposePurchase(intent, said))
            return
    if block is None:
        if query is not None:
            context.warn(window.name, _nothing_fits(window, gap, longer))
    elif query is not None and not _is_too_dear(context, plan, window, block.fee_usd):
        intent = block_intent(context, plan, window, gap, block, query.duration, len(intents))
        start = format_instant(block.start)
        said = f"{block.count} {block.instance_type} from {start}, about ${block.fee_usd:,}"
        context.do(ProposePurchase(intent, said))


def _is_worth(longer: tuple[Reservation, ExtensionOffer], gap: Step, block: Offer | None) -> bool:
    one, offer = longer
    if one.count > gap.amount * MAX_OVERSIZE:
        return False
    return block is None or offer.fee_usd * 100 <= block.fee_usd * EXTENSION_WORTH_PERCENT


def _nothing_fits(window: DemandWindow, gap: Step, longer: list[tuple[Reservation, ExtensionOffer]]) -> str:
    none = f"EC2 offers no block of {gap.amount} {window.instance_type} for it now"
    if not longer:
        return none
    one, offer = longer[0]
    return f"{none}; more time on {one.id} would be ${offer.fee_usd:,} for all of its {one.count}: `tidemill extend`"


def _is_too_dear(context: DecisionContext, plan: CapacityPlan, window: DemandWindow, fee_usd: int) -> bool:
    """What nobody may ever buy is not proposed. A platform without any ceiling only proposes."""
    ceiling_usd = highest_fee_usd(context.spec.platform, plan, window)
    if fee_usd <= ceiling_usd or not (ceiling_usd or window.max_fee_usd):
        return False
    context.warn(window.name, f"the cheapest is ${fee_usd:,}, more than the ${ceiling_usd:,} it may cost")
    return True


def _just_bought(context: DecisionContext, intents: list[PurchaseIntent]) -> bool:
    """Confirmed, and AWS does not show it yet: lists can be minutes late, and the payment of an extension hours."""
    for intent in intents:
        if intent.state is not PurchaseState.CONFIRMED:
            continue
        if not set(intent.reservation_ids) <= context.reservations.keys():
            return True
        if intent.extends:
            end = context.reservations[intent.extends].end
            if end is not None and end < intent.envelope.earliest_end:
                return True
    return False


# --- more time ----------------------------------------------------------------------------------------


def _extension_offers(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    intents: list[PurchaseIntent],
) -> list[tuple[Reservation, ExtensionOffer]] | None:
    """What EC2 would sell, the cheapest first; None: it has been asked and has not answered."""
    offers = []
    for block, by in extendable(context, plan, window, gap, intents):
        found = extension_offer(context, block, by, f"window {window.name} of plan {plan.name} outlasts it")
        if isinstance(found, ExtensionOffer):
            offers.append((block, found))
        elif found:
            return None
    return sorted(offers, key=lambda pair: (pair[1].fee_usd, pair[0].id))


def extension_intent(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    block: Reservation,
    offer: ExtensionOffer,
    attempt: int,
) -> PurchaseIntent:
    fee_usd = fee_to_approve_usd(context.spec.platform, plan, window, offer.fee_usd)
    return PurchaseIntent(
        id=intent_id(context.owner, plan.name, window.name, str(attempt)),
        plan=plan.name,
        pool=plan.spec.pool,
        window=window.name,
        envelope=extension_envelope(context.spec.platform, block, offer, fee_usd, context.now),
        proposer=ENGINE,
        proposed_at=context.now,
        extends=block.id,
    )


# --- a new block --------------------------------------------------------------------------------------


def needed_from(context: DecisionContext, plan: CapacityPlan, gap: Step) -> datetime:
    """A block runs beside the one before it for so long, for services to move without a gap; if there is time."""
    beside = gap.start - plan.spec.overlap
    return beside if beside > context.now else gap.start


def query_for(
    context: DecisionContext, plan: CapacityPlan, window: DemandWindow, gap: Step
) -> OfferQuery | None:
    """Blocks lie on the 11:30 UTC grid: take the last grid start before the gap and the first end after."""
    start = (
        max(grid_at_or_before(needed_from(context, plan, gap)), context.now)
        if gap.start > context.now
        else context.now
    )
    duration = round_up_duration(gap.end - start)
    if duration is None:
        context.warn(window.name, "what it lacks is longer than the longest block, 182 days")
        return None
    # A start-now block is rounded to the grid at its end, which can be up to a day later than asked.
    latest = start + duration + timedelta(days=1)
    zones = window.zones or tuple(sorted(context.spec.platform.spec.subnets))
    return OfferQuery(window.instance_type, gap.amount, duration, start.replace(second=0), latest, zones)


def _block_offers(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    query: OfferQuery,
    held: list[Reservation],
) -> list[Offer] | None:
    """Those that would close the gap; None: EC2 has been asked and has not answered."""
    search = _latest_search(context, query)
    fresh = SEARCH_FRESH if search is not None and search.offers else PROPOSE_AGAIN_AFTER
    if search is None or context.now - search.at >= fresh:
        lacks = f"window {window.name} of plan {plan.name} lacks {query.count} instances"
        context.do(SearchOffers(query, lacks))
        return None
    context.wake(search.at + fresh)
    soon = context.now + LEGAL_DURATIONS[0]
    begun = gap.start <= context.now
    before = missing_instance_hours(context.spec, held, plan.spec.pool, window, context.now)
    return [
        offer
        for offer in search.offers
        if (offer.start < soon if begun else offer.start <= needed_from(context, plan, gap))
        and offer.end >= gap.end
        and _missing_hours_with(context, plan, window, offer, held) < before
    ]


def _missing_hours_with(
    context: DecisionContext, plan: CapacityPlan, window: DemandWindow, offer: Offer, held: list[Reservation]
) -> float:
    after = with_bought(held, offer, context.owner, plan.spec.pool)
    return missing_instance_hours(context.spec, after, plan.spec.pool, window, context.now)


def _latest_search(context: DecisionContext, query: OfferQuery) -> OfferSearch | None:
    """Start-now searches move with the clock, so the start is not part of what makes two searches the same."""
    same = [
        search
        for search in context.world.searches
        if (search.query.instance_type, search.query.count, search.query.zones)
        == (query.instance_type, query.count, query.zones)
        and abs(search.query.earliest_start - query.earliest_start) <= PROPOSE_AGAIN_AFTER
        and search.query.duration == query.duration
    ]
    return max(same, key=lambda search: search.at, default=None)


def block_intent(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    best: Offer,
    duration: timedelta,
    attempt: int,
) -> PurchaseIntent:
    # A gap ahead must be covered from its first minute; one that has begun, as soon as somebody says yes.
    views = context.spec.platform.spec.approval.expires_after
    ahead = needed_from(context, plan, gap)
    latest = ahead if ahead > context.now else min(best.start + views, gap.end)
    return PurchaseIntent(
        id=intent_id(context.owner, plan.name, window.name, str(attempt)),
        plan=plan.name,
        pool=plan.spec.pool,
        window=window.name,
        envelope=Envelope(
            instance_type=best.instance_type,
            count=best.count,
            duration=duration,
            earliest_start=best.start - timedelta(days=1),
            latest_start=latest,
            earliest_end=gap.end,
            zones=window.zones or tuple(sorted(context.spec.platform.spec.subnets)),
            max_fee_usd=fee_to_approve_usd(context.spec.platform, plan, window, best.fee_usd),
            expires_at=context.now + context.spec.platform.spec.approval.expires_after,
        ),
        proposer=ENGINE,
        proposed_at=context.now,
    )


def intent_id(*parts: str) -> str:
    """The same proposal has the same id however often it is decided: proposing it twice writes it once."""
    return "tp-" + blake2b("|".join(parts).encode(), digest_size=9).hexdigest()
