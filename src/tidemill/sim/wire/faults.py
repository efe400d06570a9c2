"""Faults of the wire itself, armed now and striking later: calls turned away, failed, or left without an answer.

Each is aimed at an action (`DescribeInstances`) or at whatever comes first, and lasts for so many calls or so much
virtual time. What goes wrong inside the account (payments, capacity, deliveries) is in `sim.cloud.faults`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidemill.sim.wire.errors import AwsError

# "error-after": carried out, and answered with an error all the same.
Kind = Literal["error", "error-after", "lost-request", "lost-answer"]


@dataclass(slots=True)
class WireFault:
    kind: Kind
    action: str = ""  # empty: any
    left: int | None = 1  # calls; None: as many as come
    until: datetime | None = None
    code: str = "InternalError"
    message: str = "An internal error has occurred"
    status: int = 500

    def error(self) -> AwsError:
        return AwsError(self.code, self.message, self.status)


class WireFaults:
    def __init__(self) -> None:
        self._armed: list[WireFault] = []

    def arm(self, fault: WireFault) -> None:
        self._armed.append(fault)

    def clear(self) -> None:
        self._armed.clear()

    def strike(self, action: str, now: datetime) -> WireFault | None:
        """The first that is aimed at this call, used up by it."""
        self._armed = [
            armed for armed in self._armed if armed.left != 0 and (armed.until is None or now < armed.until)
        ]
        for fault in self._armed:
            if fault.action in ("", action):
                if fault.left is not None:
                    fault.left -= 1
                return fault
        return None
