"""What the answers of EC2 tell about offers that nobody asked for: rates by type, zone and start, and what is not sold.

An answer has at most six offers, the cheapest first. So what a full answer does not show costs at least as much as its
last offer, and what a shorter answer does not show is not sold in that size. An instance-hour is taken to cost the
same in every length and size from one start: that is an estimate until the length and size are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.purchasing.planner.inputs import DAY, HOUR
from tidemill.model import ec2_facts
from tidemill.model.offers import Offer, OfferSearch

# A start, and for each length that can be asked for from it the end.
_Ends = tuple[datetime, list[tuple[timedelta, datetime]]]
# A block that starts now starts so long after the question, and no answer says when before it is given.
_STARTS_NOW_AFTER = ec2_facts.EARLIEST_START + timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Window:
    """What could be bought of a type in a zone from one instant to another, in whole units of instances."""

    instance_type: str
    zone: str
    start: datetime
    end: datetime
    duration: timedelta  # as it is asked for
    usd_h: float  # of one instance; where nobody asked, the least that it may cost
    most: int  # instances at once
    unit: int  # instances: an UltraServer is sold whole

    @property
    def usd(self) -> float:
        """Of one instance."""
        return self.usd_h * ((self.end - self.start) / HOUR)


@dataclass(slots=True)
class _Start:
    """What is known of one type in one zone from one start."""

    usd_h: float | None = None  # the lowest that was shown, whatever the length
    at_least_usd_h: float = 0.0  # of what full answers did not show
    not_sold: list[tuple[timedelta, int]] = field(default_factory=list)  # nor longer, nor more
    complete: bool = False  # with what full and short answers leave out

    def most(self, duration: timedelta, *, hopeful: bool) -> int:
        refused = [count for length, count in self.not_sold if length <= duration]
        if not refused:
            return ec2_facts.MAX_INSTANCES_PER_BLOCK
        return min(refused) - 1 if hopeful else min(refused) // 2


class SeenMarket:
    """`searches` are fresh. `usd_h`: by type, what an instance-hour is thought to cost where nothing was shown."""

    def __init__(
        self,
        searches: Iterable[OfferSearch],
        now: datetime,
        usd_h: Mapping[str, float],
        units: Mapping[str, int],
    ) -> None:
        self._now, self._prior, self._units = now, usd_h, units
        self._searches = sorted(searches, key=lambda one: (one.at, repr(one.query)))
        self._windows: dict[tuple[str, str, datetime, datetime], dict[int, Offer]] = {}
        self._starts: dict[tuple[str, str, datetime], _Start] = {}
        self._lowest: dict[str, float] = {}
        for offer in (offer for search in self._searches for offer in search.offers):
            self._windows.setdefault(_window_of(offer), {})[offer.count] = offer
        for key, shown in self._windows.items():
            rate = min(_usd_h(offer) for offer in shown.values())
            start = self._starts.setdefault(key[:3], _Start())
            start.usd_h = rate if start.usd_h is None else min(rate, start.usd_h)
            self._lowest[key[0]] = min(rate, self._lowest.get(key[0], rate))

    def offer(self, window: Window, count: int) -> Offer | None:
        """The offer of exactly this window and size, if it was shown."""
        return self._windows.get((window.instance_type, window.zone, window.start, window.end), {}).get(count)

    def shown(self, window: Window) -> bool:
        return (window.instance_type, window.zone, window.start, window.end) in self._windows

    def windows(
        self, name: str, zones: Iterable[str], until: datetime, *, hopeful: bool = False
    ) -> Iterator[Window]:
        """Every window that EC2 could sell and that starts before `until`. `hopeful`: where a size was refused, the
        next smaller one may be sold; else half of it."""
        longest = ec2_facts.round_up_duration(until - self._now + DAY) or ec2_facts.LONGEST_BLOCK
        lengths = [one for one in ec2_facts.LEGAL_DURATIONS if one <= longest]
        unit = self._units.get(name, 1)
        in_vain = ec2_facts.MAX_INSTANCES_PER_BLOCK if hopeful else self._in_vain(name)
        first = ec2_facts.grid_at_or_after(self._now + ec2_facts.EARLIEST_START)
        last = min(until, self._now + ec2_facts.FARTHEST_START)
        for zone in sorted(zones):
            for start, ends in (
                *self._starting_now(name, zone, lengths),
                *_on_grid(first, last, lengths),
            ):
                known = self._start(name, zone, start)
                expected_usd_h = self._expected(name, known)
                for duration, end in ends:
                    most = min(known.most(duration, hopeful=hopeful), in_vain) // unit * unit
                    if most > 0:
                        usd_h = self._shown_usd_h(name, zone, start, end) if known.usd_h else None
                        yield Window(name, zone, start, end, duration, usd_h or expected_usd_h, most, unit)

    @property
    def refused(self) -> bool:
        """Some answer was short: not everything that was asked for is sold."""
        return any(len(search.offers) < ec2_facts.MAX_OFFERS for search in self._searches)

    @property
    def is_empty(self) -> bool:
        """Something was asked for, and nothing is sold."""
        return bool(self._searches) and not self._windows

    def _in_vain(self, name: str) -> int:
        """Where nothing of a type was ever shown, only a quarter of what was asked for is worth asking: soon none."""
        if name in self._lowest:
            return ec2_facts.MAX_INSTANCES_PER_BLOCK
        refused = [one.query.count // 4 for one in self._searches if one.query.instance_type == name]
        return min(refused, default=ec2_facts.MAX_INSTANCES_PER_BLOCK)

    def _starting_now(self, name: str, zone: str, lengths: list[timedelta]) -> Iterator[_Ends]:
        """Ends are on the grid: one a little before the length that is asked for, one a little after it."""
        shown = {
            start
            for type_, where, start, _ in self._windows
            if (type_, where) == (name, zone) and not ec2_facts.is_on_grid(start)
        }
        start = max(shown, default=(self._now + _STARTS_NOW_AFTER).replace(second=0, microsecond=0))
        ends: dict[datetime, timedelta] = {}
        for duration in lengths:
            shorter = ec2_facts.grid_at_or_before(start + duration)
            for end in (shorter, shorter + DAY):
                if end - start >= 2 * HOUR:
                    ends.setdefault(end, duration)
        yield start, [(duration, end) for end, duration in ends.items()]

    def _shown_usd_h(self, name: str, zone: str, start: datetime, end: datetime) -> float | None:
        shown = self._windows.get((name, zone, start, end))
        return min(_usd_h(offer) for offer in shown.values()) if shown else None

    def expected_usd_h(self, name: str, zone: str, start: datetime) -> float:
        return self._expected(name, self._start(name, zone, start))

    def _expected(self, name: str, known: _Start) -> float:
        if known.usd_h is not None:
            return known.usd_h
        return known.at_least_usd_h or self._lowest.get(name, self._prior[name])

    def _start(self, name: str, zone: str, start: datetime) -> _Start:
        """With what the answers leave out, worked out when it is first asked for."""
        key = (name, zone, start)
        found = self._starts.setdefault(key, _Start())
        if found.complete:
            return found
        found.complete = True
        for search in self._searches:
            query = search.query
            covers = query.instance_type == name and query.earliest_start <= start
            if (
                not covers
                or start + query.duration > query.latest_end
                or (query.zones and zone not in query.zones)
            ):
                continue
            if any((offer.zone, offer.start) == (zone, start) for offer in search.offers):
                continue
            if len(search.offers) < ec2_facts.MAX_OFFERS:
                found.not_sold.append((query.duration, query.count))
            else:
                last = search.offers[-1].fee_usd / (query.count * (query.duration / HOUR))
                found.at_least_usd_h = max(found.at_least_usd_h, last)
        return found


def _on_grid(first: datetime, last: datetime, lengths: list[timedelta]) -> Iterator[_Ends]:
    start = first
    while start < last:
        yield start, [(duration, start + duration) for duration in lengths]
        start += DAY


def _window_of(offer: Offer) -> tuple[str, str, datetime, datetime]:
    return offer.instance_type, offer.zone, offer.start, offer.end


def _usd_h(offer: Offer) -> float:
    return offer.fee_usd / (offer.count * ((offer.end - offer.start) / HOUR))
