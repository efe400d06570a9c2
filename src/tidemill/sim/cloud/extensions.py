"""More time on a block: what EC2 would sell, what was bought, and whether it was paid in time.

The call takes neither a token nor tags: called twice, it buys twice, and the history by offer is the only record.
The end of a block moves only when its extension is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.model import ec2_facts
from tidemill.model.capacity import SECURED_STATES, Reservation, SourceKind
from tidemill.model.errors import NoCapacity, Refused
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, ExtensionState
from tidemill.sim.cloud.faults import ArmedFaults
from tidemill.sim.cloud.market import OfferMarket, block_fee_usd
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.timeline import Timeline, seeded_id, stream
from tidemill.spec.units import format_duration, format_instant, nearest_sold_durations

_PAYMENT_TAKES_S = (60, 360)
_SEEN_AFTER_MAX_S = 90


@dataclass(slots=True)
class ExtensionPurchase:
    """One call that bought time. `settled_at` is None while the payment is under way."""

    at: datetime
    reservation_id: str
    start: datetime  # the end it had
    to: datetime
    fee_usd: int
    offer_id: str = ""
    seen_at: datetime | None = None  # from when the history shows it
    settled_at: datetime | None = None
    paid: bool = False
    by_hand: bool = False  # somebody did it in the console

    @property
    def as_extension(self) -> Extension:
        if self.settled_at is None:
            state = ExtensionState.PAYMENT_PENDING
        else:
            state = ExtensionState.PAYMENT_SUCCEEDED if self.paid else ExtensionState.PAYMENT_FAILED
        return Extension(self.offer_id, self.reservation_id, self.at, self.to, self.fee_usd, state)


class ExtensionPurchases:
    def __init__(
        self,
        timeline: Timeline,
        catalog: Catalog,
        *,
        seed: int,
        market: OfferMarket,
        reservations: Reservations,
        faults: ArmedFaults,
    ) -> None:
        self._timeline, self._catalog, self._seed = timeline, catalog, seed
        self._market, self._reservations, self._faults = market, reservations, faults
        self._offered: dict[str, tuple[ExtensionOffer, timedelta]] = {}
        self.bought: list[ExtensionPurchase] = []
        self.seen_after_max_s = _SEEN_AFTER_MAX_S
        self._history: tuple[Extension, ...] = ()
        self._history_of = (0, 0)  # how many of them are shown, and settled: both only grow

    # --- the port -----------------------------------------------------------------------------------

    def search(self, query: ExtensionQuery) -> tuple[ExtensionOffer, ...]:
        block, by = self._block(query.reservation_id), query.duration
        end = self._extendable_end(block, by)
        if not self._market.has_more(block, end, self._timeline.now()):
            return ()
        fee_usd = block_fee_usd(self._catalog.types[block.instance_type], block.count, by) or 0
        before = sum(
            extension.reservation_id == block.id for extension in self.bought
        )  # an offer that was bought is gone
        id_ = seeded_id("cbe", self._seed, block.id, end.isoformat(), str(by), str(before))
        offer = ExtensionOffer(id_, block.id, end, end + by, fee_usd)
        self._offered[id_] = offer, by
        return (offer,)

    def buy(self, offer_id: str, reservation_id: str) -> Extension:
        found = self._offered.get(offer_id)
        if found is None or found[0].reservation_id != reservation_id:
            raise NoCapacity(f"extension offer {offer_id} is no longer sold")
        offer, by = found
        block = self._block(reservation_id)
        # A second call buys again where EC2's own rules do not stop it: the payment pending, or the end moved.
        if self._extendable_end(block, by) != offer.start:
            raise NoCapacity(f"extension offer {offer_id} is no longer sold: the end has moved")
        takes_s = stream(self._seed, "extension-payment", offer_id, str(len(self.bought))).randint(
            *_PAYMENT_TAKES_S
        )
        pays = self._faults.takes_payment()
        return self._sell(block, offer, pays=pays, settles_after=timedelta(seconds=takes_s)).as_extension

    def history(self) -> tuple[Extension, ...]:
        """The same tuple until something changes."""
        now = self._timeline.now()
        shown = [
            extension for extension in self.bought if extension.seen_at is None or extension.seen_at <= now
        ]
        of = (len(shown), sum(extension.settled_at is not None for extension in shown))
        if of != self._history_of:
            self._history_of, self._history = of, tuple(extension.as_extension for extension in shown)
        return self._history

    # --- what people do -----------------------------------------------------------------------------

    def by_hand(self, block: Reservation, by: timedelta, *, pays: bool, settles_after: timedelta) -> None:
        """Somebody extends it in the console. Refused: the rule of EC2 that forbids it."""
        end = self._extendable_end(block, by)
        fee_usd = block_fee_usd(self._catalog.types[block.instance_type], block.count, by) or 0
        id_ = seeded_id("cbe", self._seed, "by-hand", block.id, str(len(self.bought)))
        offer = ExtensionOffer(id_, block.id, end, end + by, fee_usd)
        self._sell(block, offer, pays=pays, settles_after=settles_after).by_hand = True

    # --- one sale -----------------------------------------------------------------------------------

    def _sell(
        self, block: Reservation, offer: ExtensionOffer, *, pays: bool, settles_after: timedelta
    ) -> ExtensionPurchase:
        now = self._timeline.now()
        late_s = stream(self._seed, "extension-seen", offer.id).randint(0, self.seen_after_max_s)
        seen_at = now + timedelta(seconds=late_s)
        extension = ExtensionPurchase(now, block.id, offer.start, offer.end, offer.fee_usd, offer.id, seen_at)
        self.bought.append(extension)
        self._reservations.await_extension(block.id, offer.end)
        deadline = min(offer.start - ec2_facts.EXTENSION_PAID_BEFORE_END, now + ec2_facts.PAID_AFTER_PURCHASE)
        paid = pays and now + settles_after <= deadline

        def settle() -> None:
            extension.settled_at, extension.paid = self._timeline.now(), paid
            self._reservations.settle_extension(block.id, extension.to, extension.fee_usd, paid)

        self._timeline.at(min(now + settles_after, deadline), settle)
        return extension

    def _block(self, reservation_id: str) -> Reservation:
        block = self._reservations.get(reservation_id)
        if block is None:
            raise Refused(f"there is no block '{reservation_id}'")
        return block

    def _extendable_end(self, block: Reservation, by: timedelta) -> datetime:
        now, end = self._timeline.now(), block.end
        if block.kind is not SourceKind.BLOCK or end is None:
            raise Refused(f"{block.id} is not a Capacity Block and cannot be extended")
        if block.state not in SECURED_STATES:
            raise Refused(f"{block.id} is {block.state.value}: only active and scheduled blocks are extended")
        if block.extension_pending_to is not None:
            raise Refused(f"{block.id} already has an extension whose payment is pending")
        if (
            not end - ec2_facts.EXTENSION_OPENS_BEFORE_END
            <= now
            <= end - ec2_facts.EXTENSION_CLOSES_BEFORE_END
        ):
            raise Refused(
                f"{block.id} is extended from 56 days to 1 hour before its end, {format_instant(end)}"
            )
        if not ec2_facts.is_legal_duration(by):
            nearest = nearest_sold_durations(by)
            raise Refused(f"{format_duration(by)} is not a duration EC2 sells; the nearest: {nearest}")
        if end + by - block.start > ec2_facts.LONGEST_BLOCK:
            raise Refused(
                f"{block.id} would last longer than {format_duration(ec2_facts.LONGEST_BLOCK)} in all"
            )
        return end
