"""EKS managed node groups of the simulated account, each with a real Auto Scaling group behind it.

EKS checks the request, adds its own scheduled action to a group on a block (to 0, forty minutes before the end) and
does not check whether nodes join. It sets that action once: an extension does not move it, unless a scenario says that
EKS does. AWS documents neither, so the engine must cope with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import SECURED_STATES, Reservation, Source, SourceKind
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION, EKS_SCALES_DOWN_BEFORE_END
from tidemill.model.errors import Gone, Refused
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.launch_template import LaunchSpec, launch_spec_of
from tidemill.sim.cloud.reservations import Reservations
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, ScheduledAction
from tidemill.sim.cloud.scaling_groups import ScalingGroups
from tidemill.sim.timeline import Journal, Timeline, seeded_id, stream
from tidemill.sim.wakes import Wakes

CAPACITY_TYPES = ("ON_DEMAND", "SPOT", "CAPACITY_BLOCK")
_NOT_IN_A_TEMPLATE = ("SubnetId", "IamInstanceProfile")
_TAKES_S = (60, 180)  # from CREATING to ACTIVE, and out of UPDATING and DELETING


@dataclass(slots=True, eq=False)
class EksNodeGroup:
    name: str
    capacity_type: str
    role: str
    data: Mapping[str, Any]  # of the launch template, as EC2 spells it
    template: Any  # as the caller that made it names it: in process and on the wire they differ
    subnets: tuple[str, ...]
    zones: tuple[str, ...]
    made_at: datetime
    group: str  # the Auto Scaling group behind it
    status: str = "CREATING"
    instance_types: tuple[str, ...] = ()
    ami_type: str = ""
    labels: Pairs = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    tags: Pairs = ()
    repair: bool = False
    issues: list[tuple[str, str]] = field(default_factory=list)  # code, message: its health

    @property
    def block_id(self) -> str:
        return launch_spec_of(self.data).source.id if self.capacity_type == "CAPACITY_BLOCK" else ""


@dataclass(frozen=True, slots=True)
class NodeGroupRequest:
    """What somebody asks EKS to make. The size is min, desired, max."""

    name: str
    role: str
    data: Mapping[str, Any]
    subnets: tuple[str, ...]
    zones: tuple[str, ...]  # of the subnets
    size: tuple[int, int, int] = (0, 0, 1)
    capacity_type: str = "ON_DEMAND"
    instance_types: tuple[str, ...] = ()
    ami_type: str = ""
    labels: Pairs = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    tags: Pairs = ()
    repair: bool = False
    template: Any = None


class NodeGroups:
    def __init__(
        self, timeline: Timeline, journal: Journal, wakes: Wakes, *,
        seed: int, groups: ScalingGroups, reservations: Reservations,
    ) -> None:  # fmt: skip
        self._timeline, self._journal, self._wakes, self._seed = timeline, journal, wakes, seed
        self._groups, self._reservations = groups, reservations
        self._by_name: dict[str, EksNodeGroup] = {}
        self.cluster = ""  # its name, where somebody gave it one
        self.access_entries: dict[str, str] = {}  # principal ARN -> type
        self.follows_extensions = False  # True: EKS moves its scheduled action when a block's end moves
        reservations.on_end_set.append(self._end_moved)

    def all(self) -> tuple[EksNodeGroup, ...]:
        return tuple(self._by_name.values())

    def get(self, name: str) -> EksNodeGroup:
        node_group = self._by_name.get(name)
        if node_group is None:
            raise Gone(f"No node group found for name: {name}.", code="ResourceNotFoundException")
        return node_group

    # --- verbs --------------------------------------------------------------------------------------

    def create(self, request: NodeGroupRequest) -> EksNodeGroup:
        if request.name in self._by_name:
            raise Refused(f"NodeGroup already exists with name {request.name}", code="ResourceInUseException")
        block = self._validate(request)
        group = self._make_group(request)
        node_group = EksNodeGroup(
            request.name, request.capacity_type, request.role, request.data, request.template, request.subnets,
            request.zones, self._timeline.now(), group.name, "CREATING", request.instance_types, request.ami_type,
            request.labels, request.taints, request.tags, request.repair,
        )  # fmt: skip
        self._by_name[request.name] = node_group
        if block is not None:
            self._schedule(node_group, block)
        self._journal.add(
            "node-group-made", request.name, f"created by EKS, with the Auto Scaling group {group.name}"
        )
        self._settles(node_group, "ACTIVE")
        return node_group

    def resize(
        self, name: str, *, minimum: int | None = None, desired: int | None = None, maximum: int | None = None
    ) -> None:
        node_group = self._changeable(name)
        self._groups.update(node_group.group, minimum=minimum, desired=desired, maximum=maximum)

    def configure(
        self, name: str, *, labels: Pairs | None = None, taints: tuple[tuple[str, str, str], ...] | None = None,
        repair: bool | None = None,
    ) -> None:  # fmt: skip
        """New nodes get them; EKS puts them on those that are there as well, which nothing here depends on."""
        node_group = self._changeable(name)
        node_group.labels = node_group.labels if labels is None else labels
        node_group.taints = node_group.taints if taints is None else taints
        node_group.repair = node_group.repair if repair is None else repair

    def set_template(self, name: str, data: Mapping[str, Any], template: Any) -> None:
        """UpdateNodegroupVersion: another version of its template. On a block only while it is empty."""
        node_group = self._changeable(name)
        group = self._groups.get(node_group.group)
        if node_group.capacity_type == "CAPACITY_BLOCK" and group.desired > 0:
            raise Refused(
                f"{name} is on a Capacity Block: scale it to 0 before an upgrade",
                code="InvalidRequestException",
            )
        launch_spec = _launch_spec(data, node_group.instance_types)
        if launch_spec.source != group.launch_spec.source:
            raise Refused("a node group keeps its capacity reservation", code="InvalidParameterException")
        node_group.data, node_group.template = data, template
        self._groups.update(node_group.group, launch_spec=launch_spec, template=template)
        node_group.status = "UPDATING"
        self._settles(node_group, "ACTIVE")

    def delete(self, name: str) -> None:
        node_group = self.get(name)
        node_group.status = "DELETING"
        self._groups.update(node_group.group, minimum=0, desired=0)
        self._await_empty(node_group)

    def let_join(self, principal: str, kind: str) -> None:
        self.access_entries[principal] = kind

    # --- what EKS checks ----------------------------------------------------------------------------

    def _validate(self, request: NodeGroupRequest) -> Reservation | None:
        """The block it is on; None: on none. Refused with the rule of EKS."""
        if request.capacity_type not in CAPACITY_TYPES:
            raise Refused(
                f"capacityType {request.capacity_type} is unknown", code="InvalidParameterException"
            )
        for name in _NOT_IN_A_TEMPLATE:
            if request.data.get(name):
                raise Refused(f"Launch template should not specify {name}", code="InvalidParameterException")
        if not request.subnets:
            raise Refused("Subnets are required", code="InvalidParameterException")
        launch_spec = _launch_spec(request.data, request.instance_types)
        if request.capacity_type != "CAPACITY_BLOCK":
            if launch_spec.source.kind is SourceKind.BLOCK:
                raise Refused(
                    "a template for a Capacity Block needs CAPACITY_BLOCK", code="InvalidParameterException"
                )
            return None
        return self._validate_block(request, launch_spec)

    def _validate_block(self, request: NodeGroupRequest, launch_spec: LaunchSpec) -> Reservation:
        if launch_spec.source.kind is not SourceKind.BLOCK:
            raise Refused(
                "CAPACITY_BLOCK needs a launch template with MarketType "
                "capacity-block and a CapacityReservationId",
                code="InvalidParameterException",
            )
        if request.instance_types or not request.data.get("InstanceType"):
            raise Refused(
                "CAPACITY_BLOCK takes its InstanceType from the template", code="InvalidParameterException"
            )
        block = self._reservations.get(launch_spec.source.id)
        if block is None or block.state not in SECURED_STATES:
            raise Refused(
                f"{launch_spec.source.id} is no active or scheduled block", code="InvalidParameterException"
            )
        if launch_spec.instance_type != block.instance_type:
            raise Refused(f"{block.id} holds {block.instance_type}", code="InvalidParameterException")
        if set(request.zones) != {block.zone}:
            raise Refused(
                f"Subnets must be in {block.zone}, where {block.id} is, "
                f"and not in {', '.join(sorted(set(request.zones) - {block.zone}))}",
                code="InvalidParameterException",
            )
        return block

    # --- behind it ----------------------------------------------------------------------------------

    def _make_group(self, request: NodeGroupRequest) -> AutoScalingGroup:
        """Its tags are EKS's own: those of a node group reach neither the group nor its instances."""
        minimum, desired, maximum = request.size
        unique = seeded_id("x", self._seed, request.name, self._timeline.now().isoformat())[2:]
        tags = (
            ("eks:cluster-name", self.cluster),
            ("eks:nodegroup-name", request.name),
            (f"kubernetes.io/cluster/{self.cluster}", "owned"),
        )
        launch_spec = _launch_spec(request.data, request.instance_types)
        if request.capacity_type == "SPOT":
            launch_spec = replace(launch_spec, source=Source(SourceKind.SPOT), fills_open=False)
        return self._groups.create(
            f"eks-{request.name}-{unique}", launch_spec, zones=request.zones, minimum=minimum, maximum=maximum,
            desired=desired, tags=tags, propagated=tags, template=request.template, subnets=request.subnets,
            node_group=request.name,
        )  # fmt: skip

    def _schedule(self, node_group: EksNodeGroup, block: Reservation) -> None:
        at = None if block.end is None else block.end - EKS_SCALES_DOWN_BEFORE_END
        if at is not None and at > self._timeline.now():
            self._groups.put_schedule(node_group.group, ScheduledAction(EKS_SCALE_DOWN_ACTION, at, 0, 0))

    def _end_moved(self, block: Reservation) -> None:
        if self.follows_extensions:
            for node_group in self._by_name.values():
                if node_group.block_id == block.id:
                    self._schedule(node_group, block)

    def _changeable(self, name: str) -> EksNodeGroup:
        node_group = self.get(name)
        if node_group.status not in ("ACTIVE", "DEGRADED"):
            raise Refused(
                f"{name} is {node_group.status} and cannot be changed now", code="ResourceInUseException"
            )
        return node_group

    def _settles(self, node_group: EksNodeGroup, status: str) -> None:
        takes_s = stream(self._seed, "node-group", node_group.name, node_group.status).randint(*_TAKES_S)

        def settle() -> None:
            if node_group.status in ("CREATING", "UPDATING"):
                node_group.status = status
                self._wakes(f"node-group-{status.lower()} {node_group.name}")

        self._timeline.after(timedelta(seconds=takes_s), settle)

    def _await_empty(self, node_group: EksNodeGroup) -> None:
        """Its instances end first, then the group behind it, then the node group."""

        def look() -> None:
            if self._groups.get(node_group.group).members:
                self._await_empty(node_group)
                return
            self._groups.delete(node_group.group)
            del self._by_name[node_group.name]
            self._journal.add("node-group-deleted", node_group.name, "deleted")
            self._wakes(f"node-group-deleted {node_group.name}")

        self._timeline.after(timedelta(seconds=_TAKES_S[0]), look)


def _launch_spec(data: Mapping[str, Any], instance_types: tuple[str, ...]) -> LaunchSpec:
    """A template may leave the type to the node group, which then takes the first it was given."""
    launch_spec = launch_spec_of(data)
    if launch_spec.instance_type or not instance_types:
        return launch_spec
    return replace(launch_spec, instance_type=instance_types[0])
