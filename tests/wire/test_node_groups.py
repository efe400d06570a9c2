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
from tests.wire.server_builder import SimulatedAws, tags_of
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
def test_a_node_group_on_a_block_with_a_real_group_behind_it(aws: SimulatedAws):
    make_cluster(aws)
    block = aws.block()
    made = make_node_group(aws, block)
    assert (made["status"], made["capacityType"], made["amiType"]) == ("CREATING", "CAPACITY_BLOCK", "CUSTOM")
    aws.wait("4m")
    assert node_group(aws)["status"] == "ACTIVE"
    assert node_group(aws)["releaseVersion"] == aws.network.images["x86_64"], "the template names the image"
    eks = aws.client("eks")
    eks.update_nodegroup_config(**THIS, scalingConfig={"desiredSize": 2})
    aws.wait("2m")
    (behind,) = node_group(aws)["resources"]["autoScalingGroups"]
    shown = group(aws, behind["name"])
    assert [one["LifecycleState"] for one in shown["Instances"]] == ["InService"] * 2
    assert tags_of(aws.instances()[0])["eks:nodegroup-name"] == "train-a"
    assert eks.list_nodegroups(clusterName="ml")["nodegroups"] == ["train-a"]


@pytest.mark.requirement("MG-2")
def test_eks_schedules_its_own_scale_down(aws: SimulatedAws):
    make_cluster(aws)
    block = aws.block()
    assert block.end is not None
    made = make_node_group(aws, block)
    (action,) = aws.client("autoscaling").describe_scheduled_actions(
        AutoScalingGroupName=made["resources"]["autoScalingGroups"][0]["name"]
    )["ScheduledUpdateGroupActions"]
    assert (action["ScheduledActionName"], action["StartTime"]) == (
        EKS_SCALE_DOWN_ACTION,
        block.end - timedelta(minutes=40),
    )
    assert (action["MinSize"], action["DesiredCapacity"]) == (0, 0)


@pytest.mark.requirement("MG-1")
@pytest.mark.requirement("TR-10")
def test_eks_rejects_a_subnet_in_another_zone_and_a_template_that_does_not_fit(aws: SimulatedAws):
    make_cluster(aws)
    block = aws.block()
    code, message, status = refused(make_node_group, aws, block, subnets=[subnet(aws, ZONES[1])])
    assert (code, status) == ("InvalidParameterException", 400)
    assert f"Subnets must be in {ZONES[0]}" in message
    plain = template(aws, None, "plain")
    assert "MarketType" in refused(make_node_group, aws, block, template=plain)[1]
    assert aws.client("eks").list_nodegroups(clusterName="ml")["nodegroups"] == []


def test_without_a_cluster_there_are_no_node_groups(aws: SimulatedAws):
    assert refused(make_node_group, aws, aws.block())[0] == "ResourceNotFoundException"
    make_cluster(aws)
    code, _, status = refused(aws.client("eks").describe_nodegroup, **THIS)
    assert (code, status) == ("ResourceNotFoundException", 404)


def test_labels_taints_and_repair_are_changed(aws: SimulatedAws):
    make_cluster(aws)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    make_node_group(aws, aws.block(), labels={"tier": "a", "old": "x"}, taints=[taint])
    aws.wait("4m")
    aws.client("eks").update_nodegroup_config(
        **THIS, labels={"addOrUpdateLabels": {"tier": "b"}, "removeLabels": ["old"]},
        taints={"removeTaints": [taint]}, nodeRepairConfig={"enabled": True},
    )  # fmt: skip
    found = node_group(aws)
    assert (found["labels"], found["taints"]) == ({"tier": "b"}, [])
    assert found["nodeRepairConfig"]["enabled"]


@pytest.mark.requirement("MG-4")
def test_a_new_version_of_the_template_needs_an_empty_group(aws: SimulatedAws):
    make_cluster(aws)
    block, eks = aws.block(), aws.client("eks")
    lt = template(aws, block, "lt-eks")
    make_node_group(aws, block, template=lt, scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 2})
    second_version(aws, lt, block)
    aws.wait("4m")
    newer = {"id": lt["LaunchTemplateId"], "version": "2"}
    code, message, _ = refused(eks.update_nodegroup_version, **THIS, launchTemplate=newer)
    assert code == "InvalidRequestException"
    assert "scale it to 0" in message
    eks.update_nodegroup_config(**THIS, scalingConfig={"desiredSize": 0})
    aws.wait("5m")
    assert eks.update_nodegroup_version(**THIS, launchTemplate=newer)["update"]["type"] == "VersionUpdate"
    aws.wait("4m")
    assert node_group(aws)["launchTemplate"]["version"] == "2"


@pytest.mark.requirement("SM-6")
def test_an_access_entry_lets_the_nodes_of_a_role_join(aws: SimulatedAws):
    make_cluster(aws)
    eks, whom = aws.client("eks"), {"clusterName": "ml", "principalArn": ROLE}
    entry = eks.create_access_entry(**whom, type="EC2_LINUX")["accessEntry"]
    assert (entry["type"], entry["principalArn"]) == ("EC2_LINUX", ROLE)
    assert eks.list_access_entries(clusterName="ml")["accessEntries"] == [ROLE]
    assert refused(eks.create_access_entry, **whom, type="EC2_LINUX")[::2] == ("ResourceInUseException", 409)
    eks.delete_access_entry(**whom)
    assert refused(eks.describe_access_entry, **whom)[0] == "ResourceNotFoundException"


def test_a_node_group_is_deleted_with_its_nodes(aws: SimulatedAws):
    make_cluster(aws)
    make_node_group(aws, aws.block(), scalingConfig={"minSize": 0, "desiredSize": 2, "maxSize": 2})
    aws.wait("4m")
    aws.client("eks").delete_nodegroup(**THIS)
    assert node_group(aws)["status"] == "DELETING"
    aws.wait("10m")
    assert refused(aws.client("eks").describe_nodegroup, **THIS)[0] == "ResourceNotFoundException"
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_eks_refuses_with_codes_of_its_own(aws: SimulatedAws):
    client = aws.client("eks")
    client.meta.config.parameter_validation = False
    with pytest.raises(ClientError) as raised:
        client.create_nodegroup(clusterName="nowhere", nodegroupName="n", subnets=[], nodeRole="r")
    assert raised.value.response["Error"]["Code"] in client.exceptions._code_to_exception, raised.value
