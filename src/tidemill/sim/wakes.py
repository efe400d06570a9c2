"""The notices that wake the engine, and what can go wrong with them: lost, doubled, late.

A notice carries no state, only "look again". A lost one is never delivered: the engine must still converge by its own
`wake_at`, because AWS promises no more. AWS sends no event for payments, extensions and slots that become free; the
real adapter polls for those and wakes the engine on a difference, so the simulated account wakes it for every change
that a read would show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta

from tidemill.sim.timeline import Timeline


class Wakes:
    def __init__(self, timeline: Timeline, deliver: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._deliver = deliver
        self._to_lose = 0
        self._to_double = 0
        self._to_delay: deque[timedelta] = deque()

    def __call__(self, reason: str) -> None:
        if self._to_lose:
            self._to_lose -= 1
        elif self._to_delay:
            self._timeline.after(self._to_delay.popleft(), lambda: self._deliver(reason))
        else:
            self._deliver(reason)
            if self._to_double:
                self._to_double -= 1
                self._deliver(reason)

    def lose(self, n: int) -> None:
        self._to_lose += n

    def double(self, n: int) -> None:
        self._to_double += n

    def delay(self, n: int, by: timedelta) -> None:
        self._to_delay.extend([by] * n)
