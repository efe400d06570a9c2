"""Writes to the API server by a few threads: the newest of each object, tried again until it is answered.

A write says what an object is to be, not what changed. So one that waits is replaced by the next about the same object,
two about one object never run at once, and one that failed can be repeated.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from tidemill.sim.wire.data_plane.api_client import ApiError, Unreachable

log = logging.getLogger(__name__)
Write = Callable[[], None]
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.2, 5.0
_TRY_AGAIN = (409, 429, 500, 502, 503, 504)


class WriteQueue:
    def __init__(self, name: str, workers: int) -> None:
        self._turnstile = threading.Condition()
        self._writes: dict[str, Write] = {}  # by object: the newest
        self._ready: deque[str] = deque()
        self._running: set[str] = set()
        self._failures: dict[str, int] = {}
        self._later: list[tuple[float, str]] = []  # when to try again, on the monotonic clock
        self._closed = False
        self.sent = self.failed = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"tidemill-{name}-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, about: str, write: Write) -> None:
        """At once, or after the write about the same object that runs now."""
        with self._turnstile:
            known = about in self._writes
            self._writes[about] = write
            if not known and about not in self._running:
                self._ready.append(about)
                self._turnstile.notify()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything has been answered; False: it has not."""
        until = time.monotonic() + timeout_s
        with self._turnstile:
            while self._writes or self._running:
                left = until - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._turnstile.wait(min(left, 0.1))
        return True

    def close(self) -> None:
        """What waits is dropped."""
        with self._turnstile:
            self._closed = True
            self._turnstile.notify_all()
        for thread in self._threads:
            thread.join()

    # --- the workers --------------------------------------------------------------------------------

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            about, write = taken
            try:
                write()
                delay_s = None
                self.sent += 1
            except ApiError as error:
                delay_s = self._failed(about, error) if error.status in _TRY_AGAIN else None
                if delay_s is None:
                    log.warning("%s: %s", about, error)
            except Unreachable as error:
                delay_s = self._failed(about, error)
            except Exception:  # a mistake of ours about one object must not stop the others
                log.exception("%s: the write failed", about)
                delay_s = None
            self._done(about, write, delay_s)

    def _take(self) -> tuple[str, Write] | None:
        with self._turnstile:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._ready.append(heapq.heappop(self._later)[1])
                while self._ready:
                    about = self._ready.popleft()
                    if about in self._writes and about not in self._running:
                        self._running.add(about)
                        return about, self._writes.pop(about)
                self._turnstile.wait(self._later[0][0] - now if self._later else None)
        return None

    def _failed(self, about: str, error: Exception) -> float:
        """How long to wait. Only the first failure in a row is logged."""
        times = self._failures.get(about, 0)
        self._failures[about] = times + 1
        self.failed += 1
        if not times:
            log.warning("%s: %s; it is tried again", about, error)
        return float(min(_FIRST_RETRY_S * 2**times, _LONGEST_RETRY_S))

    def _done(self, about: str, write: Write, retry_s: float | None) -> None:
        with self._turnstile:
            self._running.discard(about)
            if retry_s is None:
                self._failures.pop(about, None)
                if about in self._writes:
                    self._ready.append(about)
            else:
                self._writes.setdefault(about, write)
                heapq.heappush(self._later, (time.monotonic() + retry_s, about))
            self._turnstile.notify_all()
