"""Which pool would use a block, and whether it could: a type it allows, a zone with subnets, limits that hold it.

What no pool could use is paid for and never runs, so it is said before it is bought.
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
    """The pool that is named, or the only one that could use it. SpecError: none could, or several."""
    _check_zone(session, offer.zone)
    usable = _usable_pools(session, offer.instance_type)
    if named is not None:
        session.pool(named)
        if named not in usable:
            raise SpecError(
                f"pool {named} could not use it: it needs a block source and must allow {offer.instance_type}"
            )
    elif len(usable) != 1:
        could = (
            f"several pools could use it ({', '.join(usable)})"
            if usable
            else f"no pool uses {offer.instance_type}"
        )
        raise SpecError(f"{could}: name one with --pool")
    name = named or usable[0]
    if why_not := _over_limits(session, name, offer.instance_type, offer.count):
        raise SpecError(f"{why_not}: raise spec.limits of the pool, or buy fewer")
    return name


def limit_warning(session: Session, name: str, offer: Offer, blocks: Iterable[Reservation]) -> str:
    """Why not all of it could run beside the blocks the pool has at that time, or nothing."""
    beside = [
        one
        for one in blocks
        if one.pool == name and one.state in LIVE_STATES and one.start < offer.end
        and (one.end is None or offer.start < one.end)
    ]  # fmt: skip
    most = max(
        (
            sum(one.count for one in beside if one.start <= at and (one.end is None or at < one.end))
            for at in (offer.start, *(one.start for one in beside if one.start > offer.start))
        ),
        default=0,
    )
    if not most or not _over_limits(session, name, offer.instance_type, offer.count + most):
        return ""
    return (
        f"pool {name} has {most} instances of blocks at that time, and its limits do not hold {offer.count} more: "
        "raise spec.limits, or some of them will not run"
    )


def limit_warnings(
    session: Session, types: Iterable[str], counts: tuple[int, ...], pool: str | None
) -> list[str]:
    """Of what is searched for, what `tidemill buy` would refuse, and why."""
    told = []
    for type_ in types:
        pools = [pool] if pool is not None else _usable_pools(session, type_)
        if not pools:
            told.append(f"no pool uses {type_}")
        for count in counts if pools else ():
            why_not = [_over_limits(session, name, type_, count) for name in pools]
            told += [why_not[0]] if all(why_not) else []
    return told


def _check_zone(session: Session, zone: str) -> None:
    known = session.spec.platform.spec.subnets
    if known and zone not in known:
        raise SpecError(
            f"the Platform has no subnet in {zone}, so nothing could start there: add one to spec.subnets, or search "
            f"in {' or '.join(sorted(known))}"
        )


def _usable_pools(session: Session, instance_type: str) -> list[str]:
    return [name for name, pool in session.spec.pools.items() if _allows(session, pool, instance_type)]


def _allows(session: Session, pool: ComputePool, instance_type: str) -> bool:
    kind = session.spec.catalog.types.get(instance_type)
    has_source = any(one.type == "block" for one in pool.spec.sources)
    return kind is not None and has_source and matches(kind, pool.spec.requirements)


def _over_limits(session: Session, name: str, instance_type: str, count: int) -> str:
    kind = session.spec.catalog.types[instance_type]
    allowance = Allowance.of(session.pool(name).spec.limits)
    if allowance.allows(kind, count):
        return ""
    most = next(number for number in range(count - 1, -1, -1) if not number or allowance.allows(kind, number))
    return f"the limits of pool {name} hold {most} x {instance_type}, not {count}"
