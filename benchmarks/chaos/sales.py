"""What the simulated EC2 sold to the engine, and what the engine could count on at each sale. Rules are in `judge`.

Whatever people did not buy by hand the engine bought, tagged or not, known to its ledger or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.model.capacity import ReservationState
from tidemill.model.purchases import PurchaseIntent
from tidemill.ports import Ledger
from tidemill.sim.cloud.cloud import SimCloud


@dataclass(slots=True)
class ManualPurchases:
    """What people bought and settled without the engine."""

    bought: set[str] = field(default_factory=set)  # reservations
    extended: set[str] = field(default_factory=set)  # offers
    # Purchases that somebody called "not bought" although they were, and when: the engine may believe it.
    denied: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sale:
    intent: PurchaseIntent | None  # None: no ledger knows it
    tag: str  # what EC2 would show; an extension shows its offer
    at: datetime
    fee_usd: int
    type_: str
    count: int
    zone: str
    start: datetime
    end: datetime
    ids: tuple[str, ...]
    unpaid_at: datetime | None  # when EC2 gave up on its payment
    denied_at: datetime | None = None
    extends: bool = False

    @property
    def name(self) -> str:
        return self.intent.id if self.intent else self.tag or f"an untagged sale ({', '.join(self.ids)})"

    def counted_at(self, at: datetime) -> bool:
        """Whether an engine that knows all it can knew by then that this was bought, and not that it was unpaid."""
        gone = [end for end in (self.unpaid_at, self.denied_at) if end is not None]
        return all(end > at for end in gone)


def sales(cloud: SimCloud, known: Mapping[str, PurchaseIntent], by_hand: ManualPurchases) -> list[Sale]:
    """In the order they were made."""
    found = [*_blocks(cloud, known, by_hand), *_extensions(cloud, known, by_hand)]
    return sorted(found, key=lambda sale: sale.at)


def _blocks(cloud: SimCloud, known: Mapping[str, PurchaseIntent], by_hand: ManualPurchases) -> Iterator[Sale]:
    for purchase in cloud.purchases:
        if not by_hand.bought.isdisjoint(purchase.reservation_ids):
            continue
        offer = purchase.offer
        yield Sale(
            known.get(purchase.intent_id), purchase.intent_id, purchase.at, purchase.fee_usd, offer.instance_type,
            offer.count, offer.zone, offer.start, offer.end, tuple(sorted(purchase.reservation_ids)),
            purchase.settled_at if purchase.settled_at and not purchase.paid else None,
            by_hand.denied.get(purchase.intent_id),
        )  # fmt: skip


def _extensions(
    cloud: SimCloud, known: Mapping[str, PurchaseIntent], by_hand: ManualPurchases
) -> Iterator[Sale]:
    by_offer = {intent.offer_id: intent for intent in known.values() if intent.extends and intent.offer_id}
    for extension in cloud.bought_extensions:
        if extension.offer_id in by_hand.extended:
            continue
        block, intent = cloud.reservation(extension.reservation_id), by_offer.get(extension.offer_id)
        assert block is not None
        yield Sale(
            intent, extension.offer_id, extension.at, extension.fee_usd, block.instance_type, block.count, block.zone,
            extension.start, extension.to, (extension.reservation_id,),
            extension.settled_at if extension.settled_at and not extension.paid else None,
            by_hand.denied.get(intent.id) if intent else None, extends=True,
        )  # fmt: skip


# --- what there was -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """Capacity the engine could count on."""

    type_: str
    count: int
    start: datetime
    end: datetime
    counts_at: Callable[[Sale], bool]  # whether it was known of at this sale


def held_capacity(
    cloud: SimCloud, ledger: Ledger, sold: list[Sale], by_hand: ManualPurchases
) -> list[HeldCapacity]:
    return [*_adopted(cloud, ledger, by_hand), *(_bought(sold, place) for place in range(len(sold)))]


def _adopted(cloud: SimCloud, ledger: Ledger, by_hand: ManualPurchases) -> Iterator[HeldCapacity]:
    since = {adoption.reservation_id: adoption.at for adoption in ledger.adoptions()}
    for reservation in cloud.all_reservations():
        if (
            reservation.id not in since
            or reservation.end is None
            or reservation.state is ReservationState.PAYMENT_FAILED
        ):
            continue
        longer = [
            more for more in cloud.bought_extensions if more.reservation_id == reservation.id and more.paid
        ]
        end = min((more.start for more in longer), default=reservation.end)
        yield HeldCapacity(
            reservation.instance_type,
            reservation.count,
            reservation.start,
            end,
            _after(since[reservation.id]),
        )
        for more in longer:
            if more.offer_id in by_hand.extended:
                known_from = max(since[reservation.id], more.settled_at or more.at)
                yield HeldCapacity(
                    reservation.instance_type, reservation.count, more.start, more.to, _after(known_from)
                )


def _after(since: datetime) -> Callable[[Sale], bool]:
    return lambda sale: since < sale.at


def _bought(sold: list[Sale], place: int) -> HeldCapacity:
    mine = sold[place]
    later = {id(one) for one in sold[place + 1 :]}
    return HeldCapacity(
        mine.type_, mine.count, mine.start, mine.end,
        lambda sale: id(sale) in later and mine.counted_at(sale.at),
    )  # fmt: skip
