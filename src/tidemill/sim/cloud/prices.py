"""What simulated capacity costs: block fees up front, everything else by the second.

Prices come from the catalog and carry its date; the one number made up here is the spot fraction.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.catalog import InstanceType

# Spot prices move by the minute and the catalog seldom has one. 0.4 of on-demand is on the high side of what
# accelerated types usually ask, so a rehearsal rather overstates the bill than understates it.
SPOT_FRACTION = 0.4
_HOUR = timedelta(hours=1)
_MICRO = 1_000_000


def block_fee_usd(kind: InstanceType, count: int, length: timedelta, factor: float = 1.0) -> int | None:
    """Whole dollars for exactly this length; None when the type is not sold as Capacity Blocks."""
    if kind.block_usd_h is None:
        return None
    return round(kind.block_usd_h * factor * count * (length / _HOUR))


def spot_usd_h(kind: InstanceType) -> float | None:
    if kind.spot_usd_h is not None:
        return kind.spot_usd_h
    return None if kind.on_demand_usd_h is None else kind.on_demand_usd_h * SPOT_FRACTION


class HourMeter:
    """Money spent by the hour, exact to the second and cheap to read however many things are running.

    Integers (micro-dollars per hour times seconds), so that no order of starts and stops changes a sum.
    """

    def __init__(self, origin: datetime) -> None:
        self._origin = origin
        self._rate = 0
        self._weighted = 0  # sum of rate x seconds since the origin at which it began, less what has ended

    def start(self, usd_h: float, at: datetime) -> None:
        self._shift(round(usd_h * _MICRO), at)

    def stop(self, usd_h: float, at: datetime) -> None:
        self._shift(-round(usd_h * _MICRO), at)

    def usd(self, now: datetime) -> float:
        return (self._rate * self._seconds(now) - self._weighted) / 3600 / _MICRO

    def _shift(self, rate: int, at: datetime) -> None:
        self._rate += rate
        self._weighted += rate * self._seconds(at)

    def _seconds(self, at: datetime) -> int:
        return int((at - self._origin).total_seconds())
