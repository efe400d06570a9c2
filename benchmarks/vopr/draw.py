"""Seeded choices, and values written as people write them in documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from tidemill.spec.units import format_duration, format_instant

T = TypeVar("T")
Json = dict[str, Any]


class Draw(Random):
    """A stream of choices. The same seed gives the same documents."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def of(self, *options: tuple[T, float]) -> T:
        """One of several, by weight."""
        return self.choices([each for each, _ in options], [weight for _, weight in options])[0]

    def some(self, options: Sequence[T], most: int | None = None) -> list[T]:
        """At least one of them, in their order."""
        count = self.randint(1, min(len(options), most or len(options)))
        kept = set(self.sample(range(len(options)), count))
        return [option for index, option in enumerate(options) if index in kept]

    def scaled(self, low: float, high: float) -> float:
        """Between two positive numbers, each factor as likely as the next."""
        return float(low * (high / low) ** self.random())


def length(*, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> str:
    """`1h30m`; never shorter than a second."""
    lasts = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return format_duration(max(timedelta(seconds=round(lasts.total_seconds())), timedelta(seconds=1)))


def offset(hours: float) -> str:
    """A time in a scenario, to the minute; `0s` is its start."""
    return format_duration(timedelta(minutes=max(0, round(hours * 60))))


def instant(at: datetime) -> str:
    return format_instant(at)
