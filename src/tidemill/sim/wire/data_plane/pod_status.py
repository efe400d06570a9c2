"""A pod's status as its kubelet writes it, for strategic merge patches: conditions of others stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.sim.wire.data_plane.node_object import format_wall
from tidemill.sim.wire.data_plane.pod_spec import PodSpec

SIGTERM, SIGKILL = 143, 137  # exit codes of containers that were told to stop, and of those that did not


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What is true of the pod now. Instants are wall time."""

    phase: str
    start: datetime  # when the kubelet took it
    address: str
    host: str
    running_since: datetime | None = None
    ended: datetime | None = None
    exit_code: int = 0
    ready: bool = False
    ready_changed: datetime | None = None
    restarts: int = 0
    waiting: str = ""  # why its containers wait: CrashLoopBackOff
    reason: str = ""
    message: str = ""


def refused(reason: str, message: str, wall: datetime) -> dict[str, Any]:
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": format_wall(wall)}


def as_patch(spec: PodSpec, status: PodStatus) -> dict[str, Any]:
    changed = format_wall(status.ready_changed or status.start)
    over = status.phase in ("Succeeded", "Failed")
    not_ready = {} if status.ready else {"reason": "PodCompleted" if over else "ContainersNotReady"}
    conditions = [
        {"type": "PodReadyToStartContainers", "status": "False" if over else "True", "lastTransitionTime": changed},
        {"type": "Initialized", "status": "True", "lastTransitionTime": format_wall(status.start)},
        *(
            {"type": kind, "status": str(status.ready), "lastTransitionTime": changed, **not_ready}
            for kind in ("Ready", "ContainersReady")
        ),
    ]  # fmt: skip
    return {
        "phase": status.phase,
        **({"reason": status.reason} if status.reason else {}),
        **({"message": status.message} if status.message else {}),
        "startTime": format_wall(status.start),
        "hostIP": status.host,
        "hostIPs": [{"ip": status.host}],
        "podIP": status.address,
        "podIPs": [{"ip": status.address}],
        "conditions": conditions,
        "containerStatuses": [
            {
                "name": name,
                "image": image,
                "imageID": "",
                "containerID": f"containerd://{spec.uid}-{name}-{status.restarts}",
                "ready": status.ready,
                "started": status.running_since is not None and not over and not status.waiting,
                "restartCount": status.restarts,
                "state": _state(status),
            }
            for name, image in spec.containers
        ],
    }


def _state(status: PodStatus) -> dict[str, Any]:
    began = {"startedAt": format_wall(status.running_since)} if status.running_since else {}
    if status.phase in ("Succeeded", "Failed"):
        reason = "Completed" if not status.exit_code else "Error"
        ended = {"finishedAt": format_wall(status.ended or status.start)}
        return {"terminated": {"exitCode": status.exit_code, "reason": reason, **began, **ended}}
    if status.waiting:
        return {"waiting": {"reason": status.waiting}}
    return {"running": began}
