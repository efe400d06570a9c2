"""The engine's time, and the one mapping between it and wall time.

In production they are the same. Against the simulated AWS the engine's time is the cloud's, which runs `speed` times as
fast as the wall clock that Kubernetes stamps its objects with. The adapter of Kubernetes applies the mapping where
objects are decoded and encoded. Leases, time-outs and back-off are wall time and never pass through here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tidemill.ports import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class MappedClock(Clock, Protocol):
    """A clock whose instants can be told in wall time."""

    def from_wall(self, instant: datetime) -> datetime:
        """The engine's instant for an instant of wall time."""
        ...

    def to_wall(self, instant: datetime) -> datetime:
        """`from_wall(to_wall(instant))` is `instant` where that is a whole second, up to speed 10,000."""
        ...

    def wall_seconds(self, duration: timedelta) -> float:
        """How long a duration of the engine takes on the wall clock."""
        ...


def wall_now() -> datetime:
    return datetime.now(UTC)


class WallClock:
    """The engine's time is wall time."""

    def now(self) -> datetime:
        return wall_now()

    def from_wall(self, instant: datetime) -> datetime:
        return instant

    def to_wall(self, instant: datetime) -> datetime:
        return instant

    def wall_seconds(self, duration: timedelta) -> float:
        return duration.total_seconds()


class FasterClock:
    """At `wall_anchor` it was `anchor`; since then, and before, `speed` seconds pass in a second of wall time."""

    def __init__(
        self, anchor: datetime, wall_anchor: datetime, speed: float, wall: Callable[[], datetime] = wall_now
    ) -> None:
        if not speed > 0:
            raise ValueError(f"a clock with speed {speed} maps nothing")
        self.anchor, self.wall_anchor, self.speed = anchor, wall_anchor, speed
        self._wall = wall
        self._grain_us = _grain_us(speed)

    def now(self) -> datetime:
        return self._mapped(self._wall())

    def from_wall(self, instant: datetime) -> datetime:
        """Rounded to a little more than a microsecond of wall time, so that what `to_wall` wrote is read back."""
        mapped = self._mapped(instant)
        if self._grain_us == 1:
            return mapped
        grains = round((mapped - _EPOCH) / _MICROSECOND / self._grain_us)
        return _EPOCH + timedelta(microseconds=grains * self._grain_us)

    def to_wall(self, instant: datetime) -> datetime:
        return self.wall_anchor + (instant - self.anchor) / self.speed

    def wall_seconds(self, duration: timedelta) -> float:
        return duration.total_seconds() / self.speed

    def _mapped(self, instant: datetime) -> datetime:
        return self.anchor + (instant - self.wall_anchor) * self.speed


def _grain_us(speed: float) -> int:
    """The power of ten that is at least four microseconds of wall time: rounding errors stay below half of it."""
    grain = 1
    while speed != 1 and grain < 4 * speed:
        grain *= 10
    return grain
