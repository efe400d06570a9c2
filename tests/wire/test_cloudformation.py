"""The stacks we render, deployed over the wire: what they make is the account's, on the one clock."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.provision.documents import documents
from tests.wire.groups import subnet
from tests.wire.server_builder import SimulatedAws, tags_of
from tidemill.model.capacity import Reservation
from tidemill.render.cloudformation import resolve_stack_input, stack


class Deployed:
    def __init__(
        self, aws: SimulatedAws, provisioner: str, block: Reservation, *, alias: str = "", engine: bool = True
    ) -> None:
        assert block.end is not None
        self.engine = engine
        self.aws, self.block, self.end = aws, block, block.end
        self.cfn, self.vpc = aws.client("cloudformation"), aws.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        self.spec = documents(
            provisioner=provisioner,
            node_class={
                "efa": True,
                "amiSelectorTerms": [{"alias": alias} if alias else {"id": aws.network.images["x86_64"]}],
            },
            platform={
                "subnets": {block.zone: [subnet(aws)]},
                "securityGroups": [aws.network.security_group],
                "deployment": "mill",
            },
        )
        aws.client("iam").create_role(RoleName="ml-node", AssumeRolePolicyDocument="{}")
        aws.client("eks").create_cluster(
            name="ml",
            roleArn="arn:aws:iam::123456789012:role/eks",
            resourcesVpcConfig={"subnetIds": [subnet(aws)]},
        )
        self.cfn.create_stack(StackName="train", **self.written(block.end))

    def written(self, end: Any) -> dict[str, Any]:
        pool = self.spec.pools["train"]
        made = stack(
            self.spec, pool,
            resolve_stack_input(
                self.spec, pool, reservation=self.block.id, start=self.block.start, end=end, count=2, engine=self.engine
            ),
        )  # fmt: skip
        given = {"VpcId": self.vpc}
        return {
            "TemplateBody": json.dumps(made),
            "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
            "Capabilities": ["CAPABILITY_IAM"],
        }

    def until(self, at: Any) -> None:
        self.aws.wait(f"{int((at - self.aws.account.now).total_seconds())}s")


@pytest.mark.requirement("SM-8")
@pytest.mark.requirement("SM-4")
def test_a_self_managed_stack_grows_at_the_start_and_drains_before_the_end(aws: SimulatedAws):
    deployed = Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
    block = deployed.block
    (group,) = aws.cloud.groups.all()
    assert (group.name, group.desired, group.maximum) == (f"mill-train-{block.id}", 0, 2)
    assert set(group.hooks) == {"tidemill-drain"}
    assert aws.cloud.node_groups.access_entries == {"arn:aws:iam::123456789012:role/ml-node": "EC2_LINUX"}
    deployed.until(block.start + timedelta(minutes=5))
    running = aws.instances()
    assert [one["CapacityReservationId"] for one in running] == [block.id] * 2
    assert tags_of(running[0])["kubernetes.io/cluster/ml"] == "owned"
    deployed.until(deployed.end - timedelta(minutes=41))
    assert {member.state for member in group.members.values()} == {"InService"}
    deployed.until(deployed.end - timedelta(minutes=38))
    assert {member.state for member in group.members.values()} == {"Terminating:Wait"}


@pytest.mark.requirement("PE-19")
def test_the_stack_makes_the_group_that_allows_all_traffic_between_efa_nodes_and_puts_them_in_it(
    aws: SimulatedAws,
):
    Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
    made = aws.client("cloudformation").describe_stack_resources(StackName="train")["StackResources"]
    (own,) = [one["PhysicalResourceId"] for one in made if one["LogicalResourceId"] == "EfaSecurityGroup"]
    (group,) = aws.ec2.describe_security_groups(GroupIds=[own])["SecurityGroups"]
    for rules in (group["IpPermissions"], group["IpPermissionsEgress"]):
        within = [rule for rule in rules if {pair["GroupId"] for pair in rule["UserIdGroupPairs"]} == {own}]
        assert [rule["IpProtocol"] for rule in within] == ["-1"], rules
    (template,) = aws.ec2.describe_launch_templates()["LaunchTemplates"]
    (version,) = aws.ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    cards = version["LaunchTemplateData"]["NetworkInterfaces"]
    assert cards
    assert all(own in card["Groups"] for card in cards)


@pytest.mark.requirement("SM-8")
def test_a_stack_with_an_image_by_its_alias_is_deployed_and_boots_that_image(aws: SimulatedAws):
    deployed = Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2), alias="al2023@v20261101")
    deployed.until(deployed.block.start + timedelta(minutes=5))
    assert {one["ImageId"] for one in aws.instances()} == {
        aws.server.wire.published_images["al2023", "x86_64", "nvidia"]
    }


@pytest.mark.requirement("SM-8")
def test_two_stacks_of_one_pool_stand_side_by_side(aws: SimulatedAws):
    first = Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
    first.block = aws.block(name="b", start="4d", duration="2d", count=2)
    second = first.written(first.block.end)
    second["Parameters"].append({"ParameterKey": "CreateAccessEntry", "ParameterValue": "false"})
    first.cfn.create_stack(StackName="later", **second)
    assert len(aws.cloud.groups.all()) == 2
    queues = aws.client("sqs").list_queues()["QueueUrls"]
    assert sorted(url.rpartition("/")[2] for url in queues) == sorted(
        f"{group.name}-events" for group in aws.cloud.groups.all()
    )


@pytest.mark.requirement("SM-8")
def test_a_changed_end_moves_the_schedule_and_a_deleted_stack_leaves_nothing(aws: SimulatedAws):
    deployed = Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
    later = deployed.end + timedelta(days=1)
    deployed.cfn.update_stack(StackName="train", **deployed.written(later))
    (group,) = aws.cloud.groups.all()
    assert group.schedules["Down"].at == later - timedelta(minutes=40)
    deployed.cfn.delete_stack(StackName="train")
    assert not aws.cloud.groups.all()
    assert not aws.cloud.node_groups.access_entries


@pytest.mark.requirement("SM-8")
@pytest.mark.requirement("MG-1")
def test_a_managed_stack_makes_a_node_group_as_eks_does(aws: SimulatedAws):
    block = aws.block(start="1d", duration="2d", count=2)
    deployed = Deployed(aws, "managed", block)
    (made,) = aws.cloud.node_groups.all()
    assert made.name == f"mill-train-{block.id}"
    described = aws.client("eks").describe_nodegroup(clusterName="ml", nodegroupName=made.name)["nodegroup"]
    assert described["capacityType"] == "CAPACITY_BLOCK"
    assert described["scalingConfig"] == {"minSize": 0, "maxSize": 2, "desiredSize": 0}
    (group,) = aws.cloud.groups.all()
    assert any(schedule.at == deployed.end - timedelta(minutes=40) for schedule in group.schedules.values())


@pytest.mark.requirement("MG-1")
def test_a_managed_stack_without_an_engine_comes_up_at_the_start_and_goes_down_before_the_end(
    aws: SimulatedAws,
):
    block = aws.block(start="1d", duration="2d", count=2)
    deployed = Deployed(aws, "managed", block, engine=False)
    deployed.until(block.start)
    assert not aws.instances()
    deployed.until(block.start + timedelta(minutes=6))
    assert [one["CapacityReservationId"] for one in aws.instances()] == [block.id] * 2
    deployed.until(deployed.end - timedelta(minutes=10))
    assert all(one["State"]["Name"] in ("shutting-down", "terminated") for one in aws.instances())


def test_a_deleted_managed_stack_scales_nothing_out(aws: SimulatedAws):
    block = aws.block(start="1d", duration="2d", count=2)
    deployed = Deployed(aws, "managed", block, engine=False)
    deployed.cfn.delete_stack(StackName="train")
    deployed.until(block.start + timedelta(minutes=6))
    assert not aws.instances()
    assert not aws.server.wire.schedules


def test_a_refusal_of_eks_is_an_error_of_cloudformation(aws: SimulatedAws):
    block = aws.block(start="1d", duration="2d", count=2)
    deployed = Deployed(aws, "managed", block)
    with pytest.raises(ClientError, match="already exists") as refusal:
        deployed.cfn.create_stack(StackName="again", **deployed.written(block.end))
    assert refusal.value.response["Error"]["Code"] == "ValidationError"


@pytest.mark.requirement("SM-8")
def test_a_stack_that_cannot_be_made_leaves_nothing_behind_and_can_be_made_afterwards(aws: SimulatedAws):
    deployed = Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
    deployed.cfn.delete_stack(StackName="train")
    written = deployed.written(deployed.end)
    broken = written["TemplateBody"].replace("role/ml-node", "role/nobody-s").replace("ml-node", "nobody-s")
    with pytest.raises(ClientError, match="nobody-s"):
        deployed.cfn.create_stack(StackName="again", **written | {"TemplateBody": broken})
    with pytest.raises(ClientError, match="does not exist"):
        deployed.cfn.describe_stacks(StackName="again")
    assert not aws.cloud.groups.all()
    deployed.cfn.create_stack(StackName="again", **written)
    assert len(aws.cloud.groups.all()) == 1


def test_moto_is_as_it_was_when_the_server_stops():
    from moto.cloudformation.parsing import get_model_map

    before = dict(get_model_map())
    aws = SimulatedAws()
    try:
        Deployed(aws, "asg", aws.block(start="1d", duration="2d", count=2))
        assert get_model_map() != before
    finally:
        aws.stop()
    assert get_model_map() == before
