"""Auto Scaling's records -> our objects, and our requests in Auto Scaling's form. Pure.

A record that cannot be read raises Unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.aws.fields import (
    Unreadable,
    id_of,
    instant,
    integer,
    nested_record,
    records,
    string,
    strings,
    tags,
)
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION
from tidemill.ports.compute import Group, GroupShape, Hook, Member, Schedule, TemplateVersion
from tidemill.spec import names

EKS_GROUP = "eks:nodegroup-name"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


def read_group(
    record: Mapping[str, Any],
    schedules: Iterable[Schedule],
    hook: Hook | None,
    history: Iterable[Mapping[str, Any]],
) -> Group:
    own = dict(tags(record))
    propagated = [tag for tag in records(record, "Tags") if tag.get("PropagateAtLaunch")]
    shape = GroupShape(
        name=string(record, "AutoScalingGroupName"),
        template=_template(record),
        subnets=tuple(sorted(filter(None, str(record.get("VPCZoneIdentifier") or "").split(",")))),
        maximum=integer(record, "MaxSize"),
        tags=tags({"Tags": propagated}),
        hook=hook,
        policies=strings(record, "TerminationPolicies") or ("Default",),
        suspended=tuple(
            sorted(string(process, "ProcessName") for process in records(record, "SuspendedProcesses"))
        ),
    )
    history = list(history)
    return Group(
        shape=shape,
        minimum=integer(record, "MinSize"),
        desired=integer(record, "DesiredCapacity"),
        schedules=tuple(schedules),
        members=tuple(_member(member, history) for member in records(record, "Instances")),
        node_group=own.get(EKS_GROUP, ""),
        launch_error=launch_error(history),
    )


def owner_of(record: Mapping[str, Any]) -> str:
    return dict(tags(record)).get(names.TAG_OWNER, "")


@dataclass(frozen=True, slots=True)
class HistoryNeeds:
    """What the activities of a group are read for: why it lacks members, and since when members wait in a hook."""

    lacks: bool
    waiting: tuple[str, ...]  # instance ids

    def __bool__(self) -> bool:
        return self.lacks or bool(self.waiting)


def history_needs(record: Mapping[str, Any]) -> HistoryNeeds:
    members = [_member(member, []) for member in records(record, "Instances")]
    lacks = sum(member.counts for member in members) < integer(record, "DesiredCapacity")
    return HistoryNeeds(lacks, tuple(member.instance_id for member in members if member.waits))


def read_schedule(record: Mapping[str, Any]) -> tuple[str, Schedule]:
    """The name of the group, and the action. A recurring one is people's own, and shows its next time."""
    name = record.get("ScheduledActionName")
    if not isinstance(name, str) or not name:
        raise Unreadable(f"field ScheduledActionName: expected a name, got {name!r}")
    return string(record, "AutoScalingGroupName"), Schedule(
        name=name,
        at=instant(record, "StartTime"),
        desired=_size(record, "DesiredCapacity"),
        minimum=_size(record, "MinSize"),
        maximum=_size(record, "MaxSize"),
        by_eks=name == EKS_SCALE_DOWN_ACTION,
    )


def read_hook(record: Mapping[str, Any]) -> Hook | None:
    """None: it is a launch hook."""
    if record.get("LifecycleTransition") != TERMINATING:
        return None
    result = record.get("DefaultResult")
    if result not in ("CONTINUE", "ABANDON"):
        raise Unreadable(f"field DefaultResult: expected CONTINUE or ABANDON, got {result!r}")
    return Hook(string(record, "LifecycleHookName"), integer(record, "HeartbeatTimeout"), result)


def launch_error(history: Iterable[Mapping[str, Any]]) -> str | None:
    """The message of the newest launch that is over, if it failed. `history`: activities, newest first."""
    for activity in history:
        if str(activity.get("Description", "")).startswith("Launching") and activity.get("StatusCode") in (
            "Failed",
            "Successful",
        ):
            failed = activity["StatusCode"] == "Failed"
            return str(activity.get("StatusMessage") or "no reason given") if failed else None
    return None


def _member(record: Mapping[str, Any], history: list[Mapping[str, Any]]) -> Member:
    id_ = id_of(record, "InstanceId", "i-")
    state = string(record, "LifecycleState")
    since = _waits_since(id_, history) if state == "Terminating:Wait" else None
    return Member(id_, state, since, healthy=record.get("HealthStatus") != "Unhealthy")


def _waits_since(instance_id: str, history: list[Mapping[str, Any]]) -> datetime | None:
    """The start of the activity that ends it: one that is not over and names it."""
    for activity in history:
        named = str(activity.get("Description", "")).endswith(instance_id)
        if named and activity.get("EndTime") is None and isinstance(activity.get("StartTime"), datetime):
            return instant(activity, "StartTime")
    return None


def _template(record: Mapping[str, Any]) -> TemplateVersion:
    """Version 0: not a fixed version, or no template. Ours always have one."""
    given = nested_record(record, "LaunchTemplate")
    if not given:
        return TemplateVersion("", "", 0)
    return TemplateVersion(
        string(given, "LaunchTemplateId"),
        string(given, "LaunchTemplateName"),
        version_of(given.get("Version")),
    )


def version_of(written: Any) -> int:
    """0: not a number, such as $Latest."""
    text = str(written or "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _size(record: Mapping[str, Any], key: str) -> int | None:
    return None if record.get(key) is None else integer(record, key)


def group_request(shape: GroupShape) -> dict[str, Any]:
    """The parameters of both create and update. The version is a number: a new version changes nothing."""
    return {
        "AutoScalingGroupName": shape.name,
        "MaxSize": shape.maximum,
        "LaunchTemplate": {
            "LaunchTemplateId": shape.template.id,
            "Version": str(shape.template.version),
        },
        "VPCZoneIdentifier": ",".join(shape.subnets),
        "TerminationPolicies": list(shape.policies),
    }


def hook_request(hook: Hook) -> dict[str, Any]:
    return {
        "LifecycleHookName": hook.name,
        "LifecycleTransition": TERMINATING,
        "HeartbeatTimeout": hook.heartbeat_s,
        "DefaultResult": hook.result,
    }


def tags_request(shape: GroupShape) -> dict[str, Any]:
    return {
        "Tags": [
            {
                "ResourceId": shape.name,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in shape.tags
        ]
    }
