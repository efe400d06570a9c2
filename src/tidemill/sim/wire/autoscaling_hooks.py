"""Scheduled actions and lifecycle hooks over the wire."""

from __future__ import annotations

from typing import Any

from tidemill.sim.cloud.scaling_group import AutoScalingGroup, LifecycleHook, ScheduledAction
from tidemill.sim.wire import group_format as words
from tidemill.sim.wire.autoscaling import hook_of
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.refusals import AwsError


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


def _group(asked: Asked) -> AutoScalingGroup:
    return asked.wire.body.groups.get(asked.need("AutoScalingGroupName"))


def _as_params(hook: LifecycleHook) -> dict[str, Any]:
    return {
        "HeartbeatTimeout": hook.heartbeat_s,
        "DefaultResult": hook.result,
        "LifecycleTransition": hook.transition,
        "NotificationTargetARN": hook.target,
        "RoleARN": hook.role,
        "NotificationMetadata": hook.metadata,
    }
