"""Which reservations are ours: those that the ledger bought or adopted, also while AWS does not list them.

A tag alone says nothing: anybody may write one (CB-17). And a list that leaves a block out does not unmake it: what was
bought is counted by its intent, what was adopted by what AWS showed of it before. Else an engine that starts while a
list is incomplete would buy it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from tidemill.decide.read_models import with_expected
from tidemill.model.capacity import LIVE_STATES, OVER_STATES, Reservation, ReservationState
from tidemill.model.purchases import MAY_COST, Adoption, PurchaseIntent, ShownReservation
from tidemill.ports import Ledger


def with_true_owners(
    reservations: Iterable[Reservation],
    purchases: Iterable[PurchaseIntent],
    adoptions: Iterable[Adoption],
    deployment: str,
    now: datetime,
) -> tuple[Reservation, ...]:
    """Every listed reservation with its true owner, and the adopted ones that AWS does not list. Without those whose
    record cannot be read: nothing may be counted on but that they are there (`unread_of_ours`)."""
    bought = {
        purchase.id for purchase in purchases if purchase.offer_id or purchase.state in MAY_COST
    }  # ever submitted
    taken_in = {adoption.reservation_id: adoption for adoption in adoptions if not adoption.given_up}
    once = {
        reservation.id: reservation for reservation in reservations if not reservation.unread
    }  # a list read in pages can show one twice
    once |= {one.id: one for one in _left_out(taken_in.values(), once.keys(), now)}
    return tuple(
        _claimed(one, taken_in.get(one.id), one.intent_id in bought, deployment) for one in once.values()
    )


def unread_of_ours(
    reservations: Iterable[Reservation],
    purchases: Iterable[PurchaseIntent],
    adoptions: Iterable[Adoption],
    deployment: str,
) -> tuple[Reservation, ...]:
    """Reservations that may be ours, are not over, and cannot be read: demand cannot be judged beside them."""
    known = {id_ for purchase in purchases if purchase.state in MAY_COST for id_ in purchase.reservation_ids}
    known |= {adoption.reservation_id for adoption in adoptions if not adoption.given_up}
    return tuple(
        one
        for one in reservations
        if one.unread
        and one.state not in OVER_STATES
        and (one.owner == deployment or one.id in known or not one.tags_known)
    )


def held_beside(
    intent: PurchaseIntent, listed: Iterable[Reservation], ledger: Ledger, deployment: str, now: datetime
) -> list[Reservation]:
    """What AWS shows, with its true owners, and what other purchases than this one may have bought."""
    purchases = ledger.purchases()
    shown = with_true_owners(listed, purchases, ledger.adoptions(), deployment, now)
    return with_expected(shown, purchases, deployment, but=intent.id, firm=True)


def _claimed(one: Reservation, adopted: Adoption | None, bought: bool, deployment: str) -> Reservation:
    if adopted is not None:
        owner, pool = deployment, adopted.pool
    else:
        owner, pool = one.owner if bought or one.owner != deployment else "", one.pool
    return one if (one.owner, one.pool) == (owner, pool) else replace(one, owner=owner, pool=pool)


def _left_out(adoptions: Iterable[Adoption], listed: Iterable[str], now: datetime) -> Iterator[Reservation]:
    """Held, but nothing is launched into it while nobody knows how many of its instances are free."""
    for adoption in adoptions:
        shown = adoption.shown
        if shown is None or not shown.lives or adoption.reservation_id in listed:
            continue
        if shown.end is None or now < shown.end:
            state = ReservationState.ACTIVE if shown.start <= now else ReservationState.SCHEDULED
            yield Reservation(
                adoption.reservation_id, shown.kind, shown.instance_type, shown.zone, shown.count, 0, state,
                shown.start, shown.end, listed=False,
            )  # fmt: skip


def snapshot_of(reservation: Reservation, before: ShownReservation | None) -> ShownReservation:
    """What the ledger keeps of it. A paid end never moves back: an answer that says so is an old one."""
    end = reservation.end
    if before is not None and end is not None and before.end is not None:
        end = max(end, before.end)
    return ShownReservation(
        reservation.kind, reservation.instance_type, reservation.zone, reservation.count, reservation.start, end,
        reservation.state in LIVE_STATES,
    )  # fmt: skip
