"""Groups through boto3 on the wire: few calls, one try where a second would count, answers that are not believed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest

from tests.aws.wired import Wired
from tests.sim.account import OWNER, ZONES, tags
from tests.sim.scaling import make_group, template_data
from tidemill.aws.compute import AwsCompute
from tidemill.aws.group_records import read_group, read_hook, read_schedule
from tidemill.aws.node_groups import read_node_group
from tidemill.model.capacity import Reservation
from tidemill.model.errors import Retryable, Throttled
from tidemill.ports.compute import GroupShape, Hook, Template
from tidemill.provision import ProvisionedCloud
from tidemill.spec.compute_pool import ComputePool
from tidemill.store.memory import MemoryLedger

ROLE = "arn:aws:iam::123456789012:role/node"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def compute(wired: Wired) -> AwsCompute:
    boto3.client("eks").create_cluster(name="ml", roleArn=ROLE, resourcesVpcConfig={"subnetIds": []})
    return AwsCompute(wired.aws, OWNER, "ml")


def make(wired: Wired, compute: AwsCompute, block: Reservation, count: int, name: str = "g") -> None:
    """An Auto Scaling group of ours on a block, with so many members."""
    data = template_data(block, ImageId=wired.server.wire.network.images["x86_64"])
    version = compute.put_template(Template(f"mill-{name}", data, tags()))
    subnet = wired.server.wire.network.in_zone(ZONES[0]).id
    compute.put_group(GroupShape(name, version, (subnet,), 64, tags(provisioner="asg"), Hook("drain", 1800)))
    compute.resize(name, count)


def through_groups(wired: Wired, compute: AwsCompute) -> ProvisionedCloud:
    given = wired.spec.pools["train"].model_dump(by_alias=True, exclude_unset=True)
    given["spec"]["provisioner"] = "asg"
    spec = replace(wired.spec, pools={"train": ComputePool.model_validate(given)})
    return ProvisionedCloud(wired.direct, compute, spec, MemoryLedger(wired, OWNER), wired)


def test_reading_two_thousand_instances_in_groups_takes_at_most_a_dozen_calls(
    wired: Wired, compute: AwsCompute
):
    ours = {"tags": tags(), "propagated": tags(provisioner="asg"), "maximum": 64, "desired": 62}
    for number in range(32):
        make_group(wired.account, wired.account.block(name=f"b{number}", count=64), f"g{number}", **ours)
    wired.let_pass(5 * MINUTE)
    cloud = through_groups(wired, compute)
    (
        cloud.reservations(),
        cloud.instances(),
        cloud.extensions(),
    )  # the first look also reads every group's hook
    before = wired.aws.rate_limits.calls.total()
    cloud.reservations()
    found = cloud.instances()
    cloud.extensions()
    assert len(found) == 32 * 62
    assert wired.aws.rate_limits.calls.total() - before <= 12, wired.aws.rate_limits.calls


def test_ending_a_member_takes_two_calls_and_releasing_it_one(wired: Wired, compute: AwsCompute):
    make(wired, compute, wired.account.block(count=20), 20)
    wired.let_pass(5 * MINUTE)
    cloud = through_groups(wired, compute)
    for least, most in ((20, 40), (20, 20)):
        cloud.reservations()
        found = cloud.instances()
        before = wired.aws.rate_limits.calls.total()
        for one in found:
            cloud.terminate(one.id)
        assert least <= wired.aws.rate_limits.calls.total() - before <= most
        wired.let_pass(MINUTE)
    (group,) = wired.account.cloud.groups.all()
    assert (group.desired, group.staying()) == (0, [])
    assert not any(member.wait for member in group.members.values())


def test_ending_a_member_is_tried_once(wired: Wired, compute: AwsCompute):
    """The answer is lost: a second try by the SDK could lower the size twice, and the group would choose."""
    make(wired, compute, wired.account.block(count=4), 4)
    wired.let_pass(2 * MINUTE)
    goes = compute.groups()[0].members[0].instance_id
    wired.fault("lost-answer", action="TerminateInstanceInAutoScalingGroup", times=9)
    with pytest.raises(Retryable):
        compute.terminate_in_group(goes)
    assert [one.left for one in wired.server.wire.faults._armed] == [8]  # one call arrived
    wired.fault("clear")
    compute.terminate_in_group(goes)  # asked again: it is on its way already
    assert compute.groups()[0].desired == 3


# --- what is not believed -----------------------------------------------------------------------------


def group_record(**given: Any) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 2, "DesiredCapacity": 1,
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "lt", "Version": "3"},
        "VPCZoneIdentifier": "subnet-1", "Tags": [{"Key": "deployment", "Value": OWNER, "PropagateAtLaunch": True}],
        "Instances": [{"InstanceId": "i-1", "LifecycleState": "InService"}],
    } | given  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"MaxSize": "2"}, {"DesiredCapacity": None}, {"AutoScalingGroupName": "\n"}, {"Instances": [7]},
     {"Instances": [{"InstanceId": "x-1", "LifecycleState": "InService"}]}, {"Tags": "none"},
     {"Instances": [{"InstanceId": "i-1"}]}, {"LaunchTemplate": {"Version": "1"}}, {"MinSize": True}],
)  # fmt: skip
def test_a_group_with_an_invalid_field_is_unreadable(wrong: dict[str, Any]):
    assert read_group(group_record(), (), None, ()).desired == 1
    with pytest.raises(ValueError, match="expected"):
        read_group(group_record(**wrong), (), None, ())


def test_a_group_without_a_fixed_template_version_has_version_0():
    latest = {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "lt", "Version": "$Latest"}
    assert read_group(group_record(LaunchTemplate=latest), (), None, ()).shape.template.version == 0
    assert read_group(group_record(LaunchTemplate=None), (), None, ()).shape.template.id == ""


def test_schedules_and_hooks_with_invalid_fields_are_unreadable():
    with pytest.raises(ValueError, match="StartTime"):
        read_schedule({"AutoScalingGroupName": "g", "ScheduledActionName": "up", "StartTime": "soon"})
    with pytest.raises(ValueError, match="DefaultResult"):
        read_hook(
            {"LifecycleHookName": "h", "HeartbeatTimeout": 60, "DefaultResult": "MAYBE",
             "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}
        )  # fmt: skip
    assert read_hook({"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}) is None


@pytest.mark.parametrize(
    "wrong",
    [{"capacityType": "LEASED"}, {"scalingConfig": {}}, {"launchTemplate": None}, {"status": 7},
     {"taints": [{"key": "a", "effect": "NEVER"}]}],
)  # fmt: skip
def test_a_node_group_with_an_invalid_field_is_unreadable(wrong: dict[str, Any]):
    record = {
        "nodegroupName": "n", "capacityType": "CAPACITY_BLOCK", "status": "ACTIVE",
        "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 1},
        "launchTemplate": {"id": "lt-1", "version": "1", "name": "lt"},
    }  # fmt: skip
    assert read_node_group(record).desired == 1
    with pytest.raises(ValueError, match="expected"):
        read_node_group(record | wrong)


def test_an_unreadable_group_is_left_out_and_logged_once(
    wired: Wired, compute: AwsCompute, caplog: pytest.LogCaptureFixture
):
    make(wired, compute, wired.account.block(), 1)
    wired.account.cloud.groups.get("g").maximum = -1
    assert compute.groups() == compute.groups() == ()
    assert caplog.text.count("cannot be read") == 1


def test_the_name_of_a_role_becomes_its_arn(wired: Wired, compute: AwsCompute):
    compute.let_nodes_join("node")
    assert wired.account.cloud.node_groups.access_entries == {ROLE: "EC2_LINUX"}


def test_without_a_cluster_eks_is_not_called(wired: Wired):
    alone = AwsCompute(wired.aws, OWNER)
    assert alone.node_groups() == ()
    alone.groups()
    assert not any(one.startswith("eks:") for one in wired.aws.called)


# --- calls that fail are not records that cannot be read ----------------------------------------------


@pytest.mark.parametrize("action", ["DescribeScalingActivities", "DescribeLifecycleHooks"])
def test_a_group_whose_details_cannot_be_read_does_not_count_as_gone(
    wired: Wired, compute: AwsCompute, action: str
):
    """Else its members would be ended behind its back, and it would launch others for them."""
    make(wired, compute, wired.account.block(count=2), 2)
    wired.let_pass(2 * MINUTE)
    compute.resize("g", 3)  # it lacks one: its activities are asked for
    fresh = AwsCompute(wired.aws, OWNER, "ml")  # knows no hook yet
    wired.fault("throttle", action=action, times=99)
    with pytest.raises(Throttled):
        fresh.groups()
    cloud = through_groups(wired, fresh)
    with pytest.raises(Throttled):
        cloud.instances()
    (group,) = wired.account.cloud.groups.all()
    with pytest.raises(Throttled):
        cloud._groups.terminate(next(iter(group.members)))
    assert len(group.staying()) == 2


def test_an_instance_whose_group_is_not_listed_is_retryable(
    wired: Wired, compute: AwsCompute, monkeypatch: pytest.MonkeyPatch
):
    make(wired, compute, wired.account.block(), 1)
    wired.let_pass(2 * MINUTE)
    (member,) = compute.groups()[0].members
    fresh = AwsCompute(wired.aws, OWNER, "ml")
    monkeypatch.setattr(fresh, "_described", lambda name: None)
    with pytest.raises(Retryable, match="which Auto Scaling does not list"):
        fresh.terminate_in_group(member.instance_id)


def test_the_activities_are_read_back_to_every_waiting_member(wired: Wired, compute: AwsCompute):
    make(wired, compute, wired.account.block(count=2), 2)
    wired.let_pass(2 * MINUTE)
    goes, began = compute.groups()[0].members[0].instance_id, wired.now()
    compute.terminate_in_group(goes)
    body = wired.account.cloud.groups
    for _ in range(150):  # more than a page of launches that failed since
        body._activities.fail(body.get("g"), "InsufficientInstanceCapacity")
    wired.let_pass(2 * MINUTE)
    waits = {member.instance_id: member.waits_since for member in compute.groups()[0].members if member.waits}
    assert waits == {goes: began}
