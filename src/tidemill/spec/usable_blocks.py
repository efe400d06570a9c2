"""Whether a pool can use a Capacity Block: its sources select it, its requirements allow it and its limits hold it.

The one answer for everybody who asks: `validate`, a purchase when it is proposed, approved and submitted, `tidemill
buy`, and launches on blocks that are held. A block that its pool cannot use is paid for and never runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.catalog import Catalog
from tidemill.model.labels import Pairs
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.spec import names
from tidemill.spec.compute_pool import Allowance, ComputePool, SourceSpec, matches
from tidemill.spec.platform import Platform


def bought_tags(platform: Platform, pool: str, intent_id: str) -> Pairs:
    """The tags that a block is bought with. The platform's own tags cannot replace ours."""
    ours = {names.TAG_OWNER: platform.spec.deployment, names.TAG_POOL: pool, names.TAG_INTENT: intent_id}
    others = sorted((key, value) for key, value in platform.spec.tags.items() if key not in ours)
    return (*ours.items(), *others)


def was_bought_for(owner: str, pool: str, tags: Pairs) -> bool:
    """Whether the tags say that this deployment bought it, through an intent, for this pool. They are written with the
    purchase: what was bought elsewhere, and adopted or shared later, lacks the intent."""
    there = dict(tags)
    return (
        there.get(names.TAG_OWNER) == owner
        and there.get(names.TAG_POOL) == pool
        and bool(there.get(names.TAG_INTENT))
    )


def refusal(
    pool: ComputePool, source: SourceSpec, *, owner: str, zone: str, tags: Pairs, id_: str
) -> ReasonKind | None:
    """Why a source of the pool leaves out a reservation, or None. `id_` is empty before it is bought.

    `ids` name the blocks to begin with. What is bought for the pool inherits the pin, so that it moves at a hand-over;
    nobody else's block ever passes it.
    """
    if any(zones and zone not in zones for zones in (source.zones, pool.spec.requirements.zones)):
        return ReasonKind.ZONE_EXCLUDED
    if source.ids and id_ not in source.ids and not was_bought_for(owner, pool.name, tags):
        return ReasonKind.PINNED_TO_IDS
    if not set(source.tags.items()) <= set(tags):
        return ReasonKind.TAGS_NOT_SELECTED
    return None


def usable_zones(platform: Platform, pool: ComputePool, asked: Iterable[str] = ()) -> tuple[str, ...] | None:
    """Of the zones `asked` for, or of all with subnets, those for a new block. None: nowhere, as on a platform without
    subnets: no node could be launched into what was paid for."""
    served = _zones_with_subnets(platform)
    usable = tuple(
        zone
        for zone in tuple(asked) or served
        if zone in served and None in _new_block_refusals(platform, pool, zone)
    )
    return usable or None


def why_unusable(
    catalog: Catalog,
    platform: Platform | None,
    pool: ComputePool,
    instance_type: str,
    count: int,
    zones: Iterable[str] = (),
) -> PurchaseReason | None:
    """Why the pool could not use a new block of this type and size in any of these zones (none given: any), or None.

    Without the platform (documents that are checked apart) zones and tags are not asked about.
    """
    kind = catalog.types.get(instance_type)
    if kind is None or not matches(kind, pool.spec.requirements):
        return PurchaseReason(ReasonKind.TYPE_EXCLUDED, name=pool.name, instance_type=instance_type)
    if not _block_sources(pool):
        return PurchaseReason(ReasonKind.NO_BLOCK_SOURCE, name=pool.name)
    asked = tuple(zones)
    if platform is not None and usable_zones(platform, pool, asked) is None:
        return _why_nowhere(platform, pool, asked)
    allowance = Allowance.of(pool.spec.limits)
    if not allowance.allows(kind, count):
        most = int(allowance.most(kind))
        return PurchaseReason(
            ReasonKind.OVER_POOL_LIMITS, name=pool.name, instance_type=instance_type, count=count, most=most
        )
    return None


def why_reservation_unusable(
    owner: str, pool: ComputePool, zone: str, tags: Pairs, id_: str
) -> PurchaseReason | None:
    """Why none of the pool's block sources selects a block that is held, or None."""
    found = _refusals(owner, pool, zone, tags, id_)
    if not found:
        return PurchaseReason(ReasonKind.NO_BLOCK_SOURCE, name=pool.name)
    return None if None in found else _reason(pool, found[0], (zone,))


def _why_nowhere(platform: Platform, pool: ComputePool, asked: tuple[str, ...]) -> PurchaseReason:
    served = _zones_with_subnets(platform)
    here = [zone for zone in asked or served if zone in served]
    if not here:
        return PurchaseReason(ReasonKind.NO_SUBNET, name=pool.name, zones=asked, usable_zones=served)
    found = [kind for zone in here for kind in _new_block_refusals(platform, pool, zone)]
    # Where a source would take the zone, its tags are the cause.
    kind = next((kind for kind in found if kind is not ReasonKind.ZONE_EXCLUDED), ReasonKind.ZONE_EXCLUDED)
    return _reason(pool, kind, asked, usable_zones(platform, pool) or ())


def _reason(
    pool: ComputePool, kind: ReasonKind | None, zones: tuple[str, ...], usable: tuple[str, ...] = ()
) -> PurchaseReason:
    assert kind is not None
    sources = _block_sources(pool)
    tags = next((source.tags for source in sources if source.tags), {})
    match kind:
        case ReasonKind.PINNED_TO_IDS:
            return PurchaseReason(kind, name=pool.name, reservation_ids=pool.spec.pinned_to)
        case ReasonKind.TAGS_NOT_SELECTED:
            written = ", ".join(f"{key}={value}" for key, value in sorted(tags.items()))
            return PurchaseReason(kind, name=pool.name, expected=written)
        case _:
            return PurchaseReason(kind, name=pool.name, zones=zones, usable_zones=usable)


def _new_block_refusals(platform: Platform, pool: ComputePool, zone: str) -> list[ReasonKind | None]:
    """Of a block with the tags that it will have. Its intent has no id yet; that it has one is what counts."""
    tags = bought_tags(platform, pool.name, "to be written")
    return _refusals(platform.spec.deployment, pool, zone, tags)


def _refusals(
    owner: str, pool: ComputePool, zone: str, tags: Pairs, id_: str = ""
) -> list[ReasonKind | None]:
    """One answer of each block source."""
    return [
        refusal(pool, source, owner=owner, zone=zone, tags=tags, id_=id_) for source in _block_sources(pool)
    ]


def _block_sources(pool: ComputePool) -> list[SourceSpec]:
    return [source for source in pool.spec.sources if source.type == "block"]


def _zones_with_subnets(platform: Platform) -> tuple[str, ...]:
    return tuple(sorted(zone for zone, subnets in platform.spec.subnets.items() if subnets))
