"""One clock for all clients of the wire, and one request at a time.

A request and a step of the timeline never interleave: a request has exclusive access to the account, and time stands
still meanwhile. At speed N virtual time runs N times as fast as wall time; at speed 0 it moves only by command.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from tidemill.model.errors import SpecError
from tidemill.sim.timeline import Timeline

log = logging.getLogger(__name__)

# How often the pump looks: fine enough for speed 60, where it moves three virtual seconds at a time.
_PUMP_EVERY_S = 0.05
# A month a second. At more, too much would happen between two requests.
MOST_SPEED = 3_000_000.0


class WireClock:
    def __init__(
        self, timeline: Timeline, *, speed: float = 0, wall_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeline = timeline
        self._wall_s = wall_s
        self._turn = threading.RLock()
        self._depth = 0  # turns inside a turn
        self._stopping = threading.Event()
        self._pump: threading.Thread | None = None
        self._speed = 0.0
        self._anchor, self._anchor_wall_s = timeline.now(), wall_s()
        self.set_speed(speed)

    # --- the turn -----------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[datetime]:
        """Exclusive access to the account, at this instant: inside a turn time stands still."""
        with self._turn:
            if not self._depth:
                self._catch_up()
            self._depth += 1
            try:
                yield self._timeline.now()
            finally:
                self._depth -= 1

    def now(self) -> datetime:
        with self.turn() as now:
            return now

    # --- moving it ----------------------------------------------------------------------------------

    @property
    def speed(self) -> float:
        return self._speed

    def set_speed(self, speed: float) -> None:
        if not 0 <= speed <= MOST_SPEED:
            raise SpecError(f"speed is 0 to {MOST_SPEED:.0f} virtual seconds a second, not {speed}")
        with self._turn:
            self._catch_up()
            self._speed = speed
            self._anchor_here()

    def advance(self, *, to: datetime | None = None, by: timedelta = timedelta(0)) -> datetime:
        """Let time pass; returns the new time. An instant in the past changes nothing."""
        with self.turn() as now:
            target = (to or now) + by
            if target.microsecond:
                target = target.replace(microsecond=0) + timedelta(seconds=1)
            self._timeline.advance(target)
            self._anchor_here()
            return self._timeline.now()

    def exactly(self) -> tuple[datetime, datetime]:
        """The time with its fraction, which `now` leaves out, and the wall time it was told at: what maps the two."""
        with self._turn:
            passed_s = (self._wall_s() - self._anchor_wall_s) * self._speed
            return self._anchor + timedelta(seconds=passed_s), datetime.now(UTC)

    def at(self, when: datetime, happen: Callable[[], None]) -> Callable[[], None]:
        """As the timeline's: something that AWS does by itself. Returns a function that cancels it."""
        with self._turn:
            return self._timeline.at(when, happen)

    def next_at(self) -> datetime | None:
        with self._turn:
            return self._timeline.next_at()

    def _catch_up(self) -> None:
        passed_s = (self._wall_s() - self._anchor_wall_s) * self._speed
        due = self._anchor + timedelta(seconds=int(passed_s))
        if due > self._timeline.now():
            self._depth += 1  # what happens may ask for the time, which must not move it further
            try:
                self._timeline.advance(due)
            finally:
                self._depth -= 1

    def _anchor_here(self) -> None:
        self._anchor, self._anchor_wall_s = self._timeline.now(), self._wall_s()

    # --- things happen, asked or not ----------------------------------------------------------------

    def start(self) -> None:
        """From now on time runs; the time it took to start does not count."""
        with self._turn:
            self._anchor_here()
        self._stopping.clear()
        self._pump = threading.Thread(target=self._run, name="tidemill-wire-clock", daemon=True)
        self._pump.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._pump is not None:
            self._pump.join()
            self._pump = None

    def _run(self) -> None:
        while not self._stopping.wait(_PUMP_EVERY_S):
            if not self._speed:
                continue
            try:
                with self.turn():
                    pass
            except Exception:  # one that fails must not stop the clock for everybody
                log.exception("something that was due at %s failed", self._timeline.now())
