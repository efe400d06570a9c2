"""What the account would put on EventBridge: detail types, sources and details as AWS writes them.

Listeners get every event at once and in order; it is the transport that loses, doubles and delays them (`wakes` in
process, the event bus on the wire). An event carries no state: it only says "look again".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import WARNING_BEFORE_TERMINATION
from tidemill.model.nodes import Instance, InstanceState
from tidemill.sim.cloud.instances import Instances
from tidemill.sim.cloud.reservations import Reservations, kill_at
from tidemill.sim.timeline import Timeline
from tidemill.spec.units import format_instant

Listener = Callable[[str, str, Mapping[str, Any]], None]  # detail type, source, detail

EC2 = "aws.ec2"
AUTOSCALING = "aws.autoscaling"
HEALTH = "aws.health"
DELIVERED = "Capacity Block Reservation Delivered"
EXPIRES = "Capacity Block Reservation Expiration Warning"
INTERRUPTED = "EC2 Capacity Reservation Instance Interruption Warning"
SPOT_INTERRUPTED = "EC2 Spot Instance Interruption Warning"
HEALTH_EVENT = "AWS Health Event"
STATE_CHANGED = "EC2 Instance State-change Notification"


class Events:
    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def post(self, detail_type: str, source: str, detail: Mapping[str, Any]) -> None:
        for listener in self.listeners:
            listener(detail_type, source, detail)


class BlockEvents:
    """The events that EC2 sends about blocks and the instances on them."""

    def __init__(
        self, timeline: Timeline, events: Events, reservations: Reservations, instances: Instances
    ) -> None:
        self._timeline, self._events, self._reservations, self._instances = (
            timeline,
            events,
            reservations,
            instances,
        )
        reservations.on_active.append(self._delivered)
        reservations.on_end_set.append(self._follow_end)
        instances.on_instance.append(self._state_changed)
        instances.on_ending.append(self._ends)

    def _delivered(self, block: Reservation) -> None:
        if block.kind is SourceKind.BLOCK:
            self._events.post(DELIVERED, EC2, _about(block))

    def _follow_end(self, block: Reservation) -> None:
        kill, end = kill_at(block), block.end
        if kill is not None and end is not None:
            self._timeline.at(kill - WARNING_BEFORE_TERMINATION, lambda: self._warn(block.id, end, kill))

    def _warn(self, block_id: str, end: datetime, kill: datetime) -> None:
        block = self._reservations.get(block_id)
        if block is None or block.end != end or block.state is not ReservationState.ACTIVE:
            return  # the end has moved since, or the block never came
        self._events.post(EXPIRES, EC2, _about(block))
        for history in self._instances.on(block.source):
            detail = {
                "instance-id": history.now.id,
                "instance-action": "terminate",
                "instance-termination-time": format_instant(kill),
                "availability-zone-id": block.zone,
                "instance-lifecycle": "capacity-block",
            }
            self._events.post(INTERRUPTED, EC2, detail)

    def _ends(self, instance: Instance) -> None:
        """A spot interruption two minutes before, or hardware that is retired, days before."""
        if instance.source.kind is SourceKind.SPOT:
            detail: dict[str, Any] = {"instance-id": instance.id, "instance-action": "terminate"}
            self._events.post(SPOT_INTERRUPTED, EC2, detail)
        else:
            detail = {
                "service": "EC2",
                "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
                "eventTypeCategory": "scheduledChange",
                "affectedEntities": [{"entityValue": instance.id}],
            }
            self._events.post(HEALTH_EVENT, HEALTH, detail)

    def _state_changed(self, instance: Instance) -> None:
        if instance.state is not InstanceState.PENDING:
            detail = {"instance-id": instance.id, "state": instance.state.value}
            self._events.post(STATE_CHANGED, EC2, detail)


def _about(block: Reservation) -> dict[str, Any]:
    ends = "" if block.end is None else format_instant(block.end)
    return {"capacity-reservation-id": block.id, "end-date": ends}
