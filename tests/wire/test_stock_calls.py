"""What stock clients (Karpenter, eksctl) ask before and at a launch: types, prices, images, the cluster, fleets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cryptography.x509 import load_pem_x509_certificate

from tests.sim.account import GB200, P5, ZONES, Account
from tests.wire.server_builder import SimulatedAws, on_block, specs
from tidemill.sim.cloud.launches import spot_usd_h
from tidemill.sim.wire import WireServer
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.spec.platform import ClusterRef

IMAGES = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023"


def code_of(call: Any, **given: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**given)
    return str(refused.value.response["Error"]["Code"])


def every(aws: SimulatedAws, operation: str, key: str, **given: Any) -> list[Any]:
    return [one for page in aws.ec2.get_paginator(operation).paginate(**given) for one in page[key]]


# --- fleets -------------------------------------------------------------------------------------------


def template(aws: SimulatedAws, **data: Any) -> None:
    given = {"ImageId": aws.network.images["x86_64"], "InstanceType": P5, **data}
    aws.ec2.create_launch_template(LaunchTemplateName="peer", LaunchTemplateData=given)


def fleet(aws: SimulatedAws, market: str, **override: Any) -> Any:
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": "peer", "Version": "$Latest"},
        "Overrides": [override],
    }
    return aws.ec2.create_fleet(
        Type="instant", LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={"DefaultTargetCapacityType": market, "TotalTargetCapacity": 1},
    )  # fmt: skip


@pytest.mark.requirement("GB-5")
def test_a_fleet_puts_the_interfaces_of_its_template_into_the_subnet_of_its_override(aws: SimulatedAws):
    """RunInstances refuses the two together; a fleet does not, and Karpenter always sends both."""
    cards = [{"DeviceIndex": 0, "Groups": ["sg-1"]}]
    template(aws, NetworkInterfaces=cards, **on_block(aws.block(zone=ZONES[1]).id))
    subnet = aws.network.in_zone(ZONES[1]).id
    made = fleet(aws, "capacity-block", InstanceType=P5, SubnetId=subnet)
    assert not made["Errors"]
    aws.wait("1m")
    (instance,) = aws.instances()
    assert (instance["SubnetId"], instance["SecurityGroups"][0]["GroupId"]) == (subnet, "sg-1")
    refused = {
        "LaunchTemplate": {"LaunchTemplateName": "peer"},
        "SubnetId": subnet,
        "MinCount": 1,
        "MaxCount": 1,
    }
    assert code_of(aws.ec2.run_instances, **refused) == "InvalidParameterCombination"


def test_an_instance_tells_back_that_it_asked_for_reserved_capacity_only(aws: SimulatedAws):
    data = on_block(aws.block().id)
    only = "capacity-reservations-only"
    data["CapacityReservationSpecification"]["CapacityReservationPreference"] = only
    template(aws, **data)
    fleet(aws, "capacity-block", InstanceType=P5)
    aws.wait("1m")
    (instance,) = aws.instances()
    asked = instance["CapacityReservationSpecification"]
    assert asked["CapacityReservationPreference"] == only
    assert asked["CapacityReservationTarget"]["CapacityReservationId"] == instance["CapacityReservationId"]


def test_a_karpenter_that_is_a_client_ends_its_nodes_itself(aws: SimulatedAws):
    """In a rehearsal the account plays its part, 40 minutes before the end; `tidemill sim aws` does not."""
    aws.cloud.leave_to_karpenter()
    block = aws.admin(
        "blocks",
        {"name": "s", "instanceType": P5, "count": 1, "zone": ZONES[0], "duration": "1d", "endsIn": "1h"},
    )["id"]
    aws.ids(block=block, TagSpecifications=specs("instance", {"tidemill.dev/provisioner": "karpenter"}))
    aws.wait("25m")
    assert [one["State"]["Name"] for one in aws.instances()] == ["running"]
    aws.wait("6m")
    assert [one["State"]["Name"] for one in aws.instances()] == ["shutting-down"], "EC2 takes it back"


# --- images -------------------------------------------------------------------------------------------


def test_each_variant_and_architecture_has_an_image_of_its_own(aws: SimulatedAws):
    ssm = aws.client("ssm")
    variants = [("x86_64", "standard"), ("x86_64", "nvidia"), ("x86_64", "neuron"), ("arm64", "standard"),
                ("arm64", "nvidia")]  # fmt: skip
    paths = [f"{IMAGES}/{arch}/{variant}/recommended/image_id" for arch, variant in variants]
    paths += [
        f"/aws/service/bottlerocket/aws-k8s-1.33{one}/x86_64/latest/image_id" for one in ("", "-nvidia")
    ]
    found = [ssm.get_parameter(Name=path)["Parameter"]["Value"] for path in paths]
    assert len(set(found)) == len(paths)
    described = aws.ec2.describe_images(Filters=[{"Name": "image-id", "Values": found}])["Images"]
    architectures = {one["ImageId"]: one["Architecture"] for one in described}
    assert [architectures[id_] for id_ in found] == [arch for arch, _ in variants] + ["x86_64"] * 2
    assert (
        code_of(ssm.get_parameter, Name=f"{IMAGES}/arm64/neuron/recommended/image_id") == "ParameterNotFound"
    )


# --- types and prices ---------------------------------------------------------------------------------


def test_the_types_described_are_those_that_are_sold(aws: SimulatedAws):
    described = {one["InstanceType"] for one in every(aws, "describe_instance_types", "InstanceTypes")}
    offered = every(
        aws, "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone"
    )
    assert described == set(aws.cloud.catalog.types) == {one["InstanceType"] for one in offered}
    assert {one["Location"] for one in offered} == set(ZONES)


def test_types_come_in_pages_of_the_size_that_was_asked_for(aws: SimulatedAws):
    first = aws.ec2.describe_instance_types(MaxResults=5)
    assert len(first["InstanceTypes"]) == 5
    second = aws.ec2.describe_instance_types(MaxResults=5, NextToken=first["NextToken"])
    names = [one["InstanceType"] for page in (first, second) for one in page["InstanceTypes"]]
    assert len(set(names)) == 10
    assert code_of(aws.ec2.describe_instance_types, MaxResults=101) == "InvalidParameterValue"


def test_a_type_that_only_the_catalog_knows_is_described_from_it(aws: SimulatedAws):
    (found,) = aws.ec2.describe_instance_types(InstanceTypes=[GB200])["InstanceTypes"]
    kind = aws.cloud.catalog.types[GB200]
    assert found["VCpuInfo"]["DefaultVCpus"] == kind.vcpus
    assert found["GpuInfo"]["Gpus"][0]["Count"] == kind.gpus
    assert found["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"] == kind.efa
    assert found["ProcessorInfo"]["SupportedArchitectures"] == ["arm64"]
    assert code_of(aws.ec2.describe_instance_types, InstanceTypes=["p5.huge"]) == "InvalidInstanceType"


def test_types_are_found_by_the_filters_of_stock_clients(aws: SimulatedAws):
    filters = [
        {"Name": "supported-virtualization-type", "Values": ["hvm"]},
        {"Name": "processor-info.supported-architecture", "Values": ["arm64"]},
        {"Name": "instance-type", "Values": ["p*"]},
    ]
    found = aws.ec2.describe_instance_types(Filters=filters)["InstanceTypes"]
    assert [one["InstanceType"] for one in found] == [GB200]


def products(aws: SimulatedAws, **more: str) -> dict[str, float]:
    """As Karpenter asks: on-demand prices by type."""
    wanted = {
        "regionCode": "us-east-1", "serviceCode": "AmazonEC2", "preInstalledSw": "NA", "operatingSystem": "Linux",
        "capacitystatus": "Used", "marketoption": "OnDemand", **more,
    }  # fmt: skip
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    pages = (
        aws.client("pricing").get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
    )
    found = {}
    for written in (one for page in pages for one in page["PriceList"]):
        product = json.loads(written)
        (term,) = product["terms"]["OnDemand"].values()
        (price,) = term["priceDimensions"].values()
        found[product["product"]["attributes"]["instanceType"]] = float(price["pricePerUnit"]["USD"])
    return found


def test_the_price_list_has_virtual_and_bare_metal_products(aws: SimulatedAws):
    virtual = products(aws, tenancy="Shared", productFamily="Compute Instance")
    metal = products(aws, tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    assert virtual[P5] == aws.cloud.catalog.types[P5].on_demand_usd_h
    assert metal["m5.metal"] == virtual["m5.24xlarge"]
    assert not set(virtual) & set(metal)
    assert not products(aws, tenancy="Dedicated", productFamily="Compute Instance")


def test_spot_prices_are_what_a_spot_launch_costs_here_and_now(aws: SimulatedAws):
    asked = {"ProductDescriptions": ["Linux/UNIX"], "InstanceTypes": ["g6.xlarge"]}
    found = aws.ec2.describe_spot_price_history(**asked)["SpotPriceHistory"]
    assert {one["AvailabilityZone"] for one in found} == set(ZONES)
    assert {float(one["SpotPrice"]) for one in found} == {spot_usd_h(aws.cloud.catalog.types["g6.xlarge"])}
    assert {one["Timestamp"] for one in found} == {aws.account.now}
    all_of_them = every(aws, "describe_spot_price_history", "SpotPriceHistory", MaxResults=2000)
    priced = [kind for kind in aws.cloud.catalog.types.values() if spot_usd_h(kind) is not None]
    assert len(all_of_them) == len(priced) * len(ZONES)
    assert not aws.ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"]


# --- calls that moto answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "given", "left"),
    [
        ("create_launch_template",
         {"LaunchTemplateName": "dry", "LaunchTemplateData": {"InstanceType": P5}}, "describe_launch_templates"),
        ("create_security_group", {"GroupName": "dry", "Description": "dry"}, "describe_security_groups"),
        ("create_vpc", {"CidrBlock": "10.7.0.0/16"}, "describe_vpcs"),
        ("describe_instance_types", {}, "describe_vpcs"),
    ],
)  # fmt: skip
def test_a_dry_run_changes_nothing(aws: SimulatedAws, operation: str, given: dict[str, Any], left: str):
    before = getattr(aws.ec2, left)()
    assert code_of(getattr(aws.ec2, operation), **given, DryRun=True) == "DryRunOperation"
    after = getattr(aws.ec2, left)()
    assert before.keys() == after.keys()
    assert [before[key] for key in before if key != "ResponseMetadata"] == [
        after[key] for key in after if key != "ResponseMetadata"
    ]


def test_lists_of_moto_s_come_in_pages_too(aws: SimulatedAws):
    for number in range(12):
        aws.ec2.create_security_group(GroupName=f"g{number}", Description="one of many")
    whole = [one["GroupId"] for one in aws.ec2.describe_security_groups()["SecurityGroups"]]
    pages = list(aws.ec2.get_paginator("describe_security_groups").paginate(MaxResults=5))
    assert [len(page["SecurityGroups"]) for page in pages] == [5, 5, len(whole) - 10]
    assert [one["GroupId"] for page in pages for one in page["SecurityGroups"]] == whole
    assert code_of(aws.ec2.describe_security_groups, NextToken="nobodys") == "InvalidNextToken"
    assert code_of(aws.ec2.describe_vpcs, MaxResults=1001) == "InvalidParameterValue"


def test_instance_profiles_are_listed_by_their_path(aws: SimulatedAws):
    """Karpenter deletes those under its own path that it does not know."""
    iam = aws.client("iam")
    iam.create_instance_profile(InstanceProfileName="theirs", Path="/karpenter/us-east-1/ml/")
    listed = iam.list_instance_profiles(PathPrefix="/karpenter/us-east-1/ml/")["InstanceProfiles"]
    assert [one["InstanceProfileName"] for one in listed] == ["theirs"]
    assert {one["InstanceProfileName"] for one in iam.list_instance_profiles()["InstanceProfiles"]} == {
        "node",
        "theirs",
    }


# --- the cluster --------------------------------------------------------------------------------------

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def with_cluster() -> Iterator[SimulatedAws]:
    """A document names the cluster; nothing answers at the API server."""
    aws = SimulatedAws.__new__(SimulatedAws)
    aws.account, aws._clients = Account(), {}
    aws.server = WireServer(
        aws.account.cloud, aws.account.timeline, kube=KubeApi("http://127.0.0.1:1", ca=CA),
        cluster=ClusterRef(name="ml", version="1.34", service_cidr="10.96.0.0/16"),
    )  # fmt: skip
    aws.url = aws.server.start()
    yield aws
    aws.stop()


def test_the_cluster_is_the_one_behind_the_simulator(with_cluster: SimulatedAws):
    cluster = with_cluster.client("eks").describe_cluster(name="ml")["cluster"]
    assert (cluster["endpoint"], cluster["version"]) == ("http://127.0.0.1:1", "1.34")
    assert base64.b64decode(cluster["certificateAuthority"]["data"]).decode() == CA
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.96.0.0/16"
    vpc = cluster["resourcesVpcConfig"]
    assert vpc["vpcId"] == with_cluster.network.vpc
    tagged = [{"Name": "tag:kubernetes.io/cluster/ml", "Values": ["owned"]}]
    (group,) = with_cluster.ec2.describe_security_groups(Filters=tagged)["SecurityGroups"]
    assert group["GroupId"] == vpc["clusterSecurityGroupId"]
    (rule,) = group["IpPermissions"]
    assert rule["UserIdGroupPairs"][0]["GroupId"] == group["GroupId"]


def test_a_cluster_that_was_made_by_a_call_is_whole_too(aws: SimulatedAws):
    eks = aws.client("eks")
    network = {"subnetIds": [aws.network.subnets[0].id]}
    eks.create_cluster(name="c", roleArn="arn:aws:iam::123456789012:role/c", resourcesVpcConfig=network)
    cluster = eks.describe_cluster(name="c")["cluster"]
    assert cluster["endpoint"].startswith("https://")
    authority = load_pem_x509_certificate(base64.b64decode(cluster["certificateAuthority"]["data"]))
    assert authority.not_valid_after_utc > aws.account.now
    assert cluster["resourcesVpcConfig"]["subnetIds"] == network["subnetIds"]
    assert cluster["resourcesVpcConfig"]["clusterSecurityGroupId"].startswith("sg-")
    default = eks.describe_cluster_versions(defaultOnly=True)["clusterVersions"]
    assert [one["clusterVersion"] for one in default] == [cluster["version"]]


def test_eks_tells_its_versions_the_newest_first(aws: SimulatedAws):
    found = [
        one["clusterVersion"] for one in aws.client("eks").describe_cluster_versions()["clusterVersions"]
    ]
    assert found == sorted(found, reverse=True)
    assert len(found) > 3
