"""What EC2 would sell: Capacity Block offers on the 11:30 UTC grid, seeded, cheapest first.

An offer is a view of stock, not a hold on it: it can be bought, even twice by a careless caller, until the
stock is gone or the offer has vanished. Nothing is remembered but what was sold, so the same query at the
same instant gives the same answer whoever asked before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tidemill.catalog import Catalog, InstanceType
from tidemill.errors import NoCapacity, SpecError
from tidemill.sim import grid
from tidemill.sim.ids import seeded_id
from tidemill.sim.prices import block_fee_usd
from tidemill.sim.timeline import stream
from tidemill.spec.durations import (
    MAX_INSTANCES_ON_A_DATE,
    MAX_INSTANCES_PER_BLOCK,
    is_legal,
    nearest_legal,
)
from tidemill.spec.scenario import Market
from tidemill.spec.units import format_duration
from tidemill.world import Offer, OfferQuery, Reservation

EARLIEST = timedelta(minutes=30)
FARTHEST = timedelta(weeks=8)
MAX_OFFERS = 6
# A start-now offer this short would be reclaimed almost as soon as its nodes joined; EC2 does not show it.
_SHORTEST_NOW = timedelta(hours=2)
# Buying closes this long before the start, so that a payment still has its ten minutes.
_LAST_ORDERS = timedelta(minutes=15)
_PRICE_SWING = 0.15
ULTRASERVER_SIZES = (18, 9)  # u-p6e-gb200x72 and x36, in instances


@dataclass(frozen=True, slots=True)
class _Mood:
    """How freely EC2 sells: stock per type, zone and start date, and how long an offer stands."""

    stock: tuple[int, int]
    chance: float  # that a zone has anything to sell for a start date, drawn again every `stands`
    stands: timedelta


_MOODS = {
    "plenty": _Mood(stock=(128, 256), chance=1.0, stands=timedelta(hours=12)),
    "scarce": _Mood(stock=(4, 16), chance=0.5, stands=timedelta(minutes=8)),
}


@dataclass(frozen=True, slots=True)
class _Issued:
    offer: Offer
    until: datetime


def blocks_in(count: int, kind: InstanceType) -> tuple[int, ...]:
    """The instances of each block a purchase of `count` makes: one block, or one per UltraServer."""
    if not kind.ultraserver:
        return (count,)
    size = next((size for size in ULTRASERVER_SIZES if count % size == 0), None)
    if size is None:
        raise SpecError(
            f"{kind.name} is sold by the UltraServer: {count} is no multiple of 9 or 18 instances"
        )
    return (size,) * (count // size)


class OfferBoard:
    def __init__(
        self,
        catalog: Catalog,
        *,
        seed: int,
        zones: Sequence[str],
        market: Market,
        held: Callable[[], Iterable[Reservation]],
    ) -> None:
        self._catalog = catalog
        self._seed = seed
        self._zones = tuple(zones)
        self._mood = _MOODS.get(market.offers)
        self._held = held  # blocks that count against the 256 on a date
        self._issued: dict[str, _Issued] = {}
        self._sold: list[Offer] = []

    def search(self, query: OfferQuery, now: datetime) -> tuple[Offer, ...]:
        kind = self._checked(query)
        if self._mood is None or kind.block_usd_h is None:
            return ()
        load = self._load_by_date()
        self._issued = {id_: entry for id_, entry in self._issued.items() if now < entry.until}
        found: list[Offer] = []
        for zone in self._zones:
            if query.zones and zone not in query.zones:
                continue
            for start, end in self._windows(query, zone, now):
                entry = self._issue(kind, zone, query.count, start, end, now)
                if entry is not None and self._sellable(entry.offer, load):
                    self._issued[entry.offer.id] = entry
                    found.append(entry.offer)
        found.sort(key=lambda offer: (offer.fee_usd, offer.start, offer.zone, offer.end))
        return tuple(found[:MAX_OFFERS])

    def take(self, offer_id: str, now: datetime) -> tuple[Offer, int]:
        """The offer, now sold, and how often it had been sold before. NoCapacity: it is gone."""
        entry = self._issued.get(offer_id)
        if entry is None or now >= entry.until:
            raise NoCapacity(f"offer {offer_id} is no longer sold")
        if not self._sellable(entry.offer, self._load_by_date()):
            raise NoCapacity(f"the capacity of offer {offer_id} is sold out")
        before = self._sold.count(entry.offer)
        self._sold.append(entry.offer)
        return entry.offer, before

    def give_back(self, offer: Offer) -> None:
        """Its payment failed: the capacity is for sale again."""
        self._sold.remove(offer)

    # --- what may be asked --------------------------------------------------------------------------

    def _checked(self, query: OfferQuery) -> InstanceType:
        kind = self._catalog.types.get(query.instance_type)
        if kind is None:
            raise SpecError(f"'{query.instance_type}' is not an instance type of the catalog")
        if not is_legal(query.duration):
            nearest = " and ".join(format_duration(step) for step in nearest_legal(query.duration))
            raise SpecError(
                f"{format_duration(query.duration)} is not a duration EC2 sells; the nearest: {nearest}"
            )
        if not 1 <= query.count <= MAX_INSTANCES_PER_BLOCK:
            raise SpecError(f"a block has 1 to {MAX_INSTANCES_PER_BLOCK} instances, not {query.count}")
        blocks_in(query.count, kind)
        return kind

    # --- what could be sold -------------------------------------------------------------------------

    def _windows(self, query: OfferQuery, zone: str, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        earliest = max(query.earliest_start, now + EARLIEST)
        for start, end in (*self._now_windows(query, zone, now), *_grid_windows(query, earliest, now)):
            if end <= query.latest_end:
                yield start, end

    def _now_windows(
        self, query: OfferQuery, zone: str, now: datetime
    ) -> tuple[tuple[datetime, datetime], ...]:
        """Start-now offers: one slightly shorter and one slightly longer than asked; both end on the grid."""
        draw = stream(self._seed, "now-start", query.instance_type, zone, now.date().isoformat())
        start = (now + EARLIEST).replace(second=0) + timedelta(minutes=1 + draw.randrange(4))
        start = start.replace(minute=start.minute | 1)  # an odd minute, so never on the grid
        if start < query.earliest_start:
            return ()
        shorter = grid.at_or_before(start + query.duration)
        ends = [end for end in (shorter, shorter + grid.DAY) if end - start >= _SHORTEST_NOW]
        return tuple((start, end) for end in ends)

    def _issue(
        self, kind: InstanceType, zone: str, count: int, start: datetime, end: datetime, now: datetime
    ) -> _Issued | None:
        """The offer as it stands now, if EC2 has one; once it vanished, the next has another id."""
        assert self._mood is not None
        key = (kind.name, zone, start.date().isoformat())
        spell, until = self._spell(key, now)
        if stream(self._seed, "has", *key, str(spell)).random() >= self._mood.chance:
            return None
        factor = 1 + stream(self._seed, "price", *key).uniform(-_PRICE_SWING, _PRICE_SWING)
        fee = block_fee_usd(kind, count, end - start, factor)
        assert fee is not None
        offer_id = seeded_id(
            "cb", self._seed, *key, str(spell), str(count), start.isoformat(), end.isoformat()
        )
        offer = Offer(offer_id, kind.name, zone, count, start, end, fee, bool(kind.ultraserver))
        until = min(until, start - _LAST_ORDERS)
        return _Issued(offer, until) if now < until else None

    def _spell(self, key: tuple[str, ...], now: datetime) -> tuple[int, datetime]:
        """Time is cut into spells, out of step between zones and dates; an offer vanishes with its spell."""
        assert self._mood is not None
        length_s = int(self._mood.stands.total_seconds())
        phase_s = stream(self._seed, "spell", *key).randrange(length_s)
        spell = (int(now.timestamp()) + phase_s) // length_s
        return spell, datetime.fromtimestamp((spell + 1) * length_s - phase_s, UTC)

    # --- what is left -------------------------------------------------------------------------------

    def _sellable(self, offer: Offer, load: Counter[date]) -> bool:
        assert self._mood is not None
        key = (offer.instance_type, offer.zone, offer.start.date().isoformat())
        stock = stream(self._seed, "stock", *key).randint(*self._mood.stock)
        sold = sum(
            other.count
            for other in self._sold
            if (other.instance_type, other.zone) == (offer.instance_type, offer.zone)
            and other.start < offer.end
            and offer.start < other.end
        )
        if sold + offer.count > stock:
            return False
        return all(
            load[day] + offer.count <= MAX_INSTANCES_ON_A_DATE for day in _dates(offer.start, offer.end)
        )

    def _load_by_date(self) -> Counter[date]:
        load: Counter[date] = Counter()
        for block in self._held():
            assert block.end is not None
            for day in _dates(block.start, block.end):
                load[day] += block.count
        return load


def _grid_windows(
    query: OfferQuery, earliest: datetime, now: datetime
) -> Iterator[tuple[datetime, datetime]]:
    start = grid.at_or_after(earliest)
    while start <= now + FARTHEST:
        yield start, start + query.duration
        start += grid.DAY


def _dates(start: datetime, end: datetime) -> Iterator[date]:
    """Every UTC date the window touches. The day of a hand-over counts both blocks: EC2's page says "on any
    one date", and the strict reading is the one that cannot surprise later."""
    day = start.date()
    while day <= end.date():
        yield day
        day += grid.DAY
