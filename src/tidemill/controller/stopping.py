"""SIGTERM and SIGINT: the action under way is finished, the lease given back, the process ends within its grace.

A second signal ends it at once. So does the end of the grace: the lease is then not given back, because a call may
still be under way, and runs out by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType

GRACE_S = 25.0  # Kubernetes gives 30 by default
EXIT_LATE = 1
EXIT_TWICE = 130


class StopSignal:
    """Is a stop asked for? `wake`: ends a wait early; it must be safe in a signal handler."""

    def __init__(
        self,
        wake: Callable[[str], None],
        *,
        grace_s: float = GRACE_S,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._wake, self._grace_s, self._end = wake, grace_s, end
        self._asked: SimpleQueue[int] = SimpleQueue()
        self.received = 0  # the number of the first signal; 0: none
        self.deadline_s = float("inf")  # by when the process ends, on the monotonic clock

    def __call__(self) -> bool:
        return self.received != 0

    def install(self) -> None:
        threading.Thread(target=self._watch, name="grace", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def left_s(self) -> float:
        return max(0.0, self.deadline_s - time.monotonic())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            self._end(EXIT_TWICE)
            return
        self.received = number
        self.deadline_s = time.monotonic() + self._grace_s
        self._asked.put(number)
        self._wake(signal.Signals(number).name)

    def _watch(self) -> None:
        self._asked.get()
        time.sleep(self._grace_s)
        sys.stderr.write(f"not stopped within {self._grace_s:g} s; ending without giving the lease back\n")
        sys.stderr.flush()
        self._end(EXIT_LATE)
