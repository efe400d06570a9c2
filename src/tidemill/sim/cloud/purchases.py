"""Buying blocks, and the payments that may fail. Extensions are in `extensions`.

The call takes no token: called twice, it buys twice. The buyer gets the answer at once; lists show the block up to a
minute and a half later. A block comes only when its payment settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import PAID_AFTER_PURCHASE, PAID_BEFORE_START
from tidemill.model.labels import Pairs
from tidemill.model.offers import Offer
from tidemill.sim.cloud.faults import ArmedFaults
from tidemill.sim.cloud.market import OfferMarket, block_sizes
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.timeline import Journal, Timeline, seeded_id, stream
from tidemill.spec import names
from tidemill.spec.units import format_instant

_SEEN_AFTER_MAX_S = 90
_PAYMENT_TAKES_S = (60, 360)


@dataclass(slots=True)
class Purchase:
    """One call that bought something. `settled_at` is None while the payment is under way."""

    at: datetime
    offer: Offer
    reservation_ids: tuple[str, ...]
    intent_id: str
    fee_usd: int
    settled_at: datetime | None = None
    paid: bool = False


class BlockPurchases:
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        catalog: Catalog,
        *,
        seed: int,
        market: OfferMarket,
        reservations: Reservations,
        faults: ArmedFaults,
    ) -> None:
        self._timeline = timeline
        self._journal = journal
        self._catalog = catalog
        self._seed = seed
        self._market = market
        self._reservations = reservations
        self._faults = faults
        self.purchases: list[Purchase] = []
        self.seen_after_max_s = _SEEN_AFTER_MAX_S

    # --- blocks -------------------------------------------------------------------------------------

    def buy(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        now = self._timeline.now()
        offer, sold_before = self._market.take(offer_id, now)
        sizes = block_sizes(offer.count, self._catalog.types[offer.instance_type])
        share, rest = divmod(offer.fee_usd, len(sizes))
        blocks = tuple(
            self._open(offer, f"{sold_before}/{index}", size, share + (rest if index == 0 else 0), tags)
            for index, size in enumerate(sizes)
        )
        purchase = Purchase(
            now, offer, tuple(block.id for block in blocks), blocks[0].intent_id, offer.fee_usd
        )
        self.purchases.append(purchase)
        self._await_payment(purchase)
        return blocks

    def _open(self, offer: Offer, sale: str, count: int, fee_usd: int, tags: Pairs) -> Reservation:
        tag = dict(tags)
        block = Reservation(
            id=seeded_id("cr", self._seed, offer.id, sale),
            kind=SourceKind.BLOCK,
            instance_type=offer.instance_type,
            zone=offer.zone,
            count=count,
            available=0,
            state=ReservationState.PAYMENT_PENDING,
            start=offer.start,
            end=offer.end,
            owner=tag.get(names.TAG_OWNER, ""),
            pool=tag.get(names.TAG_POOL, ""),
            intent_id=tag.get(names.TAG_INTENT, ""),
            fee_usd=fee_usd,
            ultraserver=offer.ultraserver,
            tags=tuple(sorted(tags)),
        )
        window = f"{format_instant(offer.start)} to {format_instant(offer.end)}"
        self._journal.add(
            "block-purchased", block.id, f"{count} x {offer.instance_type}, {window}, {fee_usd} USD up front"
        )
        seen_after_s = stream(self._seed, "seen", block.id).randint(0, self.seen_after_max_s)
        self._reservations.open(block, seen_after=timedelta(seconds=seen_after_s))
        return block

    def _await_payment(self, purchase: Purchase) -> None:
        deadline = min(purchase.offer.start - PAID_BEFORE_START, purchase.at + PAID_AFTER_PURCHASE)
        takes_s = stream(self._seed, "payment", purchase.reservation_ids[0]).randint(*_PAYMENT_TAKES_S)
        paid_at = purchase.at + timedelta(seconds=takes_s)
        paid = self._faults.takes_payment() and paid_at <= deadline

        def settle() -> None:
            purchase.settled_at, purchase.paid = self._timeline.now(), paid
            if not paid:
                self._market.give_back(purchase.offer)
            for reservation_id in purchase.reservation_ids:
                self._reservations.settle_payment(reservation_id, paid)

        self._timeline.at(paid_at if paid else deadline, settle)
