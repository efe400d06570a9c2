"""What differs between two readings of the world in which unchanged members are the very same objects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import is_, is_not
from typing import TypeVar

Member = TypeVar("Member")
_AT_ONCE = 512  # compared without a look at the result


def changed_span(old: Sequence[object], new: Sequence[object]) -> tuple[int, int, int]:
    """Where they differ: `old[start:old_stop]` became `new[start:new_stop]`. Compares by identity."""
    if old is new:
        return len(old), len(old), len(old)
    shorter = min(len(old), len(new))
    start = _same(old, new)
    tail = _same(old[start:][::-1], new[start:][::-1]) if start < shorter else 0
    return start, len(old) - tail, len(new) - tail


def _same(old: Sequence[object], new: Sequence[object]) -> int:
    """How many members are the same ones from the first on."""
    shorter = min(len(old), len(new))
    for start in range(0, shorter, _AT_ONCE):
        piece = bytes(map(is_, old[start : start + _AT_ONCE], new[start : start + _AT_ONCE]))
        if (first := piece.find(0)) >= 0:
            return start + first
    return shorter


def different(old: Sequence[object], new: Sequence[object]) -> list[int]:
    """The places at which two sequences of one length hold different objects."""
    return list(compress(count(), map(is_not, old, new)))


def changed(old: Sequence[Member], new: Sequence[Member]) -> tuple[list[Member], list[Member]]:
    """The members that went, and those that came, each in its order."""
    start, old_stop, stop = changed_span(old, new)
    before, after = old[start:old_stop], new[start:stop]
    known, there = set(map(id, before)), set(map(id, after))
    return [one for one in before if id(one) not in there], [one for one in after if id(one) not in known]
