"""Virtual time: a clock and a heap of things that will happen.

Whole seconds only, so that a run that ticks every second sees every instant at which anything happens.
Things due at one instant happen in the order they were scheduled, which makes a run repeatable.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random


def stream(seed: int, *names: str) -> Random:
    """A random stream of its own for each use: drawing more from one changes nothing in the others."""
    return Random("/".join((str(seed), *names)))


def whole_seconds(seconds: float) -> timedelta:
    """Rounded to the second, at least one: nothing in the simulated world takes no time at all."""
    return timedelta(seconds=max(1, round(seconds)))


@dataclass(order=True, slots=True)
class _Entry:
    at: datetime
    order: int
    happen: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class Timeline:
    """The clock of a rehearsal. It is a `ports.Clock`; only `advance` moves it."""

    def __init__(self, start: datetime) -> None:
        assert start.microsecond == 0, "virtual time has whole seconds"
        self._now = start
        self._heap: list[_Entry] = []
        self._order = 0

    def now(self) -> datetime:
        return self._now

    def at(self, when: datetime, happen: Callable[[], None]) -> Callable[[], None]:
        """Schedule; what is due in the past happens at the next advance. Returns a function that cancels it."""
        if when.microsecond:
            when = when.replace(microsecond=0) + timedelta(seconds=1)
        entry = _Entry(max(when, self._now), self._order, happen)
        self._order += 1
        heapq.heappush(self._heap, entry)

        def cancel() -> None:
            entry.cancelled = True

        return cancel

    def after(self, delay: timedelta, happen: Callable[[], None]) -> Callable[[], None]:
        return self.at(self._now + delay, happen)

    def next_at(self) -> datetime | None:
        """When the next thing is due."""
        while self._heap and self._heap[0].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def advance(self, to: datetime) -> int:
        """Move to `to`, letting everything due up to and including it happen; how many things did."""
        count = 0
        while (due := self.next_at()) is not None and due <= to:
            entry = heapq.heappop(self._heap)
            self._now = max(self._now, entry.at)
            entry.happen()
            count += 1
        self._now = max(self._now, to)
        return count
