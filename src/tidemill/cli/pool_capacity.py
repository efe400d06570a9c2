"""Which pool can use a block, and why another cannot: the answers of `spec.usable_blocks` and `decide`, for a person.

A block that its pool cannot use is paid for and never runs, so this is checked before the purchase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.cli.session import Session
from tidemill.decide.read_models import least_room, why_offer_unusable
from tidemill.model.capacity import Reservation
from tidemill.model.errors import SpecError
from tidemill.model.offers import Offer
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.spec.usable_blocks import why_unusable
from tidemill.wording.purchases import purchase_sentence

_ADVICE = {
    ReasonKind.NO_BLOCK_SOURCE: "give the pool a source of type block",
    ReasonKind.TYPE_EXCLUDED: "allow the type in spec.requirements of the pool",
    ReasonKind.NO_SUBNET: "add a subnet to spec.subnets of the Platform, or search elsewhere",
    ReasonKind.ZONE_EXCLUDED: "search with --zone, or allow the zone in the pool",
    ReasonKind.OVER_POOL_LIMITS: "raise spec.limits of the pool, or buy fewer",
    ReasonKind.NO_ROOM_BESIDE_BLOCKS: "raise spec.limits of the pool, or buy fewer",
}


def pool_for(session: Session, offer: Offer, named: str | None, blocks: Sequence[Reservation]) -> str:
    """The pool `named`, or the only pool that can use the block. SpecError: no pool can, or several."""
    if named is not None:
        session.pool(named)
    pools = [named] if named is not None else list(session.spec.pools)
    reasons = {name: why_offer_unusable(session.spec, name, offer, blocks) for name in pools}
    usable = [name for name, why in reasons.items() if why is None]
    if len(usable) > 1:
        raise SpecError(f"several pools can use it ({', '.join(usable)}); name one with --pool")
    if not usable:
        raise SpecError(_why_none(reasons, offer.instance_type))
    return usable[0]


def limit_warning(session: Session, name: str, offer: Offer, blocks: Sequence[Reservation]) -> str:
    """A sentence if for part of its time the pool's limits cannot hold it beside the other blocks, else empty."""
    least = least_room(session.spec, name, offer, blocks)
    if offer.count <= least:
        return ""
    return (
        f"the limits of pool {name} allow {int(least)} x {offer.instance_type} beside its other blocks for part of that"
        f" time, not {offer.count}; raise spec.limits, or some of them will not run then"
    )


def unusable_warnings(
    session: Session, types: Iterable[str], counts: tuple[int, ...], zones: tuple[str, ...], pool: str | None
) -> list[str]:
    """For the offers that are searched for: why `tidemill buy` would refuse all of them."""
    spec, warnings = session.spec, []
    for type_ in types:
        for count in counts:
            names = [pool] if pool is not None else list(spec.pools)
            reasons = {
                name: why_unusable(spec.catalog, spec.platform, session.pool(name), type_, count, zones)
                for name in names
            }
            if None not in reasons.values():
                warnings.append(_why_none(reasons, type_))
    return list(dict.fromkeys(warnings))


def _why_none(reasons: dict[str, PurchaseReason | None], instance_type: str) -> str:
    """Of the pools that could use the type at all, each with its reason."""
    other = (ReasonKind.NO_BLOCK_SOURCE, ReasonKind.TYPE_EXCLUDED)
    near = [
        why for why in reasons.values() if why is not None and (why.kind not in other or len(reasons) == 1)
    ]
    if not near:
        return f"no pool with a block source allows {instance_type}; add one, or buy another type"
    said = [f"{purchase_sentence(why)}{_advice(why)}" for why in near]
    return "; ".join(dict.fromkeys(said))


def _advice(why: PurchaseReason) -> str:
    return f": {_ADVICE[why.kind]}" if why.kind in _ADVICE else ""
