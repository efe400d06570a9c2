"""What runs beside the ticks: AWS's events, alerts, and the purchase planner with its stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from datetime import timedelta

import structlog

from tidemill.controller.loop import TickReport
from tidemill.controller.worker import Worker
from tidemill.engine.planner_runner import PlannerExecutor
from tidemill.model.errors import TidemillError
from tidemill.model.planner_result import PlannerResult
from tidemill.notify.delivery import Alerting
from tidemill.ports import AlertBook, Clock
from tidemill.spec import Spec

log = structlog.stdlib.get_logger("tidemill.controller")

# The queue is asked again after a failure; doubled each time, up to the longest.
FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 120.0
IDLE_S = 1.0


class KnownIds:
    """A reporter: the ids of our instances and reservations, as last seen. Other events of the account wake nobody."""

    def __init__(self) -> None:
        self._ids: frozenset[str] = frozenset()
        self._of: tuple[object, object] = (None, None)

    def __call__(self) -> Container[str]:
        return self._ids

    def report(self, report: TickReport) -> None:
        if report.tick is None:
            return
        world = report.tick.world
        if self._of[0] is world.nodes and self._of[1] is world.reservations:
            return
        self._of = (world.nodes, world.reservations)
        self._ids = frozenset(
            (
                *(node.instance.id for node in world.nodes if node.instance),
                *(one.id for one in world.reservations),
            )
        )


class QueueThread(Worker):
    """Polls AWS's events while this process leads: what a standby took from the queue would be lost."""

    def __init__(
        self,
        poll: Callable[[], object],
        leads: Callable[[], bool],
        *,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__("aws-events")
        self._poll, self._leads = poll, leads
        self._sleep = sleep or self._stopping.wait
        self._failures = 0
        self.trouble = ""

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.step()

    def step(self) -> None:
        """One poll, or a pause where there is nothing to do or the last one failed."""
        if not self._leads():
            self._sleep(IDLE_S)
            return
        try:
            self._poll()
        except TidemillError as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("the queue of AWS's events cannot be read")
            self._failed(type(error).__name__)
        else:
            if self.trouble:
                log.info("the queue of AWS's events can be read again")
            self._failures, self.trouble = 0, ""

    def _failed(self, why: str) -> None:
        self._failures += 1
        pause_s = min(FIRST_RETRY_S * 2 ** min(self._failures - 1, 10), LONGEST_RETRY_S)
        if why != self.trouble:
            log.warning("the queue of AWS's events cannot be read; ticks go on by the clock", why=why)
        self.trouble = why
        self._sleep(pause_s)


class AlertReporter:
    """Alerts and the heartbeat after every tick. Targets follow the documents."""

    def __init__(self, book: AlertBook, clock: Clock) -> None:
        self._book, self._clock = book, clock
        self._spec: Spec | None = None
        self._alerting: Alerting | None = None

    def report(self, report: TickReport) -> None:
        if report.tick is None:
            return
        if self._alerting is None or self._spec is not report.spec:
            self.stop(timedelta(seconds=1))
            self._spec, self._alerting = report.spec, Alerting(report.spec, self._book, self._clock)
            self._alerting.__enter__()
        self._alerting.after(report.tick)

    def stop(self, within: timedelta) -> None:
        """Send what is due, for at most this long; the rest stays in the ledger."""
        if self._alerting is not None:
            self._alerting.stop(within)
            self._alerting = None


class TimedExecutor:
    """A planner executor that says how long the planner took, and wakes the loop when it is done."""

    def __init__(
        self,
        inner: PlannerExecutor,
        took: Callable[[float], None],
        wake: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._took, self._wake, self._now_s = inner, took, wake, now_s

    @property
    def busy(self) -> bool:
        return self._inner.busy

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        def timed() -> PlannerResult:
            began_s = self._now_s()
            try:
                return work()
            finally:
                self._took(self._now_s() - began_s)
                self._wake("planner")

        self._inner.begin(timed, otherwise)

    def take(self) -> PlannerResult | None:
        return self._inner.take()
