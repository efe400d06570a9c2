"""Auto Scaling's records between the wire and the account: a group's template, subnets and tags, and how it is written.

The account keeps a template as the LaunchSpec it comes to; what only the wire knows of it (id, name, image) is kept
with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemill.model.ec2_facts import LONGEST_HOOK_WAIT
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.launch_template import LaunchSpec
from tidemill.sim.cloud.scaling_group import (
    Activity,
    AutoScalingGroup,
    GroupMember,
    LifecycleHook,
    ScheduledAction,
)
from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire.ec2_launches import launch_request, template_data
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.network import Subnet, subnet
from tidemill.sim.wire.state import LaunchRecord, Wire
from tidemill.spec.units import format_instant

_ROLE = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"


@dataclass(frozen=True, slots=True)
class WireTemplate:
    id: str
    name: str
    version: str  # as it was asked for: a number, $Latest or $Default; the last two are read when they are asked for
    record: LaunchRecord

    @property
    def as_aws(self) -> dict[str, str]:
        return {"LaunchTemplateId": self.id, "LaunchTemplateName": self.name, "Version": self.version}


def template_of(wire: Wire, given: Mapping[str, Any] | None) -> tuple[LaunchSpec, WireTemplate]:
    if not given:
        raise AwsError("ValidationError", "the simulated AWS makes groups from launch templates: name one")
    id_, number, data = template_data(wire, given)
    more = {} if data.get("ImageId") else {"ImageId": wire.network.images["x86_64"]}
    asked = launch_request(wire, {"LaunchTemplate": {"LaunchTemplateId": id_, "Version": number}, **more})
    name = str(wire.moto("ec2").get_launch_template(id_).name)
    version = str(given.get("Version") or "$Default")
    return LaunchSpec(asked.source, asked.instance_type, asked.tags, asked.fills_open), WireTemplate(
        id_, name, version, asked.record
    )


def group_template_of(wire: Wire, given: Mapping[str, Any] | None) -> tuple[LaunchSpec, WireTemplate]:
    """What EC2 would refuse, Auto Scaling refuses in its own words."""
    try:
        return template_of(wire, given)
    except AwsError as refused:
        told = f"You must use a valid fully-formed launch template. {refused.message}"
        raise AwsError("ValidationError", told) from refused


def subnets_of(wire: Wire, identifier: str) -> tuple[Subnet, ...]:
    """VPCZoneIdentifier: subnet ids with commas between them."""
    return tuple(subnet(wire.moto("ec2"), id_.strip()) for id_ in identifier.split(",") if id_.strip())


def zones_of(subnets: Sequence[Subnet]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each_subnet.zone for each_subnet in subnets))


def tags_of(given: Sequence[Mapping[str, Any]]) -> tuple[Pairs, Pairs]:
    """All of them, and those that instances get."""
    pairs = [(str(tag["Key"]), str(tag.get("Value") or ""), tag.get("PropagateAtLaunch")) for tag in given]
    every = tuple(sorted({key: value for key, value, _ in pairs}.items()))
    return every, tuple(sorted({key: value for key, value, passed_on in pairs if passed_on}.items()))


def remember_launches(wire: Wire) -> None:
    """What a group launches is described like what a call launches: with its image, its subnet, its template."""

    def note(group: AutoScalingGroup, token: str, zone: str) -> None:
        if isinstance(group.template, WireTemplate):
            inside = [
                each_subnet
                for each_subnet in subnets_of(wire, ",".join(group.subnets))
                if each_subnet.zone == zone
            ]
            record = replace(group.template.record, group=group.name)
            wire.launches[token] = replace(record, subnet=inside[0]) if inside else record

    wire.cloud.groups.on_launch.append(note)


# --- as Auto Scaling writes it ------------------------------------------------------------------------


def arn(wire: Wire, group: AutoScalingGroup) -> str:
    unique = seeded_id("x", wire.cloud.seed, group.name, group.made_at.isoformat())[2:]
    place = f"{wire.region}:{wire.account}:autoScalingGroup:{unique}"
    return f"arn:aws:autoscaling:{place}:autoScalingGroupName/{group.name}"


def as_group(wire: Wire, group: AutoScalingGroup) -> dict[str, Any]:
    written: dict[str, Any] = {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": arn(wire, group),
        "MinSize": group.minimum,
        "MaxSize": group.maximum,
        "DesiredCapacity": group.desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": list(group.zones),
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 0,
        "Instances": [as_member(wire, member) for member in group.members.values()],
        "CreatedTime": group.made_at,
        "SuspendedProcesses": [
            {"ProcessName": name, "SuspensionReason": f"User suspended at {format_instant(since)}"}
            for name, since in sorted(group.suspended.items())
        ],
        "VPCZoneIdentifier": ",".join(group.subnets),
        "EnabledMetrics": [],
        "Tags": as_tags(group),
        "TerminationPolicies": list(group.policies),
        "NewInstancesProtectedFromScaleIn": False,
        "ServiceLinkedRoleARN": f"arn:aws:iam::{wire.account}:role/{_ROLE}",
        "CapacityRebalance": False,
    }
    if isinstance(group.template, WireTemplate):
        written["LaunchTemplate"] = group.template.as_aws
    return written


def as_tags(group: AutoScalingGroup) -> list[dict[str, Any]]:
    passed_on = dict(group.propagated)
    return [
        {
            "ResourceId": group.name,
            "ResourceType": "auto-scaling-group",
            "Key": key,
            "Value": value,
            "PropagateAtLaunch": key in passed_on,
        }
        for key, value in group.tags
    ]


def as_member(wire: Wire, member: GroupMember) -> dict[str, Any]:
    written: dict[str, Any] = {
        "InstanceId": member.instance_id,
        "InstanceType": wire.cloud.instance_histories[member.instance_id].now.instance_type,
        "AvailabilityZone": member.zone,
        "LifecycleState": member.state,
        "HealthStatus": "Healthy" if member.healthy else "Unhealthy",
        "ProtectedFromScaleIn": False,
    }
    if isinstance(member.template, WireTemplate):
        written["LaunchTemplate"] = member.template.as_aws
    return written


def as_activity(group: AutoScalingGroup, activity: Activity) -> dict[str, Any]:
    written: dict[str, Any] = {
        "ActivityId": activity.id,
        "AutoScalingGroupName": group.name,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": activity.at,
        "StatusCode": activity.status,
        "Progress": 100 if activity.ended_at is not None else 50,
        "Details": "{}",
    }
    if activity.ended_at is not None:
        written["EndTime"] = activity.ended_at
    return written | ({"StatusMessage": activity.message} if activity.message else {})


def as_schedule(wire: Wire, group: AutoScalingGroup, action: ScheduledAction) -> dict[str, Any]:
    sizes = {"MinSize": action.minimum, "MaxSize": action.maximum, "DesiredCapacity": action.desired}
    return {
        "AutoScalingGroupName": group.name,
        "ScheduledActionName": action.name,
        "ScheduledActionARN": f"{arn(wire, group)}:scheduledActionName/{action.name}",
        "Time": action.at,
        "StartTime": action.at,
        **{name: size for name, size in sizes.items() if size is not None},
        **({"Recurrence": action.recurrence} if action.recurrence else {}),
        **({"TimeZone": action.zone} if action.zone else {}),
        **({"EndTime": action.until} if action.until is not None else {}),
    }


def as_hook(group: AutoScalingGroup, hook: LifecycleHook) -> dict[str, Any]:
    more = {
        "NotificationTargetARN": hook.target,
        "RoleARN": hook.role,
        "NotificationMetadata": hook.metadata,
    }
    return {
        "LifecycleHookName": hook.name,
        "AutoScalingGroupName": group.name,
        "LifecycleTransition": hook.transition,
        "HeartbeatTimeout": hook.heartbeat_s,
        "GlobalTimeout": min(int(LONGEST_HOOK_WAIT.total_seconds()), 100 * hook.heartbeat_s),
        "DefaultResult": hook.result,
        **{name: value for name, value in more.items() if value},
    }
