"""What a node does by itself so that its pods end in time: `due(node, pods, now)`, without I/O and without a clock.

A running engine comes first: it drains earlier and more gently. A pod that is still there when only its grace and the
spare time are left is deleted with its whole grace, past every disruption budget, because the node ends in any case.
From five minutes before the end, or earlier for a pod with a longer grace, the node takes no new pods. The systemd
unit of the boot (`provision/user_data`) acts 15 seconds later still, and needs no Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

# Between the end of a pod's grace and the node's end. The engine keeps 60 s, the unit of the boot 30 s.
SPARE = timedelta(seconds=45)
# From then on no new pod is let onto the node: it could not be given its grace.
CLOSES = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class AgentNode:
    """What the agent knows of its own node."""

    name: str
    ends_at: datetime | None  # None: no end is known
    draining: bool  # the engine, or this agent, closed it
    source: str = ""  # the source's label


@dataclass(frozen=True, slots=True)
class AgentPod:
    """A pod bound to the node."""

    uid: str
    namespace: str
    name: str
    grace: timedelta
    leaving: bool = False  # its deletion was asked for, or it has finished
    daemon: bool = False  # stays to the end: of a DaemonSet, or a static pod

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class CloseNode:
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class DeletePod:
    pod: AgentPod
    since: datetime  # when it was due


@dataclass(frozen=True, slots=True)
class Due:
    actions: tuple[CloseNode | DeletePod, ...] = ()
    next_at: datetime | None = None  # when to look again, if nothing changes before


def due(node: AgentNode, pods: Iterable[AgentPod], now: datetime) -> Due:
    ends_at = node.ends_at
    if ends_at is None:
        return Due()
    staying = [pod for pod in pods if not pod.leaving and not pod.daemon]
    latest = {pod.uid: ends_at - pod.grace - SPARE for pod in staying}
    closes = min([ends_at - CLOSES, *latest.values()])
    actions: list[CloseNode | DeletePod] = []
    if now >= closes and not node.draining:
        actions.append(CloseNode(ends_at))
    # The longest grace first: it has no time to wait for the others' calls.
    staying.sort(key=lambda pod: (-pod.grace, pod.uid))
    actions += [DeletePod(pod, latest[pod.uid]) for pod in staying if now >= latest[pod.uid]]
    later = [at for at in (closes, *latest.values()) if at > now]
    return Due(tuple(actions), min(later, default=None))
