"""Whether what a person asks to buy was asked for before, is held already or may have been bought: then it is refused.

EC2 sells the same block under ever new ids, so an id alone does not tell. `--another` says that it is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidemill.cli.session import Desk
from tidemill.engine.ownership import ours
from tidemill.model.capacity import Reservation, ReservationState
from tidemill.model.errors import Refused
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.offer_search.proposal import (
    asks_for_the_same_time,
    attempts,
    held_already,
    is_live,
    stands_in_the_way,
)

_OVER = (
    ReservationState.EXPIRED,
    ReservationState.CANCELLED,
    ReservationState.FAILED,
    ReservationState.PAYMENT_FAILED,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """`intent` makes the intent of the n-th time this offer is asked for."""

    offer_id: str
    fee_usd: int
    intent: Callable[[int], PurchaseIntent]
    typed: str = ""  # the id it was asked for by, where EC2 sells it under another by now


def first_time(desk: Desk, wanted: Wanted, *, another: bool) -> PurchaseIntent:
    """Refused where it was asked for before, or the like of it is there or may be, under whatever id."""
    purchases, now = desk.ledger.purchases(), desk.now()
    before = attempts(desk.spec.platform, purchases, wanted.offer_id)
    for asked in (before, attempts(desk.spec.platform, purchases, wanted.typed)):
        if asked and is_live(asked[-1], now) and not another:
            raise Refused(_there_already(asked[-1]))
    intent = wanted.intent(len(before))
    if (same := asks_for_the_same_time(purchases, intent, now)) is not None:
        raise Refused(_there_already(same))
    if not another:
        _check_nothing_is_like_it(desk, purchases, intent)
    return intent


def _check_nothing_is_like_it(
    desk: Desk, purchases: Sequence[PurchaseIntent], intent: PurchaseIntent
) -> None:
    like = stands_in_the_way(purchases, intent, desk.now())
    if like is not None and like.state in (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN):
        raise Refused(
            f"{like.id} may have bought the same and nobody knows yet: look with `tidemill settle {like.id}` "
            "first; --another buys beside it"
        )
    if like is not None:
        raise Refused(_there_already(like))
    held = held_already(_live_blocks(desk), intent)
    if held is not None:
        raise Refused(f"{held.id} is the same, at the same time, and ours; --another buys a second one")


def _live_blocks(desk: Desk) -> list[Reservation]:
    return [one for one in shown(desk) if one.owner == desk.deployment and one.state not in _OVER]


def void(desk: Desk, gone: Iterable[PurchaseIntent]) -> None:
    for one in gone:
        note = "expired; it is asked for anew"
        desk.ledger.advance(one, replace(one, state=PurchaseState.VOIDED, state_at=desk.now(), note=note))


def _there_already(intent: PurchaseIntent) -> str:
    beside = "" if intent.extends else "; --another asks for a second one"
    if intent.state is PurchaseState.CONFIRMED:
        ids = ", ".join(intent.reservation_ids)
        return f"{intent.id} bought this already: {ids}; --another buys a second one"
    if intent.state in (PurchaseState.PROPOSED, PurchaseState.APPROVED):
        verb = "approve" if intent.state is PurchaseState.PROPOSED else "buy"
        said = f"{intent.id} asks for this already and is {intent.state.value}: tidemill {verb} {intent.id}"
        return f"{said}{beside}"
    return f"{intent.id} may have bought this, and nobody knows yet: tidemill settle {intent.id}"


def shown(desk: Desk) -> list[Reservation]:
    ledger = desk.ledger
    return list(
        ours(desk.cloud.reservations(), ledger.purchases(), ledger.adoptions(), desk.deployment, desk.now())
    )
