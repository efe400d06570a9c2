"""What a launch is made of, below `Cloud.launch`: templates, calls, Auto Scaling groups, EKS node groups.

`provision` turns a pool's launches and blocks into these words; the boto3 adapter and the simulated account both
speak them, so that every provisioner runs unmodified in a rehearsal, on the wire and in production. Records say
what is there; the verbs are idempotent unless they say otherwise, and raise what the ports do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from tidemill.model.capacity import Source
from tidemill.model.labels import Pairs


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template as it should be. `data` is LaunchTemplateData as EC2 spells it, and is compared by value."""

    name: str
    data: Mapping[str, Any]
    tags: Pairs = ()


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """One that is there. Groups pin a version: a new one changes nothing until the group is told."""

    id: str  # lt-…
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One call that launches: one source, one type, one zone. The token makes repeating it safe."""

    token: str
    template: TemplateVersion
    source: Source
    instance_type: str
    zone: str
    subnets: tuple[str, ...]  # all in the zone; one is chosen
    count: int
    tags: Pairs


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduled action of a group. `by_eks`: made by EKS, shown, never touched (MG-2)."""

    name: str
    at: datetime
    desired: int | None
    minimum: int | None = None
    maximum: int | None = None
    by_eks: bool = False


@dataclass(frozen=True, slots=True)
class Hook:
    """A terminate hook: an instance waits in Terminating:Wait until somebody says go on, or the time is out."""

    name: str
    heartbeat_s: int
    result: Literal["CONTINUE", "ABANDON"] = "CONTINUE"


@dataclass(frozen=True, slots=True)
class Member:
    instance_id: str
    state: str  # AWS's word: Pending, InService, Terminating, Terminating:Wait, …
    waits_since: datetime | None = None  # in a terminate hook; None: it does not, or nobody can say
    healthy: bool = True  # False: EC2's health check says so; the group may keep it on its list all the same

    @property
    def stays(self) -> bool:
        return not self.state.startswith(("Terminat", "Detach"))

    @property
    def counts(self) -> bool:
        """It is part of the size its group wants. One that people took aside into Standby stays, and is not."""
        return self.stays and self.state not in ("Standby", "EnteringStandby")

    @property
    def waits(self) -> bool:
        return self.state == "Terminating:Wait"


@dataclass(frozen=True, slots=True)
class GroupShape:
    """An Auto Scaling group as it should be, whatever its size is just now."""

    name: str
    template: TemplateVersion
    subnets: tuple[str, ...]  # of one zone
    maximum: int
    tags: Pairs  # propagated at launch
    hook: Hook | None = None
    policies: tuple[str, ...] = ("Default",)  # whom it ends when it is made smaller, in AWS's words
    suspended: tuple[str, ...] = ()  # what Auto Scaling does not do by itself, in AWS's words, sorted


@dataclass(frozen=True, slots=True)
class Group:
    """One that is there. A group behind an EKS node group is read here too; its shape is EKS's business."""

    shape: GroupShape
    minimum: int
    desired: int
    schedules: tuple[Schedule, ...] = ()
    members: tuple[Member, ...] = ()
    node_group: str = ""
    launch_error: str | None = (
        None  # what its last launch said if it failed; None: it went well, or there was none
    )


@dataclass(frozen=True, slots=True)
class NodeGroupShape:
    """An EKS managed node group as it should be. Capacity type, subnets and template id are fixed at creation."""

    name: str
    capacity_type: Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]
    template: TemplateVersion
    subnets: tuple[str, ...]
    role: str
    maximum: int
    instance_types: tuple[str, ...] = ()  # empty: the template names it, as EKS wants it on a block
    ami_type: str = ""  # empty: the template names an image
    labels: Pairs = ()
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect
    tags: Pairs = ()
    repair: bool = False  # EKS's node repair; never together with the engine's (MG-7)


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """What EKS says is wrong with a node group."""

    code: str  # EKS's, such as AsgInstanceLaunchFailures
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    shape: NodeGroupShape
    status: str  # AWS's word: CREATING, ACTIVE, UPDATING, DELETING, CREATE_FAILED, DEGRADED, …
    desired: int
    group: str = ""  # the Auto Scaling group behind it
    issues: tuple[HealthIssue, ...] = ()


class Compute(Protocol):
    """EC2's launches and the two kinds of groups. Only what carries our owner tag is listed or changed."""

    def put_template(self, template: Template) -> TemplateVersion:
        """The version with this very content: found, added to the template of that name, or made with it."""
        ...

    def templates(self) -> Sequence[TemplateVersion]:
        """The latest version of each of ours."""
        ...

    def delete_template(self, name: str) -> None: ...

    def run(self, order: LaunchRequest) -> Sequence[str]:
        """As `Cloud.launch`: up to `count` ids; none is NoCapacity; the same token gives the same instances."""
        ...

    def terminate(self, instance_id: str) -> None:
        """An instance that is in no group. Gone: there is no such instance any more."""
        ...

    def groups(self) -> Sequence[Group]: ...

    def put_group(self, shape: GroupShape) -> None:
        """Made with nothing in it, or changed where it differs. Its size is left alone."""
        ...

    def resize(self, group: str, desired: int) -> None:
        """Absolute. Callers never lower it below the members that stay: the group would choose whom to end."""
        ...

    def terminate_in_group(self, instance_id: str) -> None:
        """By name, and the group wants one fewer afterwards."""
        ...

    def release(self, group: str, hook: str, instance_id: str) -> None:
        """The drain is done: the instance that waits in the hook goes on. Gone: it no longer waits."""
        ...

    def put_schedule(self, group: str, schedule: Schedule) -> None:
        """Same name: moved. Refused: an instant that has passed."""
        ...

    def delete_schedule(self, group: str, name: str) -> None: ...

    def delete_group(self, name: str) -> None:
        """Refused while it has members."""
        ...

    def node_groups(self) -> Sequence[NodeGroup]: ...

    def put_node_group(self, shape: NodeGroupShape) -> None:
        """Made at size 0, or changed where EKS allows it (template version, labels, taints, maximum). Refused: what
        EKS will not change, or rejects: a subnet outside the block's zone, a template without the reservation, …"""
        ...

    def resize_node_group(self, name: str, desired: int) -> None: ...

    def delete_node_group(self, name: str) -> None: ...

    def let_nodes_join(self, role_arn: str) -> None:
        """An EKS access entry of type EC2_LINUX for the nodes' role; there already: nothing happens."""
        ...
