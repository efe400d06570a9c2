"""Faults of the simulated AWS that are armed now and strike later.

Each is checked at the point where it strikes, and used up there. A target is a pool, a block's name or id, an instance
type, a zone or a kind of source; empty hits whatever comes first. Nothing here is random: the scenario says what
strikes, and when.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidemill.model.errors import NoCapacity, OutcomeUnknown, PortError, Retryable, Throttled
from tidemill.spec.faults import Call


def matches_target(target: str, names: tuple[str, ...]) -> bool:
    return not target or target in names


@dataclass(slots=True)
class _Armed:
    left: int
    target: str
    error: Literal["retryable", "no-capacity"] = "retryable"


class ArmedFaults:
    def __init__(self) -> None:
        self._throttled_until: datetime | None = None
        self._launches: list[_Armed] = []
        self._shortages: list[tuple[datetime, str]] = []  # until, target
        self._timeouts: Counter[Call] = Counter()
        self._lost_requests: Counter[Call] = Counter()
        self._payments = 0
        self._short_deliveries: list[_Armed] = []

    # --- arming -------------------------------------------------------------------------------------

    def throttle(self, until: datetime) -> None:
        self._throttled_until = max(until, self._throttled_until or until)

    def fail_launches(self, n: int, error: Literal["retryable", "no-capacity"], target: str) -> None:
        self._launches.append(_Armed(n, target, error))

    def shortage(self, until: datetime, target: str) -> None:
        self._shortages.append((until, target))

    def time_out_after_commit(self, n: int, call: Call) -> None:
        self._timeouts[call] += n

    def lose_requests(self, n: int, call: Call) -> None:
        self._lost_requests[call] += n

    def fail_payments(self, n: int) -> None:
        self._payments += n

    def deliver_short(self, n: int, target: str) -> None:
        self._short_deliveries.append(_Armed(n, target))

    # --- striking -----------------------------------------------------------------------------------

    def check_throttle(self, now: datetime) -> None:
        if self._throttled_until is not None and now < self._throttled_until:
            raise Throttled("the account's calls are throttled", code="RequestLimitExceeded")

    def check_launch(self, now: datetime, names: tuple[str, ...]) -> None:
        error = self._launch_error(now, names)
        if error is not None:
            raise error

    def _launch_error(self, now: datetime, names: tuple[str, ...]) -> PortError | None:
        self._shortages = [entry for entry in self._shortages if now < entry[0]]
        if any(matches_target(target, names) for _, target in self._shortages):
            return NoCapacity("none to be had for now", code="InsufficientInstanceCapacity")
        for armed in self._launches:
            if armed.left and matches_target(armed.target, names):
                armed.left -= 1
                if armed.error == "no-capacity":
                    return NoCapacity("none to be had", code="InsufficientInstanceCapacity")
                return Retryable("the launch failed, nothing was started", code="InternalError")
        return None

    def check_request(self, call: Call) -> None:
        """Before anything is done: the request never arrives. To the caller it looks like a lost answer."""
        if self._lost_requests[call]:
            self._lost_requests[call] -= 1
            raise OutcomeUnknown(f"the {call} call timed out; it may have taken effect")

    def check_timeout(self, call: Call) -> None:
        """After everything is done: the answer is lost."""
        if self._timeouts[call]:
            self._timeouts[call] -= 1
            raise OutcomeUnknown(f"the {call} call timed out; it may have taken effect")

    def takes_payment(self) -> bool:
        if self._payments:
            self._payments -= 1
            return False
        return True

    def missing_at_delivery(self, names: tuple[str, ...]) -> int:
        for armed in self._short_deliveries:
            if armed.left and matches_target(armed.target, names):
                missing, armed.left = armed.left, 0
                return missing
        return 0
