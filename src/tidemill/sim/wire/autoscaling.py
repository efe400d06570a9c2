"""Auto Scaling: groups, their scheduled actions and their lifecycle hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.sim.cloud.scaling_group import AutoScalingGroup, LifecycleHook, ScheduledAction
from tidemill.sim.wire import group_format as words
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.paging import Facets, chosen
from tidemill.sim.wire.refusals import AwsError

_MOST = 100  # Auto Scaling's largest page
_UNKNOWN = ("LaunchConfigurationName", "MixedInstancesPolicy", "InstanceId")


@operation("autoscaling", "CreateAutoScalingGroup")
def create(asked: Asked) -> Result:
    wire = asked.wire
    strange = [name for name in _UNKNOWN if asked.get(name)]
    if strange:
        raise AwsError("ValidationError", f"the simulated AWS makes no groups from {', '.join(strange)}")
    launch_spec, template = words.template_of(wire, asked.get("LaunchTemplate"))
    subnets = words.subnets_of(wire, asked.get("VPCZoneIdentifier", ""))
    zones = words.zones_of(subnets) or tuple(asked.get("AvailabilityZones", []))
    if not zones:
        raise AwsError("ValidationError", "At least one Availability Zone or VPC Subnet is required.")
    tags, propagated = words.tags_of(asked.get("Tags", []))
    group = wire.body.groups.create(
        asked.need("AutoScalingGroupName"),
        launch_spec,
        zones=zones,
        minimum=asked.need("MinSize"),
        maximum=asked.need("MaxSize"),
        desired=asked.get("DesiredCapacity"),
        tags=tags,
        propagated=propagated,
        template=template,
        subnets=tuple(one.id for one in subnets),
        policies=tuple(asked.get("TerminationPolicies") or ["Default"]),
    )
    for hook in asked.get("LifecycleHookSpecificationList", []):
        wire.body.groups.hooks.put(group, hook_of(hook))
    return {}


@operation("autoscaling", "UpdateAutoScalingGroup")
def update(asked: Asked) -> Result:
    wire = asked.wire
    group = _group(asked)
    launch_spec, template = (
        words.template_of(wire, asked.get("LaunchTemplate")) if asked.get("LaunchTemplate") else (None, None)
    )
    identifier = asked.get("VPCZoneIdentifier")
    subnets = None if identifier is None else words.subnets_of(wire, identifier)
    wire.body.groups.update(
        group.name,
        minimum=asked.get("MinSize"),
        maximum=asked.get("MaxSize"),
        desired=asked.get("DesiredCapacity"),
        launch_spec=launch_spec,
        template=template,
        zones=None if subnets is None else words.zones_of(subnets),
        subnets=None if subnets is None else tuple(one.id for one in subnets),
        policies=tuple(asked.get("TerminationPolicies") or ()) or None,
    )
    return {}


@operation("autoscaling", "DeleteAutoScalingGroup")
def delete(asked: Asked) -> Result:
    asked.wire.body.groups.delete(_group(asked).name, force=bool(asked.get("ForceDelete")))
    return {}


@operation("autoscaling", "SetDesiredCapacity")
def resize(asked: Asked) -> Result:
    asked.wire.body.groups.set_desired(_group(asked).name, asked.need("DesiredCapacity"))
    return {}


@operation("autoscaling", "SuspendProcesses")
def suspend(asked: Asked) -> Result:
    asked.wire.body.groups.suspend(_group(asked).name, asked.get("ScalingProcesses", []))
    return {}


@operation("autoscaling", "ResumeProcesses")
def resume(asked: Asked) -> Result:
    asked.wire.body.groups.resume(_group(asked).name, asked.get("ScalingProcesses", []))
    return {}


@operation("autoscaling", "TerminateInstanceInAutoScalingGroup")
def terminate(asked: Asked) -> Result:
    instance_id = asked.need("InstanceId")
    decrement = bool(asked.need("ShouldDecrementDesiredCapacity"))
    group = asked.wire.body.groups.terminate(instance_id, decrement=decrement)
    activity = next(one for one in reversed(group.activities) if one.instance_id == instance_id)
    return {"Activity": words.as_activity(group, activity)}


# --- lists --------------------------------------------------------------------------------------------


@operation("autoscaling", "DescribeAutoScalingGroups")
def describe(asked: Asked) -> Result:
    wire = asked.wire
    named = asked.get("AutoScalingGroupNames", [])
    found = [one for one in wire.body.groups.all() if not named or one.name in named]
    facets: Facets[AutoScalingGroup] = {
        "tag-key": lambda one: [key for key, _ in one.tags],
        "tag-value": lambda one: [value for _, value in one.tags],
    }
    found = chosen(found, asked.get("Filters", []), facets, lambda one: one.tags)
    page, token = _page(asked, found, lambda one: one.name)
    return {"AutoScalingGroups": [words.as_group(wire, one) for one in page], "NextToken": token}


@operation("autoscaling", "DescribeAutoScalingInstances")
def describe_instances(asked: Asked) -> Result:
    wire, named = asked.wire, asked.get("InstanceIds", [])
    found = [
        (group, member)
        for group in wire.body.groups.all()
        for member in group.members.values()
        if not named or member.instance_id in named
    ]
    page, token = _page(asked, found, lambda one: one[1].instance_id)
    return {
        "AutoScalingInstances": [
            words.as_member(wire, member) | {"AutoScalingGroupName": group.name} for group, member in page
        ],
        "NextToken": token,
    }


@operation("autoscaling", "DescribeScalingActivities")
def activities(asked: Asked) -> Result:
    """Newest first, as Auto Scaling has it."""
    name, ids = asked.get("AutoScalingGroupName"), asked.get("ActivityIds", [])
    found = [
        (group, one)
        for group in asked.wire.body.groups.all()
        if not name or group.name == name
        for one in reversed(group.activities)
        if not ids or one.id in ids
    ]
    page, token = _page(asked, found, lambda one: one[1].id)
    return {"Activities": [words.as_activity(group, one) for group, one in page], "NextToken": token}


# --- tags ---------------------------------------------------------------------------------------------


@operation("autoscaling", "CreateOrUpdateTags")
def tag(asked: Asked) -> Result:
    groups = asked.wire.body.groups
    for name, given in _by_group(asked.need("Tags")).items():
        group = groups.get(name)
        new, propagated = words.tags_of(given)
        kept = {key: value for key, value in group.propagated if key not in dict(new)}
        groups.set_tags(
            name,
            tuple(sorted((dict(group.tags) | dict(new)).items())),
            tuple(sorted((kept | dict(propagated)).items())),
        )
    return {}


@operation("autoscaling", "DeleteTags")
def untag(asked: Asked) -> Result:
    groups = asked.wire.body.groups
    for name, given in _by_group(asked.need("Tags")).items():
        group, going = groups.get(name), {str(one["Key"]) for one in given}
        groups.set_tags(
            name,
            tuple(pair for pair in group.tags if pair[0] not in going),
            tuple(pair for pair in group.propagated if pair[0] not in going),
        )
    return {}


@operation("autoscaling", "DescribeTags")
def describe_tags(asked: Asked) -> Result:
    found = [tag for group in asked.wire.body.groups.all() for tag in words.as_tags(group)]
    facets: Facets[dict[str, Any]] = {
        "auto-scaling-group": lambda one: str(one["ResourceId"]),
        "key": lambda one: str(one["Key"]),
        "value": lambda one: str(one["Value"]),
        "propagate-at-launch": lambda one: str(one["PropagateAtLaunch"]).lower(),
    }
    found = chosen(found, asked.get("Filters", []), facets, lambda _: ())
    page, token = _page(asked, found, lambda one: f"{one['ResourceId']}/{one['Key']}")
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


def _group(asked: Asked) -> AutoScalingGroup:
    return asked.wire.body.groups.get(asked.need("AutoScalingGroupName"))


def _by_group(tags: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in tags:
        found.setdefault(str(one["ResourceId"]), []).append(one)
    return found


def _page(asked: Asked, found: Sequence[Any], key: Any) -> tuple[list[Any], str | None]:
    params = {"MaxResults": asked.get("MaxRecords", 50), "NextToken": asked.get("NextToken")}
    return asked.wire.pages.page(found, key, params, most=_MOST)


# --- scheduled actions and lifecycle hooks ------------------------------------------------------------


@operation("autoscaling", "PutScheduledUpdateGroupAction")
def put_schedule(asked: Asked) -> Result:
    at = asked.get("StartTime") or asked.get("Time")
    if asked.get("Recurrence") or at is None:
        raise AwsError("ValidationError", "the simulated AWS fires scheduled actions once: give a StartTime")
    sizes = (asked.get("DesiredCapacity"), asked.get("MinSize"), asked.get("MaxSize"))
    if sizes == (None, None, None):
        raise AwsError("ValidationError", "At least one of min size, max size and desired capacity is needed")
    action = ScheduledAction(asked.need("ScheduledActionName"), at, *sizes)
    asked.wire.body.groups.put_schedule(asked.need("AutoScalingGroupName"), action)
    return {}


@operation("autoscaling", "DeleteScheduledAction")
def delete_schedule(asked: Asked) -> Result:
    name = asked.need("AutoScalingGroupName")
    asked.wire.body.groups.delete_schedule(name, asked.need("ScheduledActionName"))
    return {}


@operation("autoscaling", "DescribeScheduledActions")
def schedules(asked: Asked) -> Result:
    wire, named = asked.wire, asked.get("ScheduledActionNames", [])
    only = asked.get("AutoScalingGroupName")
    found = [
        (group, one)
        for group in wire.body.groups.all()
        if not only or group.name == only
        for one in sorted(group.schedules.values(), key=lambda each: each.at)
        if not named or one.name in named
    ]
    params = {"MaxResults": asked.get("MaxRecords", 50), "NextToken": asked.get("NextToken")}
    page, token = wire.pages.page(found, lambda one: f"{one[0].name}/{one[1].name}", params, most=100)
    return {
        "ScheduledUpdateGroupActions": [words.as_schedule(wire, group, one) for group, one in page],
        "NextToken": token,
    }


# --- hooks --------------------------------------------------------------------------------------------


@operation("autoscaling", "PutLifecycleHook")
def put_hook(asked: Asked) -> Result:
    """What is not given stays as it is, where the hook is there already."""
    group = _group(asked)
    known = group.hooks.get(asked.need("LifecycleHookName"))
    if known is None and not asked.get("LifecycleTransition"):
        raise AwsError("ValidationError", "A new hook needs a LifecycleTransition")
    before = _as_params(known) if known is not None else {}
    given = {name: value for name, value in asked.params.items() if value is not None}
    asked.wire.body.groups.hooks.put(group, hook_of(before | given))
    return {}


@operation("autoscaling", "DeleteLifecycleHook")
def delete_hook(asked: Asked) -> Result:
    asked.wire.body.groups.hooks.delete(_group(asked), asked.need("LifecycleHookName"))
    return {}


@operation("autoscaling", "DescribeLifecycleHooks")
def describe_hooks(asked: Asked) -> Result:
    group, named = _group(asked), asked.get("LifecycleHookNames", [])
    hooks = [one for one in group.hooks.values() if not named or one.name in named]
    return {"LifecycleHooks": [words.as_hook(group, one) for one in hooks]}


@operation("autoscaling", "CompleteLifecycleAction")
def complete(asked: Asked) -> Result:
    if asked.need("LifecycleActionResult") not in ("CONTINUE", "ABANDON"):
        raise AwsError("ValidationError", "LifecycleActionResult is CONTINUE or ABANDON")
    asked.wire.body.groups.hooks.complete(_group(asked), asked.need("LifecycleHookName"), **_whom(asked))
    return {}


@operation("autoscaling", "RecordLifecycleActionHeartbeat")
def heartbeat(asked: Asked) -> Result:
    asked.wire.body.groups.hooks.heartbeat(_group(asked), asked.need("LifecycleHookName"), **_whom(asked))
    return {}


def _whom(asked: Asked) -> dict[str, str]:
    return {
        "instance_id": str(asked.get("InstanceId", "")),
        "token": str(asked.get("LifecycleActionToken", "")),
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
