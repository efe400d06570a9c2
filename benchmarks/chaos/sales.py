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
    for one in cloud.purchases:
        if not by_hand.bought.isdisjoint(one.reservation_ids):
            continue
        offer = one.offer
        yield Sale(
            known.get(one.intent_id), one.intent_id, one.at, one.fee_usd, offer.instance_type, offer.count,
            offer.zone, offer.start, offer.end, tuple(sorted(one.reservation_ids)),
            one.settled_at if one.settled_at and not one.paid else None, by_hand.denied.get(one.intent_id),
        )  # fmt: skip


def _extensions(
    cloud: SimCloud, known: Mapping[str, PurchaseIntent], by_hand: ManualPurchases
) -> Iterator[Sale]:
    by_offer = {intent.offer_id: intent for intent in known.values() if intent.extends and intent.offer_id}
    for one in cloud.bought_extensions:
        if one.offer_id in by_hand.extended:
            continue
        block, intent = cloud.reservation(one.reservation_id), by_offer.get(one.offer_id)
        assert block is not None
        yield Sale(
            intent, one.offer_id, one.at, one.fee_usd, block.instance_type, block.count, block.zone, one.start,
            one.to, (one.reservation_id,), one.settled_at if one.settled_at and not one.paid else None,
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
    since = {one.reservation_id: one.at for one in ledger.adoptions()}
    for one in cloud.all_reservations():
        if one.id not in since or one.end is None or one.state is ReservationState.PAYMENT_FAILED:
            continue
        longer = [more for more in cloud.bought_extensions if more.reservation_id == one.id and more.paid]
        end = min((more.start for more in longer), default=one.end)
        yield HeldCapacity(one.instance_type, one.count, one.start, end, _after(since[one.id]))
        for more in longer:
            if more.offer_id in by_hand.extended:
                known_from = max(since[one.id], more.settled_at or more.at)
                yield HeldCapacity(one.instance_type, one.count, more.start, more.to, _after(known_from))


def _after(since: datetime) -> Callable[[Sale], bool]:
    return lambda sale: since < sale.at


def _bought(sold: list[Sale], place: int) -> HeldCapacity:
    mine = sold[place]
    later = {id(one) for one in sold[place + 1 :]}
    return HeldCapacity(
        mine.type_, mine.count, mine.start, mine.end,
        lambda sale: id(sale) in later and mine.counted_at(sale.at),
    )  # fmt: skip
