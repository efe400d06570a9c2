"""Nodes: an EC2 instance and the Kubernetes node it became. Facts only; phases and deadlines are in `decide`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from tidemill.model.capacity import Source
from tidemill.model.labels import Pairs, Taint
from tidemill.model.reasons import DrainReason, InstanceEnd
from tidemill.model.resources import Amounts


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


INSTANCE_UP_STATES: Final = frozenset({InstanceState.PENDING, InstanceState.RUNNING})
INSTANCE_ENDED_STATES: Final = frozenset({InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED})
# Those that take a slot of their reservation: EC2 gives it back only when the clean-up is done.
INSTANCE_SLOT_STATES: Final = INSTANCE_UP_STATES | {InstanceState.SHUTTING_DOWN}


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance. Owner, pool, intent and provisioner are its tags; empty means the tag is absent."""

    id: str
    instance_type: str
    zone: str
    source: Source
    state: InstanceState
    launched_at: datetime
    owner: str = ""
    pool: str = ""
    intent_id: str = ""
    provisioner: str = ""
    ends_at: datetime | None = None  # announced by AWS: spot interruption, retirement
    ends_why: InstanceEnd | None = None
    leaves: bool = (
        False  # somebody waits until it is empty: its drain begins at once, and may take until `ends_at`
    )


@dataclass(frozen=True, slots=True)
class KubeNode:
    """The Kubernetes side of a node."""

    name: str
    instance_id: str
    joined_at: datetime
    ready: bool
    allocatable: Amounts  # lists an accelerator only once the device plugin registered it
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready_changed_at: datetime | None = None  # when the Ready condition last turned; None: at joining
    accelerators_registered_at: datetime | None = None  # of a type without any: when it joined
    # The node check: empty: nothing reports one; then registration is enough, unless the pool requires a check.
    check: Literal["", "running", "passed", "failed"] = ""  # it can turn to failed later
    check_message: str = ""
    draining_since: datetime | None = None
    drain_reason: DrainReason | None = None
    # By when its own deadline agent empties it, whether an engine is there or not; None: it has no agent, or no end.
    ends_at: datetime | None = None
    deadline_agent: bool = (
        False  # one says that it runs there; without an end in the user data it must be told one
    )
    opened_at: datetime | None = None  # when the startup taint came off; None: it has not, or nobody noted it
    # When a non-daemon pod last came or went. After an engine restart it may be later than the truth
    # (never earlier), so that an idle timer errs on the long side.
    last_pod_event_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One life: an instance, and the Kubernetes node it became. At least one side is there."""

    instance: Instance | None
    kube: KubeNode | None

    @property
    def key(self) -> str:
        """Stable from launch to end: the instance id, or the node name where no instance is known."""
        if self.instance is not None:
            return self.instance.id
        assert self.kube is not None
        return self.kube.name

    @property
    def name(self) -> str:
        return self.kube.name if self.kube is not None else self.key


@dataclass(frozen=True, slots=True)
class Overhead:
    """What daemon pods took on the last node of a pool and type, remembered for when there is none."""

    pool: str
    instance_type: str
    taken: Amounts
    seen_at: datetime  # when such a node was last there
