"""Auto Scaling over the wire, through boto3: the same account as the groups in process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import OWNER, ZONES
from tests.wire.groups import group, make_group, schedule, second_version, subnet, template
from tests.wire.server_builder import SimulatedAws, tags_of
from tidemill.model.nodes import InstanceState


@pytest.fixture
def asg(aws: SimulatedAws) -> Any:
    return aws.client("autoscaling")


def refused(call: Any, **given: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as refusal:
        call(**given)
    error = refusal.value.response["Error"]
    return error["Code"], error["Message"]


def test_a_group_launches_onto_its_block_and_describes_what_it_has(aws: SimulatedAws):
    block = aws.block()
    make_group(aws, block, DesiredCapacity=2)
    aws.wait("2m")
    found = group(aws)
    assert (found["DesiredCapacity"], found["MinSize"], found["MaxSize"]) == (2, 0, 8)
    assert found["AvailabilityZones"] == [ZONES[0]]
    assert found["LaunchTemplate"]["Version"] == "1"
    assert [one["LifecycleState"] for one in found["Instances"]] == ["InService"] * 2
    for instance in aws.instances():
        assert instance["CapacityReservationId"] == block.id
        assert instance["InstanceLifecycle"] == "capacity-block"
        assert instance["SubnetId"] == subnet(aws)
        assert tags_of(instance) == {"Name": "ml-g-Node", "deployment": OWNER, "tidemill.dev/pool": "train"}


def test_in_process_and_on_the_wire_a_group_is_the_same(aws: SimulatedAws):
    make_group(aws, aws.block(), DesiredCapacity=1)
    aws.wait("2m")
    (one,) = aws.cloud.groups.all()
    assert list(one.members) == [each["InstanceId"] for each in group(aws)["Instances"]]
    with aws.server.turn():
        aws.cloud.groups.set_desired("g", 2)
    assert group(aws)["DesiredCapacity"] == 2


def test_a_group_before_its_block_tells_why_in_its_activities(aws: SimulatedAws, asg: Any):
    make_group(aws, aws.block(start="1d"), DesiredCapacity=1)
    aws.wait("10m")
    newest = asg.describe_scaling_activities(AutoScalingGroupName="g")["Activities"][0]
    assert newest["StatusCode"] == "Failed"
    assert "is scheduled, not active" in newest["StatusMessage"]
    assert group(aws)["Instances"] == []


def test_a_named_member_is_terminated(aws: SimulatedAws, asg: Any):
    make_group(aws, aws.block(), DesiredCapacity=2)
    aws.wait("2m")
    named = group(aws)["Instances"][1]["InstanceId"]
    answer = asg.terminate_instance_in_auto_scaling_group(
        InstanceId=named, ShouldDecrementDesiredCapacity=True
    )
    assert named in answer["Activity"]["Description"]
    aws.wait("5m")
    assert named not in [one["InstanceId"] for one in group(aws)["Instances"]]
    assert group(aws)["DesiredCapacity"] == 1
    code, _ = refused(
        asg.terminate_instance_in_auto_scaling_group, InstanceId=named, ShouldDecrementDesiredCapacity=True
    )
    assert code == "ValidationError"


def test_a_scheduled_action_fires_on_the_one_clock(aws: SimulatedAws, asg: Any):
    make_group(aws, aws.block())
    at = aws.account.now + timedelta(hours=2)
    schedule(aws, "up", at, 2)
    (shown,) = asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]
    assert (shown["ScheduledActionName"], shown["StartTime"], shown["DesiredCapacity"]) == ("up", at, 2)
    schedule(aws, "up", at + timedelta(hours=1), 1)  # moved
    aws.wait("2h5m")
    assert group(aws)["Instances"] == []
    aws.wait("1h")
    assert len(group(aws)["Instances"]) == 1
    assert asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"] == []


def test_a_scheduled_action_in_the_past_is_refused(aws: SimulatedAws):
    make_group(aws, aws.block())
    with pytest.raises(ClientError, match="in the past"):
        schedule(aws, "up", aws.account.now - timedelta(seconds=1), 1)


def test_a_hook_holds_an_instance_until_it_is_completed(aws: SimulatedAws, asg: Any):
    make_group(aws, aws.block(), DesiredCapacity=1)
    asg.put_lifecycle_hook(
        AutoScalingGroupName="g", LifecycleHookName="drain", HeartbeatTimeout=600,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING", DefaultResult="CONTINUE",
    )  # fmt: skip
    (hook,) = asg.describe_lifecycle_hooks(AutoScalingGroupName="g")["LifecycleHooks"]
    assert (hook["HeartbeatTimeout"], hook["GlobalTimeout"], hook["DefaultResult"]) == (
        600,
        60_000,
        "CONTINUE",
    )
    aws.wait("2m")
    asg.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=0)
    aws.wait("9m")
    (member,) = group(aws)["Instances"]
    assert member["LifecycleState"] == "Terminating:Wait"
    whom = {"AutoScalingGroupName": "g", "LifecycleHookName": "drain", "InstanceId": member["InstanceId"]}
    asg.record_lifecycle_action_heartbeat(**whom)
    aws.wait("5m")
    assert aws.account.states([member["InstanceId"]]) == {InstanceState.RUNNING}
    asg.complete_lifecycle_action(**whom, LifecycleActionResult="CONTINUE")
    aws.wait("3m")
    assert group(aws)["Instances"] == []
    code, message = refused(asg.complete_lifecycle_action, **whom, LifecycleActionResult="CONTINUE")
    assert code == "ValidationError"
    assert "No active Lifecycle Action" in message


def test_a_new_template_version_is_used_only_once_the_group_is_told(aws: SimulatedAws, asg: Any):
    block = aws.block(count=4)
    lt = template(aws, block)
    make_group(aws, block, LaunchTemplate=lt, DesiredCapacity=1)
    aws.wait("1m")
    second_version(aws, lt, block)
    asg.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=2)
    aws.wait("1m")
    assert {one["LaunchTemplate"]["Version"] for one in group(aws)["Instances"]} == {"1"}
    asg.update_auto_scaling_group(
        AutoScalingGroupName="g", LaunchTemplate=lt | {"Version": "2"}, DesiredCapacity=3
    )
    aws.wait("1m")
    assert sorted(one["LaunchTemplate"]["Version"] for one in group(aws)["Instances"]) == ["1", "1", "2"]


def test_tags_pages_and_filters(aws: SimulatedAws, asg: Any):
    for name in ("a", "b", "c"):
        make_group(aws, None, name)
    asg.create_or_update_tags(
        Tags=[
            {"ResourceId": "b", "ResourceType": "auto-scaling-group", "Key": "deployment", "Value": OWNER,
             "PropagateAtLaunch": False},
        ]
    )  # fmt: skip
    mine = asg.describe_auto_scaling_groups(Filters=[{"Name": "tag:deployment", "Values": [OWNER]}])
    assert [one["AutoScalingGroupName"] for one in mine["AutoScalingGroups"]] == ["b"]
    pages = list(asg.get_paginator("describe_auto_scaling_groups").paginate(PaginationConfig={"PageSize": 2}))
    assert [len(page["AutoScalingGroups"]) for page in pages] == [2, 1]
    asg.delete_tags(
        Tags=[{"ResourceId": "b", "ResourceType": "auto-scaling-group", "Key": "deployment", "Value": OWNER}]
    )
    assert asg.describe_tags(Filters=[{"Name": "key", "Values": ["deployment"]}])["Tags"] == []


def test_refusals_are_auto_scaling_s(aws: SimulatedAws, asg: Any):
    make_group(aws, aws.block(), MaxSize=1, DesiredCapacity=1)
    aws.wait("1m")
    assert (
        refused(asg.set_desired_capacity, AutoScalingGroupName="g", DesiredCapacity=2)[0] == "ValidationError"
    )
    assert (
        refused(asg.set_desired_capacity, AutoScalingGroupName="x", DesiredCapacity=2)[0] == "ValidationError"
    )
    assert refused(asg.delete_auto_scaling_group, AutoScalingGroupName="g")[0] == "ResourceInUse"
    assert refused(asg.describe_lifecycle_hooks, AutoScalingGroupName="x")[0] == "ValidationError"
    without_type = template(aws, None, "no-type", InstanceType=None)
    code, _ = refused(
        asg.create_auto_scaling_group, AutoScalingGroupName="y", MinSize=0, MaxSize=1,
        LaunchTemplate=without_type, VPCZoneIdentifier=subnet(aws),
    )  # fmt: skip
    assert code == "ValidationError"


@pytest.mark.requirement("SM-4")
def test_a_recurring_action_fires_again_and_again_as_its_cron_line_says_until_its_end(
    aws: SimulatedAws, asg: Any
):
    make_group(aws)
    now = aws.server.wire.clock.now()
    asg.put_scheduled_update_group_action(
        AutoScalingGroupName="g", ScheduledActionName="nightly", Recurrence="30 20 * * *", MaxSize=7,
        EndTime=now + timedelta(days=2),
    )  # fmt: skip
    (shown,) = asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]
    first = now.replace(hour=20, minute=30, second=0, microsecond=0)
    assert (shown["StartTime"], shown["Recurrence"]) == (first, "30 20 * * *")
    aws.wait("24h")
    assert group(aws)["MaxSize"] == 7
    asg.update_auto_scaling_group(AutoScalingGroupName="g", MaxSize=3)
    (shown,) = asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]
    assert shown["StartTime"] == first + timedelta(days=1)
    aws.wait("24h")
    assert group(aws)["MaxSize"] == 7
    assert not asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]


@pytest.mark.requirement("SM-4")
def test_a_recurring_action_is_meant_in_its_time_zone_also_when_the_clocks_change(
    aws: SimulatedAws, asg: Any
):
    """Kyiv is two hours ahead of UTC in winter; New York five behind. AWS takes IANA names only."""
    make_group(aws)
    for zone, hour in (("Europe/Kyiv", 7), ("America/New_York", 14), (None, 9)):
        asg.put_scheduled_update_group_action(
            AutoScalingGroupName="g", ScheduledActionName="morning", Recurrence="0 9 * * *", MinSize=0,
            **({"TimeZone": zone} if zone else {}),
        )  # fmt: skip
        (shown,) = asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]
        assert (shown["StartTime"].hour, shown.get("TimeZone")) == (hour, zone)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"Recurrence": "every night"}, "Invalid cron expression"),
        ({"Recurrence": "0 9 * * *", "TimeZone": "Mars/Olympus"}, "Invalid time zone"),
        ({}, "A start time or a recurrence is needed"),
    ],
)
def test_a_schedule_that_could_never_fire_is_refused(
    aws: SimulatedAws, asg: Any, given: dict[str, str], says: str
):
    make_group(aws)
    put = asg.put_scheduled_update_group_action
    code, message = refused(put, AutoScalingGroupName="g", ScheduledActionName="x", MinSize=0, **given)
    assert (code, says in message) == ("ValidationError", True)


def test_a_batch_of_scheduled_actions_does_what_each_would(aws: SimulatedAws, asg: Any):
    """Those that fail are named, and the others are there."""
    make_group(aws)
    at = aws.server.wire.clock.now() + timedelta(hours=1)
    actions = [
        {"ScheduledActionName": "up", "StartTime": at, "DesiredCapacity": 2},
        {"ScheduledActionName": "never", "StartTime": at + timedelta(hours=1)},
    ]
    answer = asg.batch_put_scheduled_update_group_action(
        AutoScalingGroupName="g", ScheduledUpdateGroupActions=actions
    )
    assert [one["ScheduledActionName"] for one in answer["FailedScheduledUpdateGroupActions"]] == ["never"]
    shown = asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]
    assert [one["ScheduledActionName"] for one in shown] == ["up"]
    answer = asg.batch_delete_scheduled_action(AutoScalingGroupName="g", ScheduledActionNames=["up", "gone"])
    assert [one["ScheduledActionName"] for one in answer["FailedScheduledActions"]] == ["gone"]
    assert not asg.describe_scheduled_actions(AutoScalingGroupName="g")["ScheduledUpdateGroupActions"]


@pytest.mark.parametrize(
    "given",
    [
        {"MaxInstanceLifetime": 86_400},
        {"NewInstancesProtectedFromScaleIn": True},
        {"CapacityRebalance": True},
        {"MixedInstancesPolicy": {"LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateName": "other"}}}},
        {"CapacityReservationSpecification": {"CapacityReservationPreference": "capacity-reservations-first"}},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_what_a_group_would_not_do_is_refused_and_not_left_out(
    aws: SimulatedAws, asg: Any, given: dict[str, Any]
):
    make_group(aws)
    code, said = refused(asg.update_auto_scaling_group, AutoScalingGroupName="g", MaxSize=7, **given)
    assert (code, f"does not simulate {next(iter(given))}" in said) == ("NotImplemented", True)
    assert asg.describe_auto_scaling_groups()["AutoScalingGroups"][0]["MaxSize"] != 7
    code, _ = refused(
        asg.create_auto_scaling_group, AutoScalingGroupName="y", MinSize=0, MaxSize=1,
        LaunchTemplate=template(aws, None, "other"), VPCZoneIdentifier=subnet(aws), **given,
    )  # fmt: skip
    assert code == "NotImplemented"
    without = {
        "DefaultCooldown": 60,
        "HealthCheckGracePeriod": 300,
        "NewInstancesProtectedFromScaleIn": False,
    }
    asg.update_auto_scaling_group(AutoScalingGroupName="g", MaxSize=7, **without)
