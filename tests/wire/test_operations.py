"""Every operation of the services we serve is the account's own, moto's and tested, or refused as not simulated."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.wire.server_builder import SimulatedAws
from tidemill.sim.wire import operations, passed_to_moto

SHARED = ("ec2", "autoscaling", "eks")


def model(service: str) -> Any:
    return boto3.session.Session(region_name="us-east-1").client(service).meta.service_model


@pytest.mark.parametrize("service", SHARED)
def test_no_operation_is_both_the_accounts_and_moto_s_and_none_is_misspelt(service: str):
    spelt = {f"{service}:{name}" for name in model(service).operation_names}
    ours = {name for name in operations.known() if name.startswith(f"{service}:")}
    moto_s = {name for name in passed_to_moto.OPERATIONS if name.startswith(f"{service}:")}
    assert ours <= spelt
    assert moto_s <= spelt
    assert not ours & moto_s
    assert not {service} & passed_to_moto.WHOLE_SERVICES


@pytest.mark.parametrize(
    ("service", "operation", "given"),
    [
        ("autoscaling", "put_scaling_policy", {"AutoScalingGroupName": "a", "PolicyName": "b"}),
        ("autoscaling", "create_launch_configuration", {"LaunchConfigurationName": "a", "InstanceType": "m7i.large"}),
        ("autoscaling", "enter_standby", {"AutoScalingGroupName": "a", "ShouldDecrementDesiredCapacity": True}),
        ("autoscaling", "attach_instances", {"AutoScalingGroupName": "a", "InstanceIds": ["i-1"]}),
        ("autoscaling", "detach_instances", {"AutoScalingGroupName": "a", "ShouldDecrementDesiredCapacity": True}),
        ("autoscaling", "set_instance_protection", {
            "AutoScalingGroupName": "a", "InstanceIds": ["i-1"], "ProtectedFromScaleIn": True,
        }),
        ("autoscaling", "put_warm_pool", {"AutoScalingGroupName": "a"}),
        ("ec2", "create_volume", {"AvailabilityZone": "us-east-1a", "Size": 1}),
        ("eks", "create_addon", {"clusterName": "a", "addonName": "b"}),
         ("logs", "create_log_group", {"logGroupName": "a"}),
    ],
)  # fmt: skip
def test_what_would_have_no_effect_is_refused(
    aws: SimulatedAws, service: str, operation: str, given: dict[str, Any]
):
    with pytest.raises(ClientError, match=f"does not simulate {service}:"):
        getattr(aws.client(service), operation)(**given)


def test_each_operation_of_moto_s_does_what_it_says(aws: SimulatedAws):
    called: set[str] = set()
    ec2, eks = aws.client("ec2"), aws.client("eks")
    for client in (ec2, eks):
        service = client.meta.service_model.service_name
        client.meta.events.register(
            "after-call", lambda model, service=service, **_: called.add(f"{service}:{model.name}")
        )
    network(ec2)
    images(ec2)
    templates(ec2)
    assert {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    assert ec2.describe_regions()["Regions"]
    clusters(eks)
    assert called >= passed_to_moto.OPERATIONS, sorted(passed_to_moto.OPERATIONS - called)


def network(ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"][
        "Value"
    ]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    assert ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["MapPublicIpOnLaunch"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    attached = ec2.describe_internet_gateways(InternetGatewayIds=[gateway])["InternetGateways"][0][
        "Attachments"
    ]
    assert attached[0]["VpcId"] == vpc
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    (found,) = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]
    assert gateway in {route.get("GatewayId") for route in found["Routes"]}
    assert subnet in {association.get("SubnetId") for association in found["Associations"]}
    group = ec2.create_security_group(GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    rule = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rule)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=rule)
    (there,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert there["IpPermissions"][0]["FromPort"] == 22
    filters = [{"Name": "group-id", "Values": [group]}]
    assert len(ec2.describe_security_group_rules(Filters=filters)["SecurityGroupRules"]) == 3
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=rule)
    ec2.revoke_security_group_egress(GroupId=group, IpPermissions=rule)
    assert not ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    ec2.delete_security_group(GroupId=group)
    assert vpc in {each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"]}
    other = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    alone = ec2.create_subnet(VpcId=other, CidrBlock="10.8.1.0/24")["Subnet"]["SubnetId"]
    ec2.delete_subnet(SubnetId=alone)
    ec2.delete_vpc(VpcId=other)
    assert other not in {each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"]}


def images(ec2: Any) -> None:
    image = ec2.register_image(Name="mine", RootDeviceName="/dev/xvda")["ImageId"]
    assert ec2.describe_images(ImageIds=[image])["Images"][0]["Name"] == "mine"
    ec2.deregister_image(ImageId=image)
    assert image not in {each["ImageId"] for each in ec2.describe_images(Owners=["self"])["Images"]}
    ec2.create_key_pair(KeyName="a")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    public = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    ec2.import_key_pair(KeyName="b", PublicKeyMaterial=public)
    ec2.delete_key_pair(KeyName="a")
    assert [pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]] == ["b"]


def templates(ec2: Any) -> None:
    data = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "p5.48xlarge"}
    ec2.create_launch_template(LaunchTemplateName="ttt", LaunchTemplateData=data)
    ec2.create_launch_template_version(LaunchTemplateName="ttt", LaunchTemplateData=data)
    ec2.modify_launch_template(LaunchTemplateName="ttt", DefaultVersion="2")
    (found,) = ec2.describe_launch_templates(LaunchTemplateNames=["ttt"])["LaunchTemplates"]
    assert (found["DefaultVersionNumber"], found["LatestVersionNumber"]) == (2, 2)
    versions = ec2.describe_launch_template_versions(LaunchTemplateName="ttt")["LaunchTemplateVersions"]
    assert len(versions) == 2
    ec2.delete_launch_template(LaunchTemplateName="ttt")
    assert not ec2.describe_launch_templates()["LaunchTemplates"]


def clusters(eks: Any) -> None:
    role = "arn:aws:iam::123456789012:role/eks"
    arn = eks.create_cluster(name="c", roleArn=role, resourcesVpcConfig={"subnetIds": []}, tags={"a": "b"})
    assert eks.describe_cluster(name="c")["cluster"]["roleArn"] == role
    assert "c" in eks.list_clusters()["clusters"]
    assert eks.list_tags_for_resource(resourceArn=arn["cluster"]["arn"])["tags"] == {"a": "b"}
    eks.delete_cluster(name="c")
    assert "c" not in eks.list_clusters()["clusters"]
