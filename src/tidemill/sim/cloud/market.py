"""What EC2 would sell: Capacity Block offers on the 11:30 UTC grid, seeded, cheapest first.

An offer is a view of stock, not a hold on it: it can be bought, even twice, until the stock is gone or the offer has
expired. Only sales are remembered, so the same query at the same instant gives the same answer whoever asked before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from tidemill.catalog import Catalog, InstanceType, block_regions
from tidemill.model import ec2_facts
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import DAY
from tidemill.model.errors import NoCapacity, NotAllowed, SpecError
from tidemill.model.offers import Offer, OfferQuery
from tidemill.sim.timeline import seeded_id, stream
from tidemill.spec.scenario import Market
from tidemill.spec.units import format_duration, nearest_sold_durations

# A start-now offer this short would be reclaimed almost as soon as its nodes joined; EC2 does not show it.
_SHORTEST_NOW = timedelta(hours=2)
# Buying closes this long before the start, so that a payment still has its ten minutes.
_SALE_ENDS_BEFORE_START = timedelta(minutes=15)
_PRICE_SWING = 0.15
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _SupplyLevel:
    """How much EC2 has to sell: stock per type, zone and start date, and how long an offer lasts."""

    stock: tuple[int, int]
    probability: (
        float  # that a zone has anything to sell for a start date, drawn again every `offer_lifetime`
    )
    offer_lifetime: timedelta


_SUPPLY_LEVELS = {
    "plenty": _SupplyLevel(stock=(128, 256), probability=1.0, offer_lifetime=timedelta(hours=12)),
    "scarce": _SupplyLevel(stock=(4, 16), probability=0.5, offer_lifetime=timedelta(minutes=8)),
}


@dataclass(frozen=True, slots=True)
class _Stock:
    """What a zone has of a type for one start date. Time is divided into periods, shifted by `phase_s` for each stock:
    an offer expires with the period in which it was made."""

    key: tuple[str, str, str]
    stock: int
    price_factor: float
    period_s: int
    phase_s: int

    def period(self, now: datetime) -> int:
        return (int(now.timestamp()) + self.phase_s) // self.period_s

    def until(self, now: datetime) -> datetime:
        return datetime.fromtimestamp((self.period(now) + 1) * self.period_s - self.phase_s, UTC)


@dataclass(frozen=True, slots=True)
class _IssuedOffer:
    offer: Offer
    until: datetime


def block_fee_usd(kind: InstanceType, count: int, length: timedelta, factor: float = 1.0) -> int | None:
    """Whole dollars for exactly this length; None when the type is not sold as Capacity Blocks."""
    if kind.block_usd_h is None:
        return None
    return round(kind.block_usd_h * factor * count * (length / _HOUR))


def block_sizes(count: int, kind: InstanceType) -> tuple[int, ...]:
    """The instances of each block a purchase of `count` makes: one block, or one per UltraServer."""
    if not kind.ultraserver:
        return (count,)
    ultraserver = ec2_facts.ultraserver_for(count)
    if ultraserver is None:
        raise SpecError(
            f"{kind.name} is sold by the UltraServer: {count} is no multiple of 9 or 18 instances"
        )
    _, size = ultraserver
    return (size,) * (count // size)


class OtherRegions:
    """What the account is offered outside its region: in regions that AWS documents, less those that an account must
    enable first. Nothing is bought there."""

    def __init__(self, catalog: Catalog, *, seed: int, market: Market) -> None:
        self._catalog, self._seed, self._market = catalog, seed, market
        self._regions: dict[str, OfferMarket] = {}

    def search(self, region: str, query: OfferQuery, now: datetime) -> tuple[Offer, ...]:
        """NotAllowed: the account may not use the region."""
        known = {one.name: one for one in block_regions()}.get(region)
        if known is None or known.opt_in:
            raise NotAllowed(
                f"the region {region} is not enabled for the simulated account", code="AuthFailure"
            )
        if region not in self._regions:
            self._regions[region] = OfferMarket(
                self._catalog,
                seed=self._seed,
                zones=(f"{region}a", f"{region}b"),
                market=self._market,
                held=tuple,
            )
        return self._regions[region].search(query, now)


class OfferMarket:
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
        self._supply = _SUPPLY_LEVELS.get(market.offers)
        self._held = held  # blocks that count against the 256 on a date
        self._stocks: dict[tuple[str, str, str], _Stock] = {}
        self._issued: dict[str, _IssuedOffer] = {}
        self._sold: list[Offer] = []
        self._sales: Counter[str] = Counter()  # by offer id; a purchase that was never paid counts too

    def search(self, query: OfferQuery, now: datetime) -> tuple[Offer, ...]:
        kind = self._checked(query)
        if self._supply is None or kind.block_usd_h is None:
            return ()
        load = self._load_by_date()
        offers = [
            offer
            for zone in self._zones
            if not query.zones or zone in query.zones
            for start, end in self._windows(query, zone, now)
            if (offer := self._offer(kind, zone, query.count, start, end, now)) is not None
            and self._sellable(offer, load)
        ]
        offers.sort(key=lambda offer: (offer.fee_usd, offer.start, offer.zone, offer.end))
        self._issued = {id_: entry for id_, entry in self._issued.items() if now < entry.until}
        return tuple(self._issue(offer, now) for offer in offers[: ec2_facts.MAX_OFFERS])

    def take(self, offer_id: str, now: datetime) -> tuple[Offer, int]:
        """Sells an offer; returns it and how often it had been sold before. NoCapacity: it is gone."""
        entry = self._issued.get(offer_id)
        if entry is None or now >= entry.until:
            raise NoCapacity(f"offer {offer_id} is no longer sold")
        if not self._sellable(entry.offer, self._load_by_date()):
            raise NoCapacity(f"the capacity of offer {offer_id} is sold out")
        self._sold.append(entry.offer)
        self._sales[offer_id] += 1
        return entry.offer, self._sales[offer_id] - 1

    def give_back(self, offer: Offer) -> None:
        """Its payment failed: the capacity is for sale again."""
        self._sold.remove(offer)

    def has_more(self, block: Reservation, end: datetime, now: datetime) -> bool:
        """Whether EC2 would let this block run on after its end: it has to have the capacity on that day."""
        if self._supply is None:
            return False
        stock = self._stock_of(block.instance_type, block.zone, end.date())
        if self._supply.probability >= 1:
            return True
        return (
            stream(self._seed, "has-more", *stock.key, str(stock.period(now))).random()
            < self._supply.probability
        )

    # --- what may be asked --------------------------------------------------------------------------

    def _checked(self, query: OfferQuery) -> InstanceType:
        kind = self._catalog.types.get(query.instance_type)
        if kind is None:
            raise SpecError(f"'{query.instance_type}' is not an instance type of the catalog")
        if not ec2_facts.is_legal_duration(query.duration):
            nearest = nearest_sold_durations(query.duration)
            raise SpecError(
                f"{format_duration(query.duration)} is not a duration EC2 sells; the nearest: {nearest}"
            )
        if not 1 <= query.count <= ec2_facts.MAX_INSTANCES_PER_BLOCK:
            raise SpecError(
                f"a block has 1 to {ec2_facts.MAX_INSTANCES_PER_BLOCK} instances, not {query.count}"
            )
        block_sizes(query.count, kind)
        return kind

    # --- what could be sold -------------------------------------------------------------------------

    def _windows(self, query: OfferQuery, zone: str, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        earliest = max(query.earliest_start, now + ec2_facts.EARLIEST_START)
        for start, end in (*self._now_windows(query, zone, now), *_grid_windows(query, earliest, now)):
            if end <= query.latest_end:
                yield start, end

    def _now_windows(
        self, query: OfferQuery, zone: str, now: datetime
    ) -> tuple[tuple[datetime, datetime], ...]:
        """Start-now offers: one slightly shorter and one slightly longer than asked; both end on the grid."""
        draw = stream(self._seed, "now-start", query.instance_type, zone, now.date().isoformat())
        start = (now + ec2_facts.EARLIEST_START).replace(second=0) + timedelta(minutes=1 + draw.randrange(4))
        start = start.replace(minute=start.minute | 1)  # an odd minute, so never on the grid
        if start < query.earliest_start:
            return ()
        shorter = ec2_facts.grid_at_or_before(start + query.duration)
        ends = [end for end in (shorter, shorter + DAY) if end - start >= _SHORTEST_NOW]
        return tuple((start, end) for end in ends)

    def _offer(
        self, kind: InstanceType, zone: str, count: int, start: datetime, end: datetime, now: datetime
    ) -> Offer | None:
        """What EC2 has for this window, without an id yet: most candidates are never shown."""
        assert self._supply is not None
        stock = self._stock_of(kind.name, zone, start.date())
        if self._supply.probability < 1:
            has = stream(self._seed, "has", *stock.key, str(stock.period(now))).random()
            if has >= self._supply.probability:
                return None
        fee_usd = block_fee_usd(kind, count, end - start, stock.price_factor)
        assert fee_usd is not None
        return Offer("", kind.name, zone, count, start, end, fee_usd, bool(kind.ultraserver))

    def _issue(self, offer: Offer, now: datetime) -> Offer:
        """Give it the id it has until it expires; the next offer for the same window has another."""
        stock = self._stock_of(offer.instance_type, offer.zone, offer.start.date())
        window = (offer.start.isoformat(), offer.end.isoformat())
        id_ = seeded_id("cb", self._seed, *stock.key, str(stock.period(now)), str(offer.count), *window)
        issued = replace(offer, id=id_)
        self._issued[id_] = _IssuedOffer(issued, min(stock.until(now), offer.start - _SALE_ENDS_BEFORE_START))
        return issued

    def _stock_of(self, type_: str, zone: str, day: date) -> _Stock:
        assert self._supply is not None
        key = (type_, zone, day.isoformat())
        stock = self._stocks.get(key)
        if stock is None:
            draw = stream(self._seed, "shelf", *key)
            length_s = int(self._supply.offer_lifetime.total_seconds())
            stock = self._stocks[key] = _Stock(
                key=key,
                stock=draw.randint(*self._supply.stock),
                price_factor=1 + draw.uniform(-_PRICE_SWING, _PRICE_SWING),
                period_s=length_s,
                phase_s=draw.randrange(length_s),
            )
        return stock

    # --- what is left -------------------------------------------------------------------------------

    def _sellable(self, offer: Offer, load: Counter[date]) -> bool:
        sold = sum(
            other.count
            for other in self._sold
            if (other.instance_type, other.zone) == (offer.instance_type, offer.zone)
            and other.start < offer.end
            and offer.start < other.end
        )
        stock = self._stock_of(offer.instance_type, offer.zone, offer.start.date())
        if sold + offer.count > stock.stock:
            return False
        if not load:
            return True
        return all(
            load[day] + offer.count <= ec2_facts.MAX_INSTANCES_ON_A_DATE
            for day in _dates(offer.start, offer.end)
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
    start = ec2_facts.grid_at_or_after(earliest)
    while start <= now + ec2_facts.FARTHEST_START:
        yield start, start + query.duration
        start += DAY


def _dates(start: datetime, end: datetime) -> Iterator[date]:
    """Every UTC date the window touches. The day of a hand-over counts both blocks: EC2's page says "on any
    one date", and the strict reading is the one that cannot surprise later."""
    day = start.date()
    while day <= end.date():
        yield day
        day += DAY
