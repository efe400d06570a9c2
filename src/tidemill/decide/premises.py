"""What one decision read of what moves by itself: money that is spent by the hour, hours of use, and the clock.

A plan may be used again as long as what it read is the same (`Plan.holds_at`). Whoever reads a figure of the world's
spending reads it through here, so nobody has to say so. An instant that is counted from now, and told, is set by
`DecisionContext.hold_for`: it is counted again where the plan is used again (`Plan.told_at`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tidemill.model.purchases import BlockUse, Spending

_FIGURES = frozenset(field.name for field in fields(Spending))


class RecordedSpending(Spending):
    """The same figures; it remembers which of them were read."""

    __slots__ = ("read",)
    read: set[str]

    def __init__(self, spending: Spending) -> None:
        for name in _FIGURES:
            object.__setattr__(self, name, getattr(spending, name))
        object.__setattr__(self, "read", set())

    def __getattribute__(self, name: str) -> Any:
        if name in _FIGURES:
            object.__getattribute__(self, "read").add(name)
        return object.__getattribute__(self, name)


class RecordedUses(tuple[BlockUse, ...]):
    """How much of each block was used; it remembers whether anybody asked. The hours grow with every sample, and most
    decisions do not ask."""

    was_read = False

    def __iter__(self) -> Iterator[BlockUse]:
        self.was_read = True
        return super().__iter__()
