"""Virtual time: a clock, a heap of what will happen, a journal of what did, and randomness that can be repeated.

Whole seconds only, so that a run that ticks every second sees every instant at which anything happens.
Things due at one instant happen in the order they were scheduled, which makes a run repeatable.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

_ID_BITS = 17 * 4


def stream(seed: int, *names: str) -> Random:
    """A random stream of its own for each use: drawing more from one changes nothing in the others."""
    return Random("/".join((str(seed), *names)))


def seeded_id(prefix: str, seed: int, *names: str) -> str:
    """An id as AWS writes it (`cr-` and 17 hex digits), derived from the seed and what the thing is.

    Never counted across kinds: a purchase more or less must not rename the instances that come after it.
    """
    return f"{prefix}-{stream(seed, 'id', prefix, *names).getrandbits(_ID_BITS):017x}"


def seeded_uuid(seed: int, *names: str) -> str:
    """An id as AWS writes those of events and tokens: 36 characters."""
    return str(UUID(int=stream(seed, "uuid", *names).getrandbits(128), version=4))


def whole_seconds(seconds: float) -> timedelta:
    """Rounded to the second, at least one: everything in the simulation takes some time."""
    return timedelta(seconds=max(1, round(seconds)))


@dataclass(slots=True, eq=False)
class _Entry:
    happen: Callable[[], None]
    cancelled: bool = False


class Timeline:
    """The clock of a rehearsal. It is a `ports.Clock`; only `advance` moves it."""

    def __init__(self, start: datetime) -> None:
        assert start.microsecond == 0, "virtual time has whole seconds"
        self._now = start
        self._heap: list[tuple[datetime, int, _Entry]] = []  # when, and in which order it was scheduled
        self._order = 0

    def now(self) -> datetime:
        return self._now

    def at(self, when: datetime, happen: Callable[[], None]) -> Callable[[], None]:
        """Schedule; what is due in the past happens at the next advance. Returns a function that cancels it."""
        if when.microsecond:
            when = when.replace(microsecond=0) + timedelta(seconds=1)
        entry = _Entry(happen)
        heapq.heappush(self._heap, (max(when, self._now), self._order, entry))
        self._order += 1

        def cancel() -> None:
            entry.cancelled = True

        return cancel

    def after(self, delay: timedelta, happen: Callable[[], None]) -> Callable[[], None]:
        return self.at(self._now + delay, happen)

    def next_at(self) -> datetime | None:
        """When the next thing is due."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def advance(self, to: datetime) -> int:
        """Move to `to`; everything due up to and including it happens. Returns how many things happened."""
        count = 0
        while (due := self.next_at()) is not None and due <= to:
            at, _, entry = heapq.heappop(self._heap)
            self._now = max(self._now, at)
            entry.happen()
            count += 1
        self._now = max(self._now, to)
        return count


@dataclass(frozen=True, slots=True)
class Line:
    """`text` is for people only; what programs ask of a line has a field of its own."""

    at: datetime
    kind: str  # kebab-case: "block-active", "pod-evicted", "fault", "decided", …
    about: str  # the object's name or id
    text: str
    label: str = ""  # how the text calls the object, where `about` alone would not do
    hit: tuple[str, ...] = ()  # names of the objects that a fault struck
    crash_step: str = ""  # where the engine died, such as after:purchase; empty: between two ticks

    @property
    def sentence(self) -> str:
        return f"{self.label}: {self.text}" if self.label else self.text


class Journal:
    """What happened, one line each, in order."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.lines: list[Line] = []

    def add(
        self,
        kind: str,
        about: str,
        text: str,
        *,
        label: str = "",
        hit: tuple[str, ...] = (),
        crash_step: str = "",
    ) -> None:
        self.lines.append(Line(self._now(), kind, about, text, label, hit, crash_step))
