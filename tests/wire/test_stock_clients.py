"""What stock clients (Karpenter, Node Termination Handler, eksctl) read of instances and events, as AWS writes it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID

from tests.sim.account import P5
from tests.wire.groups import group, make_group
from tests.wire.server_builder import SimulatedAws, on_block
from tests.wire.test_bus import Listening


def test_an_instance_says_the_id_of_its_zone(aws: SimulatedAws):
    aws.run(aws.block().id)
    aws.wait("1m")
    (instance,) = aws.instances()
    zones = {
        zone["ZoneName"]: zone["ZoneId"]
        for zone in aws.ec2.describe_availability_zones()["AvailabilityZones"]
    }
    placement = instance["Placement"]
    assert placement["AvailabilityZoneId"] == zones[placement["AvailabilityZone"]]


def test_an_instance_has_the_network_interfaces_of_its_template(aws: SimulatedAws):
    kinds = ["interface", *["efa-only"] * 3]
    cards = [
        {"DeviceIndex": int(bool(number)), "NetworkCardIndex": number, "InterfaceType": kind}
        for number, kind in enumerate(kinds)
    ]
    data = {
        "ImageId": aws.network.images["x86_64"], "InstanceType": P5, "NetworkInterfaces": cards,
        **on_block(aws.block().id),
    }  # fmt: skip
    aws.ec2.create_launch_template(LaunchTemplateName="efa", LaunchTemplateData=data)
    aws.ec2.run_instances(LaunchTemplate={"LaunchTemplateName": "efa"}, MinCount=1, MaxCount=1)
    aws.wait("1m")
    (instance,) = aws.instances()
    found = instance["NetworkInterfaces"]
    assert Counter(card["InterfaceType"] for card in found) == {"interface": 1, "efa-only": 3}
    assert found[0]["PrivateIpAddress"] == instance["PrivateIpAddress"]
    assert [card["Attachment"]["NetworkCardIndex"] for card in found] == [0, 1, 2, 3]


def test_an_instance_without_any_asked_for_has_one_interface(aws: SimulatedAws):
    aws.run(aws.block().id)
    aws.wait("1m")
    (instance,) = aws.instances()
    assert [card["InterfaceType"] for card in instance["NetworkInterfaces"]] == ["interface"]


def test_a_terminated_instance_has_a_private_name_without_letters(aws: SimulatedAws):
    (id_,) = aws.ids(block=aws.block().id)
    aws.wait("2m")
    assert aws.instances()[0]["PrivateDnsName"].startswith("ip-")
    aws.ec2.terminate_instances(InstanceIds=[id_])
    aws.wait("5m")
    (instance,) = aws.instances()
    assert (instance["State"]["Name"], instance["PrivateDnsName"]) == ("terminated", "")


def test_members_of_a_group_carry_its_name_also_after_their_end(aws: SimulatedAws):
    make_group(aws, aws.block(), DesiredCapacity=1)
    aws.wait("2m")
    by_group = [{"Name": "tag:aws:autoscaling:groupName", "Values": ["g"]}]
    (member,) = aws.instances(Filters=by_group)
    assert member["InstanceId"] == group(aws)["Instances"][0]["InstanceId"]
    aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=0)
    aws.wait("10m")
    (ended,) = aws.instances(Filters=by_group)
    assert ended["State"]["Name"] == "terminated"


def test_events_have_uuids_and_name_their_resources(aws: SimulatedAws):
    listening = Listening(aws)
    block = aws.block(start=timedelta(hours=1)).id
    aws.server.advance(by=timedelta(hours=2))
    (instance,) = aws.ids(block=block)
    aws.wait("2m")
    told = listening.messages()
    assert len({UUID(message["id"]) for message in told}) == len(told) >= 2
    here = f"arn:aws:ec2:{aws.server.wire.region}:{aws.server.wire.account}"
    named = {resource for message in told for resource in message["resources"]}
    assert named == {f"{here}:capacity-reservation/{block}", f"{here}:instance/{instance}"}


def test_a_lifecycle_action_has_a_token_that_sdks_accept(aws: SimulatedAws):
    listening, asg = Listening(aws), aws.client("autoscaling")
    make_group(aws, aws.block(), DesiredCapacity=1)
    asg.put_lifecycle_hook(
        AutoScalingGroupName="g", LifecycleHookName="drain", HeartbeatTimeout=600,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
    )  # fmt: skip
    aws.wait("2m")
    asg.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=0)
    aws.wait("2m")
    (told,) = [message for message in listening.messages() if "Lifecycle Action" in message["detail-type"]]
    token = told["detail"]["LifecycleActionToken"]
    assert len(token) == 36
    assert any("autoScalingGroupName/g" in resource for resource in told["resources"])
    asg.complete_lifecycle_action(
        AutoScalingGroupName="g", LifecycleHookName="drain", LifecycleActionToken=token,
        LifecycleActionResult="CONTINUE",
    )  # fmt: skip
    aws.wait("3m")
    assert group(aws)["Instances"] == []


def test_addresses_of_instances_that_are_gone_are_used_again(aws: SimulatedAws):
    """A subnet of sixteen addresses has eleven for instances."""
    vpc = aws.network.vpc
    cidr = aws.ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["CidrBlock"].rsplit(".", 2)[0]
    small = aws.ec2.create_subnet(
        VpcId=vpc, CidrBlock=f"{cidr}.255.240/28", AvailabilityZone=aws.network.subnets[0].zone
    )["Subnet"]["SubnetId"]
    seen: set[str] = set()
    for _ in range(3):
        ids = aws.ids(InstanceType="g6.xlarge", SubnetId=small, MinCount=5, MaxCount=5)
        aws.wait("2m")
        up = [one["PrivateIpAddress"] for one in aws.instances(InstanceIds=ids)]
        assert len(set(up)) == 5
        seen |= set(up)
        aws.ec2.terminate_instances(InstanceIds=ids)
        aws.wait("5m")
    assert len(seen) == 11
