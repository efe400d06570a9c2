"""How fast virtual time goes by for somebody who watches: an even pace, slower where the story turns.

Without a speed the whole scenario is fitted into a wall time: what the turns take longer, the quiet hours
make up for. With a speed the pace is constant. Pure arithmetic; the caller owns both clocks.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# A turn goes by at an eighth of the pace: ten minutes of a drain take some seconds when a day takes minutes.
SLOWER = 8
# How long after a turn the clock stays slow; a drain's turns follow each other within this.
LINGER = timedelta(minutes=4)
# At two hours a second nobody sees anything, and there is no time to stop in.
_A_BLUR = 7200.0
# In the last second the pace stays as it is, and nothing is slow any more.
_LEAST_WALL_S = 1.0


class Pace:
    def __init__(self, end: datetime, *, wall_s: float, speed: float | None = None) -> None:
        self._end = end
        self._wall_s = wall_s
        self._speed = speed
        self._slow_until: datetime | None = None
        self._even = 1.0  # the pace that would end in time
        self.rate = speed or 0.0  # virtual seconds per wall second, as last used

    def turn(self, at: datetime) -> bool:
        """Something worth watching happened at `at`. True: stop there for this moment, and go on slowly."""
        self._slow_until = max(self._slow_until or at, at + LINGER)
        return self._speed is None and self._even < _A_BLUR

    def goal(self, now: datetime, *, passed_s: float, elapsed_s: float) -> datetime:
        """Where the virtual clock should be `passed_s` after it stood at `now`."""
        self.rate = self._rate(now, elapsed_s)
        return min(self._end, now + timedelta(seconds=self.rate * passed_s))

    def _rate(self, now: datetime, elapsed_s: float) -> float:
        if self._speed is not None:
            return self._speed
        left_s = self._wall_s - elapsed_s
        if left_s < _LEAST_WALL_S:
            return self._even  # dividing what is left by ever less of it would never arrive
        self._even = max(1.0, (self._end - now).total_seconds() / left_s)
        slow = self._slow_until is not None and now < self._slow_until
        return max(1.0, self._even / SLOWER) if slow else self._even
