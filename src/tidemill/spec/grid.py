"""EC2's daily grid: every Capacity Block ends at 11:30 UTC, and one that starts on a later day starts there.

Arithmetic on instants only; what is sold on the grid is the market's business.
"""

from __future__ import annotations

from datetime import datetime, timedelta

DAY = timedelta(days=1)
# A block that is there when a rehearsal begins began a little earlier, unless it begins on the grid.
_ALREADY_RUNNING_FOR = timedelta(minutes=5)
_GRID_H, _GRID_MIN = 11, 30


def on_grid(instant: datetime) -> bool:
    return instant == at_or_before(instant)


def at_or_before(instant: datetime) -> datetime:
    same_day = instant.replace(hour=_GRID_H, minute=_GRID_MIN, second=0, microsecond=0)
    return same_day if same_day <= instant else same_day - DAY


def at_or_after(instant: datetime) -> datetime:
    before = at_or_before(instant)
    return before if before == instant else before + DAY


def nearest(instant: datetime) -> datetime:
    """The grid instant closest to this one; the later of two equally close."""
    before = at_or_before(instant)
    return before if instant - before < before + DAY - instant else at_or_after(instant)


def block_window(now: datetime, offset: timedelta, duration: timedelta) -> tuple[datetime, datetime]:
    """Of a block that starts so long after `now`. Later today is kept (EC2 sells "now" at any minute), a later day
    moves to 11:30 UTC; the end is always there."""
    start = now + offset
    if start == now:
        start = now if on_grid(now) else now - _ALREADY_RUNNING_FOR
    elif start.date() != now.date():
        start = at_or_after(start)
    end = nearest(start + duration)
    return start, end if end > start else end + DAY
