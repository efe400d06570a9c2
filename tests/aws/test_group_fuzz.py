"""A thousand answers of Auto Scaling and EKS, each mangled somewhere: no crash, nothing guessed, nothing changed."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.aws.mangling import MangledAws, mangle
from tests.aws.test_fuzz import NOW
from tests.sim.account import OWNER
from tidemill.aws.compute import AwsCompute
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION
from tidemill.model.errors import TidemillError
from tidemill.ports.compute import Group, HealthIssue, NodeGroup

BEHIND = "eks-n-1"


def of_eks(operation: str, filters: list[str]) -> str:
    return f"{operation} of EKS" if "tag:eks:cluster-name" in filters else operation


def tags(**given: str) -> list[dict[str, Any]]:
    return [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in given.items()]


def group_record(name: str, **given: Any) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": name, "MinSize": 0, "MaxSize": 2, "DesiredCapacity": 2,
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "lt", "Version": "3"},
        "VPCZoneIdentifier": "subnet-1,subnet-2", "Tags": tags(deployment=OWNER),
        "Instances": [{"InstanceId": "i-1", "LifecycleState": "Terminating:Wait"}],
    } | given  # fmt: skip


def answers() -> dict[str, Any]:
    """A group of ours that lacks a member and lets another wait, and a node group."""
    when = NOW - timedelta(minutes=5)
    behind = group_record(BEHIND, Tags=tags(**{"eks:cluster-name": "ml", "eks:nodegroup-name": "n"}))
    return {
        "DescribeAutoScalingGroups": {"AutoScalingGroups": [group_record("g")]},
        "DescribeAutoScalingGroups of EKS": {"AutoScalingGroups": [behind]},
        "DescribeScheduledActions": {"ScheduledUpdateGroupActions": [
            {"AutoScalingGroupName": "g", "ScheduledActionName": "down", "StartTime": NOW, "DesiredCapacity": 0},
            {
                "AutoScalingGroupName": BEHIND,
                "ScheduledActionName": EKS_SCALE_DOWN_ACTION,
                "StartTime": NOW, "MinSize": 0,
            },
        ]},
        "DescribeLifecycleHooks": {"LifecycleHooks": [
            {"LifecycleHookName": "tidemill-drain", "HeartbeatTimeout": 1800, "DefaultResult": "CONTINUE",
             "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}]},
        "DescribeScalingActivities": {"Activities": [
            {"Description": "Terminating EC2 instance: i-1", "StartTime": when, "StatusCode": "InProgress"},
            {"Description": "Launching a new EC2 instance", "StartTime": when, "EndTime": when, "StatusCode": "Failed",
             "StatusMessage": "ReservationCapacityExceeded"}]},
        "DescribeAutoScalingInstances": {"AutoScalingInstances": [
            {"InstanceId": "i-1", "AutoScalingGroupName": "g", "LifecycleState": "InService"}]},
        "ListNodegroups": {"nodegroups": ["n"]},
        "DescribeNodegroup": {"nodegroup": {
            "nodegroupName": "n", "capacityType": "CAPACITY_BLOCK", "status": "ACTIVE", "nodeRole": "node",
            "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 1}, "subnets": ["subnet-1"],
            "launchTemplate": {"id": "lt-1", "version": "1", "name": "lt"}, "labels": {"tier": "a"},
            "taints": [{"key": "gpu", "value": "true", "effect": "NO_SCHEDULE"}], "tags": {"deployment": OWNER},
            "resources": {"autoScalingGroups": [{"name": BEHIND}]}, "nodeRepairConfig": {"enabled": False},
            "health": {"issues": [{"code": "AsgInstanceLaunchFailures", "message": "none"}]}}},
    }  # fmt: skip


def mangled(draw: Random) -> dict[str, Any]:
    table = copy.deepcopy(answers())
    operation = draw.choice(sorted(table))
    mangle(draw, table[operation])
    return table


def sane_group(group: Group) -> None:
    assert group.shape.name
    assert all(type(n) is int and n >= 0 for n in (group.minimum, group.desired))
    assert isinstance(group.shape.maximum, int)
    for member in group.members:
        assert member.instance_id.startswith("i-")
        assert member.waits_since is None or member.waits_since.tzinfo is not None
    for action in group.schedules:
        assert isinstance(action.at, datetime)
        assert action.at.tzinfo is not None


def sane_node_group(node_group: NodeGroup) -> None:
    assert node_group.shape.capacity_type in ("CAPACITY_BLOCK", "ON_DEMAND", "SPOT")
    assert all(type(text) is str for pair in node_group.shape.labels for text in pair)
    assert all(isinstance(subnet, str) for subnet in node_group.shape.subnets)
    assert isinstance(node_group.desired, int)
    assert isinstance(node_group.shape.repair, bool)


def test_valid_answers_are_read_completely():
    compute = AwsCompute(MangledAws(answers(), of_eks), OWNER, "ml")
    ours, behind = compute.groups()
    assert (ours.launch_error, ours.members[0].waits_since) == (
        "ReservationCapacityExceeded",
        NOW - timedelta(minutes=5),
    )
    assert ours.shape.hook is not None
    assert (behind.node_group, behind.schedules[0].by_eks) == ("n", True)
    (node_group,) = compute.node_groups()
    assert (node_group.group, node_group.issues) == (
        BEHIND,
        (HealthIssue("AsgInstanceLaunchFailures", "none"),),
    )


@pytest.mark.parametrize("tens", range(10))
def test_a_hundred_mangled_answers_crash_nothing_and_change_nothing(
    tens: int, caplog: pytest.LogCaptureFixture
):
    for number in range(100 * tens, 100 * tens + 100):
        caplog.clear()
        aws = MangledAws(mangled(Random(number)), of_eks)
        compute = AwsCompute(aws, OWNER, "ml")
        for _ in range(2):
            try:
                for group in compute.groups():
                    sane_group(group)
                for other in compute.node_groups():
                    sane_node_group(other)
            except TidemillError:
                pass  # in our words
            except Exception as error:
                raise AssertionError(f"seed {number}: {type(error).__name__}: {error}") from error
        assert aws.changes == [], number
        said = Counter(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
        assert all(times == 1 for times in said.values()), (number, said)


def test_a_mangled_answer_terminates_no_member():
    """Where its group, its owner or its state cannot be told, nothing is ended."""
    ended = 0
    for number in range(300):
        table = mangled(Random(f"end/{number}"))
        aws = MangledAws(table | {"TerminateInstanceInAutoScalingGroup": {}}, of_eks)
        try:
            AwsCompute(aws, OWNER, "ml").terminate_in_group("i-1")
        except TidemillError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {number}: {type(error).__name__}: {error}") from error
        if aws.changes:
            ended += 1
            assert aws.changes == ["TerminateInstanceInAutoScalingGroup"]
            owner = {tag["Key"]: tag.get("Value") for tag in
                     table["DescribeAutoScalingGroups"]["AutoScalingGroups"][0]["Tags"]}  # fmt: skip
            assert owner.get("deployment") == OWNER
    assert ended > 100  # most were mangled elsewhere
