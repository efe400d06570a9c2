"""Calendar months (UTC), in which money is counted and budgets hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tidemill.model.purchases import CostLine

Month = tuple[int, int]


def month_of(at: datetime) -> Month:
    return (at.year, at.month)


def bounds(at: datetime) -> tuple[datetime, datetime]:
    """The first instant of the month that `at` lies in, and of the next."""
    return _bounds(at.year, at.month)


@lru_cache(maxsize=64)
def _bounds(year: int, month: int) -> tuple[datetime, datetime]:
    first = datetime(year, month, 1, tzinfo=UTC)
    return first, (first + timedelta(days=32)).replace(day=1)


def by_month(line: CostLine, until: datetime) -> list[tuple[Month, float]]:
    """A line's dollars up to `until`, split where a month begins."""
    parts = []
    start = line.since
    while start < until:
        stop = min(bounds(start)[1], until)
        hours = (stop - start).total_seconds() / 3600
        parts.append((month_of(start), hours * line.usd_per_hour))
        start = stop
    return parts


def usd_between(line: CostLine, first: datetime, last: datetime) -> float:
    """A line's dollars from one instant to another."""
    start = max(line.since, first)
    stop = last if line.until is None else min(line.until, last)
    return max(0.0, (stop - start).total_seconds() / 3600 * line.usd_per_hour)
