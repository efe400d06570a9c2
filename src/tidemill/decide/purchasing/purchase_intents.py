"""How a proposal is written: its id, its envelope, and when the same may be proposed again.

Nothing is bought here: a proposal is an envelope that people, or an explicit policy, say yes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.approval import fee_to_approve_usd
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.planner.offer_filter import starts_now
from tidemill.decide.purchasing.usability import why_purchase_unusable, zones_to_buy_in
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.plan import ProposePurchase
from tidemill.model.planner_result import PlannedPurchase
from tidemill.model.purchase_reasons import ProposalReason
from tidemill.model.purchases import Envelope, PurchaseIntent, PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.platform import Platform

ENGINE = "tidemill-engine"
# After a person refused it, or a search found nothing, the same is not proposed again sooner.
PROPOSE_AGAIN_AFTER = timedelta(hours=6)
# ... and, however often it was refused, not later than this: the window comes nearer meanwhile.
MAX_BACKOFF = timedelta(days=2)
# A proposal that was voided so soon would be voided again: it must not come and go at every tick.
SHORT_LIFE = timedelta(minutes=10)


def intent_id(*parts: str) -> str:
    """The same proposal has the same id however often it is decided: proposing it twice writes it once."""
    return "tp-" + blake2b("|".join(parts).encode(), digest_size=9).hexdigest()


def propose(
    context: DecisionContext, intent: PurchaseIntent, reason: ProposalReason, held: Iterable[Reservation]
) -> None:
    """Unless its pool could not use it: whatever is bought later is judged by the envelope, not by the offer."""
    why_not = why_purchase_unusable(context.spec, intent, held)
    if why_not is not None:
        context.warn(intent.window, why_not)
        return
    context.do(ProposePurchase(intent, reason))


# --- for a demand window ------------------------------------------------------------------------------


def needed_from(context: DecisionContext, plan: CapacityPlan, gap: Step) -> datetime:
    """The new block overlaps with the one before it, so that services can move without a gap; if there is time."""
    overlapping = gap.start - plan.spec.overlap
    return overlapping if overlapping > context.now else gap.start


def block_intent(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    best: Offer,
    duration: timedelta,
    attempt: int,
) -> PurchaseIntent:
    # A gap ahead must be covered from its first minute; one that has begun, as soon as the purchase is approved.
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
            zones=zones_to_buy_in(context.spec, plan.spec.pool, window.zones) or (),
            max_fee_usd=fee_to_approve_usd(context.spec.platform, plan, window, best.fee_usd),
            expires_at=context.now + context.spec.platform.spec.approval.expires_after,
            planned_start=best.start,
        ),
        proposer=ENGINE,
        proposed_at=context.now,
    )


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


def extension_envelope(
    platform: Platform, block: Reservation, offer: ExtensionOffer, max_fee_usd: int, now: datetime
) -> Envelope:
    """This block, so much longer. It expires when EC2 stops selling extensions of the block."""
    expires_at = min(now + platform.spec.approval.expires_after, offer.start - EXTENSION_CLOSES_BEFORE_END)
    return Envelope.of_extension(block, offer.start, offer.end, max_fee_usd, expires_at)


# --- for a purchase of the planner --------------------------------------------------------------------


def window_name(purchase: PlannedPurchase) -> str:
    """It says what the purchase covers: the same purchase has the same name in every round."""
    offer = purchase.offer
    if isinstance(offer, ExtensionOffer):
        return f"{offer.reservation_id}-until-{offer.end:%y%m%d}"
    days = f"{offer.start:%y%m%d}-{offer.end:%y%m%d}"
    return f"{days}-{offer.count}x{offer.instance_type}-{offer.zone}"


def planned_intent(
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
    zones = zones_to_buy_in(context.spec, plan.spec.pool, plan.spec.calendar.zones) or ()
    views = context.spec.platform.spec.approval.expires_after
    earliest, latest = offer.start, offer.start
    if starts_now(offer):  # as soon as it is approved
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
        planned_start=offer.start,
    )


def _extension_envelope(context: DecisionContext, plan: CapacityPlan, offer: ExtensionOffer) -> Envelope:
    block = context.reservations[offer.reservation_id]
    fee_usd = fee_to_approve_usd(context.spec.platform, plan, None, offer.fee_usd)
    return extension_envelope(context.spec.platform, block, offer, fee_usd, context.now)


def _expires_at(context: DecisionContext) -> datetime:
    return context.now + context.spec.platform.spec.approval.expires_after


# --- proposing again-------------------------------------------------------------------------------------


def propose_again_at(before: Sequence[PurchaseIntent]) -> datetime | None:
    """When the same may be proposed again, given what became of earlier proposals (oldest first); None: at once.

    A proposal that expired is made anew at once the first time: its approval may have come while nothing was offered.
    """
    refusals = 0
    last: PurchaseIntent | None = None
    for intent in before:
        if intent.state is PurchaseState.REFUSED or _expired(intent):
            refusals, last = refusals + 1, intent
        else:
            refusals, last = 0, None
    if last is None or last.state_at is None:
        return None
    doubled = refusals - 1 if last.state is PurchaseState.REFUSED else refusals - 2
    return (
        last.state_at if doubled < 0 else last.state_at + min(PROPOSE_AGAIN_AFTER * 2**doubled, MAX_BACKOFF)
    )


def _expired(intent: PurchaseIntent) -> bool:
    """Voided because it expired, or right after it was made. Others were covered, or dropped from the plan."""
    over_at = intent.state_at if intent.state is PurchaseState.VOIDED else None
    if over_at is None:
        return False
    return over_at >= intent.envelope.expires_at or over_at - intent.proposed_at < SHORT_LIFE
