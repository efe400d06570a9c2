"""What happened to every pod on the simulated kubelets, for observers outside: in virtual and in wall time.

A row says how a pod ended, the grace it was promised and the grace it had. A pod that died with its instance had what
was left since somebody deleted it, and none if nobody did.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from tidemill.sim.wire.data_plane.node_object import BootedNode
from tidemill.sim.wire.data_plane.pod_spec import PodSpec
from tidemill.spec.units import format_instant


class PodEnd(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # by itself, or because its GPU broke
    REFUSED = "refused"  # the kubelet did not admit it
    STOPPED = "stopped"  # it was deleted, and exited within its grace
    REMOVED = "removed"  # its object vanished while it ran: deleted by force, without any grace
    DIED = "died"  # it was on an instance when that was terminated


@dataclass(slots=True)
class PodRecord:
    spec: PodSpec
    node: BootedNode
    bound_at: datetime
    started_at: datetime | None = None
    started_wall: datetime | None = None
    ready_at: datetime | None = None
    told_at: datetime | None = None  # its deletion was seen
    told_wall: datetime | None = None
    grace_given: timedelta | None = None  # of the deletion
    ended_at: datetime | None = None
    ended_wall: datetime | None = None
    end: PodEnd | None = None
    why: str = ""
    restarts: int = 0
    checkpoints: int = 0

    @property
    def grace_had(self) -> timedelta:
        if self.told_at is None or self.ended_at is None:
            return timedelta(0)
        return self.ended_at - self.told_at

    @property
    def full_grace(self) -> bool:
        """It ended by itself, or could have used all of the grace that it asked for."""
        match self.end:
            case PodEnd.DIED | PodEnd.REMOVED:
                return self.started_at is None or self.grace_had >= self.spec.grace
            case PodEnd.STOPPED:
                given = self.grace_given
                return self.started_at is None or given is None or given >= self.spec.grace
            case _:
                return True

    def as_json(self) -> dict[str, Any]:
        return {
            "pod": self.spec.full_name,
            "uid": self.spec.uid,
            "workload": self.spec.owner,
            "daemon": self.spec.daemon,
            "node": self.node.name,
            "instance": self.node.instance.id,
            "boundAt": _text(self.bound_at),
            "startedAt": _text(self.started_at),
            "startedWall": _wall(self.started_wall),
            "readyAt": _text(self.ready_at),
            "toldAt": _text(self.told_at),
            "toldWall": _wall(self.told_wall),
            "endedAt": _text(self.ended_at),
            "endedWall": _wall(self.ended_wall),
            "end": self.end,
            "why": self.why,
            "graceS": int(self.spec.grace.total_seconds()),
            "graceGivenS": None if self.grace_given is None else int(self.grace_given.total_seconds()),
            "graceHadS": int(self.grace_had.total_seconds()),
            "fullGrace": self.full_grace,
            "restarts": self.restarts,
            "checkpoints": self.checkpoints,
        }


def node_as_json(node: BootedNode) -> dict[str, Any]:
    return {
        "node": node.name,
        "instance": node.instance.id,
        "joinedAt": _text(node.joined_at),
        "registeredAt": _text(node.registered_at),
        "verified": node.verified,
        "deadAt": _text(node.dead_at),
    }


def report(nodes: list[BootedNode], records: list[PodRecord]) -> dict[str, Any]:
    """Daemons are in `pods` only: nobody owes them a grace."""
    work = [record for record in records if not record.spec.daemon]
    return {
        "nodes": [node_as_json(node) for node in nodes],
        "pods": [record.as_json() for record in records],
        "diedWithInstance": [record.as_json() for record in work if record.end is PodEnd.DIED],
        "withoutFullGrace": [
            record.as_json() for record in work if record.end is not None and not record.full_grace
        ],
    }


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _wall(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
