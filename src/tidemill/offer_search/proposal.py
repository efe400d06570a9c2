"""What a person asks to buy, as an intent: an envelope around the offer they saw, without a plan.

It lives the life of every other purchase. Asking twice buys once: the same offer gives the same intent, and because
EC2 sells the same block under ever new ids, one of the same kind at the same time is held against it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.decide.read_models import extension_envelope, fee_to_approve_usd, intent_id
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import is_on_grid
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchases import IN_DOUBT, NOT_SUBMITTED, OPEN, Envelope, PurchaseIntent, PurchaseState
from tidemill.spec.platform import Platform

# An offer that starts "now" starts later when it is approved later, and ends at the same time. Longer than this and
# it is another block.
NOW_MAY_BE_LATER = timedelta(hours=6)


def starts_now(offer: Offer) -> bool:
    """EC2 starts blocks of a later day on the grid, and others at an odd minute."""
    return not is_on_grid(offer.start)


def same_block(seen: Offer, offered: Offer) -> bool:
    """Whether this is what was seen, under whatever id: an offer may vanish and come back as another."""
    slack = NOW_MAY_BE_LATER if starts_now(seen) and starts_now(offered) else timedelta(0)
    return (
        (seen.instance_type, seen.zone, seen.count, seen.end)
        == (offered.instance_type, offered.zone, offered.count, offered.end)
    ) and timedelta(0) <= offered.start - seen.start <= slack


def block_intent(
    platform: Platform,
    offer: Offer,
    duration: timedelta,
    *,
    pool: str,
    proposer: str,
    now: datetime,
    attempt: int = 0,
) -> PurchaseIntent:
    """`duration` is what was asked for: a start-now offer is a little shorter or longer."""
    slack = NOW_MAY_BE_LATER if starts_now(offer) else timedelta(0)
    return PurchaseIntent(
        id=by_hand_id(platform, offer.id, attempt),
        plan="",
        pool=pool,
        window="",
        envelope=Envelope(
            instance_type=offer.instance_type,
            count=offer.count,
            duration=duration,
            earliest_start=offer.start,
            latest_start=offer.start + slack,
            earliest_end=offer.end,
            zones=(offer.zone,),
            max_fee_usd=fee_to_approve_usd(platform, None, None, offer.fee_usd),
            expires_at=now + platform.spec.approval.expires_after,
        ),
        proposer=proposer,
        proposed_at=now,
    )


def extension_intent(
    platform: Platform,
    block: Reservation,
    offer: ExtensionOffer,
    *,
    proposer: str,
    now: datetime,
    attempt: int = 0,
) -> PurchaseIntent:
    fee_usd = fee_to_approve_usd(platform, None, None, offer.fee_usd)
    return PurchaseIntent(
        id=by_hand_id(platform, offer.id, attempt),
        plan="",
        pool=block.pool,
        window="",
        envelope=extension_envelope(platform, block, offer, fee_usd, now),
        proposer=proposer,
        proposed_at=now,
        extends=block.id,
    )


def by_hand_id(platform: Platform, offer_id: str, attempt: int) -> str:
    return intent_id(platform.spec.deployment, "by hand", offer_id, str(attempt))


def earlier_attempts(
    platform: Platform, purchases: Iterable[PurchaseIntent], offer_id: str
) -> list[PurchaseIntent]:
    """Earlier intents for the same offer, oldest first."""
    known = {purchase.id: purchase for purchase in purchases}
    found: list[PurchaseIntent] = []
    while (before := known.get(by_hand_id(platform, offer_id, len(found)))) is not None:
        found.append(before)
    return found


def similar_purchase(
    purchases: Iterable[PurchaseIntent], wanted: PurchaseIntent, now: datetime
) -> PurchaseIntent | None:
    """A similar purchase that was made, may have been made, or is open: to buy both by mistake costs a block.

    In doubt it need only be of its type; otherwise it is of its type, count and zone. An extension moves no count:
    there it is one of the same block, and only one in doubt.
    """
    for purchase in purchases:
        alike = (purchase.envelope.instance_type, purchase.extends) == (
            wanted.envelope.instance_type,
            wanted.extends,
        )
        if purchase.id == wanted.id or not alike or not _overlap(purchase.envelope, wanted.envelope):
            continue
        if purchase.state in IN_DOUBT:
            return purchase
        if (
            not wanted.extends
            and is_live(purchase, now)
            and _same_size_and_place(purchase.envelope, wanted.envelope)
        ):
            return purchase
    return None


def similar_block(blocks: Iterable[Reservation], wanted: PurchaseIntent) -> Reservation | None:
    """A block of ours like the one that is wanted, whoever bought it. None for an extension."""
    bound = wanted.envelope
    for one in () if wanted.extends else blocks:
        if (
            (one.instance_type, one.count) == (bound.instance_type, bound.count)
            and one.zone in bound.zones
            and one.end is not None
            and one.start < bound.earliest_end
            and bound.earliest_start < one.end
        ):
            return one
    return None


def open_extension_of_same_block(
    purchases: Iterable[PurchaseIntent], wanted: PurchaseIntent, now: datetime
) -> PurchaseIntent | None:
    """An open intent, the engine's or a person's, to extend the same block: EC2 sells one extension at a time."""
    for purchase in purchases:
        same = bool(wanted.extends) and purchase.extends == wanted.extends and purchase.id != wanted.id
        if same and purchase.state in OPEN and is_live(purchase, now):
            return purchase
    return None


def expired_requests(
    purchases: Iterable[PurchaseIntent], wanted: PurchaseIntent, now: datetime
) -> list[PurchaseIntent]:
    """Intents by hand that asked for the same and expired without an answer."""
    return [
        purchase
        for purchase in purchases
        if purchase.state in NOT_SUBMITTED
        and not purchase.plan
        and expired(purchase, now)
        and (purchase.envelope.instance_type, purchase.extends)
        == (wanted.envelope.instance_type, wanted.extends)
        and _same_size_and_place(purchase.envelope, wanted.envelope)
        and _overlap(purchase.envelope, wanted.envelope)
    ]


def _same_size_and_place(one: Envelope, other: Envelope) -> bool:
    """An envelope without zones may be bought in any."""
    anywhere = not one.zones or not other.zones
    return one.count == other.count and (anywhere or bool(set(one.zones) & set(other.zones)))


def _overlap(one: Envelope, other: Envelope) -> bool:
    return one.earliest_start < other.earliest_end and other.earliest_start < one.earliest_end


def is_live(intent: PurchaseIntent, now: datetime) -> bool:
    """Bought, or may still be bought. What expired before it was submitted never will be."""
    if intent.state in NOT_SUBMITTED:
        return not expired(intent, now)
    return intent.state in (*OPEN, PurchaseState.CONFIRMED)


def expired(intent: PurchaseIntent, now: datetime) -> bool:
    return now >= min(intent.envelope.expires_at, intent.envelope.latest_start)
