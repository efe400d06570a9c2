"""The time of a simulated AWS in another process: asked for now and then, and reckoned from the answer in between.

The simulator gives its time, its speed, and the wall time at which it said so: both run on one machine, so that the
answer can be kept however long it took. Where time stands still (speed 0) every call asks.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timedelta

from tidemill.engine.clock import FasterClock
from tidemill.model.errors import Retryable

_TIMEOUT_S = 5
# How long an answer is used. Within it, somebody may have moved the time or its speed.
_ASK_EVERY_S = 1.0
# Two answers that differ by less than this of wall time mean the same clock: the first is kept, so that an instant
# read twice from one Kubernetes object is the same.
_SAME_WITHIN_S = 0.05


class SimulatedClock:
    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/tidemill/clock"
        self._lock = threading.Lock()
        self._clock: FasterClock | None = None  # None: never asked, or time stands still
        self._stands_at: datetime | None = None
        self._asked_s = float("-inf")
        self._last: datetime | None = None

    def now(self) -> datetime:
        with self._lock:
            clock = self._current()
            now = self._stands_at if clock is None else clock.now()
            assert now is not None
            self._last = now if self._last is None else max(now, self._last)
            return self._last

    def from_wall(self, instant: datetime) -> datetime:
        return self._mapping().from_wall(instant)

    def to_wall(self, instant: datetime) -> datetime:
        return self._mapping().to_wall(instant)

    def wall_seconds(self, duration: timedelta) -> float:
        return self._mapping().wall_seconds(duration)

    def _mapping(self) -> FasterClock:
        with self._lock:
            clock = self._current()
        if clock is None:
            raise Retryable(
                "the time of the simulated AWS stands still: give it a speed (tidemill sim aws --speed)"
            )
        return clock

    def _current(self) -> FasterClock | None:
        """Without an answer the last one goes on."""
        at_s = time.monotonic()
        if self._clock is None or at_s - self._asked_s >= _ASK_EVERY_S:
            try:
                self._take(self._ask())
            except Retryable:
                if self._clock is None:
                    raise
            self._asked_s = at_s
        return self._clock

    def _take(self, answer: tuple[datetime, datetime, datetime, float]) -> None:
        whole, exactly, wall, speed = answer
        if not speed:
            self._clock, self._stands_at = None, whole
            return
        before, self._stands_at = self._clock, None
        if before is not None and before.speed == speed:
            apart_s = before.wall_seconds(before.from_wall(wall) - exactly)
            if abs(apart_s) < _SAME_WITHIN_S:
                return
        self._clock = FasterClock(exactly, wall, speed)

    def _ask(self) -> tuple[datetime, datetime, datetime, float]:
        from urllib.error import URLError
        from urllib.request import urlopen

        try:
            with urlopen(self._url, timeout=_TIMEOUT_S) as answer:
                given = json.load(answer)
            now, exactly, wall = (datetime.fromisoformat(given[key]) for key in ("now", "exactly", "wall"))
            return now, exactly, wall, float(given["speed"])
        except (URLError, ValueError, KeyError, TypeError, OSError) as error:
            raise Retryable(f"the simulated AWS does not answer at {self._url}: {error}") from error
