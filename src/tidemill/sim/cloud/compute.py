"""The simulated account as `ports.Compute`: templates, launches and groups in process.

A thin layer over the same account that the wire serves. It keeps only launch templates itself; on the wire moto does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION
from tidemill.model.errors import Gone, Refused
from tidemill.model.purchases import LaunchIntent
from tidemill.ports import Clock
from tidemill.ports.compute import (
    Group,
    GroupShape,
    HealthIssue,
    Hook,
    LaunchRequest,
    Member,
    NodeGroup,
    NodeGroupShape,
    Schedule,
    Template,
    TemplateVersion,
)
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cloud.launch_template import LaunchSpec, launch_spec_of
from tidemill.sim.cloud.node_groups import EksNodeGroup, NodeGroupRequest
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, GroupMember, LifecycleHook, ScheduledAction
from tidemill.sim.timeline import seeded_id
from tidemill.spec import names


class SimCompute:
    def __init__(
        self, cloud: SimCloud, clock: Clock, owner: str, subnets: Mapping[str, Sequence[str]]
    ) -> None:
        """`subnets`: ids by zone."""
        self._cloud, self._clock, self._owner = cloud, clock, owner
        self._groups, self._node_groups = cloud.groups, cloud.node_groups
        self._zone_of = {id_: zone for zone, ids in subnets.items() for id_ in ids}
        self._templates: dict[str, list[Template]] = {}  # by name, oldest version first

    # --- templates and launches ---------------------------------------------------------------------

    def put_template(self, template: Template) -> TemplateVersion:
        self._cloud.receive()
        versions = self._templates.setdefault(template.name, [])
        for number, known in enumerate(versions, 1):
            if known.data == template.data:
                return self._version(template.name, number)
        versions.append(template)
        return self._version(template.name, len(versions))

    def templates(self) -> Sequence[TemplateVersion]:
        self._cloud.receive()
        return tuple(self._version(name, len(versions)) for name, versions in self._templates.items())

    def delete_template(self, name: str) -> None:
        self._cloud.receive()
        if self._templates.pop(name, None) is None:
            raise Gone(
                f"there is no launch template {name}", code="InvalidLaunchTemplateName.NotFoundException"
            )

    def run(self, order: LaunchRequest) -> Sequence[str]:
        launch_spec = self._launch_spec(order.template)
        if launch_spec.source != order.source or order.instance_type not in (launch_spec.instance_type, ""):
            raise Refused(f"{order.template.name} launches {launch_spec}, not what was ordered")
        tags = dict(order.tags)
        intent = LaunchIntent(
            id=order.token,
            pool=tags.get(names.TAG_POOL, ""),
            source=launch_spec.source,
            instance_type=launch_spec.instance_type,
            zone=order.zone,
            count=order.count,
            provisioner=tags.get(names.TAG_PROVISIONER, ""),
            written_at=self._clock.now(),
            least=order.least,
        )
        return self._cloud.launch(intent, order.tags)

    def terminate(self, instance_id: str) -> None:
        self._cloud.terminate(instance_id)

    def console_output(self, instance_id: str) -> str:
        return self._cloud.console_output(instance_id)

    # --- groups -------------------------------------------------------------------------------------

    def groups(self) -> Sequence[Group]:
        self._cloud.receive()
        return tuple(_group(group) for group in self._groups.all() if self._is_ours(group))

    def put_group(self, shape: GroupShape) -> None:
        self._cloud.receive()
        zones = tuple(sorted({self._zone(subnet) for subnet in shape.subnets}))
        launch_spec = self._launch_spec(shape.template)
        try:
            known = self._ours(shape.name)
        except Gone:
            known = self._groups.create(
                shape.name, launch_spec, zones=zones, maximum=shape.maximum, tags=shape.tags,
                propagated=shape.tags, template=shape.template, subnets=shape.subnets, policies=shape.policies,
            )  # fmt: skip
        else:
            self._groups.update(
                shape.name, maximum=shape.maximum, launch_spec=launch_spec, template=shape.template, zones=zones,
                subnets=shape.subnets, policies=shape.policies,
            )  # fmt: skip
            self._groups.set_tags(shape.name, shape.tags, shape.tags)
        if shape.suspended:
            self._groups.suspend(shape.name, shape.suspended)
        if shape.hook is not None:
            hook = LifecycleHook(shape.hook.name, shape.hook.heartbeat_s, shape.hook.result)
            self._groups.hooks.put(known, hook)

    def resize(self, group: str, desired: int) -> None:
        self._cloud.receive()
        self._ours(group)
        self._groups.set_desired(group, desired)

    def terminate_in_group(self, instance_id: str) -> None:
        self._cloud.receive()
        membership = self._groups.of(instance_id)
        if membership is not None:
            self._ours(membership[0].name)
        self._groups.terminate(instance_id, decrement=True)

    def release(self, group: str, hook: str, instance_id: str) -> None:
        self._cloud.receive()
        self._groups.hooks.complete(self._ours(group), hook, instance_id=instance_id)

    def put_schedule(self, group: str, schedule: Schedule) -> None:
        self._cloud.receive()
        self._ours(group)
        action = ScheduledAction(
            schedule.name, schedule.at, schedule.desired, schedule.minimum, schedule.maximum
        )
        self._groups.put_schedule(group, action)

    def delete_schedule(self, group: str, name: str) -> None:
        self._cloud.receive()
        self._ours(group)
        self._groups.delete_schedule(group, name)

    def delete_group(self, name: str) -> None:
        self._cloud.receive()
        self._ours(name)
        self._groups.delete(name)

    # --- node groups --------------------------------------------------------------------------------

    def node_groups(self) -> Sequence[NodeGroup]:
        self._cloud.receive()
        return tuple(
            self._node_group(node_group) for node_group in self._node_groups.all() if self._owns(node_group)
        )

    def put_node_group(self, shape: NodeGroupShape) -> None:
        self._cloud.receive()
        known = next(
            (node_group for node_group in self._node_groups.all() if node_group.name == shape.name), None
        )
        if known is None:
            self._node_groups.create(self._asked(shape))
            return
        if not self._owns(known):
            raise Refused(f"node group {shape.name} is not {self._owner}'s")
        fixed = (known.capacity_type, known.subnets, known.template.id)
        if fixed != (shape.capacity_type, shape.subnets, shape.template.id):
            raise Refused(
                f"{shape.name} keeps its capacity type, subnets and template",
                code="InvalidParameterException",
            )
        self._change_node_group(known, shape)

    def _change_node_group(self, known: EksNodeGroup, shape: NodeGroupShape) -> None:
        if (known.labels, known.taints, known.repair) != (shape.labels, shape.taints, shape.repair):
            self._node_groups.configure(
                shape.name, labels=shape.labels, taints=shape.taints, repair=shape.repair
            )
        if self._groups.get(known.group).maximum != shape.maximum:
            self._node_groups.resize(shape.name, maximum=shape.maximum)
        if known.template != shape.template:
            self._node_groups.set_template(shape.name, self._data(shape.template), shape.template)
        known.tags = shape.tags

    def resize_node_group(self, name: str, desired: int) -> None:
        self._cloud.receive()
        self._owned(name)
        self._node_groups.resize(name, desired=desired)

    def delete_node_group(self, name: str) -> None:
        self._cloud.receive()
        self._owned(name)
        self._node_groups.delete(name)

    def let_nodes_join(self, role_arn: str) -> None:
        self._cloud.receive()
        self._node_groups.let_join(role_arn, "EC2_LINUX")

    # --- whose, and from what -----------------------------------------------------------------------

    def _is_ours(self, group: AutoScalingGroup) -> bool:
        if group.node_group:
            return self._owns(self._node_groups.get(group.node_group))
        return dict(group.tags).get(names.TAG_OWNER) == self._owner

    def _owns(self, node_group: EksNodeGroup) -> bool:
        return dict(node_group.tags).get(names.TAG_OWNER) == self._owner

    def _ours(self, name: str) -> AutoScalingGroup:
        group = self._groups.get(name)
        if not self._is_ours(group):
            raise Refused(f"the group {name} has no tag that says it is {self._owner}'s")
        return group

    def _owned(self, name: str) -> EksNodeGroup:
        node_group = self._node_groups.get(name)
        if not self._owns(node_group):
            raise Refused(f"the node group {name} has no tag that says it is {self._owner}'s")
        return node_group

    def _version(self, name: str, number: int) -> TemplateVersion:
        return TemplateVersion(seeded_id("lt", self._cloud.seed, name), name, number)

    def _data(self, version: TemplateVersion) -> Mapping[str, Any]:
        versions = self._templates.get(version.name, [])
        if not 1 <= version.version <= len(versions):
            raise Refused(
                f"{version.name} version {version.version}", code="InvalidLaunchTemplateId.VersionNotFound"
            )
        return versions[version.version - 1].data

    def _launch_spec(self, version: TemplateVersion) -> LaunchSpec:
        return launch_spec_of(self._data(version))

    def _zone(self, subnet: str) -> str:
        if subnet not in self._zone_of:
            raise Refused(f"there is no subnet {subnet}", code="InvalidSubnetID.NotFound")
        return self._zone_of[subnet]

    def _asked(self, shape: NodeGroupShape) -> NodeGroupRequest:
        return NodeGroupRequest(
            shape.name, shape.role, self._data(shape.template), shape.subnets,
            tuple(sorted({self._zone(subnet) for subnet in shape.subnets})), (0, 0, shape.maximum),
            shape.capacity_type, shape.instance_types, shape.ami_type, shape.labels, shape.taints, shape.tags,
            shape.repair, shape.template,
        )  # fmt: skip

    def _node_group(self, node_group: EksNodeGroup) -> NodeGroup:
        group = self._groups.get(node_group.group)
        shape = NodeGroupShape(
            node_group.name, _capacity_type(node_group), node_group.template, node_group.subnets, node_group.role,
            group.maximum, node_group.instance_types, node_group.ami_type, node_group.labels, node_group.taints,
            node_group.tags, node_group.repair,
        )  # fmt: skip
        issues = tuple(HealthIssue(code, message) for code, message in node_group.issues)
        return NodeGroup(shape, node_group.status, group.desired, node_group.group, issues)


def _capacity_type(node_group: EksNodeGroup) -> Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]:
    return cast('Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]', node_group.capacity_type)


def _group(group: AutoScalingGroup) -> Group:
    hooks = sorted(group.hooks.values(), key=lambda hook: not hook.name.startswith("tidemill"))  # ours first
    template = group.template if group.template is not None else TemplateVersion("", "", 0)
    shape = GroupShape(group.name, template, group.subnets, group.maximum, group.tags, _hook(hooks), group.policies,
        tuple(sorted(group.suspended)))  # fmt: skip
    return Group(
        shape, group.minimum, group.desired,
        tuple(_schedule(action) for action in sorted(group.schedules.values(), key=lambda each: each.at)),
        tuple(_member(member) for member in group.members.values()), group.node_group, group.launch_error,
    )  # fmt: skip


def _hook(hooks: Sequence[LifecycleHook]) -> Hook | None:
    return Hook(hooks[0].name, hooks[0].heartbeat_s, hooks[0].result) if hooks else None


def _schedule(action: ScheduledAction) -> Schedule:
    return Schedule(
        action.name,
        action.at,
        action.desired,
        action.minimum,
        action.maximum,
        by_eks=action.name == EKS_SCALE_DOWN_ACTION,
    )


def _member(member: GroupMember) -> Member:
    since = member.wait.since if member.wait is not None else None
    return Member(member.instance_id, member.state, since, member.healthy)
