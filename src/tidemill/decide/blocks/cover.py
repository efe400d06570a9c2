"""What the plans still lack: more time on a block that is there, else a new one, searched for and proposed.

Nothing is bought here: a proposal is an envelope that people, or an explicit policy, say yes to.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from tidemill.decide.blocks.demand import missing, with_offer
from tidemill.decide.blocks.extend import EXTENDABLE_UNTIL, extendable, offer_to_extend
from tidemill.decide.blocks.granted import fee_to_approve_usd, highest_fee_usd
from tidemill.decide.blocks.life import OPEN
from tidemill.decide.blocks.used import lapses
from tidemill.decide.draft import Draft
from tidemill.plan import ProposePurchase, SearchOffers
from tidemill.spec.durations import LEGAL_DURATIONS
from tidemill.spec.models import CapacityPlan, DemandWindow
from tidemill.spec.units import format_instant
from tidemill.world import (
    Envelope,
    ExtensionOffer,
    Offer,
    OfferQuery,
    OfferSearch,
    PurchaseIntent,
    PurchaseState,
    Reservation,
)

ENGINE = "tidemill-engine"
# Offers are first come, first served: an answer older than this is asked for again before it is used.
SEARCH_FRESH = timedelta(minutes=30)
# After a person said no, or a search found nothing, the question is not asked again sooner.
ASK_AGAIN = timedelta(hours=6)


def cover(
    draft: Draft,
    plan: CapacityPlan,
    window: DemandWindow,
    intents: list[PurchaseIntent],
    held: list[Reservation],
) -> None:
    """`held` counts what is under way too."""
    opens = window.start - plan.spec.propose_before
    if draft.now >= window.end:
        return
    if draft.now < opens:
        draft.wake(opens)
        return
    if any(intent.state in OPEN for intent in intents):
        return
    short = missing(draft.spec, held, plan.spec.pool, window, draft.now)
    if short == 0 or _just_bought(draft, intents) or lapses(draft, plan, window):
        return
    again = max(
        (i.state_at + ASK_AGAIN for i in intents if i.state is PurchaseState.REFUSED and i.state_at),
        default=None,
    )
    if again is not None and draft.now < again:
        draft.wake(again)
        return
    if not _extend(draft, plan, window, intents, held):
        query = query_for(draft, plan, window, short)
        if query is not None:
            _search_or_propose(draft, plan, window, query, len(intents), held)


def _just_bought(draft: Draft, intents: list[PurchaseIntent]) -> bool:
    """Confirmed, and AWS does not show it yet: lists can be minutes late, and the payment of an extension hours."""
    for intent in intents:
        if intent.state is not PurchaseState.CONFIRMED:
            continue
        if not set(intent.reservation_ids) <= draft.reservations.keys():
            return True
        if intent.extends:
            end = draft.reservations[intent.extends].end
            if end is not None and end < intent.envelope.earliest_end:
                return True
    return False


# --- more time ----------------------------------------------------------------------------------------


def _extend(
    draft: Draft,
    plan: CapacityPlan,
    window: DemandWindow,
    intents: list[PurchaseIntent],
    held: list[Reservation],
) -> bool:
    """True: it is being asked for, or proposed. False: no block can be extended for it."""
    for block, by in extendable(draft, plan, window, intents, held):
        found = offer_to_extend(draft, block, by, f"window {window.name} of plan {plan.name} outlasts it")
        if isinstance(found, ExtensionOffer):
            ceiling = highest_fee_usd(draft.spec.platform, plan, window)
            if found.fee_usd > ceiling:
                draft.warn(window.name, f"extending {block.id} is ${found.fee_usd:,}, more than ${ceiling:,}")
                continue
            intent = extension_intent(draft, plan, window, block, found, len(intents))
            until = format_instant(found.end)
            draft.do(ProposePurchase(intent, f"{block.id} until {until}, about ${found.fee_usd:,}"))
            return True
        if found:
            return True
    return False


def extension_intent(
    draft: Draft,
    plan: CapacityPlan,
    window: DemandWindow,
    block: Reservation,
    offer: ExtensionOffer,
    attempt: int,
) -> PurchaseIntent:
    return PurchaseIntent(
        id=intent_id(draft.owner, plan.name, window.name, str(attempt)),
        plan=plan.name,
        pool=plan.spec.pool,
        window=window.name,
        envelope=Envelope(
            instance_type=block.instance_type,
            count=block.count,
            duration=offer.end - offer.start,
            earliest_start=offer.start,
            latest_start=offer.start,
            earliest_end=offer.end,
            zones=(block.zone,),
            max_fee_usd=fee_to_approve_usd(draft.spec.platform, plan, window, offer.fee_usd),
            expires_at=min(
                draft.now + draft.spec.platform.spec.approval.expires_after, offer.start - EXTENDABLE_UNTIL
            ),
        ),
        proposer=ENGINE,
        proposed_at=draft.now,
        extends=block.id,
    )


# --- a new block --------------------------------------------------------------------------------------


def needed_from(draft: Draft, plan: CapacityPlan, window: DemandWindow) -> datetime:
    """A block runs beside the one before it for so long, for services to move without a gap; if there is time."""
    beside = window.start - plan.spec.overlap
    return beside if beside > draft.now else window.start


def query_for(draft: Draft, plan: CapacityPlan, window: DemandWindow, count: int) -> OfferQuery | None:
    """Blocks lie on the 11:30 UTC grid: take the last grid start before the window and the first end after."""
    if window.start > draft.now:
        start = on_grid(needed_from(draft, plan, window))
        start = start if start > draft.now else draft.now
    else:
        start = draft.now
    span = window.end - start
    duration = next((one for one in LEGAL_DURATIONS if one >= span), None)
    if duration is None:
        draft.warn(window.name, "the window is longer than the longest block, 182 days")
        return None
    # A start-now block is rounded to the grid at its end, which can be up to a day later than asked.
    latest = start + duration + timedelta(days=1)
    return OfferQuery(window.instance_type, count, duration, start.replace(second=0), latest, window.zones)


def on_grid(at: datetime) -> datetime:
    """The last 11:30 UTC at or before `at`."""
    grid = at.replace(hour=11, minute=30, second=0, microsecond=0)
    return grid if grid <= at else grid - timedelta(days=1)


def _search_or_propose(
    draft: Draft,
    plan: CapacityPlan,
    window: DemandWindow,
    query: OfferQuery,
    attempt: int,
    held: list[Reservation],
) -> None:
    search = _latest_search(draft, query)
    if search is None or draft.now - search.at >= (SEARCH_FRESH if search.offers else ASK_AGAIN):
        draft.do(
            SearchOffers(query, f"window {window.name} of plan {plan.name} lacks {query.count} instances")
        )
        return
    good = [
        offer
        for offer in search.offers
        if (offer.start <= needed_from(draft, plan, window) or window.start <= draft.now)
        and offer.end >= window.end
        and _helps(draft, plan, window, offer, held)
    ]
    if not good:
        draft.wake(search.at + (SEARCH_FRESH if search.offers else ASK_AGAIN))
        draft.warn(window.name, f"EC2 offers no block of {query.count} {query.instance_type} for it now")
        return
    best = min(good, key=lambda offer: (offer.fee_usd, offer.start, offer.id))
    if window.max_fee_usd and best.fee_usd > window.max_fee_usd:
        draft.wake(search.at + SEARCH_FRESH)
        draft.warn(
            window.name,
            f"the cheapest offer is ${best.fee_usd:,}, more than the ${window.max_fee_usd:,} it may cost",
        )
        return
    intent = propose(draft, plan, window, best, query.duration, attempt)
    draft.do(
        ProposePurchase(
            intent,
            f"{best.count} {best.instance_type} from {format_instant(best.start)}, about ${best.fee_usd:,}",
        )
    )


def _helps(
    draft: Draft, plan: CapacityPlan, window: DemandWindow, offer: Offer, held: list[Reservation]
) -> bool:
    after = with_offer(held, offer, draft.owner, plan.spec.pool)
    before = missing(draft.spec, held, plan.spec.pool, window, draft.now)
    return missing(draft.spec, after, plan.spec.pool, window, draft.now) < before


def _latest_search(draft: Draft, query: OfferQuery) -> OfferSearch | None:
    """Start-now searches move with the clock, so the start is not part of what makes two searches the same."""
    same = [
        search
        for search in draft.world.searches
        if (search.query.instance_type, search.query.count, search.query.zones)
        == (query.instance_type, query.count, query.zones)
        and abs(search.query.earliest_start - query.earliest_start) <= ASK_AGAIN
        and search.query.duration == query.duration
    ]
    return max(same, key=lambda search: search.at, default=None)


def propose(
    draft: Draft, plan: CapacityPlan, window: DemandWindow, best: Offer, duration: timedelta, attempt: int
) -> PurchaseIntent:
    # A window ahead must be covered from its first minute; one that has begun, as soon as somebody says yes.
    lives = draft.spec.platform.spec.approval.expires_after
    ahead = needed_from(draft, plan, window)
    latest = ahead if ahead > draft.now else min(best.start + lives, window.end)
    return PurchaseIntent(
        id=intent_id(draft.owner, plan.name, window.name, str(attempt)),
        plan=plan.name,
        pool=plan.spec.pool,
        window=window.name,
        envelope=Envelope(
            instance_type=best.instance_type,
            count=best.count,
            duration=duration,
            earliest_start=best.start - timedelta(days=1),
            latest_start=latest,
            earliest_end=window.end,
            zones=window.zones or tuple(sorted(draft.spec.platform.spec.subnets)),
            max_fee_usd=fee_to_approve_usd(draft.spec.platform, plan, window, best.fee_usd),
            expires_at=draft.now + draft.spec.platform.spec.approval.expires_after,
        ),
        proposer=ENGINE,
        proposed_at=draft.now,
    )


def intent_id(*parts: str) -> str:
    """The same proposal has the same id however often it is decided: proposing it twice writes it once."""
    return "tp-" + blake2b("|".join(parts).encode(), digest_size=9).hexdigest()
