"""What exists in an AWS account, whoever created it: reservations, instances on them, and groups that launch into them.

Plain records that an adapter fills, including what it could not read. Pods are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.model.capacity import Reservation
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_SLOT_STATES, Instance
from tidemill.ports.compute import Hook, Schedule
from tidemill.spec import names

TAG_GROUP = "aws:autoscaling:groupName"
TAG_NODE_GROUP = "eks:nodegroup-name"
TAG_CLUSTER = "eks:cluster-name"
TAG_NODE_POOL = "karpenter.sh/nodepool"


@dataclass(frozen=True, slots=True)
class SurveyedInstance:
    """An instance that holds a slot of a reservation."""

    instance: Instance
    tags: Pairs = ()

    @property
    def node_pool(self) -> str:
        """The NodePool of Karpenter or of EKS Auto Mode."""
        return dict(self.tags).get(TAG_NODE_POOL, "")


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """What a group launches into, according to its launch templates."""

    reservations: tuple[str, ...]  # cr-…, or the ARN of a group of reservations
    markets: tuple[str, ...] = ()  # EC2's market types: capacity-block, spot; empty: on demand
    instance_types: tuple[str, ...] = ()
    fallback: str = ""  # how it may launch outside its reservations; empty: it cannot


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """An Auto Scaling group, or the one behind a managed node group."""

    name: str
    minimum: int
    maximum: int
    desired: int
    target: GroupTarget
    members: tuple[str, ...] = ()  # instances, without those that are terminating
    subnets: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] | None = ()  # future ones, the soonest first; None: could not be read
    hooks: tuple[Hook, ...] | None = ()  # terminate hooks; None: could not be read
    tags: Pairs = ()
    trouble: str = ""  # health issues that EKS reports for its node group

    @property
    def node_group(self) -> str:
        return dict(self.tags).get(TAG_NODE_GROUP, "")

    @property
    def cluster(self) -> str:
        return dict(self.tags).get(TAG_CLUSTER, "")

    @property
    def owner(self) -> str:
        return dict(self.tags).get(names.TAG_OWNER, "")

    @property
    def called(self) -> str:
        return f"node group {self.node_group}" if self.node_group else f"Auto Scaling group {self.name}"


@dataclass(frozen=True, slots=True)
class NotRead:
    """Something that could not be read, and why."""

    what: str
    why: str
    forbidden: bool = False  # access denied; otherwise it may work later


@dataclass(frozen=True, slots=True)
class Survey:
    at: datetime
    region: str
    who: str
    reservations: tuple[Reservation, ...] | None  # None: could not be read
    machines: tuple[SurveyedInstance, ...] = ()
    groups: tuple[ScalingGroup, ...] = ()  # those that launch into a reservation or have members on one
    other_groups: int = 0
    zones: Mapping[str, str] = field(default_factory=dict)  # subnet -> zone, as far as known
    missed: tuple[NotRead, ...] = ()
    unread: tuple[Reservation, ...] = ()  # listed by AWS, with a record that cannot be read


def surveyed_instances(instances: Iterable[Instance]) -> tuple[SurveyedInstance, ...]:
    """For an account whose instances show only Tidemill's own tags."""
    return tuple(
        SurveyedInstance(instance, _own_tags(instance)) for instance in instances if holds_a_slot(instance)
    )


def holds_a_slot(instance: Instance) -> bool:
    return bool(instance.source.id) and instance.state in INSTANCE_SLOT_STATES


def _own_tags(instance: Instance) -> Pairs:
    tags = (
        (names.TAG_OWNER, instance.owner),
        (names.TAG_POOL, instance.pool),
        (names.TAG_PROVISIONER, instance.provisioner),
    )
    return tuple((key, value) for key, value in tags if value)
