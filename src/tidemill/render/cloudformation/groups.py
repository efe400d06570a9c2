"""Self-managed nodes as a stack: the Auto Scaling group, its schedules and its hook, and the queue that hears of it."""

from __future__ import annotations

from typing import Any

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.asg import ENDS_FIRST, HOOK
from tidemill.provision.group_spec import GroupKey, group_name
from tidemill.provision.launch_template import node_tags
from tidemill.render.cloudformation.intrinsics import hole
from tidemill.render.cloudformation.network import tag_list
from tidemill.render.cloudformation.stack_input import Asked
from tidemill.render.cloudformation.template import version
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool

CONDITIONS = {"MakesAccessEntry": {"Fn::Equals": [{"Ref": "CreateAccessEntry"}, "true"]}}
OUTPUTS = {
    "AutoScalingGroup": {"Value": {"Ref": "Group"}},
    "QueueUrl": {"Value": {"Ref": "Queue"}, "Description": "Read by whoever drains the nodes."},
}
# What concerns a node's end. EC2 names the two block events both ways.
_EVENTS = {
    "aws.autoscaling": ["EC2 Instance-terminate Lifecycle Action"],
    "aws.ec2": [
        "Capacity Block Reservation Delivered",
        "Capacity Block Delivered",
        "Capacity Block Reservation Expiration Warning",
        "Capacity Block Expiration Warning",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
    ],
}


def resources(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    return {
        "Group": _group(spec, pool, asked),
        **_schedules(asked),
        "Hook": {
            "Type": "AWS::AutoScaling::LifecycleHook",
            "Properties": {
                "AutoScalingGroupName": {"Ref": "Group"},
                "LifecycleHookName": HOOK.name,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                "HeartbeatTimeout": HOOK.heartbeat_s,
                "DefaultResult": HOOK.result,
            },
        },
        **_queue(spec, pool),
        "Events": _rule(pool),
        "AccessEntry": _access_entry(spec, pool),
    }


def _group(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    tags = dict(node_tags(spec, pool))
    return {
        "Type": "AWS::AutoScaling::AutoScalingGroup",
        # A change of the stack leaves the size to whoever set it: a schedule, the engine or a person.
        "UpdatePolicy": {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}},
        "Properties": {
            "AutoScalingGroupName": name_of(spec, pool, asked),
            # No DesiredCapacity: the group begins at its minimum, which is none, until the block is active.
            "MinSize": "0",
            "MaxSize": {"Ref": "Size"},
            "VPCZoneIdentifier": {"Ref": "SubnetIds"},
            "LaunchTemplate": version(),
            "TerminationPolicies": list(ENDS_FIRST),
            "Tags": [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        },
    }


def _schedules(asked: Asked) -> dict[str, Any]:
    if asked.kind is not SourceKind.BLOCK:
        return {}
    action = {"Type": "AWS::AutoScaling::ScheduledAction"}
    group = {"AutoScalingGroupName": {"Ref": "Group"}}
    return {
        "Up": {
            **action,
            "Properties": {**group, "StartTime": {"Ref": "UpAt"}, "DesiredCapacity": {"Ref": "Size"}},
        },
        "Down": {
            **action,
            "Properties": {**group, "StartTime": {"Ref": "DownAt"}, "DesiredCapacity": 0, "MinSize": 0},
        },
    }


def _queue(spec: Spec, pool: ComputePool) -> dict[str, Any]:
    arn = {"Fn::GetAtt": ["Queue", "Arn"]}
    return {
        "Queue": {
            "Type": "AWS::SQS::Queue",
            # What nobody read for five minutes is no longer news: the truth is what AWS shows.
            "Properties": {
                # As `tidemill iam` allows the engine to read them: after the deployment.
                "QueueName": f"{spec.platform.spec.deployment}-{pool.name}-events"[:80],
                "MessageRetentionPeriod": 300,
                "SqsManagedSseEnabled": True,
                "Tags": tag_list(spec, pool),
            },
        },
        "QueuePolicy": {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{"Ref": "Queue"}],
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
                            "Action": "sqs:SendMessage",
                            "Resource": arn,
                        }
                    ],
                },
            },
        },
    }


def _rule(pool: ComputePool) -> dict[str, Any]:
    return {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "Description": f"What ends nodes of pool {pool.name}",
            "EventPattern": {
                "source": list(_EVENTS),
                "detail-type": [name for listed in _EVENTS.values() for name in listed],
            },
            "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
        },
    }


def _access_entry(spec: Spec, pool: ComputePool) -> dict[str, Any]:
    """How nodes of the role join. A managed node group's are let in by EKS itself."""
    return {
        "Type": "AWS::EKS::AccessEntry",
        "Condition": "MakesAccessEntry",
        "Properties": {
            "ClusterName": spec.platform.spec.cluster.name,
            "PrincipalArn": role_arn(spec, pool),
            "Type": "EC2_LINUX",
        },
    }


def name_of(spec: Spec, pool: ComputePool, asked: Asked) -> str:
    """The engine's own name for it, so that an engine that comes later finds what it would make."""
    deployment = spec.platform.spec.deployment
    if asked.reserved:
        return f"{deployment}-{pool.name}-{hole('ReservationId')}"
    return group_name(deployment, GroupKey(pool.name, Source(asked.kind), asked.instance_type, asked.zone))


def role_arn(spec: Spec, pool: ComputePool) -> Any:
    node_class = spec.node_classes[pool.spec.node_class_name]
    role = node_class.spec.role or spec.platform.spec.node_role
    if ":instance-profile/" in role:
        raise SpecError(
            f"name the nodes' role, not its instance profile ({role}): a stack makes the profile itself"
        )
    if role.startswith("arn:") and ":role/" in role:
        return role
    if role == hole("NodeRole"):
        return {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${NodeRole}"}
    return {"Fn::Sub": f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{role.rpartition('/')[2]}"}
