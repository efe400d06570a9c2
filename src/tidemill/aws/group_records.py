"""Auto Scaling's records -> our words, at the edge. Pure; what cannot be read whole raises Unreadable."""

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
from tidemill.model.labels import Pairs
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
    shape = GroupShape(
        name=string(record, "AutoScalingGroupName"),
        template=_template(record),
        subnets=tuple(sorted(one for one in str(record.get("VPCZoneIdentifier") or "").split(",") if one)),
        maximum=integer(record, "MaxSize"),
        tags=_propagated(record),
        hook=hook,
        policies=strings(record, "TerminationPolicies") or ("Default",),
        suspended=tuple(sorted(string(one, "ProcessName") for one in records(record, "SuspendedProcesses"))),
    )
    history = list(history)
    return Group(
        shape=shape,
        minimum=integer(record, "MinSize"),
        desired=integer(record, "DesiredCapacity"),
        schedules=tuple(schedules),
        members=tuple(_member(one, history) for one in records(record, "Instances")),
        node_group=own.get(EKS_GROUP, ""),
        launch_error=launch_error(history),
    )


def owner_of(record: Mapping[str, Any]) -> str:
    return dict(tags(record)).get(names.TAG_OWNER, "")


@dataclass(frozen=True, slots=True)
class HistoryNeeds:
    """What a group's activities must tell: why it has fewer members than it wants, and since when some wait."""

    lacks: bool
    waiting: tuple[str, ...]  # instance ids

    def __bool__(self) -> bool:
        return self.lacks or bool(self.waiting)


def history_needs(record: Mapping[str, Any]) -> HistoryNeeds:
    members = [_member(one, []) for one in records(record, "Instances")]
    lacks = sum(member.counts for member in members) < integer(record, "DesiredCapacity")
    return HistoryNeeds(lacks, tuple(one.instance_id for one in members if one.waits))


def read_schedule(record: Mapping[str, Any]) -> tuple[str, Schedule]:
    """The group's name, and the action. One that recurs is people's own, and shows its next time."""
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
    """None: it is about launches."""
    if record.get("LifecycleTransition") != TERMINATING:
        return None
    result = record.get("DefaultResult")
    if result not in ("CONTINUE", "ABANDON"):
        raise Unreadable(f"field DefaultResult: expected CONTINUE or ABANDON, got {result!r}")
    return Hook(string(record, "LifecycleHookName"), integer(record, "HeartbeatTimeout"), result)


def launch_error(history: Iterable[Mapping[str, Any]]) -> str | None:
    """What the newest launch that is over said, if it failed. `history`: activities, newest first."""
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
    """When it was told to go: an activity that is not over, and names it."""
    for activity in history:
        named = str(activity.get("Description", "")).endswith(instance_id)
        if named and activity.get("EndTime") is None and isinstance(activity.get("StartTime"), datetime):
            return instant(activity, "StartTime")
    return None


def _template(record: Mapping[str, Any]) -> TemplateVersion:
    """Version 0: not pinned to a number, or not made from a template. Ours always are."""
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


def _propagated(record: Mapping[str, Any]) -> Pairs:
    passed_on = [one for one in records(record, "Tags") if one.get("PropagateAtLaunch")]
    return tags({"Tags": passed_on})


def _size(record: Mapping[str, Any], key: str) -> int | None:
    return None if record.get(key) is None else integer(record, key)


def group_request(shape: GroupShape) -> dict[str, Any]:
    """What is the same when it is made and when it is changed. The version is a number: a new one changes nothing."""
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
