"""Planning in a thread of its own, for loops that people watch: the ticks go on, and the next one finds the advice.

The solver lets go of the interpreter while it works, so a tick waits for it no longer than for any other thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.model.planner_result import Advice

log = logging.getLogger("tidemill.engine.planner_runner")


class InThread:
    """One piece of work at a time. The thread is a daemon: whoever stops the loop need not wait for its plan."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._done: Advice | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], Advice], otherwise: Advice) -> None:
        def run() -> None:
            try:
                self._done = work()
            except Exception:
                log.exception("planning the calendars failed; the simple rule buys until the next round")
                self._done = otherwise

        self._thread = threading.Thread(target=run, name="tidemill-planner", daemon=True)
        self._thread.start()

    def take(self) -> Advice | None:
        if self.busy:
            return None
        done, self._done = self._done, None
        return done
