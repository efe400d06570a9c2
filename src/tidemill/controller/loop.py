"""When to tick: at a wake-up, at the engine's own `wake_at`, and again after a failure. Ticks never overlap.

One failing tick never ends the process. Everything else that looks at a tick (logs, metrics, events, alerts) is a
reporter: what one of them raises is logged, and stops nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from tidemill.controller.documents import Version
from tidemill.controller.wakes import MOST_REASONS, Wakes
from tidemill.engine.clock import MappedClock
from tidemill.engine.loop import Engine, Tick
from tidemill.model.errors import PortError, Refused
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.spec import Spec

# Between two ticks, whatever happens: the engine may ask for a second of a clock that runs a thousand times as fast.
LEAST_PAUSE_S = 0.05
# After a tick that saw nothing or failed; doubled each time, up to the longest.
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
# A process that waits still shows that it lives, and sees signals and a lost lease.
BEAT_S = 1.0

log = structlog.stdlib.get_logger("tidemill.controller.loop")


@dataclass(frozen=True, slots=True)
class TickReport:
    """A tick, for those who tell of it. `tick` is None where nothing could be observed or the tick failed."""

    number: int
    spec: Spec
    woken_by: tuple[str, ...]
    tick: Tick | None
    took_s: float
    error: Exception | None = None
    # What was seen, and the plan made of it, also where the tick failed afterwards.
    seen: tuple[World, Plan | None] | None = None


class Reporter(Protocol):
    def report(self, report: TickReport) -> None: ...


EngineOf = Callable[[Spec, Callable[[], bool]], Engine]


class ControlLoop:
    """`engine_of` makes an engine for documents and a `go_on`; a new one is made when either changes."""

    def __init__(
        self,
        engine_of: EngineOf,
        documents: Callable[[], Version],
        wakes: Wakes,
        clock: MappedClock,
        reporters: Sequence[Reporter] = (),
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine_of, self._documents, self._wakes, self._clock = engine_of, documents, wakes, clock
        self._reporters, self._now_s = reporters, now_s
        self._engine: Engine | None = None
        self._version = 0
        self._failures = 0
        self._wake_at: datetime | None = None  # of the engine's clock
        self._not_before_s = now_s()
        self.ticks = 0
        self.beat_s = now_s()  # when the loop was last seen to go on
        self.ticking_since_s: float | None = None

    def run(self, go_on: Callable[[], bool]) -> None:
        """Tick until `go_on` says no. Begins with a new engine and a tick at once."""
        self._engine, self._wake_at, self._not_before_s = None, None, self._now_s()
        woken_by: tuple[str, ...] = ("start",)
        while go_on():
            self.tick(go_on, woken_by)
            woken_by = self._sleep(go_on)

    def tick(self, go_on: Callable[[], bool], woken_by: tuple[str, ...] = ()) -> TickReport:
        """One tick and its reports; raises nothing."""
        self.ticks += 1
        began_s = self.beat_s = self.ticking_since_s = self._now_s()
        version = self._documents()
        if self._engine is not None:
            self._engine.seen = None
        tick: Tick | None = None
        error: Exception | None = None
        with structlog.contextvars.bound_contextvars(tick=self.ticks):
            try:
                tick = self._engine_for(version, go_on).tick()
            except (PortError, Refused) as refused:
                error = refused
                log.warning("the tick failed", why=str(refused))
            except Exception as bug:
                error = bug
                log.exception("the tick failed")
            took_s = self._now_s() - began_s
            report = TickReport(self.ticks, version.spec, woken_by, tick, took_s, error, self._seen(tick))
            self._tell(report)
        if error is not None and not isinstance(error, PortError | Refused):
            self._engine = None  # a fresh one may not meet it again
        self._plan_next(tick)
        self.ticking_since_s, self.beat_s = None, self._now_s()
        return report

    def _engine_for(self, version: Version, go_on: Callable[[], bool]) -> Engine:
        if self._engine is None or version.number != self._version:
            self._engine, self._version = self._engine_of(version.spec, go_on), version.number
        return self._engine

    def _seen(self, tick: Tick | None) -> tuple[World, Plan | None] | None:
        if tick is not None:
            return tick.world, tick.plan
        return self._engine.seen if self._engine is not None else None

    def _tell(self, report: TickReport) -> None:
        for reporter in self._reporters:
            try:
                reporter.report(report)
            except Exception:
                log.exception("cannot report the tick", reporter=type(reporter).__name__)

    # --- when next ----------------------------------------------------------------------------------

    def _plan_next(self, tick: Tick | None) -> None:
        now_s = self._now_s()
        if tick is not None:
            self._failures, self._wake_at = 0, tick.wake_at
            self._not_before_s = now_s + LEAST_PAUSE_S
            return
        self._failures += 1
        self._wake_at = None
        self._not_before_s = now_s + min(FIRST_RETRY_S * 2 ** min(self._failures - 1, 10), LONGEST_RETRY_S)

    def _sleep(self, go_on: Callable[[], bool]) -> tuple[str, ...]:
        """Until it is due or woken. After a failure events do not shorten the pause."""
        woken_by: dict[str, None] = {}
        while go_on():
            self.beat_s = now_s = self._now_s()
            left_s = self._not_before_s - now_s if woken_by else self._left_s(now_s)
            if left_s <= 0:
                break
            woken_by |= dict.fromkeys(self._wakes.wait(min(left_s, BEAT_S)))
        return tuple(woken_by)[:MOST_REASONS] or ("due",)

    def _left_s(self, now_s: float) -> float:
        """Of wall time until the next tick is due."""
        pause_s = self._not_before_s - now_s
        if self._wake_at is None:
            return pause_s
        try:
            until_s = self._clock.wall_seconds(self._wake_at - self._clock.now())
        except PortError:  # a simulated cloud that is away: look again soon
            return max(pause_s, FIRST_RETRY_S)
        return max(pause_s, until_s)
