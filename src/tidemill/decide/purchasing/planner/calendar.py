"""How much a pool needs, and when: constant, by the week, in explicit windows, or several of these together.

A calendar is anything that answers `steps`; demand learned from use and queue is a constant that is read anew.
It says amounts and instants, and knows nothing of what they are amounts of, nor of blocks and prices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Protocol

from tidemill.model.errors import SpecError

WEEK = timedelta(weeks=1)
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)  # any Monday 00:00 UTC: weeks are counted from it


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """So much from an instant to another."""

    start: datetime
    end: datetime
    amount: int

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise SpecError(f"demand must end after it starts, not {self.end} after {self.start}")
        if self.amount < 0:
            raise SpecError(f"demand cannot be negative: {self.amount}")


class Calendar(Protocol):
    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        """What is needed between two instants: clipped to them; overlapping steps add up."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    amount: int

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return (Step(start, end, self.amount),)


@dataclass(frozen=True, slots=True)
class BoundedConstant:
    """So much from an instant on, until another, or both; None: no limit on that side."""

    start: datetime | None
    end: datetime | None
    amount: int

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        first, last = max(start, self.start or start), min(end, self.end or end)
        return (Step(first, last, self.amount),) if first < last else ()


@dataclass(frozen=True, slots=True)
class Windows:
    windows: tuple[Step, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return _clipped(self.windows, start, end)


@dataclass(frozen=True, slots=True)
class WeekSpan:
    """From and to are counted from Monday 00:00 UTC; a span over the end of the week is written as two."""

    start: timedelta
    end: timedelta
    amount: int

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.start < self.end <= WEEK:
            raise SpecError(f"a weekly span lies inside one week, not {self.start} to {self.end}")


@dataclass(frozen=True, slots=True)
class Weekly:
    spans: tuple[WeekSpan, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        monday = _A_MONDAY + (start - _A_MONDAY) // WEEK * WEEK
        found: list[Step] = []
        while monday < end:
            found += (Step(monday + one.start, monday + one.end, one.amount) for one in self.spans)
            monday += WEEK
        return _clipped(found, start, end)


@dataclass(frozen=True, slots=True)
class CombinedCalendar:
    """The sum of several: a service that always runs, and a training run in March."""

    calendars: tuple[Calendar, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return tuple(step for one in self.calendars for step in one.steps(start, end))


def levels(calendar: Calendar, start: datetime, end: datetime) -> tuple[Step, ...]:
    """One step after the other without overlap, from start to end, zeros included."""
    steps = calendar.steps(start, end)
    changes: dict[datetime, int] = {start: 0, end: 0}
    for step in steps:
        changes[step.start] = changes.get(step.start, 0) + step.amount
        changes[step.end] = changes.get(step.end, 0) - step.amount
    found: list[Step] = []
    amount = 0
    for here, there in pairwise(sorted(changes)):
        amount += changes[here]
        if found and found[-1].amount == amount:
            found[-1] = Step(found[-1].start, there, amount)
        else:
            found.append(Step(here, there, amount))
    return tuple(found)


def _clipped(steps: Iterable[Step], start: datetime, end: datetime) -> tuple[Step, ...]:
    return tuple(
        Step(max(one.start, start), min(one.end, end), one.amount)
        for one in steps
        if one.start < end and one.end > start
    )
