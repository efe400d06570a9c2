"""Money that leaves at once: buying blocks and extending them, and the payments that may fail.

Neither call takes a token: called twice, it buys twice. The buyer holds the answer at once; everybody else
sees the block up to a minute and a half later. A block is there only when its payment settled, an end moves
only when its extension is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.errors import Refused
from tidemill.sim.ids import seeded_id
from tidemill.sim.journal import Journal
from tidemill.sim.market import OfferBoard, blocks_in
from tidemill.sim.prices import block_fee_usd
from tidemill.sim.reservations import ReservationBook
from tidemill.sim.timeline import Timeline, stream
from tidemill.sim.trouble import CloudTrouble
from tidemill.spec import names
from tidemill.spec.durations import LONGEST, is_legal, nearest_legal
from tidemill.spec.units import format_duration, format_instant
from tidemill.world import Offer, Pairs, Reservation, ReservationState, SourceKind

_SEEN_AFTER_MAX_S = 90
_PAYMENT_TAKES_S = (60, 360)
_UNPAID_BEFORE_START = timedelta(minutes=5)
_UNPAID_AFTER = timedelta(hours=12)
_EXTENSION_FROM = timedelta(days=56)
_EXTENSION_UNTIL = timedelta(hours=1)
_EXTENSION_PAID_BY = timedelta(minutes=35)


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


@dataclass(slots=True)
class BlockExtension:
    at: datetime
    reservation_id: str
    to: datetime
    fee_usd: int
    settled_at: datetime | None = None
    paid: bool = False


class PurchaseDesk:
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        catalog: Catalog,
        *,
        seed: int,
        board: OfferBoard,
        book: ReservationBook,
        trouble: CloudTrouble,
    ) -> None:
        self._timeline = timeline
        self._journal = journal
        self._catalog = catalog
        self._seed = seed
        self._board = board
        self._book = book
        self._trouble = trouble
        self.purchases: list[Purchase] = []
        self.extensions: list[BlockExtension] = []

    # --- blocks -------------------------------------------------------------------------------------

    def buy(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        now = self._timeline.now()
        offer, sold_before = self._board.take(offer_id, now)
        sizes = blocks_in(offer.count, self._catalog.types[offer.instance_type])
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
        seen_after_s = stream(self._seed, "seen", block.id).randint(0, _SEEN_AFTER_MAX_S)
        self._book.open(block, seen_after=timedelta(seconds=seen_after_s))
        return block

    def _await_payment(self, purchase: Purchase) -> None:
        deadline = min(purchase.offer.start - _UNPAID_BEFORE_START, purchase.at + _UNPAID_AFTER)
        takes_s = stream(self._seed, "payment", purchase.reservation_ids[0]).randint(*_PAYMENT_TAKES_S)
        paid_at = purchase.at + timedelta(seconds=takes_s)
        paid = self._trouble.takes_payment() and paid_at <= deadline

        def settle() -> None:
            purchase.settled_at, purchase.paid = self._timeline.now(), paid
            if not paid:
                self._board.give_back(purchase.offer)
            for reservation_id in purchase.reservation_ids:
                self._book.settle_payment(reservation_id, paid)

        self._timeline.at(paid_at if paid else deadline, settle)

    # --- extensions ---------------------------------------------------------------------------------

    def extend(self, block: Reservation, by: timedelta, *, pays: bool, settles_after: timedelta) -> None:
        """Ask for an extension. Refused with the rule that forbids it; the end moves only when it is paid."""
        now = self._timeline.now()
        end = self._extendable_end(block, by, now)
        fee_usd = block_fee_usd(self._catalog.types[block.instance_type], block.count, by)
        extension = BlockExtension(now, block.id, end + by, fee_usd or 0)
        self.extensions.append(extension)
        self._book.await_extension(block.id, extension.to)
        deadline = min(end - _EXTENSION_PAID_BY, now + _UNPAID_AFTER)
        paid = pays and now + settles_after <= deadline

        def settle() -> None:
            extension.settled_at, extension.paid = self._timeline.now(), paid
            self._book.settle_extension(block.id, extension.to, extension.fee_usd, paid)

        self._timeline.at(min(now + settles_after, deadline), settle)

    def _extendable_end(self, block: Reservation, by: timedelta, now: datetime) -> datetime:
        end = block.end
        if block.kind is not SourceKind.BLOCK or end is None:
            raise Refused(f"{block.id} is not a Capacity Block and cannot be extended")
        if block.state not in (ReservationState.ACTIVE, ReservationState.SCHEDULED):
            raise Refused(f"{block.id} is {block.state.value}: only active and scheduled blocks are extended")
        if block.extension_pending_to is not None:
            raise Refused(f"{block.id} already has an extension whose payment is pending")
        if not end - _EXTENSION_FROM <= now <= end - _EXTENSION_UNTIL:
            raise Refused(
                f"{block.id} is extended from 56 days to 1 hour before its end, {format_instant(end)}"
            )
        if not is_legal(by):
            nearest = " and ".join(format_duration(step) for step in nearest_legal(by))
            raise Refused(f"{format_duration(by)} is not a duration EC2 sells; the nearest: {nearest}")
        if end + by - block.start > LONGEST:
            raise Refused(f"{block.id} would last longer than {format_duration(LONGEST)} in all")
        return end
