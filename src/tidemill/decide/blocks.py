"""Time and money: what a capacity plan still lacks, what may be proposed, and what may be bought.

Fail closed: no approval, no budget, no durable ledger, or any doubt about an earlier call means nothing is
bought. An approval binds an envelope, not an offer; the best offer inside it is taken at submit.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from tidemill.decide.draft import Draft
from tidemill.plan import ProposePurchase, SearchOffers, SettlePurchase, SubmitPurchase
from tidemill.spec.durations import LEGAL_DURATIONS
from tidemill.spec.models import Approval, CapacityPlan, DemandWindow, Platform
from tidemill.spec.units import format_instant
from tidemill.world import (
    Envelope,
    Offer,
    OfferQuery,
    OfferSearch,
    PurchaseIntent,
    PurchaseState,
    Reservation,
    ReservationState,
)

ENGINE = "tidemill-engine"
# Offers are first come, first served: an answer older than this is asked for again before it is used.
SEARCH_FRESH = timedelta(minutes=30)
# After a person said no, or a search found nothing, the question is not asked again sooner.
ASK_AGAIN = timedelta(hours=6)
# A submit that found no offer inside the envelope tries again while the approval lives.
SUBMIT_AGAIN = timedelta(minutes=10)
# EC2 may show a purchase minutes late; after this long an unanswered one needs a person.
CALL_ANSWERS_WITHIN = timedelta(minutes=1)
# Head-room of an envelope over the offer seen: prices move between proposal and approval.
FEE_HEADROOM_PERCENT = 10

_OPEN = (PurchaseState.PROPOSED, PurchaseState.APPROVED, PurchaseState.SUBMITTED, PurchaseState.UNKNOWN)
_LIVE = (ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED, ReservationState.ACTIVE)


def follow_purchases(draft: Draft) -> None:
    if not draft.world.ledger_ok:
        return
    by_window: dict[tuple[str, str], list[PurchaseIntent]] = {}
    for intent in draft.world.purchases:
        by_window.setdefault((intent.plan, intent.window), []).append(intent)
        _follow(draft, intent)
    if not draft.world.cloud_ok:
        return
    for plan in draft.spec.plans.values():
        for window in plan.spec.demand:
            _cover(draft, plan, window, by_window.get((plan.name, window.name), []))


# --- intents that exist -------------------------------------------------------------------------------


def _follow(draft: Draft, intent: PurchaseIntent) -> None:
    if intent.state in (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN):
        _reconcile(draft, intent)
    elif intent.state in (PurchaseState.PROPOSED, PurchaseState.APPROVED):
        _submit_or_void(draft, intent)


def _reconcile(draft: Draft, intent: PurchaseIntent) -> None:
    """By its tag. Not found is not "not bought": an unknown outcome stays quarantined, and is never repeated."""
    made = tuple(sorted(one.id for one in draft.world.reservations if one.intent_id == intent.id))
    if made:
        fee = sum(draft.reservations[one].fee_usd for one in made)
        draft.do(SettlePurchase(intent, "confirmed", made, fee, f"found by its tag: {', '.join(made)}"))
        return
    due = (intent.state_at or intent.proposed_at) + CALL_ANSWERS_WITHIN
    if intent.state is PurchaseState.SUBMITTED:
        if draft.now >= due:
            draft.do(
                SettlePurchase(
                    intent, "unknown", (), intent.fee_usd, "the call's answer was lost; it is not repeated"
                )
            )
        draft.wake(due)
    else:
        draft.warn(
            intent.id, "the outcome of this purchase is unknown; look in the EC2 console before anything else"
        )


def _submit_or_void(draft: Draft, intent: PurchaseIntent) -> None:
    plan = draft.spec.plans.get(intent.plan)
    window = window_of(plan, intent.window)
    envelope = intent.envelope
    over = min(envelope.expires_at, envelope.latest_start)
    if window is None:
        draft.do(SettlePurchase(intent, "voided", (), 0, "its demand window is no longer in the plan"))
    elif draft.now >= over:
        draft.do(SettlePurchase(intent, "voided", (), 0, "it expired before it was approved and bought"))
    elif missing(draft, intent.pool, window) == 0:
        draft.do(SettlePurchase(intent, "voided", (), 0, "its demand is covered by now"))
    else:
        draft.wake(over)
        why_not = no_purchase(draft, intent)
        if why_not is not None:
            draft.warn(intent.id, why_not)
        elif intent.state is PurchaseState.APPROVED and intent.note and intent.state_at is not None:
            again = intent.state_at + SUBMIT_AGAIN
            draft.wake(again)
            if draft.now >= again:
                draft.do(SubmitPurchase(intent, "approved; trying again for an offer inside its envelope"))
        else:
            draft.do(SubmitPurchase(intent, "approved and inside the budget"))


def no_purchase(draft: Draft, intent: PurchaseIntent) -> str | None:
    """Why this may not be bought, or None. Checked when deciding and again when submitting."""
    why_not = not_granted(draft.spec.platform, intent)
    if why_not is not None:
        return why_not
    plan = draft.spec.plans.get(intent.plan)
    window, fee_usd = window_of(plan, intent.window), intent.envelope.max_fee_usd
    return over_budget(draft.spec.platform, plan, window, fee_usd, draft.world.spending.total_usd)


def not_granted(platform: Platform, intent: PurchaseIntent) -> str | None:
    policy: Approval = platform.spec.approval
    yes = {
        verdict.who
        for verdict in intent.verdicts
        if verdict.approved
        and verdict.who != intent.proposer
        and (not policy.approvers or verdict.who in policy.approvers)
    }
    if policy.mode == "propose":
        return "the platform only proposes: set approval.mode to buy"
    if policy.mode == "auto" and intent.envelope.max_fee_usd <= policy.auto_max_fee_usd:
        return None
    needed = 2 if policy.mode == "two" else 1
    if len(yes) < needed:
        return f"it waits for approval ({len(yes)} of {needed})"
    return None


def over_budget(
    platform: Platform, plan: CapacityPlan | None, window: DemandWindow | None, fee_usd: int, spent_usd: float
) -> str | None:
    """Ceilings come from the platform, and none there means nothing is bought; a plan and a window can only lower
    them, and say nothing where they are 0."""
    own = plan.spec.budget if plan is not None else None
    one = lowest(
        platform.spec.budget.per_purchase_usd,
        own.per_purchase_usd if own else 0,
        window.max_fee_usd if window else 0,
    )
    month = lowest(platform.spec.budget.monthly_usd, own.monthly_usd if own else 0)
    if fee_usd > one:
        return f"up to ${fee_usd:,} is over the ceiling of ${one:,} for one purchase"
    if spent_usd + fee_usd > month:
        return f"up to ${fee_usd:,} on top of ${spent_usd:,.0f} is over the monthly budget of ${month:,}"
    return None


def lowest(ceiling_usd: int, *others_usd: int) -> int:
    """Of ceilings that can only lower the first; 0 says nothing."""
    return min(ceiling_usd, ceiling_usd, *(other for other in others_usd if other))


def window_of(plan: CapacityPlan | None, name: str) -> DemandWindow | None:
    return next((one for one in plan.spec.demand if one.name == name), None) if plan is not None else None


# --- demand that is not covered -----------------------------------------------------------------------


def _cover(draft: Draft, plan: CapacityPlan, window: DemandWindow, intents: list[PurchaseIntent]) -> None:
    opens = window.start - plan.spec.propose_before
    if draft.now >= window.end:
        return
    if draft.now < opens:
        draft.wake(opens)
        return
    if any(intent.state in _OPEN for intent in intents):
        return
    short = missing(draft, plan.spec.pool, window)
    if short == 0 or _just_bought(draft, intents):
        return
    again = max(
        (i.state_at + ASK_AGAIN for i in intents if i.state is PurchaseState.REFUSED and i.state_at),
        default=None,
    )
    if again is not None and draft.now < again:
        draft.wake(again)
        return
    query = query_for(draft, window, short)
    if query is not None:
        _search_or_propose(draft, plan, window, query, len(intents))


def _just_bought(draft: Draft, intents: list[PurchaseIntent]) -> bool:
    """Confirmed, but the reservation does not show yet: EC2 can be minutes late."""
    return any(
        intent.state is PurchaseState.CONFIRMED and not set(intent.reservation_ids) <= set(draft.reservations)
        for intent in intents
    )


def missing(draft: Draft, pool: str, window: DemandWindow) -> int:
    """How many instances the window lacks at its worst instant, from what AWS shows (CB-4).

    What is held serves the windows of a pool in the order they are written: nobody's block counts twice.
    """
    holding: list[Reservation] = [
        one
        for one in draft.world.reservations
        if one.instance_type == window.instance_type
        and one.owner == draft.owner
        and (not one.pool or one.pool == pool)
        and one.state in _LIVE
    ]
    before = _served_before(draft, pool, window)
    start = max(window.start, draft.now)
    instants = {start} | {one.end for one in holding if one.end and start < one.end < window.end}
    instants |= {one.start for one in holding if start < one.start < window.end}
    instants |= {one.start for one in before if start < one.start < window.end}

    def left(at: datetime) -> int:
        held = sum(one.count for one in holding if one.start <= at and (one.end is None or at < one.end))
        return max(0, held - sum(one.instances for one in before if one.start <= at < one.end))

    return max(0, *(window.instances - left(at) for at in instants))


def _served_before(draft: Draft, pool: str, window: DemandWindow) -> list[DemandWindow]:
    """Windows of the same pool and type that come first, by plan and place in it."""
    earlier: list[DemandWindow] = []
    for plan in draft.spec.plans.values():
        for one in plan.spec.demand if plan.spec.pool == pool else ():
            if one is window:
                return earlier
            if one.instance_type == window.instance_type:
                earlier.append(one)
    return earlier


def query_for(draft: Draft, window: DemandWindow, count: int) -> OfferQuery | None:
    """Blocks lie on the 11:30 UTC grid: take the last grid start before the window and the first end after."""
    if window.start > draft.now:
        start = on_grid(window.start)
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
    draft: Draft, plan: CapacityPlan, window: DemandWindow, query: OfferQuery, attempt: int
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
        if (offer.start <= window.start or window.start <= draft.now) and offer.end >= window.end
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
    headroom = best.fee_usd * (100 + FEE_HEADROOM_PERCENT) // 100
    key = f"{draft.owner}|{plan.name}|{window.name}|{attempt}"
    # A window ahead must be covered from its first minute; one that has begun, as soon as can be.
    latest = window.start if window.start > draft.now else best.start + timedelta(hours=1)
    return PurchaseIntent(
        id="tp-" + blake2b(key.encode(), digest_size=9).hexdigest(),
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
            max_fee_usd=_ceiling(draft, plan, window, best.fee_usd, headroom),
            expires_at=draft.now + draft.spec.platform.spec.approval.expires_after,
        ),
        proposer=ENGINE,
        proposed_at=draft.now,
    )


def _ceiling(draft: Draft, plan: CapacityPlan, window: DemandWindow, fee_usd: int, headroom_usd: int) -> int:
    """What an approval may bind: the fee and a little more, but never over a ceiling that the fee itself keeps."""
    own, platform = plan.spec.budget, draft.spec.platform.spec.budget
    ceiling = lowest(platform.per_purchase_usd, own.per_purchase_usd if own else 0, window.max_fee_usd)
    return min(headroom_usd, ceiling) if ceiling >= fee_usd else headroom_usd
