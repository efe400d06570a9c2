"""Which calls the account answers: a table from service and action to the function that does it.

A service (`ec2_*`, `eks`) adds its operations with `@operation`; the functions get the call and return the result as
botocore's model spells it. They run with the account to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemill.sim.wire.errors import AwsError, dry_run
from tidemill.sim.wire.state import Wire

Result = Mapping[str, Any]
_MOST_HOURS = 100_000  # far beyond what is sold; more would overflow a date


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call: what it was given, and the account it is made in."""

    wire: Wire
    service: str
    action: str
    region: str
    params: Mapping[str, Any]
    key: str = ""  # the access key the call was signed with

    def get(self, name: str, default: Any = None) -> Any:
        value = self.params.get(name)
        return default if value is None else value

    def require(self, name: str) -> Any:
        value = self.params.get(name)
        if value is None or value == "":
            raise AwsError("MissingParameter", f"The request must contain the parameter {name}")
        return value

    def hours(self, name: str) -> timedelta:
        hours = int(self.require(name))
        if not 1 <= hours <= _MOST_HOURS:
            raise AwsError("InvalidParameterValue", f"{name} is {hours}: that many hours are not sold")
        return timedelta(hours=hours)

    def stop_dry_run(self) -> None:
        """Call it once the request is known to be right and before anything is changed."""
        if self.params.get("DryRun"):
            raise dry_run()


Operation = Callable[[ApiCall], Result]
_TABLE: dict[tuple[str, str], Operation] = {}


def operation(service: str, *actions: str) -> Callable[[Operation], Operation]:
    def add(function: Operation) -> Operation:
        for action in actions:
            assert (service, action) not in _TABLE, f"{service}:{action} is answered twice"
            _TABLE[service, action] = function
        return function

    return add


def find(service: str, action: str) -> Operation | None:
    return _TABLE.get((service, action))


def known() -> tuple[str, ...]:
    return tuple(sorted(f"{service}:{action}" for service, action in _TABLE))
