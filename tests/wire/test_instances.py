"""Instances as EC2 lists them: by id, by filter, in pages; what is announced about them; their tags."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import P5, ZONES
from tests.wire.server_builder import OURS, SimulatedAws, specs, tags_of
from tests.wire.test_blocks import code
from tidemill.spec import names

G6 = "g6.xlarge"


def named(**filters: str) -> dict[str, object]:
    return {"Filters": [{"Name": name.replace("_", "-"), "Values": [filters[name]]} for name in filters]}


def test_instances_are_found_by_what_ec2_filters_by(aws: SimulatedAws):
    block = aws.block(count=2)
    (a,) = aws.ids(block=block.id, TagSpecifications=specs("instance", OURS), ClientToken="tok")
    (b,) = aws.ids(InstanceType=G6, Placement={"AvailabilityZone": ZONES[1]})
    aws.wait("2m")

    def found(**filters: str) -> set[str]:
        return {instance["InstanceId"] for instance in aws.instances(**named(**filters))}

    assert found() == {a, b}
    assert found(instance_type="p5*") == {a}
    assert found(availability_zone=ZONES[1]) == {b}
    assert found(capacity_reservation_id=block.id) == {a}
    assert found(instance_lifecycle="capacity-block") == {a}
    assert found(instance_state_name="running") == {a, b}
    assert found(instance_state_name="stopped") == set()
    assert found(client_token="tok") == {a}
    assert found(subnet_id=aws.network.in_zone(ZONES[1]).id) == {b}
    assert found(tag_key=names.TAG_POOL) == {a}
    assert found(**{"tag:deployment": "mill"}) == {a}
    assert found(**{"tag:deployment": "other"}) == set()
    with pytest.raises(ClientError) as raised:
        found(colour="red")
    assert code(raised) == ("InvalidParameterValue", 400)


def test_instances_of_one_call_are_one_reservation_and_have_addresses_of_their_own(aws: SimulatedAws):
    ids = aws.ids(InstanceType=G6, MinCount=3, MaxCount=3)
    aws.ids(InstanceType=G6)
    aws.wait("2m")
    calls = aws.ec2.describe_instances()["Reservations"]
    assert sorted(len(call["Instances"]) for call in calls) == [1, 3]
    seen = aws.instances()
    assert len({one["PrivateIpAddress"] for one in seen}) == len({one["PrivateDnsName"] for one in seen}) == 4
    assert seen[0]["PrivateDnsName"].endswith(".ec2.internal")
    assert {one["InstanceId"] for one in seen} >= set(ids)


def test_many_instances_come_in_pages(aws: SimulatedAws):
    ids = aws.ids(InstanceType=G6, MinCount=12, MaxCount=12)
    aws.wait("2m")
    pages = list(aws.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    seen = [one["InstanceId"] for page in pages for call in page["Reservations"] for one in call["Instances"]]
    assert len(pages) == 3
    assert sorted(seen) == sorted(ids)
    for size in (4, 1001):
        with pytest.raises(ClientError) as raised:
            aws.ec2.describe_instances(MaxResults=size)
        assert code(raised) == ("InvalidParameterValue", 400)


def test_an_instance_is_listed_a_moment_late_and_for_an_hour_after_its_end(aws: SimulatedAws):
    (id_,) = aws.ids(InstanceType=G6, ClientToken="late")  # its delays are drawn from its id
    with pytest.raises(ClientError) as raised:
        aws.instances(InstanceIds=[id_])
    assert code(raised) == ("InvalidInstanceID.NotFound", 400)
    aws.wait("2m")
    aws.ec2.terminate_instances(InstanceIds=[id_])
    aws.wait("5m")
    (one,) = aws.instances(InstanceIds=[id_])
    assert one["State"] == {"Code": 48, "Name": "terminated"}
    assert "SubnetId" not in one
    assert one["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    aws.wait("1h")
    assert aws.instances() == []
    with pytest.raises(ClientError) as raised:
        aws.ec2.terminate_instances(InstanceIds=[id_])
    assert code(raised) == ("InvalidInstanceID.NotFound", 400)


def test_terminating_several_instances_with_one_unknown_ends_none(aws: SimulatedAws):
    (id_,) = aws.ids(InstanceType=G6)
    aws.wait("2m")
    with pytest.raises(ClientError, match="i-00000000000000000"):
        aws.ec2.terminate_instances(InstanceIds=[id_, "i-00000000000000000"])
    assert aws.instances()[0]["State"]["Name"] == "running"


def test_instances_are_neither_stopped_nor_started(aws: SimulatedAws):
    (id_,) = aws.ids(InstanceType=G6)
    aws.wait("2m")
    for call in (aws.ec2.stop_instances, aws.ec2.start_instances, aws.ec2.reboot_instances):
        with pytest.raises(ClientError) as raised:
            call(InstanceIds=[id_])
        assert code(raised) == ("UnsupportedOperation", 400)


# --- what AWS announces -------------------------------------------------------------------------------


@pytest.mark.requirement("PE-17")
def test_a_retirement_is_a_scheduled_event_and_a_spot_interruption_shows_in_its_request(aws: SimulatedAws):
    (spot,) = aws.ids(
        InstanceType=G6,
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=specs("instance", OURS),
    )
    (old,) = aws.ids(InstanceType=G6, TagSpecifications=specs("instance", OURS))
    aws.ids(InstanceType=G6)
    aws.wait("2m")
    assert aws.admin("faults", {"fault": "retirement", "target": old, "duration": "6h"})["struck"] == old
    assert aws.admin("faults", {"fault": "spot-interruption"})["struck"] == spot
    asked = {"Filters": [{"Name": "event.code", "Values": ["instance-retirement"]}]}
    seen = {
        one["InstanceId"]: one["Events"][0]
        for one in aws.ec2.describe_instance_status(**asked)["InstanceStatuses"]
    }
    assert set(seen) == {old}
    assert seen[old]["NotBefore"].astimezone(UTC) == aws.account.now + timedelta(hours=6)
    marked = {"Filters": [{"Name": "status-code", "Values": ["marked-for-termination"]}]}
    (request,) = aws.ec2.describe_spot_instance_requests(**marked)["SpotInstanceRequests"]
    assert request["InstanceId"] == spot
    assert request["Status"]["UpdateTime"].astimezone(UTC) == aws.account.now
    described = aws.ec2.describe_instances(InstanceIds=[spot])["Reservations"][0]["Instances"][0]
    assert described["SpotInstanceRequestId"] == request["SpotInstanceRequestId"]
    aws.wait("2m")
    assert aws.account.instance(spot).state.value == "shutting-down"
    (ended,) = aws.ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (ended["State"], ended["Status"]["Code"]) == ("closed", "instance-terminated-no-capacity")


def test_only_running_instances_have_a_status_unless_all_are_asked_for(aws: SimulatedAws):
    (id_,) = aws.ids(InstanceType=G6)
    aws.wait("2m")
    aws.ec2.terminate_instances(InstanceIds=[id_])
    assert not aws.ec2.describe_instance_status()["InstanceStatuses"]
    (one,) = aws.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert one["InstanceState"]["Name"] == "shutting-down"


# --- tags ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-23")
def test_tags_of_instances_reach_the_engine_and_come_back_whole(aws: SimulatedAws):
    (id_,) = aws.ids(InstanceType=G6, TagSpecifications=specs("instance", {"Name": "worker"}))
    aws.wait("10s")
    tags = [{"Key": key, "Value": value} for key, value in {**OURS, "colour": "red"}.items()]
    aws.ec2.create_tags(Resources=[id_], Tags=tags)
    assert tags_of(aws.instances()[0]) == {**OURS, "colour": "red", "Name": "worker"}
    assert (aws.account.instance(id_).owner, aws.account.instance(id_).pool) == ("mill", "train")
    going = [
        {"Key": "colour"},
        {"Key": names.TAG_OWNER, "Value": "other"},
        {"Key": names.TAG_POOL, "Value": "train"},
    ]
    aws.ec2.delete_tags(Resources=[id_], Tags=going)
    assert tags_of(aws.instances()[0]) == {names.TAG_OWNER: "mill", "Name": "worker"}
    assert (aws.account.instance(id_).owner, aws.account.instance(id_).pool) == ("mill", "")


@pytest.mark.requirement("CB-17")
def test_tags_of_reservations_and_of_what_moto_keeps_go_through_one_call(aws: SimulatedAws):
    block, subnet = aws.block(), aws.network.subnets[0].id
    aws.ec2.create_tags(Resources=[block.id, subnet], Tags=[{"Key": names.TAG_POOL, "Value": "serve"}])
    assert aws.account.reservation(block.id).pool == "serve"
    found = aws.ec2.describe_tags(Filters=[{"Name": "key", "Values": [names.TAG_POOL]}])["Tags"]
    assert {(one["ResourceId"], one["ResourceType"]) for one in found} == {
        (block.id, "capacity-reservation"),
        (subnet, "subnet"),
    }
    (seen,) = aws.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
    assert tags_of(seen) == {names.TAG_POOL: "serve"}
    aws.ec2.delete_tags(Resources=[block.id, subnet], Tags=[{"Key": names.TAG_POOL}])
    assert aws.account.reservation(block.id).pool == ""
    assert aws.account.reservation(block.id).owner == "mill"


def test_nothing_is_tagged_where_one_is_unknown_or_a_key_is_awss_own(aws: SimulatedAws):
    block = aws.block()
    for resources, key, refused in (
        ([block.id, "cr-00000000000000000"], "a", "InvalidCapacityReservationId.NotFound"),
        ([block.id, "i-00000000000000000"], "a", "InvalidInstanceID.NotFound"),
        ([block.id], "aws:a", "InvalidParameterValue"),
        ([block.id], "k" * 129, "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as raised:
            aws.ec2.create_tags(Resources=resources, Tags=[{"Key": key, "Value": "b"}])
        assert code(raised)[0] == refused
    assert tags_of(aws.reservations()[0]) == {"deployment": "mill"}


def test_an_image_and_the_instance_types_are_there(aws: SimulatedAws):
    image = aws.network.images["x86_64"]
    (found,) = aws.ec2.describe_images(ImageIds=[image])["Images"]
    assert found["Architecture"] == "x86_64"
    (kind,) = aws.ec2.describe_instance_types(InstanceTypes=[P5])["InstanceTypes"]
    assert kind["GpuInfo"]["Gpus"][0]["Count"] == 8
    name = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"
    ssm = aws.client("ssm")
    assert ssm.get_parameter(Name=name)["Parameter"]["Value"] == image
    with pytest.raises(ClientError) as raised:
        ssm.get_parameter(Name=name.replace("recommended", "recomended"))
    assert code(raised)[0] == "ParameterNotFound"
