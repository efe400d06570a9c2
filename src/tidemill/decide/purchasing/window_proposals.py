"""Proposals for demand windows: an extension of a block that is held (`window_extensions.py`), else a new block,
searched for and proposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.approval import highest_fee_usd
from tidemill.decide.purchasing.coverage import MAX_OVERSIZE, with_bought
from tidemill.decide.purchasing.offer_worth import cost_for_window_usd
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.purchase_intents import (
    PROPOSE_AGAIN_AFTER,
    block_intent,
    extension_intent,
    needed_from,
    propose,
    propose_again_at,
)
from tidemill.decide.purchasing.usability import why_offer_unusable, zones_to_buy_in
from tidemill.decide.purchasing.window_coverage import (
    coverage_changes_at,
    first_gap,
    held_for,
    missing_instance_time,
)
from tidemill.decide.purchasing.window_extensions import extension_offers
from tidemill.decide.purchasing.windows_at_rest import WindowsAtRest
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import (
    LEGAL_DURATIONS,
    grid_at_or_before,
    least_sold,
    round_up_duration,
)
from tidemill.model.offers import (
    ExtensionOffer,
    Offer,
    OfferQuery,
    OfferSearch,
)
from tidemill.model.plan import SearchOffers
from tidemill.model.purchase_reasons import (
    ProposalReason,
    PurchaseWarning,
    PurchaseWarningKind,
    SearchKind,
    SearchReason,
)
from tidemill.model.purchases import OPEN, PurchaseIntent, PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.usable_blocks import why_unusable

# Offers are first come, first served: an older answer is not used.
SEARCH_FRESH = timedelta(minutes=30)
# An extension keeps the nodes, so it may cost a quarter more than a new block.
EXTENSION_WORTH_PERCENT = 125


def cover_window(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    intents: list[PurchaseIntent],
    held: list[Reservation],
) -> None:
    """`held` includes what open purchases may still bring."""
    resting = context.memory.of(WindowsAtRest)
    if resting.still(context, plan, window):
        return
    opens = window.start - plan.spec.propose_before
    if context.now >= window.end:
        resting.note(context, plan, window, [])
        return
    if context.now < opens:
        context.wake(opens)
        resting.note(context, plan, window, [opens])
        return
    changes_at = list(coverage_changes_at(context.spec, held, plan.spec.pool, window))
    for at in changes_at:
        context.wake(at)
    gap = None
    if not any(intent.state in OPEN for intent in intents):
        gap = first_gap(context.spec, held, plan.spec.pool, window, context.now)
    if gap is None:
        resting.note(context, plan, window, changes_at)
        return
    if _just_bought(context, intents) or lets_lapse(context, plan, window):
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
    """EC2 is asked for an extension first; the price of a new block decides which of the two is proposed."""
    longer = extension_offers(context, plan, window, gap, intents)
    if longer is None:
        return  # asked, and not answered yet
    query = (
        query_for(context, plan, window, gap) if _could_use_new_block(context, plan, window, gap) else None
    )
    found = _block_offers(context, plan, window, gap, query, held) if query is not None else []
    if found is None:
        return
    block = min(
        found,
        key=lambda offer: (
            cost_for_window_usd(context.spec, held, offer, plan.spec.pool, window, context.now), offer.start, offer.id,
        ),
        default=None,
    )  # fmt: skip
    if longer and _is_worth(longer[0], gap, block):
        extended, offer = longer[0]
        if not _is_too_dear(context, plan, window, offer.fee_usd):
            intent = extension_intent(context, plan, window, extended, offer, len(intents))
            new_block_usd = None if block is None else block.fee_usd
            propose(context, intent, ProposalReason(offer, new_block_usd=new_block_usd), held)
            return
    if block is None:
        if query is not None:
            context.warn(window.name, _no_offer(window, gap, longer))
    elif query is not None and not _is_too_dear(context, plan, window, block.fee_usd):
        intent = block_intent(context, plan, window, gap, block, query.duration, len(intents))
        propose(context, intent, ProposalReason(block), held)


def _could_use_new_block(
    context: DecisionContext, plan: CapacityPlan, window: DemandWindow, gap: Step
) -> bool:
    spec, pool = context.spec, context.spec.pools.get(plan.spec.pool)
    if pool is None:
        return False  # the documents are refused
    kind = spec.catalog.types.get(window.instance_type)
    count = least_sold(gap.amount, ultraserver=kind is not None and bool(kind.ultraserver))
    why = why_unusable(spec.catalog, spec.platform, pool, window.instance_type, count, window.zones)
    if why is not None:
        context.warn(window.name, why)
    return why is None


def _is_worth(longer: tuple[Reservation, ExtensionOffer], gap: Step, block: Offer | None) -> bool:
    one, offer = longer
    if one.count > gap.amount * MAX_OVERSIZE:
        return False
    return block is None or offer.fee_usd * 100 <= block.fee_usd * EXTENSION_WORTH_PERCENT


def _no_offer(
    window: DemandWindow, gap: Step, longer: list[tuple[Reservation, ExtensionOffer]]
) -> PurchaseWarning:
    warning = PurchaseWarning(
        PurchaseWarningKind.NO_OFFER, instance_type=window.instance_type, count=gap.amount
    )
    if not longer:
        return warning
    block, offer = longer[0]
    return replace(warning, name=block.id, of=block.count, fee_usd=offer.fee_usd)


def _is_too_dear(context: DecisionContext, plan: CapacityPlan, window: DemandWindow, fee_usd: int) -> bool:
    """A fee above the ceilings is not proposed. A platform without any ceiling only proposes."""
    ceiling_usd = highest_fee_usd(context.spec.platform, plan, window)
    if fee_usd <= ceiling_usd or not (ceiling_usd or window.max_fee_usd):
        return False
    warning = PurchaseWarning(PurchaseWarningKind.TOO_DEAR, fee_usd=fee_usd, limit_usd=ceiling_usd)
    context.warn(window.name, warning)
    return True


def _just_bought(context: DecisionContext, intents: list[PurchaseIntent]) -> bool:
    """Confirmed, and AWS does not show it yet: the list can be minutes late, and the payment of an extension hours."""
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


# --- a new block --------------------------------------------------------------------------------------


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
    # From these instants on it is another question, or one that moves with the clock.
    shorter = [one for one in LEGAL_DURATIONS if duration is None or one < duration]
    for at in (
        gap.start - plan.spec.overlap,
        grid_at_or_before(needed_from(context, plan, gap)),
        gap.start,
        gap.end - shorter[-1] if shorter else None,
    ):
        context.wake(at)
    if duration is None:
        context.warn(window.name, PurchaseWarning(PurchaseWarningKind.TOO_LONG))
        return None
    # A start-now block is rounded to the grid at its end, which can be up to a day later than asked.
    latest = start + duration + timedelta(days=1)
    zones = zones_to_buy_in(context.spec, plan.spec.pool, window.zones) or ()
    kind = context.spec.catalog.types.get(window.instance_type)
    count = least_sold(gap.amount, ultraserver=kind is not None and bool(kind.ultraserver))
    if count > gap.amount * MAX_OVERSIZE:  # a whole UltraServer for the few instances that another one lacks
        context.warn(window.name, _no_offer(window, gap, []))
        return None
    return OfferQuery(window.instance_type, count, duration, start.replace(second=0), latest, zones)


def _block_offers(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    query: OfferQuery,
    held: list[Reservation],
) -> list[Offer] | None:
    """Those that would close the gap; None: EC2 is asked and has not answered yet."""
    search = _latest_search(context, query)
    fresh = SEARCH_FRESH if search is not None and search.offers else PROPOSE_AGAIN_AFTER
    if search is None or context.now - search.at >= fresh:
        short = SearchReason(SearchKind.WINDOW_SHORT, plan.name, window.name, query.count)
        context.do(SearchOffers(query, short))
        return None
    context.wake(search.at + fresh)
    soon = context.now + LEGAL_DURATIONS[0]
    begun = gap.start <= context.now
    before = missing_instance_time(context.spec, held, plan.spec.pool, window, context.now)
    usable = _usable_offers(context, plan, window, search.offers, held)
    for offer in usable if begun else ():  # it is near enough a second after this
        context.wake(offer.start - LEGAL_DURATIONS[0] + timedelta(seconds=1))
    return [
        offer
        for offer in usable
        if (offer.start < soon if begun else offer.start <= needed_from(context, plan, gap))
        and offer.end >= gap.end
        and _missing_time_with(context, plan, window, offer, held) < before
    ]


def _usable_offers(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    offers: Sequence[Offer],
    held: list[Reservation],
) -> list[Offer]:
    reasons = [why_offer_unusable(context.spec, plan.spec.pool, offer, held) for offer in offers]
    if offers and None not in reasons:
        context.warn(window.name, next(why for why in reasons if why is not None))
    return [offer for offer, why in zip(offers, reasons, strict=True) if why is None]


def _missing_time_with(
    context: DecisionContext, plan: CapacityPlan, window: DemandWindow, offer: Offer, held: list[Reservation]
) -> timedelta:
    after = with_bought(held, offer, context.owner, plan.spec.pool, window.name)
    return missing_instance_time(context.spec, after, plan.spec.pool, window, context.now)


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


# --- little-used blocks -------------------------------------------------------------------------------


def lets_lapse(context: DecisionContext, plan: CapacityPlan, window: DemandWindow) -> bool:
    """The plan lets little-used blocks lapse, and all that serve this window now were little used."""
    wanted = plan.spec.extend.min_utilisation
    if not wanted:
        return False
    serving = held_for(context.spec, context.world.reservations, plan.spec.pool, window)
    shares = [share for block in serving if (share := used_share(context, block.id)) is not None]
    if not shares or max(shares) >= wanted:
        return False
    warning = PurchaseWarning(PurchaseWarningKind.LITTLE_USED, used=max(shares), wanted=wanted)
    context.warn(window.name, warning)
    return True


def used_share(context: DecisionContext, reservation_id: str) -> float | None:
    """The share of accelerator hours with a pod on them; None: the block is less than a day old, or has no instance."""
    return next(
        (
            use.used_h / use.held_h
            for use in context.world.uses
            if use.reservation_id == reservation_id and use.held_h >= 24 * use.accelerators > 0
        ),
        None,
    )
