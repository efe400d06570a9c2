"""Which offers may enter the plan: legal lengths and sizes, on the grid, early enough, fresh, under the ceiling.

EC2 would not sell most of what is rejected here; offers from another source are checked the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tidemill.decide.purchasing.planner.inputs import (
    DAY,
    DatedExtensionOffer,
    DatedOffer,
    Policy,
    PoolDemand,
    Prices,
)
from tidemill.decide.purchasing.planner.result import RejectedOffer
from tidemill.model import ec2_facts
from tidemill.model.capacity import LIVE_STATES, SECURED_STATES, Reservation, SourceKind
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import OfferRefusal, OfferRefusalKind


def live_reservations(owned: Iterable[Reservation], now: datetime) -> tuple[Reservation, ...]:
    """Reservations that will serve. A block with a pending payment counts, an extension with one does not."""
    live = (block for block in owned if block.state in LIVE_STATES and (block.end is None or block.end > now))
    return tuple(sorted(live, key=lambda one: (one.start, one.id)))


def filter_offers(
    offers: Iterable[DatedOffer], demand: Sequence[PoolDemand], prices: Prices, policy: Policy
) -> tuple[tuple[Offer, ...], list[RejectedOffer]]:
    kept: dict[str, DatedOffer] = {}
    left_out: list[RejectedOffer] = []
    for seen in sorted(offers, key=lambda one: (one.at, one.offer.id)):
        why = _why_not(seen, demand, prices, policy)
        kept.pop(seen.offer.id, None)  # seen again: only the latest answer counts
        if why is not None:
            left_out.append(RejectedOffer(seen.offer.id, why))
        else:
            kept[seen.offer.id] = seen
    chosen = sorted((one.offer for one in kept.values()), key=lambda one: (one.start, one.end, one.id))
    return tuple(chosen), [one for one in left_out if one.id not in kept]


def _why_not(
    seen: DatedOffer, demand: Sequence[PoolDemand], prices: Prices, policy: Policy
) -> OfferRefusal | None:
    offer = seen.offer
    if policy.now - seen.at > policy.offers_fresh:
        return OfferRefusal(OfferRefusalKind.STALE, policy.now - seen.at)
    if not 1 <= offer.count <= ec2_facts.MAX_INSTANCES_PER_BLOCK:
        return OfferRefusal(
            OfferRefusalKind.WRONG_COUNT, count=offer.count, of=ec2_facts.MAX_INSTANCES_PER_BLOCK
        )
    if offer.start < policy.now + policy.lead:
        return OfferRefusal(OfferRefusalKind.STARTS_TOO_SOON, policy.lead)
    if offer.start > policy.now + ec2_facts.FARTHEST_START:
        return OfferRefusal(OfferRefusalKind.STARTS_TOO_FAR_AHEAD)
    if not _on_grid(offer.end) or not _legal_length(offer.start, offer.end, policy.now):
        return OfferRefusal(OfferRefusalKind.NO_SUCH_BLOCK, offer.end - offer.start)
    if offer.fee_usd > policy.ceilings.per_purchase_usd:
        return _over_ceiling(offer.fee_usd, policy)
    if offer.start >= policy.until:
        return OfferRefusal(OfferRefusalKind.STARTS_AFTER_CALENDAR)
    if offer.instance_type not in prices or not any(is_usable_by(pool, offer) for pool in demand):
        return OfferRefusal(OfferRefusalKind.NO_POOL)
    return None


def _over_ceiling(fee_usd: int, policy: Policy) -> OfferRefusal:
    limit_usd = policy.ceilings.per_purchase_usd
    return OfferRefusal(OfferRefusalKind.OVER_CEILING, fee_usd=fee_usd, limit_usd=limit_usd)


def is_usable_by(pool: PoolDemand, supply: Offer | Reservation) -> bool:
    """What was bought for the pool counts even where its documents changed since: the same is not bought twice."""
    if supply.instance_type not in pool.types:
        return False
    if isinstance(supply, Reservation) and supply.pool == pool.pool:
        return True
    if pool.zones and supply.zone not in pool.zones:
        return False
    return isinstance(supply, Reservation) or pool.could_use(supply.instance_type, supply.count)


def filter_extensions(
    extensions: Iterable[DatedExtensionOffer], owned: Sequence[Reservation], policy: Policy
) -> tuple[tuple[DatedExtensionOffer, ...], list[RejectedOffer]]:
    blocks = {block.id: block for block in owned}
    kept: dict[str, DatedExtensionOffer] = {}
    left_out: dict[str, RejectedOffer] = {}
    for one in sorted(extensions, key=lambda one: (one.at, one.id)):
        why = _why_not_extend(one, blocks, policy)
        kept.pop(one.id, None)
        if why is not None:
            left_out[one.id] = RejectedOffer(one.id, why)
        else:
            kept[one.id] = one
    chosen = sorted(kept.values(), key=lambda one: (one.block, one.end, one.id))
    return tuple(chosen), [one for one in left_out.values() if one.id not in kept]


def _why_not_extend(
    one: DatedExtensionOffer, blocks: Mapping[str, Reservation], policy: Policy
) -> OfferRefusal | None:
    block = blocks.get(one.block)
    if block is None or block.end is None or block.kind is not SourceKind.BLOCK:
        return OfferRefusal(OfferRefusalKind.BLOCK_NOT_HELD, name=one.block)
    if policy.now - one.at > policy.offers_fresh:
        return OfferRefusal(OfferRefusalKind.STALE, policy.now - one.at)
    if block.state not in SECURED_STATES or block.extension_pending_to is not None:
        return OfferRefusal(OfferRefusalKind.BLOCK_NOT_PAID, name=block.id)
    if (
        not block.end - ec2_facts.EXTENSION_OPENS_BEFORE_END
        <= policy.now
        <= block.end - max(ec2_facts.EXTENSION_CLOSES_BEFORE_END, policy.lead)
    ):
        return OfferRefusal(OfferRefusalKind.EXTENSIONS_CLOSED)
    if (
        not ec2_facts.is_legal_duration(one.end - block.end)
        or one.end - block.start > ec2_facts.LONGEST_BLOCK
    ):
        return OfferRefusal(OfferRefusalKind.NO_SUCH_EXTENSION, one.end - block.end)
    if one.fee_usd > policy.ceilings.per_purchase_usd:
        return _over_ceiling(one.fee_usd, policy)
    return None


def _on_grid(at: datetime) -> bool:
    return (at.hour, at.minute, at.second, at.microsecond) == (11, 30, 0, 0)


def starts_now(offer: Offer) -> bool:
    """Only start-now blocks start off the 11:30 UTC grid."""
    return not _on_grid(offer.start)


def _legal_length(start: datetime, end: datetime, now: datetime) -> bool:
    """A block on the grid has exactly a legal length; a start-now block is a little shorter or longer."""
    length = end - start
    if _on_grid(start):
        return ec2_facts.is_legal_duration(length)
    nearest = min((abs(length - legal) for legal in ec2_facts.nearest_legal_durations(length)), default=DAY)
    return start - now < DAY and nearest < DAY and length > timedelta(0)
