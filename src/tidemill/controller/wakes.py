"""Wake-ups from watches, queues, files and signals, gathered so that a burst becomes one tick."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

# After the first wake-up the rest of a burst is waited for, this long and no longer.
GATHER_S = 0.1
# More than these say nothing new. Watches of a large cluster can deliver thousands in a second.
MOST_QUEUED = 1000
MOST_REASONS = 5


class Wakes:
    """May be called from any thread, and from a signal handler: SimpleQueue is made for that."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._queue: SimpleQueue[str] = SimpleQueue()

    def __call__(self, reason: str = "") -> None:
        if self._queue.qsize() < MOST_QUEUED:
            self._queue.put(reason)

    def wait(self, timeout_s: float, *, gather_s: float = GATHER_S) -> tuple[str, ...]:
        """Why it was woken, a few reasons at most; empty: nobody woke it in time."""
        reasons: dict[str, None] = {}
        until_s = self._now_s() + max(0.0, timeout_s)
        while (reason := self._next(until_s)) is not None:
            if not reasons:
                until_s = self._now_s() + gather_s
            if len(reasons) < MOST_REASONS:
                reasons[reason] = None
        return tuple(reasons)

    def _next(self, until_s: float) -> str | None:
        try:
            return self._queue.get(timeout=max(0.0, until_s - self._now_s()))
        except Empty:
            return None
