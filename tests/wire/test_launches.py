"""Launches through boto3: admission by the account, templates, tokens, fleets."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import P5, ZONES
from tests.wire.server_builder import OURS, SimulatedAws, on_block, specs, tags_of
from tests.wire.test_blocks import code
from tidemill.model.capacity import SourceKind
from tidemill.spec import names

G6 = "g6.xlarge"
FIRST = base64.b64encode(b"first").decode()


def template(aws: SimulatedAws, **data: Any) -> dict[str, str]:
    whole = {"ImageId": aws.network.images["x86_64"], "InstanceType": P5} | data
    made = aws.ec2.create_launch_template(LaunchTemplateName="t", LaunchTemplateData=whole)
    return {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}


# --- into a block -------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-11")
def test_a_launch_into_a_block_gives_instances_that_say_so(aws: SimulatedAws):
    block = aws.block(count=3)
    subnet = aws.network.in_zone(ZONES[0])
    ids = aws.ids(
        block=block.id, MinCount=2, MaxCount=2, SubnetId=subnet.id, TagSpecifications=specs("instance", OURS)
    )
    assert len(set(ids)) == 2
    aws.wait("2m")
    for instance in aws.instances(InstanceIds=ids):
        assert instance["InstanceLifecycle"] == "capacity-block"
        assert instance["CapacityReservationId"] == block.id
        assert instance["State"]["Name"] == "running"
        assert instance["Placement"]["AvailabilityZone"] == ZONES[0]
        assert (instance["SubnetId"], instance["VpcId"]) == (subnet.id, subnet.vpc)
        assert tags_of(instance) == OURS
    (seen,) = aws.reservations()
    assert (seen["TotalInstanceCount"], seen["AvailableInstanceCount"]) == (3, 1)
    assert aws.account.instance(ids[0]).pool == "train"


def test_a_block_gives_no_more_instances_than_it_holds(aws: SimulatedAws):
    block = aws.block(count=3)
    assert len(aws.ids(block=block.id, MinCount=1, MaxCount=8)) == 3
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id)
    assert code(raised) == ("ReservationCapacityExceeded", 400)


def test_fewer_than_the_least_number_are_not_launched_at_all(aws: SimulatedAws):
    block = aws.block(count=3)
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id, MinCount=4, MaxCount=8)
    assert code(raised) == ("ReservationCapacityExceeded", 400)
    assert not aws.cloud.instance_histories


@pytest.mark.requirement("CB-11")
def test_a_slot_comes_back_only_minutes_after_its_instance_is_gone(aws: SimulatedAws):
    block = aws.block(count=1)
    (id_,) = aws.ids(block=block.id)
    aws.wait("2m")
    (change,) = aws.ec2.terminate_instances(InstanceIds=[id_])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    aws.wait("2m")
    with pytest.raises(ClientError):
        aws.run(block=block.id)
    aws.wait("8m")
    assert aws.ids(block=block.id)


def test_a_block_before_its_start_and_after_its_end_admits_no_launch(aws: SimulatedAws):
    block = aws.block(start="2d")
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id)
    assert code(raised) == ("InvalidCapacityReservationState.PendingActivation", 400)
    aws.wait("5d")
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id)
    assert code(raised) == ("ReservationCapacityExceeded", 400)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"InstanceType": "p4d.24xlarge"}, "CapacityReservationMismatch"),
        ({"Placement": {"AvailabilityZone": ZONES[1]}}, "CapacityReservationMismatch"),
        ({"Placement": {"AvailabilityZone": "us-east-1z"}}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"ImageId": "linux"}, "InvalidAMIID.Malformed"),
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "resolve:ssm:/no/such/image"}, "InvalidParameterValue"),
        ({"KeyName": "nobody-s"}, "InvalidKeyPair.NotFound"),
        ({"InstanceMarketOptions": {"MarketType": "banana"}}, "InvalidParameterValue"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "InvalidParameterCombination"),
        ({"InstanceMarketOptions": {}}, "InvalidParameterCombination"),
        ({"CapacityReservationSpecification": {}}, "InvalidParameterCombination"),
        (on_block("cr-00000000000000000"), "InvalidCapacityReservationId.NotFound"),
        ({"MinCount": 3, "MaxCount": 2}, "InvalidParameterValue"),
        (
            {"LaunchTemplate": {"LaunchTemplateId": "lt-00000000000000000"}},
            "InvalidLaunchTemplateId.NotFound",
        ),
        ({"TagSpecifications": specs("vpc", {"a": "b"})}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_an_impossible_launch_is_refused_with_ec2s_code(
    aws: SimulatedAws, given: dict[str, Any], refused: str
):
    block = aws.block(count=3)
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id, **given)
    assert code(raised)[0] == refused
    assert not aws.cloud.instance_histories


# --- other sources ------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-14")
def test_on_demand_spot_and_reserved_instances_are_told_apart(aws: SimulatedAws):
    with aws.server.turn():
        odcr = aws.account.block(name="o", type="odcr", instance_type=G6, duration=None)
    target = {"CapacityReservationTarget": {"CapacityReservationId": odcr.id}}
    ids = [
        *aws.ids(InstanceType=G6),
        *aws.ids(InstanceType=G6, InstanceMarketOptions={"MarketType": "spot"}),
        *aws.ids(InstanceType=G6, CapacityReservationSpecification=target),
    ]
    aws.wait("2m")
    seen = {instance["InstanceId"]: instance for instance in aws.instances()}
    assert [seen[id_].get("InstanceLifecycle") for id_ in ids] == [None, "spot", None]
    assert [seen[id_].get("CapacityReservationId") for id_ in ids] == [None, None, odcr.id]
    kinds = [aws.account.instance(id_).source.kind for id_ in ids]
    assert kinds == [SourceKind.ON_DEMAND, SourceKind.SPOT, SourceKind.ODCR]


def test_a_launch_without_capacity_is_insufficient_capacity(aws: SimulatedAws):
    aws.admin("faults", {"fault": "no-capacity", "for": "10m", "target": G6})
    with pytest.raises(ClientError) as raised:
        aws.run(InstanceType=G6)
    assert code(raised) == ("InsufficientInstanceCapacity", 400)
    aws.wait("11m")
    assert aws.ids(InstanceType=G6)


# --- tokens -------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-4")
def test_the_same_token_gives_the_same_instances(aws: SimulatedAws):
    block = aws.block(count=3)
    first, again = (aws.ids(block=block.id, MaxCount=2, ClientToken="once") for _ in range(2))
    assert first == again
    assert len(aws.cloud.instance_histories) == 2
    with pytest.raises(ClientError) as raised:
        aws.run(block=block.id, MaxCount=3, ClientToken="once")
    assert code(raised) == ("IdempotentParameterMismatch", 400)


def test_a_token_whose_launch_failed_can_be_used_again(aws: SimulatedAws):
    block = aws.block(count=1, start="2d")
    with pytest.raises(ClientError):
        aws.run(block=block.id, ClientToken="once")
    aws.wait("2d")
    assert aws.ids(block=block.id, ClientToken="once", MaxCount=2)


# --- templates ----------------------------------------------------------------------------------------


@pytest.mark.requirement("SM-1")
def test_a_template_supplies_what_the_call_leaves_out(aws: SimulatedAws):
    block = aws.block(count=3)
    cards = [{"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "efa", "Groups": ["sg-1", "sg-2"]}]
    used = template(
        aws,
        **on_block(block.id),
        UserData=base64.b64encode(b"#!/bin/sh").decode(),
        IamInstanceProfile={"Name": "node"},
        NetworkInterfaces=cards,
        TagSpecifications=specs("instance", {"Name": "of the template", "a": "b"}),
    )
    named = specs("instance", {"Name": "of the call", names.TAG_OWNER: "mill"})
    answer = aws.ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=used, TagSpecifications=named)
    (one,) = answer["Instances"]
    assert one["InstanceType"] == P5
    assert one["CapacityReservationId"] == block.id
    assert one["IamInstanceProfile"]["Arn"].endswith(":instance-profile/node")
    assert [group["GroupId"] for group in one["SecurityGroups"]] == ["sg-1", "sg-2"]
    assert tags_of(one) == {"Name": "of the call", "a": "b", names.TAG_OWNER: "mill"}
    aws.wait("10s")
    told = aws.ec2.describe_instance_attribute(InstanceId=one["InstanceId"], Attribute="userData")
    assert base64.b64decode(told["UserData"]["Value"]) == b"#!/bin/sh"


@pytest.mark.requirement("SM-1")
@pytest.mark.parametrize("also", [{"SubnetId": ""}, {"SecurityGroupIds": ["sg-1"]}])
def test_network_interfaces_name_the_subnet_and_the_security_groups(aws: SimulatedAws, also: dict[str, Any]):
    if "SubnetId" in also:
        also = {"SubnetId": aws.network.subnets[0].id}
    cards = [{"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": ["sg-1"]}]
    used = template(aws, InstanceType=G6, NetworkInterfaces=cards)
    with pytest.raises(ClientError, match="Network interfaces") as raised:
        aws.ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=used, **also)
    assert code(raised) == ("InvalidParameterCombination", 400)


def test_an_unknown_template_version_is_not_found(aws: SimulatedAws):
    used = template(aws) | {"Version": "7"}
    with pytest.raises(ClientError) as raised:
        aws.ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=used)
    assert code(raised) == ("InvalidLaunchTemplateId.VersionNotFound", 400)


# --- fleets -------------------------------------------------------------------------------------------


def fleet(aws: SimulatedAws, used: dict[str, str], market: str, count: int, **given: Any) -> Any:
    overrides = given.pop("Overrides", [])
    config = {"LaunchTemplateSpecification": used, "Overrides": overrides}
    target = {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market}
    return aws.ec2.create_fleet(
        Type="instant", LaunchTemplateConfigs=[config], TargetCapacitySpecification=target, **given
    )


def test_a_fleet_launches_into_a_block_and_says_what_it_did_not_get(aws: SimulatedAws):
    block = aws.block(count=2)
    used = template(aws, **on_block(block.id))
    answer = fleet(aws, used, "capacity-block", 3, TagSpecifications=specs("instance", OURS))
    (got,) = answer["Instances"]
    assert len(got["InstanceIds"]) == 2
    assert got["Lifecycle"] == "capacity-block"
    assert aws.account.instance(got["InstanceIds"][0]).pool == "train"
    empty = fleet(aws, used, "capacity-block", 1)
    assert not empty["Instances"]
    assert [error["ErrorCode"] for error in empty["Errors"]] == ["ReservationCapacityExceeded"]


def test_a_fleet_takes_the_cheapest_first_and_the_next_when_it_runs_out(aws: SimulatedAws):
    used = template(aws, InstanceType=G6)
    overrides = [{"InstanceType": "g6.12xlarge"}, {"InstanceType": G6}]
    aws.admin("faults", {"fault": "no-capacity", "for": "10m", "target": G6})
    answer = fleet(aws, used, "spot", 2, Overrides=overrides)
    assert [one["InstanceType"] for one in answer["Instances"]] == ["g6.12xlarge"]
    assert [one["ErrorCode"] for one in answer["Errors"]] == ["InsufficientInstanceCapacity"]
    aws.wait("11m")
    answer = fleet(aws, used, "spot", 2, Overrides=overrides)
    assert [one["InstanceType"] for one in answer["Instances"]] == [G6]
    assert [one["Lifecycle"] for one in answer["Instances"]] == ["spot"]


def test_a_fleet_with_a_token_is_made_once(aws: SimulatedAws):
    used = template(aws, InstanceType=G6)
    first, again = (fleet(aws, used, "on-demand", 2, ClientToken="once") for _ in range(2))
    assert first["Instances"] == again["Instances"]
    assert first["FleetId"] == again["FleetId"]
    assert len(aws.cloud.instance_histories) == 2


def test_a_fleet_mixes_no_markets_and_no_blocks(aws: SimulatedAws):
    a, b = aws.block(name="a"), aws.block(name="b")
    used = template(aws, **on_block(a.id))
    with pytest.raises(ClientError) as raised:
        fleet(aws, used, "on-demand", 1)
    assert code(raised) == ("InvalidParameterCombination", 400)
    other = aws.ec2.create_launch_template(
        LaunchTemplateName="u",
        LaunchTemplateData={"ImageId": aws.network.images["x86_64"], "InstanceType": P5, **on_block(b.id)},
    )["LaunchTemplate"]["LaunchTemplateId"]
    with pytest.raises(ClientError, match="one Capacity Block"):
        aws.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": one}
                for one in (used, {"LaunchTemplateId": other, "Version": "1"})
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "capacity-block",
            },
        )
    assert not aws.cloud.instance_histories


def test_a_version_of_a_template_inherits_what_it_does_not_say_from_its_source(aws: SimulatedAws):
    made = template(aws, KeyName="k", UserData=FIRST)
    aws.ec2.create_launch_template_version(
        LaunchTemplateId=made["LaunchTemplateId"], SourceVersion="1", LaunchTemplateData={"KeyName": "other"}
    )
    aws.ec2.create_launch_template_version(
        LaunchTemplateId=made["LaunchTemplateId"], LaunchTemplateData={"KeyName": "third"}
    )
    versions = aws.ec2.describe_launch_template_versions(LaunchTemplateId=made["LaunchTemplateId"])
    second, third = (
        next(
            one["LaunchTemplateData"]
            for one in versions["LaunchTemplateVersions"]
            if one["VersionNumber"] == n
        )
        for n in (2, 3)
    )
    assert (second["KeyName"], second["InstanceType"], second["UserData"]) == ("other", P5, FIRST)
    assert "InstanceType" not in third
    with pytest.raises(ClientError) as raised:
        aws.ec2.create_launch_template_version(
            LaunchTemplateId=made["LaunchTemplateId"], SourceVersion="9", LaunchTemplateData={}
        )
    assert code(raised)[0] == "InvalidLaunchTemplateId.VersionNotFound"
