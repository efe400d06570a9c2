"""Auto Scaling: groups, their scheduled actions and their lifecycle hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.model.errors import TidemillError
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, LifecycleHook, ScheduledAction
from tidemill.sim.wire import group_format
from tidemill.sim.wire.errors import AwsError, as_aws_error, not_simulated
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered

_MOST = 100  # Auto Scaling's largest page
# What makes or changes a group here. Others that would change what it does are refused: see `_refuse_the_rest`.
_TAKEN = frozenset(
    {
        "AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity", "LaunchTemplate", "VPCZoneIdentifier",
        "AvailabilityZones", "Tags", "TerminationPolicies", "LifecycleHookSpecificationList",
    }
)  # fmt: skip
# They change nothing that is simulated: health checks are EC2's alone, and no scaling policy cools down.
_WITHOUT_EFFECT = frozenset(
    {
        "HealthCheckType", "HealthCheckGracePeriod", "DefaultCooldown", "DefaultInstanceWarmup",
        "ServiceLinkedRoleARN", "Context",
    }
)  # fmt: skip


@operation("autoscaling", "CreateAutoScalingGroup")
def create(call: ApiCall) -> Result:
    wire = call.wire
    _refuse_the_rest(call)
    launch_spec, template = group_format.group_template_of(wire, call.get("LaunchTemplate"))
    subnets = group_format.subnets_of(wire, call.get("VPCZoneIdentifier", ""))
    zones = group_format.zones_of(subnets) or tuple(call.get("AvailabilityZones", []))
    if not zones:
        raise AwsError("ValidationError", "At least one Availability Zone or VPC Subnet is required.")
    tags, propagated = group_format.tags_of(call.get("Tags", []))
    group = wire.cloud.groups.create(
        call.require("AutoScalingGroupName"),
        launch_spec,
        zones=zones,
        minimum=call.require("MinSize"),
        maximum=call.require("MaxSize"),
        desired=call.get("DesiredCapacity"),
        tags=tags,
        propagated=propagated,
        template=template,
        subnets=tuple(subnet.id for subnet in subnets),
        policies=tuple(call.get("TerminationPolicies") or ["Default"]),
    )
    for hook in call.get("LifecycleHookSpecificationList", []):
        wire.cloud.groups.hooks.put(group, hook_of(hook))
    return {}


def _refuse_the_rest(call: ApiCall) -> None:
    """A call must not succeed and leave out what it was asked for."""
    left = [name for name, value in call.params.items() if value and name not in _TAKEN | _WITHOUT_EFFECT]
    if left:
        raise not_simulated(f"{', '.join(left)} of an Auto Scaling group")


@operation("autoscaling", "UpdateAutoScalingGroup")
def update(call: ApiCall) -> Result:
    wire = call.wire
    group = _group(call)
    _refuse_the_rest(call)
    launch_spec, template = (
        group_format.group_template_of(wire, call.get("LaunchTemplate"))
        if call.get("LaunchTemplate")
        else (None, None)
    )
    identifier = call.get("VPCZoneIdentifier")
    subnets = None if identifier is None else group_format.subnets_of(wire, identifier)
    wire.cloud.groups.update(
        group.name,
        minimum=call.get("MinSize"),
        maximum=call.get("MaxSize"),
        desired=call.get("DesiredCapacity"),
        launch_spec=launch_spec,
        template=template,
        zones=None if subnets is None else group_format.zones_of(subnets),
        subnets=None if subnets is None else tuple(subnet.id for subnet in subnets),
        policies=tuple(call.get("TerminationPolicies") or ()) or None,
    )
    return {}


@operation("autoscaling", "DeleteAutoScalingGroup")
def delete(call: ApiCall) -> Result:
    call.wire.cloud.groups.delete(_group(call).name, force=bool(call.get("ForceDelete")))
    return {}


@operation("autoscaling", "SetDesiredCapacity")
def resize(call: ApiCall) -> Result:
    call.wire.cloud.groups.set_desired(_group(call).name, call.require("DesiredCapacity"))
    return {}


@operation("autoscaling", "SuspendProcesses")
def suspend(call: ApiCall) -> Result:
    call.wire.cloud.groups.suspend(_group(call).name, call.get("ScalingProcesses", []))
    return {}


@operation("autoscaling", "ResumeProcesses")
def resume(call: ApiCall) -> Result:
    call.wire.cloud.groups.resume(_group(call).name, call.get("ScalingProcesses", []))
    return {}


@operation("autoscaling", "TerminateInstanceInAutoScalingGroup")
def terminate(call: ApiCall) -> Result:
    instance_id = call.require("InstanceId")
    decrement = bool(call.require("ShouldDecrementDesiredCapacity"))
    group = call.wire.cloud.groups.terminate(instance_id, decrement=decrement)
    activity = next(known for known in reversed(group.activities) if known.instance_id == instance_id)
    return {"Activity": group_format.as_activity(group, activity)}


# --- lists --------------------------------------------------------------------------------------------


@operation("autoscaling", "DescribeAutoScalingGroups")
def describe(call: ApiCall) -> Result:
    wire = call.wire
    named = call.get("AutoScalingGroupNames", [])
    groups = [group for group in wire.cloud.groups.all() if not named or group.name in named]
    fields: FilterFields[AutoScalingGroup] = {
        "tag-key": lambda group: [key for key, _ in group.tags],
        "tag-value": lambda group: [value for _, value in group.tags],
    }
    groups = filtered(groups, call.get("Filters", []), fields, lambda group: group.tags)
    page, token = _page(call, groups, lambda group: group.name)
    return {"AutoScalingGroups": [group_format.as_group(wire, group) for group in page], "NextToken": token}


@operation("autoscaling", "DescribeAutoScalingInstances")
def describe_instances(call: ApiCall) -> Result:
    wire, named = call.wire, call.get("InstanceIds", [])
    members = [
        (group, member)
        for group in wire.cloud.groups.all()
        for member in group.members.values()
        if not named or member.instance_id in named
    ]
    page, token = _page(call, members, lambda pair: pair[1].instance_id)
    return {
        "AutoScalingInstances": [
            group_format.as_member(wire, member) | {"AutoScalingGroupName": group.name}
            for group, member in page
        ],
        "NextToken": token,
    }


@operation("autoscaling", "DescribeScalingActivities")
def activities(call: ApiCall) -> Result:
    """Newest first, as Auto Scaling has it."""
    name, ids = call.get("AutoScalingGroupName"), call.get("ActivityIds", [])
    listed = [
        (group, activity)
        for group in call.wire.cloud.groups.all()
        if not name or group.name == name
        for activity in reversed(group.activities)
        if not ids or activity.id in ids
    ]
    page, token = _page(call, listed, lambda activity: activity[1].id)
    return {
        "Activities": [group_format.as_activity(group, activity) for group, activity in page],
        "NextToken": token,
    }


# --- tags ---------------------------------------------------------------------------------------------


@operation("autoscaling", "CreateOrUpdateTags")
def tag(call: ApiCall) -> Result:
    groups = call.wire.cloud.groups
    for name, given in _by_group(call.require("Tags")).items():
        group = groups.get(name)
        new, propagated = group_format.tags_of(given)
        kept = {key: value for key, value in group.propagated if key not in dict(new)}
        groups.set_tags(
            name,
            tuple(sorted((dict(group.tags) | dict(new)).items())),
            tuple(sorted((kept | dict(propagated)).items())),
        )
    return {}


@operation("autoscaling", "DeleteTags")
def untag(call: ApiCall) -> Result:
    groups = call.wire.cloud.groups
    for name, given in _by_group(call.require("Tags")).items():
        group, going = groups.get(name), {str(tag["Key"]) for tag in given}
        groups.set_tags(
            name,
            tuple(pair for pair in group.tags if pair[0] not in going),
            tuple(pair for pair in group.propagated if pair[0] not in going),
        )
    return {}


@operation("autoscaling", "DescribeTags")
def describe_tags(call: ApiCall) -> Result:
    tags = [tag for group in call.wire.cloud.groups.all() for tag in group_format.as_tags(group)]
    fields: FilterFields[dict[str, Any]] = {
        "auto-scaling-group": lambda item: str(item["ResourceId"]),
        "key": lambda item: str(item["Key"]),
        "value": lambda item: str(item["Value"]),
        "propagate-at-launch": lambda item: str(item["PropagateAtLaunch"]).lower(),
    }
    tags = filtered(tags, call.get("Filters", []), fields, lambda _: ())
    page, token = _page(call, tags, lambda item: f"{item['ResourceId']}/{item['Key']}")
    return {"Tags": page, "NextToken": token}


# --- shared -------------------------------------------------------------------------------------------


def hook_of(given: Mapping[str, Any]) -> LifecycleHook:
    return LifecycleHook(
        name=str(given["LifecycleHookName"]),
        heartbeat_s=int(given.get("HeartbeatTimeout") or 3600),
        result=given.get("DefaultResult") or "ABANDON",
        transition=str(given.get("LifecycleTransition") or "autoscaling:EC2_INSTANCE_TERMINATING"),
        target=str(given.get("NotificationTargetARN") or ""),
        role=str(given.get("RoleARN") or ""),
        metadata=str(given.get("NotificationMetadata") or ""),
    )


def _group(call: ApiCall) -> AutoScalingGroup:
    return call.wire.cloud.groups.get(call.require("AutoScalingGroupName"))


def _by_group(tags: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for tag in tags:
        by_group.setdefault(str(tag["ResourceId"]), []).append(tag)
    return by_group


def _page(call: ApiCall, items: Sequence[Any], key: Any) -> tuple[list[Any], str | None]:
    params = {"MaxResults": call.get("MaxRecords", 50), "NextToken": call.get("NextToken")}
    return call.wire.pages.page(items, key, params, most=_MOST)


# --- scheduled actions and lifecycle hooks ------------------------------------------------------------


@operation("autoscaling", "PutScheduledUpdateGroupAction")
def put_schedule(call: ApiCall) -> Result:
    """Once at its start, or by a cron line: then at its start, if it has one, and as the line says, until its end."""
    at, now = call.get("StartTime") or call.get("Time"), call.wire.clock.now()
    recurrence = call.get("Recurrence") or ""
    if at is None and not recurrence:
        raise AwsError("ValidationError", "A start time or a recurrence is needed")
    sizes = (call.get("DesiredCapacity"), call.get("MinSize"), call.get("MaxSize"))
    if sizes == (None, None, None):
        raise AwsError("ValidationError", "At least one of min size, max size and desired capacity is needed")
    action = ScheduledAction(
        call.require("ScheduledActionName"), at or now, *sizes, recurrence, call.get("TimeZone") or "",
        call.get("EndTime"),
    )  # fmt: skip
    first = action.following(now) if recurrence else action
    if first is None:
        raise AwsError("ValidationError", "The recurrence has no time before its end")
    call.wire.cloud.groups.put_schedule(
        call.require("AutoScalingGroupName"), action if at is not None else first
    )
    return {}


@operation("autoscaling", "BatchPutScheduledUpdateGroupAction")
def put_schedules(call: ApiCall) -> Result:
    """Each by itself: those that fail are listed."""
    group, failed = call.require("AutoScalingGroupName"), []
    for one in call.require("ScheduledUpdateGroupActions"):
        try:
            put_schedule(replace(call, params={**one, "AutoScalingGroupName": group}))
        except (AwsError, TidemillError) as error:
            failed.append(_failed(one.get("ScheduledActionName", ""), error))
    return {"FailedScheduledUpdateGroupActions": failed}


@operation("autoscaling", "BatchDeleteScheduledAction")
def delete_schedules(call: ApiCall) -> Result:
    group, failed = call.require("AutoScalingGroupName"), []
    for name in call.require("ScheduledActionNames"):
        try:
            call.wire.cloud.groups.delete_schedule(group, name)
        except TidemillError as error:
            failed.append(_failed(name, error))
    return {"FailedScheduledActions": failed}


def _failed(name: str, error: AwsError | TidemillError) -> dict[str, str]:
    said = error if isinstance(error, AwsError) else as_aws_error(error)
    code = said.code if isinstance(said, AwsError) else "InternalFailure"
    return {"ScheduledActionName": name, "ErrorCode": code, "ErrorMessage": str(error)}


@operation("autoscaling", "DeleteScheduledAction")
def delete_schedule(call: ApiCall) -> Result:
    name = call.require("AutoScalingGroupName")
    call.wire.cloud.groups.delete_schedule(name, call.require("ScheduledActionName"))
    return {}


@operation("autoscaling", "DescribeScheduledActions")
def schedules(call: ApiCall) -> Result:
    wire, named = call.wire, call.get("ScheduledActionNames", [])
    only = call.get("AutoScalingGroupName")
    listed = [
        (group, action)
        for group in wire.cloud.groups.all()
        if not only or group.name == only
        for action in sorted(group.schedules.values(), key=lambda each: each.at)
        if not named or action.name in named
    ]
    params = {"MaxResults": call.get("MaxRecords", 50), "NextToken": call.get("NextToken")}
    page, token = wire.pages.page(
        listed, lambda action: f"{action[0].name}/{action[1].name}", params, most=100
    )
    return {
        "ScheduledUpdateGroupActions": [
            group_format.as_schedule(wire, group, action) for group, action in page
        ],
        "NextToken": token,
    }


# --- hooks --------------------------------------------------------------------------------------------


@operation("autoscaling", "PutLifecycleHook")
def put_hook(call: ApiCall) -> Result:
    """What is not given stays as it is, where the hook is there already."""
    group = _group(call)
    known = group.hooks.get(call.require("LifecycleHookName"))
    if known is None and not call.get("LifecycleTransition"):
        raise AwsError("ValidationError", "A new hook needs a LifecycleTransition")
    before = _as_params(known) if known is not None else {}
    given = {name: value for name, value in call.params.items() if value is not None}
    call.wire.cloud.groups.hooks.put(group, hook_of(before | given))
    return {}


@operation("autoscaling", "DeleteLifecycleHook")
def delete_hook(call: ApiCall) -> Result:
    call.wire.cloud.groups.hooks.delete(_group(call), call.require("LifecycleHookName"))
    return {}


@operation("autoscaling", "DescribeLifecycleHooks")
def describe_hooks(call: ApiCall) -> Result:
    group, named = _group(call), call.get("LifecycleHookNames", [])
    hooks = [hook for hook in group.hooks.values() if not named or hook.name in named]
    return {"LifecycleHooks": [group_format.as_hook(group, hook) for hook in hooks]}


@operation("autoscaling", "CompleteLifecycleAction")
def complete(call: ApiCall) -> Result:
    if call.require("LifecycleActionResult") not in ("CONTINUE", "ABANDON"):
        raise AwsError("ValidationError", "LifecycleActionResult is CONTINUE or ABANDON")
    call.wire.cloud.groups.hooks.complete(_group(call), call.require("LifecycleHookName"), **_whom(call))
    return {}


@operation("autoscaling", "RecordLifecycleActionHeartbeat")
def heartbeat(call: ApiCall) -> Result:
    call.wire.cloud.groups.hooks.heartbeat(_group(call), call.require("LifecycleHookName"), **_whom(call))
    return {}


def _whom(call: ApiCall) -> dict[str, str]:
    return {
        "instance_id": str(call.get("InstanceId", "")),
        "token": str(call.get("LifecycleActionToken", "")),
    }


def _as_params(hook: LifecycleHook) -> dict[str, Any]:
    return {
        "HeartbeatTimeout": hook.heartbeat_s,
        "DefaultResult": hook.result,
        "LifecycleTransition": hook.transition,
        "NotificationTargetARN": hook.target,
        "RoleARN": hook.role,
        "NotificationMetadata": hook.metadata,
    }
