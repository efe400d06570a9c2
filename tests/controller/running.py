"""A control loop over small ports and clocks that move only when they are waited on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tests.engine.ports import Outside
from tidemill.controller.documents import Version
from tidemill.controller.loop import ControlLoop, Reporter, TickReport
from tidemill.controller.wakes import Wakes
from tidemill.engine.loop import Engine
from tidemill.spec import Spec


class Reports:
    """A reporter that keeps what it was told."""

    def __init__(self) -> None:
        self.all: list[TickReport] = []

    def report(self, report: TickReport) -> None:
        self.all.append(report)


class ScriptedWakes(Wakes):
    """Waiting moves both clocks at once. `coming`: after how many seconds somebody wakes the loop, and why."""

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside
        self.at_s = 0.0
        self.coming: list[tuple[float, str]] = []

    def now_s(self) -> float:
        return self.at_s

    def wait(self, timeout_s: float, *, gather_s: float = 0.1) -> tuple[str, ...]:
        if self.coming and self.coming[0][0] <= self.at_s + timeout_s:
            at_s, reason = self.coming.pop(0)
            self._pass(max(0.0, at_s - self.at_s))
            return (reason,)
        self._pass(timeout_s)
        return ()

    def _pass(self, seconds: float) -> None:
        self.at_s += seconds
        self._outside.clock.pass_time(seconds=seconds)


class WallHands:
    """The engine's clock of an `Outside`, as fast as the wall's."""

    def __init__(self, outside: Outside, speed: float = 1.0) -> None:
        self._outside, self.speed = outside, speed

    def now(self) -> datetime:
        return self._outside.clock.now()

    def from_wall(self, instant: datetime) -> datetime:
        return instant

    def to_wall(self, instant: datetime) -> datetime:
        return instant

    def wall_seconds(self, duration: timedelta) -> float:
        return duration.total_seconds() / self.speed


class Running:
    """`engines` counts how many were made; `fail_with` makes the next ticks raise."""

    def __init__(self, spec: Spec, *reporters: Reporter) -> None:
        self.outside = Outside(spec)
        self.wakes = ScriptedWakes(self.outside)
        self.version = Version(1, spec)
        self.reports = Reports()
        self.engines: list[Engine] = []
        self.fail_with: list[Exception] = []
        self.loop = ControlLoop(
            self._engine_of,
            lambda: self.version,
            self.wakes,
            WallHands(self.outside),
            (self.reports, *reporters),
            now_s=self.wakes.now_s,
        )

    def _engine_of(self, spec: Spec, go_on: Callable[[], bool]) -> Engine:
        self.outside.spec = spec
        engine = Engine(spec, *self.outside._ports, go_on=go_on)
        tick = engine.tick

        def failing() -> object:
            if self.fail_with:
                raise self.fail_with.pop(0)
            return tick()

        engine.tick = failing  # type: ignore[assignment, method-assign]
        self.engines.append(engine)
        return engine

    def run_for(self, seconds: float) -> Sequence[TickReport]:
        until_s = self.wakes.at_s + seconds
        self.loop.run(lambda: self.wakes.at_s < until_s)
        return self.reports.all
