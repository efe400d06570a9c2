"""The port below `Cloud.launch`: launch templates, RunInstances, Auto Scaling groups and EKS node groups.

`provision` turns a pool's launches and blocks into these calls. The boto3 adapter and the simulated account both
implement them, so that every provisioner runs unmodified in a rehearsal, on the wire and in production. Calls are
idempotent unless they say otherwise, and raise the errors of the ports.
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
    """A launch template as it should be. `data` is LaunchTemplateData in EC2's form, and is compared by value."""

    name: str
    data: Mapping[str, Any]
    tags: Pairs = ()


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """A version that exists. Groups name a version: a new one changes nothing until the group is updated."""

    id: str  # lt-…
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One RunInstances call: one source, one type, one zone. The token makes it safe to repeat."""

    token: str
    template: TemplateVersion
    source: Source
    instance_type: str
    zone: str
    subnets: tuple[str, ...]  # all in the zone; the adapter chooses one
    count: int
    tags: Pairs
    least: int = 1  # with fewer, none is launched


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduled action of a group. `by_eks`: EKS made it, and it is never changed (MG-2)."""

    name: str
    at: datetime
    desired: int | None
    minimum: int | None = None
    maximum: int | None = None
    by_eks: bool = False


@dataclass(frozen=True, slots=True)
class Hook:
    """A terminate hook: an instance waits in Terminating:Wait until it is released, or until the heartbeat ends."""

    name: str
    heartbeat_s: int
    result: Literal["CONTINUE", "ABANDON"] = "CONTINUE"


@dataclass(frozen=True, slots=True)
class Member:
    instance_id: str
    state: str  # AWS's: Pending, InService, Terminating, Terminating:Wait, …
    waits_since: datetime | None = None  # in a terminate hook; None: it does not wait, or it is not known
    healthy: bool = True  # False: by EC2's health check; the group may still list it

    @property
    def stays(self) -> bool:
        return not self.state.startswith(("Terminat", "Detach"))

    @property
    def counts(self) -> bool:
        """It counts towards the desired size. One that people moved to Standby stays, but does not count."""
        return self.stays and self.state not in ("Standby", "EnteringStandby")

    @property
    def waits(self) -> bool:
        return self.state == "Terminating:Wait"


@dataclass(frozen=True, slots=True)
class GroupShape:
    """An Auto Scaling group as it should be, without its size."""

    name: str
    template: TemplateVersion
    subnets: tuple[str, ...]  # of one zone
    maximum: int
    tags: Pairs  # propagated at launch
    hook: Hook | None = None
    policies: tuple[str, ...] = ("Default",)  # termination policies, as AWS spells them
    suspended: tuple[str, ...] = ()  # suspended processes, as AWS spells them, sorted


@dataclass(frozen=True, slots=True)
class Group:
    """A group that exists. A group behind an EKS node group is read too, but EKS manages its shape."""

    shape: GroupShape
    minimum: int
    desired: int
    schedules: tuple[Schedule, ...] = ()
    members: tuple[Member, ...] = ()
    node_group: str = ""
    launch_error: str | None = None  # of its last launch that is over; None: it went well, or there was none


@dataclass(frozen=True, slots=True)
class NodeGroupShape:
    """An EKS managed node group as it should be. Capacity type, subnets and template id are fixed at creation."""

    name: str
    capacity_type: Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]
    template: TemplateVersion
    subnets: tuple[str, ...]
    role: str
    maximum: int
    instance_types: tuple[str, ...] = ()  # empty: the template names it, as EKS requires on a block
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
    status: str  # AWS's: CREATING, ACTIVE, UPDATING, DELETING, CREATE_FAILED, DEGRADED, …
    desired: int
    group: str = ""  # the Auto Scaling group behind it
    issues: tuple[HealthIssue, ...] = ()


class Compute(Protocol):
    """EC2's launches and the two kinds of groups. Lists and changes only what carries our owner tag."""

    def put_template(self, template: Template) -> TemplateVersion:
        """The version with this content: an existing one, a new one of the template, or the first of a new template."""
        ...

    def templates(self) -> Sequence[TemplateVersion]:
        """The latest version of each of our templates."""
        ...

    def delete_template(self, name: str) -> None: ...

    def run(self, request: LaunchRequest) -> Sequence[str]:
        """As `Cloud.launch`: up to `count` ids; none is NoCapacity; the same token gives the same instances."""
        ...

    def terminate(self, instance_id: str) -> None:
        """An instance that is in no group. Gone: it does not exist any more."""
        ...

    def console_output(self, instance_id: str) -> str:
        """As `Cloud.console_output`."""
        ...

    def groups(self) -> Sequence[Group]: ...

    def put_group(self, shape: GroupShape) -> None:
        """Create it empty, or change it where it differs. Does not change its size."""
        ...

    def resize(self, group: str, desired: int) -> None:
        """Set the desired size. Callers never set less than the members that stay: the group would choose which end."""
        ...

    def terminate_in_group(self, instance_id: str) -> None:
        """End this instance, and lower the desired size of its group by one; nothing if it is ending already."""
        ...

    def release(self, group: str, hook: str, instance_id: str) -> None:
        """The drain is done: release the instance that waits in the hook. Gone: it no longer waits."""
        ...

    def put_schedule(self, group: str, schedule: Schedule) -> None:
        """An action of the same name is replaced. Refused: the time has passed."""
        ...

    def delete_schedule(self, group: str, name: str) -> None: ...

    def delete_group(self, name: str) -> None:
        """Refused while it has members."""
        ...

    def node_groups(self) -> Sequence[NodeGroup]: ...

    def put_node_group(self, shape: NodeGroupShape) -> None:
        """Create it with size 0, or change it where EKS allows it (template version, labels, taints, maximum). Refused:
        what EKS cannot change or rejects, such as a subnet outside the block's zone or a template without the block."""
        ...

    def resize_node_group(self, name: str, desired: int) -> None: ...

    def delete_node_group(self, name: str) -> None: ...

    def let_nodes_join(self, role_arn: str) -> None:
        """Create an EKS access entry of type EC2_LINUX for the nodes' role; nothing where there is one."""
        ...
