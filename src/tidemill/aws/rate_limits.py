"""How fast we may ask: a token bucket per action, as EC2 itself keeps them per account and region.

Staying below AWS's own limits leaves room for everybody else who uses the account. Buckets belong to one session, and a
session to one account and region.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemill.model.errors import Throttled


@dataclass(frozen=True, slots=True)
class RateLimit:
    burst: int
    per_s: float


# About half of what "Request throttling for the Amazon EC2 API" documents as the default of an account and region:
# reads 100 at once and 20 a second, changes 50 and 5, RunInstances 5 and 2, TerminateInstances 100 and 5.
_READ = RateLimit(50, 10)
_CHANGE = RateLimit(25, 2.5)
RATES: Mapping[str, RateLimit] = {
    "RunInstances": RateLimit(5, 1),
    "TerminateInstances": RateLimit(50, 2.5),
    # Undocumented. Callers report CapacityBlockDescribeLimitExceeded on calls that follow each other closely, and none
    # when they are some seconds apart; a look at several sizes at once must still be possible.
    "DescribeCapacityBlockOfferings": RateLimit(10, 0.25),
    "DescribeCapacityBlockExtensionOfferings": RateLimit(10, 0.25),
}
_READS = ("Describe", "Get", "List")
# A caller that would wait longer is told so instead. A person waits this long; an engine should not: its ticks stand
# still meanwhile, and what it asks for in vain it asks for again.
LONGEST_WAIT_S = 30.0


def rate_limit_of(action: str) -> RateLimit:
    return RATES.get(action) or (_READ if action.startswith(_READS) else _CHANGE)


class RateLimits:
    """Thread-safe. Counts what went through, so that a test can say how many calls a tick makes."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        *,
        patience_s: float = LONGEST_WAIT_S,
    ) -> None:
        self._now_s, self._sleep, self._patience_s = now_s, sleep, patience_s
        self._lock = threading.Lock()
        self._left: dict[
            str, tuple[float, float]
        ] = {}  # action -> tokens, as of when; below zero: spoken for
        self.calls: Counter[str] = Counter()

    def take(self, action: str) -> None:
        """Wait until the action may be called. Throttled: that would take too long, and nothing is called."""
        with self._lock:
            wait_s = self._book(action)
            self.calls[action] += 1
        if wait_s > 0:
            self._sleep(wait_s)

    def _book(self, action: str) -> float:
        rate, now_s = rate_limit_of(action), self._now_s()
        left, since_s = self._left.get(action, (float(rate.burst), now_s))
        left = min(float(rate.burst), left + (now_s - since_s) * rate.per_s) - 1
        wait_s = max(0.0, -left / rate.per_s)
        if wait_s > self._patience_s:
            raise Throttled(f"{action}: too many calls of our own; the next may be made in {wait_s:.0f} s")
        self._left[action] = left, now_s
        return wait_s
