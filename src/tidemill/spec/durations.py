"""Which lengths EC2 sells a Capacity Block in, and which are nearest to one it does not sell.

Whole days from 1 to 14, then whole weeks up to 182 days (26 weeks). 180 days, "six months", is not among
them. Extensions come in the same lengths. Pure arithmetic on lengths: no dates, no prices, no offers.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta
from typing import Final

_DAYS: Final = (*range(1, 15), *range(21, 183, 7))
LEGAL_DURATIONS: Final[tuple[timedelta, ...]] = tuple(timedelta(days=days) for days in _DAYS)
LONGEST: Final = LEGAL_DURATIONS[-1]
_LEGAL: Final = frozenset(LEGAL_DURATIONS)

MAX_INSTANCES_PER_BLOCK: Final = 64
MAX_INSTANCES_ON_A_DATE: Final = 256  # over all blocks and all accounts of an AWS Organization


def is_legal(duration: timedelta) -> bool:
    return duration in _LEGAL


def nearest_legal(duration: timedelta) -> tuple[timedelta, ...]:
    """The legal lengths around this one: itself when legal, one at either end of the range, else two."""
    if is_legal(duration):
        return (duration,)
    above = bisect_left(LEGAL_DURATIONS, duration)
    return LEGAL_DURATIONS[max(above - 1, 0) : above + 1]


def round_up(duration: timedelta) -> timedelta | None:
    """The shortest legal length that covers this one; none when EC2 sells nothing that long."""
    above = bisect_left(LEGAL_DURATIONS, duration)
    return LEGAL_DURATIONS[above] if above < len(LEGAL_DURATIONS) else None
