"""What differs between two readings of the world in which unchanged members are the very same objects."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TypeVar

Member = TypeVar("Member")


def changed_span(old: Sequence[object], new: Sequence[object]) -> tuple[int, int, int]:
    """Where they differ: `old[start:old_stop]` became `new[start:new_stop]`. Compares by identity."""
    shorter = min(len(old), len(new))
    start = bytes(map(is_, old, new)).find(0)
    if start < 0:
        start = shorter
    tail = bytes(map(is_, reversed(old), reversed(new))).find(0)
    tail = min(shorter if tail < 0 else tail, shorter - start)
    return start, len(old) - tail, len(new) - tail


def changed(old: Sequence[Member], new: Sequence[Member]) -> tuple[list[Member], list[Member]]:
    """The members that went, and those that came, each in its order."""
    start, old_stop, stop = changed_span(old, new)
    before, after = old[start:old_stop], new[start:stop]
    known, there = set(map(id, before)), set(map(id, after))
    return [one for one in before if id(one) not in there], [one for one in after if id(one) not in known]
