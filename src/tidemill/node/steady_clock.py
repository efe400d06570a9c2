"""Wall time that does not jump: a step of the node's clock must neither end pods early nor let them lose grace.

Time that passed is measured on a clock nobody sets. While the wall clock disagrees with it, the measured time counts;
a wall clock that stays where it jumped to for a minute is believed (the time service corrected it).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

TOLERANCE_S = 5.0
BELIEVED_AFTER_S = 60.0


def since_boot_s() -> float:
    """It goes on while the machine sleeps, which the monotonic clock of Linux does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    def __init__(
        self, wall_s: Callable[[], float] = time.time, elapsed_s: Callable[[], float] = since_boot_s
    ) -> None:
        self._wall_s, self._elapsed_s = wall_s, elapsed_s
        self._offset_s = wall_s() - elapsed_s()
        self._doubt: tuple[float, float] | None = None  # another offset, and since when it was seen

    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._now_s())

    def _now_s(self) -> float:
        elapsed_s = self._elapsed_s()
        offset_s = self._wall_s() - elapsed_s
        if abs(offset_s - self._offset_s) <= TOLERANCE_S:
            self._offset_s, self._doubt = offset_s, None
        elif self._doubt is None or abs(offset_s - self._doubt[0]) > TOLERANCE_S:
            self._doubt = (offset_s, elapsed_s)
        elif elapsed_s - self._doubt[1] >= BELIEVED_AFTER_S:
            self._offset_s, self._doubt = offset_s, None
        return self._offset_s + elapsed_s


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
