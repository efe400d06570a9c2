"""EC2's daily grid: every Capacity Block ends at 11:30 UTC, and one that starts on a later day starts there.

Arithmetic on instants only; what is sold on the grid is the market's business.
"""

from __future__ import annotations

from datetime import datetime, timedelta

DAY = timedelta(days=1)
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
