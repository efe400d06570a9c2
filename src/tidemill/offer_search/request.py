"""A request for offers, checked against what EC2 sells at all, and the questions to EC2 it leads to.

What can never be sold (a length, a size, a type) is refused here with what to ask for instead; asking EC2 would only
waste a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from tidemill.catalog import Catalog, InstanceType
from tidemill.model import ec2_facts
from tidemill.model.capacity import LIVE_STATES, Reservation, SourceKind
from tidemill.model.ec2_facts import DAY
from tidemill.model.errors import SpecError
from tidemill.model.offers import Offer, OfferQuery
from tidemill.spec.problem import quoted, suggestion
from tidemill.spec.units import format_duration, format_instant, nearest_sold_durations


@dataclass(frozen=True, slots=True)
class StartWindow:
    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class OfferQuestion:
    """One request. EC2 bounds the end and not the start, so what starts too late is dropped from the answer."""

    instance_type: str
    count: int
    duration: timedelta
    starts: StartWindow
    zones: tuple[str, ...]
    region: str = ""  # empty: the platform's

    @property
    def query(self) -> OfferQuery:
        # A start-now block is rounded to the grid at its end, which can be up to a day later than asked.
        latest_end = self.starts.latest + self.duration + DAY
        return OfferQuery(
            self.instance_type, self.count, self.duration, self.starts.earliest, latest_end, self.zones
        )

    def fits(self, offer: Offer) -> bool:
        return self.starts.earliest <= offer.start <= self.starts.latest


@dataclass(frozen=True, slots=True)
class OfferRequest:
    types: tuple[str, ...]
    counts: tuple[int, ...]
    durations: tuple[timedelta, ...]
    starts: tuple[StartWindow, ...]
    zones: tuple[tuple[str, ...], ...]  # each is asked for apart; one empty: any the account has
    regions: tuple[str, ...] = ("",)  # empty: the platform's, where `zones` are
    zones_elsewhere: tuple[
        str, ...
    ] = ()  # those to ask for in the other regions; none of a region: any it has

    def questions(self) -> tuple[OfferQuestion, ...]:
        """Region by region last: where one of them does not answer, the others have been asked the same."""
        return tuple(
            OfferQuestion(type_, count, duration, starts, zones, region)
            for type_ in self.types
            for count in self.counts
            for duration in self.durations
            for starts in self.starts
            for region in self.regions
            for zones in self._zones_in(region)
        )

    def _zones_in(self, region: str) -> tuple[tuple[str, ...], ...]:
        if not region:
            return self.zones
        named = tuple((zone,) for zone in self.zones_elsewhere if zone.startswith(region))
        return named or ((),)


# --- what is never sold -------------------------------------------------------------------------------


def check_request(wish: OfferRequest, catalog: Catalog, now: datetime) -> None:
    """SpecError with everything about it that EC2 would never sell."""
    wrong = [*_wrong_types(wish.types, catalog), *_wrong_durations(wish.durations)]
    wrong += [
        sentence
        for name in wish.types
        if (kind := catalog.types.get(name)) is not None
        for count in wish.counts
        if (sentence := wrong_count(kind, count))
    ]
    for starts in wish.starts:
        if starts.latest < now:
            wrong.append(f"{format_instant(starts.latest)} is past: a block starts from 30 minutes ahead")
        elif starts.earliest > now + ec2_facts.FARTHEST_START:
            last = format_instant(now + ec2_facts.FARTHEST_START)
            wrong.append(f"EC2 sells at most 8 weeks ahead: the latest start is {last}")
        elif starts.latest < starts.earliest:
            wrong.append("the latest start is before the earliest")
    if wrong:
        raise SpecError("; ".join(dict.fromkeys(wrong)))


def _wrong_types(types: Iterable[str], catalog: Catalog) -> Iterator[str]:
    sold = [instance_type.name for instance_type in catalog.types.values() if is_sold(instance_type)]
    for name in types:
        kind = catalog.types.get(name)
        if kind is None:
            yield f"unknown instance type {quoted(name)}; {suggestion(name, sold)}"
        elif not is_sold(kind):
            yield f"{name} is not sold as Capacity Blocks; these are: {', '.join(sold)}"


def is_sold(kind: InstanceType) -> bool:
    return kind.block or bool(kind.ultraserver)


def _wrong_durations(durations: Iterable[timedelta]) -> Iterator[str]:
    for duration in durations:
        if not ec2_facts.is_legal_duration(duration):
            nearest = nearest_sold_durations(duration)
            yield f"EC2 does not sell {format_duration(duration)}; the nearest it sells: {nearest}"


def wrong_count(kind: InstanceType, count: int) -> str:
    if not 1 <= count <= ec2_facts.MAX_INSTANCES_PER_BLOCK:
        hint = "; search for several smaller blocks" if count > ec2_facts.MAX_INSTANCES_PER_BLOCK else ""
        return f"a block has 1 to {ec2_facts.MAX_INSTANCES_PER_BLOCK} instances, not {count}{hint}"
    if kind.ultraserver and count % ec2_facts.SMALLEST_ULTRASERVER:
        below = count // ec2_facts.SMALLEST_ULTRASERVER * ec2_facts.SMALLEST_ULTRASERVER
        above = below + ec2_facts.SMALLEST_ULTRASERVER
        near = " or ".join(
            str(one) for one in (below, above) if 1 <= one <= ec2_facts.MAX_INSTANCES_PER_BLOCK
        )
        return f"{kind.name} is sold by the UltraServer, 9 or 18 instances each: ask for {near}, not {count}"
    return ""


# --- 256 on a date ------------------------------------------------------------------------------------


def held_by_date(reservations: Iterable[Reservation]) -> Counter[date]:
    """Instances of blocks on each UTC date they touch. What other accounts of the organization hold is unknown."""
    held: Counter[date] = Counter()
    for reservation in reservations:
        if (
            reservation.kind is SourceKind.BLOCK
            and reservation.state in LIVE_STATES
            and reservation.end is not None
        ):
            for day in _dates(reservation.start, reservation.end):
                held[day] += reservation.count
    return held


def over_date_limit(held: Counter[date], count: int, start: datetime, end: datetime) -> str:
    """Why these would be too many on one date; empty: they are not."""
    for day in _dates(start, end):
        if held[day] + count > ec2_facts.MAX_INSTANCES_ON_A_DATE:
            return (
                f"EC2 allows {ec2_facts.MAX_INSTANCES_ON_A_DATE} instances in blocks on any one date, and {held[day]}"
                f" are held on {day.isoformat()}: {count} more are too many"
            )
    return ""


def no_start_fits(held: Counter[date], question: OfferQuestion, now: datetime) -> str:
    """Why no start in its window leaves room on every date; empty: one does."""
    why = ""
    start = max(question.starts.earliest, now)
    while start <= min(question.starts.latest, now + ec2_facts.FARTHEST_START):
        # The grid may move it by a day either way; the dates in between are touched in any case.
        why = over_date_limit(held, question.count, start, start + question.duration)
        if not why:
            return ""
        start += DAY
    return why


def _dates(start: datetime, end: datetime) -> Iterator[date]:
    day = start.date()
    while day <= end.date():
        yield day
        day += DAY
