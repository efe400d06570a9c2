"""EKS node groups over the wire, through boto3."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import ZONES
from tests.wire.groups import (
    ROLE,
    group,
    make_cluster,
    make_node_group,
    node_group,
    second_version,
    subnet,
    template,
)
from tests.wire.server_builder import Stand, tags_of
from tidemill.model.ec2_facts import EKS_SCALE_DOWN_ACTION

THIS = {"clusterName": "ml", "nodegroupName": "train-a"}


def refused(call: Any, *args: Any, **given: Any) -> tuple[str, str, int]:
    with pytest.raises(ClientError) as refusal:
        call(*args, **given)
    answer = refusal.value.response
    return (
        answer["Error"]["Code"],
        answer["Error"]["Message"],
        answer["ResponseMetadata"]["HTTPStatusCode"],
    )


@pytest.mark.requirement("MG-1")
def test_a_node_group_on_a_block_with_a_real_group_behind_it(stand: Stand):
    make_cluster(stand)
    block = stand.block()
    made = make_node_group(stand, block)
    assert (made["status"], made["capacityType"], made["amiType"]) == ("CREATING", "CAPACITY_BLOCK", "CUSTOM")
    stand.wait("4m")
    assert node_group(stand)["status"] == "ACTIVE"
    eks = stand.client("eks")
    eks.update_nodegroup_config(**THIS, scalingConfig={"desiredSize": 2})
    stand.wait("2m")
    (behind,) = node_group(stand)["resources"]["autoScalingGroups"]
    shown = group(stand, behind["name"])
    assert [one["LifecycleState"] for one in shown["Instances"]] == ["InService"] * 2
    assert tags_of(stand.instances()[0])["eks:nodegroup-name"] == "train-a"
    assert eks.list_nodegroups(clusterName="ml")["nodegroups"] == ["train-a"]


@pytest.mark.requirement("MG-2")
def test_eks_schedules_its_own_scale_down(stand: Stand):
    make_cluster(stand)
    block = stand.block()
    assert block.end is not None
    made = make_node_group(stand, block)
    (action,) = stand.client("autoscaling").describe_scheduled_actions(
        AutoScalingGroupName=made["resources"]["autoScalingGroups"][0]["name"]
    )["ScheduledUpdateGroupActions"]
    assert (action["ScheduledActionName"], action["StartTime"]) == (
        EKS_SCALE_DOWN_ACTION,
        block.end - timedelta(minutes=40),
    )
    assert (action["MinSize"], action["DesiredCapacity"]) == (0, 0)


@pytest.mark.requirement("MG-1")
@pytest.mark.requirement("TR-10")
def test_eks_rejects_a_subnet_in_another_zone_and_a_template_that_does_not_fit(stand: Stand):
    make_cluster(stand)
    block = stand.block()
    code, message, status = refused(make_node_group, stand, block, subnets=[subnet(stand, ZONES[1])])
    assert (code, status) == ("InvalidParameterException", 400)
    assert f"Subnets must be in {ZONES[0]}" in message
    plain = template(stand, None, "plain")
    assert "MarketType" in refused(make_node_group, stand, block, template=plain)[1]
    assert stand.client("eks").list_nodegroups(clusterName="ml")["nodegroups"] == []


def test_without_a_cluster_there_are_no_node_groups(stand: Stand):
    assert refused(make_node_group, stand, stand.block())[0] == "ResourceNotFoundException"
    make_cluster(stand)
    code, _, status = refused(stand.client("eks").describe_nodegroup, **THIS)
    assert (code, status) == ("ResourceNotFoundException", 404)


def test_labels_taints_and_repair_are_changed(stand: Stand):
    make_cluster(stand)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    make_node_group(stand, stand.block(), labels={"tier": "a", "old": "x"}, taints=[taint])
    stand.wait("4m")
    stand.client("eks").update_nodegroup_config(
        **THIS, labels={"addOrUpdateLabels": {"tier": "b"}, "removeLabels": ["old"]},
        taints={"removeTaints": [taint]}, nodeRepairConfig={"enabled": True},
    )  # fmt: skip
    found = node_group(stand)
    assert (found["labels"], found["taints"]) == ({"tier": "b"}, [])
    assert found["nodeRepairConfig"]["enabled"]


@pytest.mark.requirement("MG-4")
def test_a_new_version_of_the_template_needs_an_empty_group(stand: Stand):
    make_cluster(stand)
    block, eks = stand.block(), stand.client("eks")
    lt = template(stand, block, "lt-eks")
    make_node_group(stand, block, template=lt, scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 2})
    second_version(stand, lt, block)
    stand.wait("4m")
    newer = {"id": lt["LaunchTemplateId"], "version": "2"}
    code, message, _ = refused(eks.update_nodegroup_version, **THIS, launchTemplate=newer)
    assert code == "InvalidRequestException"
    assert "scale it to 0" in message
    eks.update_nodegroup_config(**THIS, scalingConfig={"desiredSize": 0})
    stand.wait("5m")
    assert eks.update_nodegroup_version(**THIS, launchTemplate=newer)["update"]["type"] == "VersionUpdate"
    stand.wait("4m")
    assert node_group(stand)["launchTemplate"]["version"] == "2"


@pytest.mark.requirement("SM-6")
def test_an_access_entry_lets_the_nodes_of_a_role_join(stand: Stand):
    make_cluster(stand)
    eks, whom = stand.client("eks"), {"clusterName": "ml", "principalArn": ROLE}
    entry = eks.create_access_entry(**whom, type="EC2_LINUX")["accessEntry"]
    assert (entry["type"], entry["principalArn"]) == ("EC2_LINUX", ROLE)
    assert eks.list_access_entries(clusterName="ml")["accessEntries"] == [ROLE]
    assert refused(eks.create_access_entry, **whom, type="EC2_LINUX")[::2] == ("ResourceInUseException", 409)
    eks.delete_access_entry(**whom)
    assert refused(eks.describe_access_entry, **whom)[0] == "ResourceNotFoundException"


def test_a_node_group_is_deleted_with_its_nodes(stand: Stand):
    make_cluster(stand)
    make_node_group(stand, stand.block(), scalingConfig={"minSize": 0, "desiredSize": 2, "maxSize": 2})
    stand.wait("4m")
    stand.client("eks").delete_nodegroup(**THIS)
    assert node_group(stand)["status"] == "DELETING"
    stand.wait("10m")
    assert refused(stand.client("eks").describe_nodegroup, **THIS)[0] == "ResourceNotFoundException"
    assert stand.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
