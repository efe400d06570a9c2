"""Whether what is bought could be used by its pool, given the blocks that are held. Asked when a purchase is proposed,
approved and submitted.

What the documents say alone is `spec.usable_blocks`; here the pool's other blocks take their part of its limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from tidemill.catalog import InstanceType
from tidemill.model.capacity import LIVE_STATES, Reservation, SourceKind
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance, ComputePool
from tidemill.spec.usable_blocks import usable_zones, why_reservation_unusable, why_unusable


def why_purchase_unusable(
    spec: Spec, intent: PurchaseIntent, held: Iterable[Reservation]
) -> PurchaseReason | None:
    """Why nothing inside the envelope could be used by its pool, or None. `held` is without this purchase itself."""
    if intent.extends:
        return _why_extension_unusable(spec, intent, held)
    pool, bound = spec.pools.get(intent.pool), intent.envelope
    if pool is None:
        return PurchaseReason(ReasonKind.POOL_REMOVED, name=intent.pool)
    why = why_unusable(spec.catalog, spec.platform, pool, bound.instance_type, bound.count, bound.zones)
    span = (bound.latest_start, bound.earliest_end)
    return why or _no_room(spec, pool, bound.instance_type, bound.count, *span, held)


def why_offer_unusable(
    spec: Spec, pool_name: str, offer: Offer | ExtensionOffer, held: Iterable[Reservation]
) -> PurchaseReason | None:
    """The same of one offer for a new block. An extension keeps its block: there is nothing to ask of the offer."""
    if isinstance(offer, ExtensionOffer):
        return None
    pool = spec.pools.get(pool_name)
    if pool is None:
        return PurchaseReason(ReasonKind.POOL_REMOVED, name=pool_name)
    why = why_unusable(spec.catalog, spec.platform, pool, offer.instance_type, offer.count, (offer.zone,))
    return why or _no_room(spec, pool, offer.instance_type, offer.count, offer.start, offer.end, held)


def why_block_unusable(spec: Spec, pool_name: str, block: Reservation) -> PurchaseReason | None:
    """Why the pool could not use a block that is held, or None."""
    pool = spec.pools.get(pool_name)
    if pool is None:
        return PurchaseReason(ReasonKind.POOL_REMOVED, name=pool_name)
    owner = spec.platform.spec.deployment
    return why_reservation_unusable(owner, pool, block.zone, block.tags, block.id)


def counts_for(spec: Spec, pool_name: str, block: Reservation) -> bool:
    """Whether a block that is held covers demand of the pool. What was bought or adopted for it counts even where its
    documents changed since, and so does what AWS does not list just now: the same is not bought twice."""
    if block.pool:
        return block.pool == pool_name
    return not block.listed or why_block_unusable(spec, pool_name, block) is None


@lru_cache(maxsize=256)
def zones_to_buy_in(spec: Spec, pool_name: str, asked: tuple[str, ...]) -> tuple[str, ...] | None:
    """Empty: anywhere; None: the pool could not use a new block anywhere."""
    pool = spec.pools.get(pool_name)
    return None if pool is None else usable_zones(spec.platform, pool, asked)


def _why_extension_unusable(
    spec: Spec, intent: PurchaseIntent, held: Iterable[Reservation]
) -> PurchaseReason | None:
    """More time on a block that its pool cannot use is lost as well."""
    held = list(held)
    block = next((one for one in held if one.id == intent.extends), None)
    if block is None:
        return None  # whether it is gone is another question
    pools = [block.pool] if block.pool else [intent.pool] if intent.pool else list(spec.pools)
    reasons = [why_block_unusable(spec, pool, block) for pool in pools]
    if None not in reasons:
        return next(iter(reasons), PurchaseReason(ReasonKind.POOL_REMOVED))
    if len(pools) > 1:
        return None
    others = [one for one in held if one.id != block.id]
    bound, pool = intent.envelope, spec.pools[pools[0]]
    return _no_room(
        spec, pool, block.instance_type, block.count, bound.latest_start, bound.earliest_end, others
    )


# --- the limits, beside other blocks --------------------------------------------------------------------


def least_room(spec: Spec, pool_name: str, offer: Offer, held: Iterable[Reservation]) -> float:
    """How many of its type the pool's limits allow beside its other blocks when those are most, while it lasts."""
    pool, kind = spec.pools[pool_name], spec.catalog.types[offer.instance_type]
    return min(room for room, _ in _rooms(spec, pool, kind, offer.start, offer.end, held))


def _no_room(
    spec: Spec,
    pool: ComputePool,
    instance_type: str,
    count: int,
    start: datetime,
    end: datetime,
    held: Iterable[Reservation],
) -> PurchaseReason | None:
    """For most of its time not all of it could run. While services move from one block to the next, and for the days
    that EC2's lengths add, both need not fit."""
    kind = spec.catalog.types.get(instance_type)
    if kind is None:
        return None
    rooms = _rooms(spec, pool, kind, start, end, held)
    fits = sum((time for room, time in rooms if count <= room), timedelta(0))
    most = max(room for room, _ in rooms)
    if count <= most and fits * 2 >= end - start:
        return None
    return PurchaseReason(
        ReasonKind.NO_ROOM_BESIDE_BLOCKS,
        name=pool.name,
        instance_type=instance_type,
        count=count,
        most=int(min(room for room, _ in rooms)),
    )


def _rooms(
    spec: Spec,
    pool: ComputePool,
    kind: InstanceType,
    start: datetime,
    end: datetime,
    held: Iterable[Reservation],
) -> list[tuple[float, timedelta]]:
    """How many of a type there is room for, and for how long, one after the other."""
    others = [
        block
        for block in held
        if block.pool == pool.name
        and block.kind is SourceKind.BLOCK
        and block.state in LIVE_STATES
        and block.start < end
        and (block.end is None or start < block.end)
    ]
    changes = {
        at for block in others for at in (block.start, block.end) if at is not None and start < at < end
    }
    instants = [start, *sorted(changes), end]
    return [
        (_room(spec, pool, kind, [one for one in others if _is_there(one, at)]), until - at)
        for at, until in pairwise(instants)
    ]


def _is_there(block: Reservation, at: datetime) -> bool:
    return block.start <= at and (block.end is None or at < block.end)


def _room(spec: Spec, pool: ComputePool, kind: InstanceType, others: Iterable[Reservation]) -> float:
    allowance = Allowance.of(pool.spec.limits)
    for block in others:
        other = spec.catalog.types.get(block.instance_type)
        if other is not None:
            allowance.take(other, block.count)
    return allowance.most(kind)
