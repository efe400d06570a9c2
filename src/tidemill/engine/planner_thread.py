"""The purchase planner in a thread beside the ticks. A module of its own: the simulator has no threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.model.planner_result import PlannerResult

log = logging.getLogger("tidemill.engine.planner_runner")


class ThreadExecutor:
    """Runs the purchase planner in parallel to the ticks, one run at a time; the next tick takes the result.

    The solver releases the interpreter lock, so a tick hardly waits for it. The thread is a daemon: stopping the loop
    does not wait for the plan.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._done: PlannerResult | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        def run() -> None:
            try:
                self._done = work()
            except Exception:
                log.exception("planning the calendars failed; the simple rule buys until the next run")
                self._done = otherwise

        self._thread = threading.Thread(target=run, name="tidemill-planner", daemon=True)
        self._thread.start()

    def take(self) -> PlannerResult | None:
        if self.busy:
            return None
        done, self._done = self._done, None
        return done
