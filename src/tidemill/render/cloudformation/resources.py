"""The resources of the stack: the launch template, the EFA security group, and an Auto Scaling group with its
schedules, hook and event queue, or an EKS managed node group."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.asg import ENDS_FIRST, HOOK
from tidemill.provision.group_spec import GroupKey, group_name
from tidemill.provision.launch_template import has_efa, launch_template, node_tags, owner_tags
from tidemill.provision.managed import capacity_type
from tidemill.render.cloudformation.stack_input import StackInput, placeholder, sub
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.units import format_instant

# A placeholder for the block's end, which is a parameter: no block ends in that year.
_END_PLACEHOLDER = datetime(2000, 1, 1, tzinfo=UTC)


def launch_template_resource(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    managed = pool.spec.provisioner is Provisioner.MANAGED
    made = launch_template(
        spec,
        pool,
        wanted.instance_type,
        Source(wanted.kind, placeholder("ReservationId") if wanted.reserved else ""),
        wanted.zone,
        placeholder("ImageId"),
        managed=managed,
        ends_at=_END_PLACEHOLDER if wanted.kind is SourceKind.BLOCK else None,
        engine=wanted.engine,
    )
    data = dict(made.data)
    text = (
        b64decode(data["UserData"]).decode().replace(format_instant(_END_PLACEHOLDER), placeholder("EndsAt"))
    )
    data["UserData"] = {"Fn::Base64": sub(text)}
    found: dict[str, Any] = {}
    profile = data.get("IamInstanceProfile", {})
    if "Name" in profile:  # the console creates a profile with every role; other tools do not
        found["InstanceProfile"] = {
            "Type": "AWS::IAM::InstanceProfile",
            "Properties": {"Roles": [profile["Name"]]},
        }
        data["IamInstanceProfile"] = {"Arn": {"Fn::GetAtt": ["InstanceProfile", "Arn"]}}
    tags = [{"Key": key, "Value": value} for key, value in made.tags]
    specification = [{"ResourceType": "launch-template", "Tags": tags}]
    return {
        **found,
        "LaunchTemplate": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": data, "TagSpecifications": specification},
        },
    }


def template_version() -> dict[str, Any]:
    """Pinned: only a change of the stack changes it."""
    return {
        "LaunchTemplateId": {"Ref": "LaunchTemplate"},
        "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
    }


def efa_resources(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    if not has_efa(spec, pool, wanted.instance_type):
        return {}
    own = {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}
    everything = {"GroupId": own, "IpProtocol": "-1"}
    return {
        "EfaSecurityGroup": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": f"EFA traffic between nodes of pool {pool.name}",
                "VpcId": {"Ref": "VpcId"},
                "Tags": tag_list(spec, pool),
            },
        },
        # Separate rules: a group cannot refer to itself while it is being created.
        "EfaIngress": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**everything, "SourceSecurityGroupId": own},
        },
        "EfaEgress": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**everything, "DestinationSecurityGroupId": own},
        },
    }


def tag_list(spec: Spec, pool: ComputePool) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in owner_tags(spec, pool)]


CONDITIONS = {"MakesAccessEntry": {"Fn::Equals": [{"Ref": "CreateAccessEntry"}, "true"]}}
AUTO_SCALING_OUTPUTS = {
    "AutoScalingGroup": {"Value": {"Ref": "Group"}},
    "QueueUrl": {"Value": {"Ref": "Queue"}, "Description": "For the process that drains the nodes."},
}
# Events about the end of a node. EC2 uses both names of the two block events.
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


def auto_scaling_resources(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    return {
        "Group": _group(spec, pool, wanted),
        **_schedules(wanted),
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
        **_queue(spec, pool, wanted),
        "Events": _rule(pool),
        "AccessEntry": _access_entry(spec, pool),
    }


def _group(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    tags = dict(node_tags(spec, pool))
    return {
        "Type": "AWS::AutoScaling::AutoScalingGroup",
        # An update of the stack does not change the size that a schedule, the engine or a person has set.
        "UpdatePolicy": {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}},
        "Properties": {
            "AutoScalingGroupName": name_of(spec, pool, wanted),
            # No DesiredCapacity: the group starts at its minimum, 0, until the block is active.
            "MinSize": "0",
            "MaxSize": {"Ref": "Size"},
            "VPCZoneIdentifier": {"Ref": "SubnetIds"},
            "LaunchTemplate": template_version(),
            "TerminationPolicies": list(ENDS_FIRST),
            "Tags": [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        },
    }


def _schedules(wanted: StackInput) -> dict[str, Any]:
    if wanted.kind is not SourceKind.BLOCK:
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


def _queue_name(spec: Spec, pool: ComputePool, wanted: StackInput) -> Any:
    """One for each group: a pool has a stack for each of its blocks. `tidemill iam` allows the engine to read queues
    with the deployment's prefix; SQS allows 80 characters."""
    if not wanted.reserved:
        return f"{name_of(spec, pool, wanted)}-events"
    front = f"{spec.platform.spec.deployment}-{pool.name}"[: 80 - len("-cr-0123456789abcdef0-events")]
    return sub(f"{front}-{placeholder('ReservationId')}-events")


def _queue(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    arn = {"Fn::GetAtt": ["Queue", "Arn"]}
    return {
        "Queue": {
            "Type": "AWS::SQS::Queue",
            # Five minutes: older events are not needed, because the state can be read from AWS.
            "Properties": {
                "QueueName": _queue_name(spec, pool, wanted),
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
                            "Principal": {"Service": "events.amazonaws.com"},
                            "Action": "sqs:SendMessage",
                            "Resource": arn,
                            # Else a rule of any account could write to it.
                            "Condition": {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": ["Events", "Arn"]}}},
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
            "Description": f"Events that end nodes of pool {pool.name}",
            "EventPattern": {
                "source": list(_EVENTS),
                "detail-type": [name for listed in _EVENTS.values() for name in listed],
            },
            "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
        },
    }


def _access_entry(spec: Spec, pool: ComputePool) -> dict[str, Any]:
    """Lets nodes of the role join the cluster. For a managed node group EKS does it."""
    return {
        "Type": "AWS::EKS::AccessEntry",
        "Condition": "MakesAccessEntry",
        "Properties": {
            "ClusterName": spec.platform.spec.cluster.name,
            "PrincipalArn": role_arn(spec, pool),
            "Type": "EC2_LINUX",
        },
    }


def name_of(spec: Spec, pool: ComputePool, wanted: StackInput) -> str:
    """The engine's own name for the group, so that an engine that starts later finds it."""
    deployment = spec.platform.spec.deployment
    if wanted.reserved:
        return f"{deployment}-{pool.name}-{placeholder('ReservationId')}"
    return group_name(deployment, GroupKey(pool.name, Source(wanted.kind), wanted.instance_type, wanted.zone))


def role_arn(spec: Spec, pool: ComputePool) -> Any:
    node_class = spec.node_classes[pool.spec.node_class_name]
    role = node_class.spec.role or spec.platform.spec.node_role
    if ":instance-profile/" in role:
        raise SpecError(
            f"write the nodes' role, not its instance profile ({role}): the stack creates the profile"
        )
    if role.startswith("arn:") and ":role/" in role:
        return role
    if role == placeholder("NodeRole"):
        return {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${NodeRole}"}
    return {"Fn::Sub": f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{role.rpartition('/')[2]}"}


def tell_nodes_output(wanted: StackInput) -> dict[str, Any]:
    """Nodes that run keep the end they booted with: after an extension somebody must tell them."""
    if wanted.kind is not SourceKind.BLOCK:
        return {}
    which, end = f"{names.LABEL_SOURCE}=${{ReservationId}}", f"{names.ENDS_AT}=${{EndsAt}}"
    command = f"kubectl annotate nodes -l {which} {end} --overwrite"
    sentence = "Run it after an update that moves EndsAt: nodes that run keep the end they booted with."
    return {"TellNodes": {"Value": {"Fn::Sub": command}, "Description": sentence}}


def _node_group_schedule(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    """EventBridge Scheduler calls EKS. A scheduled action of Auto Scaling will not do: no attribute of a node group in
    CloudFormation names its Auto Scaling group."""
    # Targets write EKS's fields with a large first letter. EKS's own calls do not.
    call = (
        f'{{"ClusterName":"{spec.platform.spec.cluster.name}","NodegroupName":"{name_of(spec, pool, wanted)}",'
        f'"ScalingConfig":{{"DesiredSize":{placeholder("Size")}}}}}'
    )
    at = {"Fn::Select": [0, {"Fn::Split": ["Z", {"Ref": "UpAt"}]}]}  # Scheduler takes no zone in an instant
    return {
        "UpRole": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "scheduler.amazonaws.com"},
                            "Action": "sts:AssumeRole",
                            "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
                        }
                    ],
                },
                "Policies": [
                    {
                        "PolicyName": "scale-out",
                        "PolicyDocument": {
                            "Version": "2012-10-17",
                            "Statement": [
                                {
                                    "Effect": "Allow",
                                    "Action": "eks:UpdateNodegroupConfig",
                                    "Resource": {"Fn::GetAtt": ["NodeGroup", "Arn"]},
                                }
                            ],
                        },
                    }
                ],
                "Tags": tag_list(spec, pool),
            },
        },
        "Up": {
            "Type": "AWS::Scheduler::Schedule",
            "Properties": {
                "Description": f"Scales the node group of pool {pool.name} out when its block starts",
                "ScheduleExpression": {"Fn::Sub": ["at(${At})", {"At": at}]},
                "ScheduleExpressionTimezone": "UTC",
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "Target": {
                    "Arn": {"Fn::Sub": "arn:${AWS::Partition}:scheduler:::aws-sdk:eks:updateNodegroupConfig"},
                    "RoleArn": {"Fn::GetAtt": ["UpRole", "Arn"]},
                    "Input": call,
                },
            },
        },
    }


NODE_GROUP_OUTPUTS = {"NodeGroup": {"Value": {"Ref": "NodeGroup"}}}


def node_group_resources(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    """Labels and taints are in the user data: the template has its own image, so EKS adds none.

    EKS scales in before the block's end by itself. Nobody but an engine scales out: without one, a schedule does.
    """
    scales_out = wanted.kind is SourceKind.BLOCK and not wanted.engine
    return {
        **(_node_group_schedule(spec, pool, wanted) if scales_out else {}),
        "NodeGroup": {
            "Type": "AWS::EKS::Nodegroup",
            "Properties": {
                "NodegroupName": name_of(spec, pool, wanted),
                "ClusterName": spec.platform.spec.cluster.name,
                "CapacityType": capacity_type(Source(wanted.kind, wanted.reservation)),
                "LaunchTemplate": {
                    "Id": {"Ref": "LaunchTemplate"},
                    "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
                },
                "NodeRole": role_arn(spec, pool),
                "Subnets": {"Ref": "SubnetIds"},
                # 0 until the block is active: before that every launch fails.
                "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": {"Ref": "Size"}},
                "NodeRepairConfig": {"Enabled": False},
                "Tags": dict(owner_tags(spec, pool)),
            },
        },
    }
