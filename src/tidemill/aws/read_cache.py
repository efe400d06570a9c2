"""What was read before, so that unchanged objects keep their identity and a fresh reading is not made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """Answers with the objects of before, and with the very tuple, as far as they are equal."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self._key = key
        self._before: tuple[T, ...] = ()
        self._by_key: dict[str, T] = {}

    def __call__(self, found: Iterable[T]) -> tuple[T, ...]:
        by_key = {}
        for one in found:
            before = self._by_key.get(self._key(one))
            by_key[self._key(one)] = before if before is not None and before == one else one
        now = tuple(by_key.values())
        if len(now) != len(self._before) or any(
            one is not old for one, old in zip(now, self._before, strict=True)
        ):
            self._before = now
        self._by_key = by_key
        return self._before


class OneTimeCache(Generic[T]):
    """A reading that came along with another one. It is handed out once, and not when it is old."""

    def __init__(self, for_at_most: timedelta) -> None:
        self._for = for_at_most
        self._held: tuple[datetime, T] | None = None

    def put(self, what: T, at: datetime) -> None:
        self._held = at, what

    def take(self, now: datetime) -> T | None:
        held, self._held = self._held, None
        return held[1] if held is not None and now - held[0] <= self._for else None
