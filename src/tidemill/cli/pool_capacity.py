"""Which pool can use a block: one that allows the type, with subnets in the zone and room in its limits.

A block that no pool can use is paid for and never runs, so this is checked before the purchase.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemill.cli.session import Session
from tidemill.model.capacity import LIVE_STATES, Reservation
from tidemill.model.errors import SpecError
from tidemill.model.offers import Offer
from tidemill.spec.compute_pool import Allowance, matches

if TYPE_CHECKING:
    from tidemill.spec.compute_pool import ComputePool


def pool_for(session: Session, offer: Offer, named: str | None) -> str:
    """The pool `named`, or the only pool that can use the block. SpecError: no pool can, or several."""
    _check_zone(session, offer.zone)
    usable = _usable_pools(session, offer.instance_type)
    if named is not None:
        session.pool(named)
        if named not in usable:
            raise SpecError(
                f"pool {named} cannot use it; give the pool a source of type block and allow {offer.instance_type}"
            )
    elif len(usable) != 1:
        could = (
            f"several pools can use it ({', '.join(usable)})"
            if usable
            else f"no pool with a block source allows {offer.instance_type}"
        )
        raise SpecError(f"{could}; name one with --pool")
    name = named or usable[0]
    if why_not := _over_limits(session, name, offer.instance_type, offer.count):
        raise SpecError(f"{why_not}; raise spec.limits of the pool, or buy fewer")
    return name


def limit_warning(session: Session, name: str, offer: Offer, blocks: Iterable[Reservation]) -> str:
    """A sentence if the pool's limits cannot hold this block besides its other blocks at that time, else empty."""
    others = [
        block
        for block in blocks
        if block.pool == name and block.state in LIVE_STATES and block.start < offer.end
        and (block.end is None or offer.start < block.end)
    ]  # fmt: skip
    most = max(
        (
            sum(
                block.count for block in others if block.start <= at and (block.end is None or at < block.end)
            )
            for at in (offer.start, *(block.start for block in others if block.start > offer.start))
        ),
        default=0,
    )
    if not most or not _over_limits(session, name, offer.instance_type, offer.count + most):
        return ""
    return (
        f"pool {name} has {most} instances in blocks at that time, and its limits do not allow {offer.count} more; "
        "raise spec.limits, or some of them will not run"
    )


def limit_warnings(
    session: Session, types: Iterable[str], counts: tuple[int, ...], pool: str | None
) -> list[str]:
    """For the offers that are searched for: why `tidemill buy` would refuse them."""
    warnings = []
    for type_ in types:
        pools = [pool] if pool is not None else _usable_pools(session, type_)
        if not pools:
            warnings.append(f"no pool with a block source allows {type_}")
        for count in counts if pools else ():
            why_not = [_over_limits(session, name, type_, count) for name in pools]
            warnings += [why_not[0]] if all(why_not) else []
    return warnings


def _check_zone(session: Session, zone: str) -> None:
    known = session.spec.platform.spec.subnets
    if known and zone not in known:
        raise SpecError(
            f"the Platform has no subnet in {zone}, so nothing can start there; add one to spec.subnets, or search "
            f"in {' or '.join(sorted(known))}"
        )


def _usable_pools(session: Session, instance_type: str) -> list[str]:
    return [name for name, pool in session.spec.pools.items() if _allows(session, pool, instance_type)]


def _allows(session: Session, pool: ComputePool, instance_type: str) -> bool:
    kind = session.spec.catalog.types.get(instance_type)
    has_source = any(source.type == "block" for source in pool.spec.sources)
    return kind is not None and has_source and matches(kind, pool.spec.requirements)


def _over_limits(session: Session, name: str, instance_type: str, count: int) -> str:
    kind = session.spec.catalog.types[instance_type]
    allowance = Allowance.of(session.pool(name).spec.limits)
    if allowance.allows(kind, count):
        return ""
    most = next(number for number in range(count - 1, -1, -1) if not number or allowance.allows(kind, number))
    return f"the limits of pool {name} allow {most} x {instance_type}, not {count}"
