"""Calendar months (UTC), in which money is counted and budgets hold."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.world import CostLine

Month = tuple[int, int]


def month_of(at: datetime) -> Month:
    return (at.year, at.month)


def bounds(at: datetime) -> tuple[datetime, datetime]:
    """The first instant of the month that `at` lies in, and of the next."""
    first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
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
