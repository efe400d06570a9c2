"""An instance of EC2 -> `Instance`, and when AWS announced its end. Pure functions of the records.

Two calls announce an end: DescribeInstanceStatus (scheduled events: retirement, stop) and DescribeSpotInstanceRequests
(marked for termination). The EventBridge message of either comes sooner, and only wakes the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidemill.aws.fields import Unreadable, id_of, instant, string, tags
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.ec2_facts import SPOT_NOTICE
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.reasons import InstanceEndKind
from tidemill.spec import names

# A stopped instance of ours counts as ending: nobody starts it again, and it is no node. Its slot is free again.
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.SHUTTING_DOWN,
    "stopping": InstanceState.SHUTTING_DOWN,
    "stopped": InstanceState.SHUTTING_DOWN,
    "terminated": InstanceState.TERMINATED,
}
# Lifecycles we never ask for. Such instances are otherwise like any other, in a reservation or not.
_PAID_BY_THE_HOUR = ("scheduled", "interruptible-capacity-reservation")
# The scheduled events that end an instance; reboots and maintenance do not.
_OTHER_EVENTS = ("instance-reboot", "system-reboot", "system-maintenance")
ENDING_EVENTS = {"instance-retirement": InstanceEndKind.RETIREMENT, "instance-stop": InstanceEndKind.STOP}
# An event that is over stays listed for a week; its description says so.
_OVER = ("[Completed]", "[Canceled]")
ENDING_SPOT = ("marked-for-termination", "marked-for-stop")


class Ending(NamedTuple):
    instance_id: str
    at: datetime
    kind: InstanceEndKind


def read_instance(record: Mapping[str, Any]) -> Instance:
    """Raises Unreadable."""
    own = dict(tags(record))
    return Instance(
        id=id_of(record, "InstanceId", "i-"),
        instance_type=string(record, "InstanceType"),
        zone=string(_inner(record, "Placement"), "AvailabilityZone"),
        source=_source(record),
        state=_state(record),
        launched_at=instant(record, "LaunchTime"),
        owner=_owner(own),
        pool=own.get(names.TAG_POOL, ""),
        intent_id=own.get(names.TAG_INTENT, ""),
        provisioner=own.get(names.TAG_PROVISIONER, ""),
    )


def is_over(record: Any) -> bool:
    """It no longer runs, whatever else the record says."""
    state = record.get("State") if isinstance(record, Mapping) else None
    return isinstance(state, Mapping) and state.get("Name") in ("shutting-down", "terminated")


def is_readable(record: Any) -> bool:
    try:
        read_instance(record)
    except (Unreadable, AttributeError, TypeError):
        return False
    return True


def has_owner_tag(record: Any, owner: str) -> bool:
    """Whether it carries this owner's tags, even if the rest of the record cannot be read."""
    try:
        return isinstance(record, Mapping) and _owner(dict(tags(record))) == owner
    except Unreadable:
        return False


def _owner(own: Mapping[str, str]) -> str:
    """Companies use the tag `deployment` for other things too. An instance is ours, to be drained and terminated, only
    if it also carries the tags that nobody but our provisioners write."""
    made_by_us = own.get(names.TAG_POOL) and own.get(names.TAG_PROVISIONER)
    return own.get(names.TAG_OWNER, "") if made_by_us else ""


def event_ending(record: Mapping[str, Any]) -> Ending | None:
    """The earliest end that a status record announces; None: none. Raises Unreadable."""
    events = record.get("Events") or []
    if not isinstance(events, list):
        raise Unreadable(f"field Events: expected a list, got {events!r}")
    ends = [end for event in events if (end := _event(event)) is not None]
    if not ends:
        return None
    at, kind = min(ends)
    return Ending(id_of(record, "InstanceId", "i-"), at, kind)


def spot_ending(record: Mapping[str, Any]) -> Ending | None:
    """Raises Unreadable."""
    status = _inner(record, "Status")
    if status.get("Code") not in ENDING_SPOT:
        return None
    at = instant(status, "UpdateTime") + SPOT_NOTICE
    return Ending(id_of(record, "InstanceId", "i-"), at, InstanceEndKind.SPOT_INTERRUPTION)


def _event(event: Any) -> tuple[datetime, InstanceEndKind] | None:
    if not isinstance(event, Mapping):
        raise Unreadable(f"field Events: expected a record, got {event!r}")
    code, description = event.get("Code"), str(event.get("Description") or "")
    if code in _OTHER_EVENTS or description.startswith(_OVER):
        return None
    if code not in ENDING_EVENTS:
        raise Unreadable(f"field Events.Code: expected a known code, got {code!r}")
    return instant(event, "NotBefore"), ENDING_EVENTS[str(code)]


def _state(record: Mapping[str, Any]) -> InstanceState:
    name = _inner(record, "State").get("Name")
    if not isinstance(name, str) or name not in _STATES:
        raise Unreadable(f"field State: expected a known state, got {name!r}")
    return _STATES[name]


def _source(record: Mapping[str, Any]) -> Source:
    lifecycle, reserved = record.get("InstanceLifecycle"), record.get("CapacityReservationId")
    if lifecycle == "capacity-block":
        return Source(SourceKind.BLOCK, id_of(record, "CapacityReservationId", "cr-"))
    if lifecycle == "spot":
        return Source(SourceKind.SPOT)
    if lifecycle is not None and lifecycle not in _PAID_BY_THE_HOUR:
        raise Unreadable(f"field InstanceLifecycle: expected a known lifecycle, got {lifecycle!r}")
    if reserved is not None:
        return Source(SourceKind.ODCR, id_of(record, "CapacityReservationId", "cr-"))
    return Source(SourceKind.ON_DEMAND)


def _inner(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    if not isinstance(value, Mapping):
        raise Unreadable(f"field {key}: expected a record, got {value!r}")
    return value
