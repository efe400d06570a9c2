"""What Auto Scaling is asked for, in its own spelling. Pure; who asks, and when, is told in `groups`."""

from __future__ import annotations

from typing import Any

from tidemill.aws.group_records import TERMINATING
from tidemill.ports.compute import GroupShape, Hook


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
