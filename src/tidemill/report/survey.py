"""What was found in an account, whoever made it: reservations, what runs on them, and the groups that launch there.

Plain records, filled by whoever can read an account, and honest about what could not be read. Pods are not among them:
what runs on a machine joins by its instance id once a cluster is read too.
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
class Machine:
    """An instance that holds a slot of a reservation."""

    instance: Instance
    tags: Pairs = ()

    @property
    def node_pool(self) -> str:
        """Karpenter's, or that of EKS Auto Mode, which is Karpenter too."""
        return dict(self.tags).get(TAG_NODE_POOL, "")


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """What a group launches into, by its templates."""

    reservations: tuple[str, ...]  # cr-…, or the ARN of a group of reservations
    markets: tuple[str, ...] = ()  # EC2's words: capacity-block, spot; empty: on demand
    instance_types: tuple[str, ...] = ()
    beside: str = ""  # how it may launch outside its reservations; empty: it cannot


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """An Auto Scaling group, or the one behind a managed node group."""

    name: str
    minimum: int
    maximum: int
    desired: int
    aim: GroupTarget
    members: tuple[str, ...] = ()  # instances that stay
    subnets: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] | None = ()  # to come, the soonest first; None: nobody could read them
    hooks: tuple[Hook, ...] | None = ()  # on terminate; None: nobody could read them
    tags: Pairs = ()
    trouble: str = ""  # what EKS says is wrong with its node group

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
class Missed:
    """Something that could not be read, in one line."""

    what: str
    why: str
    forbidden: bool = False  # AWS does not let us; else it may work later


@dataclass(frozen=True, slots=True)
class Survey:
    at: datetime
    region: str
    who: str
    reservations: tuple[Reservation, ...] | None  # None: AWS would not tell
    machines: tuple[Machine, ...] = ()
    groups: tuple[ScalingGroup, ...] = ()  # those that aim at a reservation, or have members on one
    other_groups: int = 0
    zones: Mapping[str, str] = field(default_factory=dict)  # of the groups' subnets, as far as they are known
    missed: tuple[Missed, ...] = ()


def machines_of(instances: Iterable[Instance]) -> tuple[Machine, ...]:
    """Of an account whose instances show no tags but ours."""
    return tuple(Machine(one, _own_tags(one)) for one in instances if holds_a_slot(one))


def holds_a_slot(instance: Instance) -> bool:
    return bool(instance.source.id) and instance.state in INSTANCE_SLOT_STATES


def _own_tags(one: Instance) -> Pairs:
    tags = (
        (names.TAG_OWNER, one.owner),
        (names.TAG_POOL, one.pool),
        (names.TAG_PROVISIONER, one.provisioner),
    )
    return tuple((key, value) for key, value in tags if value)
