"""What nodes boot from, as EC2 spells it: each field by the source, the node class and who launches."""

from __future__ import annotations

from base64 import b64encode

import boto3
import pytest
from botocore.validate import ParamValidator

from tests.provision.documents import BLOCK, IMAGE, ODCR, ON_DEMAND, SPOT, booted, documents, template
from tidemill.model.errors import SpecError
from tidemill.provision.launch_template import missing_fields, template_name

FULL = {
    "efa": True,
    "instanceStorePolicy": "RAID0",
    "blockDeviceMappings": [
        {
            "deviceName": "/dev/xvda",
            "ebs": {"volumeSize": "500Gi", "iops": 6000, "throughput": 500, "kmsKeyID": "k-1"},
        }
    ],
}


@pytest.fixture(scope="module")
def complaints():
    """Of EC2's own model of a launch template: a misspelt or wrongly typed field is found."""
    client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    shape = client.meta.service_model.operation_model("CreateLaunchTemplate").input_shape

    def found(name, data):
        asked = {"LaunchTemplateName": name, "LaunchTemplateData": data}
        return ParamValidator().validate(asked, shape).generate_report()

    return found


@pytest.mark.requirement("SM-1")
def test_a_block_template_has_all_seven_fields():
    made = template(documents())
    assert made.data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert made.data["CapacityReservationSpecification"] == {
        "CapacityReservationTarget": {"CapacityReservationId": BLOCK.id}
    }
    assert made.data["IamInstanceProfile"] == {"Name": "ml-node"}
    assert made.data["ImageId"] == IMAGE
    assert made.data["InstanceType"] == "p5.48xlarge"
    assert made.data["SecurityGroupIds"] == ["sg-0aa0aa0a"]
    assert "kind: NodeConfig" in booted(made)


@pytest.mark.requirement("SM-1")
@pytest.mark.parametrize("node_class", [{}, FULL], ids=["plain", "full"])
@pytest.mark.parametrize("source", [BLOCK, ODCR, SPOT, ON_DEMAND], ids=lambda source: source.kind.value)
@pytest.mark.parametrize("managed", [False, True], ids=["self-managed", "node group"])
def test_ec2_accepts_every_field_of_it(complaints, node_class, source, managed):
    made = template(documents(node_class=node_class), source=source, managed=managed)
    assert complaints(made.name, made.data) == ""
    assert "ImageID" in complaints(made.name, {**made.data, "ImageID": IMAGE})


@pytest.mark.parametrize(
    ("source", "market", "reservation"),
    [
        (ODCR, None, {"CapacityReservationTarget": {"CapacityReservationId": ODCR.id}}),
        (SPOT, {"MarketType": "spot"}, None),
        (ON_DEMAND, None, {"CapacityReservationPreference": "none"}),
    ],
    ids=lambda value: value.kind.value if hasattr(value, "kind") else "",
)
def test_each_source_has_its_market_options_and_target(source, market, reservation):
    made = template(documents(), source=source)
    assert made.data.get("InstanceMarketOptions") == market
    assert made.data.get("CapacityReservationSpecification") == reservation


@pytest.mark.requirement("SM-1")
@pytest.mark.requirement("PE-19")
def test_with_efa_each_card_has_an_interface_with_the_security_groups():
    made = template(documents(node_class={"efa": True}))
    cards = made.data["NetworkInterfaces"]
    assert [card["NetworkCardIndex"] for card in cards] == list(range(32))
    assert [card["DeviceIndex"] for card in cards] == [0] + [1] * 31
    assert [card["InterfaceType"] for card in cards] == ["efa"] + ["efa-only"] * 31
    assert all(card["Groups"] == ["sg-0aa0aa0a"] for card in cards)
    assert "SecurityGroupIds" not in made.data


def test_a_type_without_efa_has_no_interfaces():
    spec = documents(node_class={"efa": True}, requirements={"instanceTypes": ["g6.xlarge"]})
    made = template(spec, source=ON_DEMAND, instance_type="g6.xlarge")
    assert "NetworkInterfaces" not in made.data
    assert made.data["SecurityGroupIds"] == ["sg-0aa0aa0a"]


def test_metadata_requires_a_token_and_reaches_pods():
    assert template(documents()).data["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
    }


@pytest.mark.requirement("PE-1")
def test_volumes_follow_the_node_class():
    made = template(documents(node_class=FULL))
    (device,) = made.data["BlockDeviceMappings"]
    assert device == {
        "DeviceName": "/dev/xvda",
        "Ebs": {
            "VolumeSize": 500, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True,
            "Iops": 6000, "Throughput": 500, "KmsKeyId": "k-1",
        },
    }  # fmt: skip


def test_instances_volumes_and_interfaces_carry_our_tags():
    made = template(documents())
    assert dict(made.tags) == {
        "deployment": "tides",
        "tidemill.dev/pool": "train",
        "tidemill.dev/provisioner": "native",
    }
    kinds = {
        each["ResourceType"]: {t["Key"]: t["Value"] for t in each["Tags"]}
        for each in made.data["TagSpecifications"]
    }
    assert set(kinds) == {"instance", "volume", "network-interface"}
    assert kinds["instance"] == dict(made.tags) | {
        "Name": "ml-train-Node",
        "kubernetes.io/cluster/ml": "owned",
    }


@pytest.mark.requirement("MG-1")
def test_the_template_of_a_node_group_has_no_role_and_no_shutdown_behavior():
    made = template(documents(), managed=True)
    assert "IamInstanceProfile" not in made.data
    assert "InstanceInitiatedShutdownBehavior" not in made.data
    assert made.data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert "InstanceMarketOptions" not in template(documents(), source=SPOT, managed=True).data


@pytest.mark.requirement("MG-1")
def test_without_an_image_eks_adds_the_cluster_settings():
    made = template(documents(), managed=True, image="")
    assert "ImageId" not in made.data
    assert "apiServerEndpoint" not in booted(made)
    assert "node-labels" not in booted(made)
    assert "apiServerEndpoint" in booted(template(documents(), managed=True))


@pytest.mark.parametrize(
    ("role", "profile"),
    [
        ("ml-node", {"Name": "ml-node"}),
        ("arn:aws:iam::123456789012:role/team/ml-node", {"Name": "ml-node"}),
        (
            "arn:aws:iam::123456789012:instance-profile/other",
            {"Arn": "arn:aws:iam::123456789012:instance-profile/other"},
        ),
    ],
)
def test_the_instance_profile_has_the_name_of_the_role_unless_one_is_named(role, profile):
    assert template(documents(node_class={"role": role})).data["IamInstanceProfile"] == profile


@pytest.mark.requirement("TR-10")
def test_a_zone_without_subnets_is_an_error():
    with pytest.raises(SpecError, match="no subnets in us-east-1a"):
        template(documents(platform={"subnets": {"us-east-1b": ["subnet-0b1"]}}))


def test_a_template_name_that_is_too_long_is_cut_and_stays_unique():
    spec = documents(platform={"deployment": "d" * 63})
    pool = spec.pools["train"].model_copy(
        update={"metadata": spec.pools["train"].metadata.model_copy(update={"name": "p" * 63})}
    )
    one, other = (template_name(spec, pool, "p5.48xlarge", source) for source in (BLOCK, ODCR))
    assert len(one) == len(other) == 128
    assert one != other


def test_what_a_real_launch_still_lacks_is_listed():
    assert missing_fields(documents(), documents().pools["train"]) == ()
    bare = documents(platform={"cluster": {"name": "ml"}, "nodeRole": "", "securityGroups": []})
    listed = missing_fields(bare, bare.pools["train"])
    assert len(listed) == 5
    assert listed[0] == "Platform prod: spec.cluster.endpoint is not set"


# --- an existing template as the base -----------------------------------------------------------------

LAUNCH_TEMPLATE = {"launchTemplate": {"id": "lt-0abc"}}


@pytest.mark.requirement("PE-1")
def test_an_existing_template_is_merged():
    base = {
        "KeyName": "ops",
        "Monitoring": {"Enabled": True},
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvdb", "Ebs": {"VolumeSize": 100}}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "ml"}]}],
        "MetadataOptions": {"InstanceMetadataTags": "enabled"},
        "UserData": b64encode(b"#!/bin/sh\necho theirs\n").decode(),
    }
    made = template(documents(node_class=LAUNCH_TEMPLATE | FULL), base=base)
    assert made.data["KeyName"] == "ops"
    assert [each["DeviceName"] for each in made.data["BlockDeviceMappings"]] == ["/dev/xvdb", "/dev/xvda"]
    assert made.data["MetadataOptions"] == {
        "InstanceMetadataTags": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
    }
    instance = made.data["TagSpecifications"][0]["Tags"]
    assert {"Key": "team", "Value": "ml"} in instance
    assert {"Key": "deployment", "Value": "tides"} in instance
    assert booted(made).index("echo theirs") < booted(made).index("kind: NodeConfig")


@pytest.mark.requirement("PE-1")
@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        (
            {"InstanceType": "p4d.24xlarge"},
            "sets InstanceType to 'p4d.24xlarge', and Tidemill needs 'p5.48xlarge'",
        ),
        ({"InstanceRequirements": {"VCpuCount": {"Min": 1}}}, "sets InstanceRequirements"),
        ({"MetadataOptions": {"HttpTokens": "optional"}}, "sets MetadataOptions.HttpTokens to 'optional'"),
        (
            {
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "deployment", "Value": "x"}]}
                ]
            },
            r"TagSpecifications\[instance\]\.Tags\[deployment\]\.Value",
        ),
        ({"SecurityGroupIds": ["sg-other"]}, "sets SecurityGroupIds"),
    ],
)
def test_a_clash_with_an_existing_template_is_an_error_that_names_the_field(base, sentence):
    with pytest.raises(SpecError, match=f"lt-0abc.*{sentence}"):
        template(documents(node_class=LAUNCH_TEMPLATE), base=base)


def test_interfaces_of_an_existing_template_are_kept_unless_efa_is_asked_for():
    base = {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": False}]}
    made = template(documents(node_class=LAUNCH_TEMPLATE), base=base)
    assert made.data["NetworkInterfaces"] == [
        {"DeviceIndex": 0, "AssociatePublicIpAddress": False, "Groups": ["sg-0aa0aa0a"]}
    ]
    assert "SecurityGroupIds" not in made.data
    with pytest.raises(SpecError, match="efa: false"):
        template(documents(node_class=LAUNCH_TEMPLATE | {"efa": True}), base=base)


def test_with_efa_the_security_groups_of_an_existing_template_move_into_the_interfaces():
    spec = documents(node_class=LAUNCH_TEMPLATE | {"efa": True}, platform={"securityGroups": []})
    made = template(spec, base={"SecurityGroupIds": ["sg-theirs"]})
    assert "SecurityGroupIds" not in made.data
    assert made.data["NetworkInterfaces"][31]["Groups"] == ["sg-theirs"]


@pytest.mark.requirement("MG-1")
@pytest.mark.parametrize("key", ["IamInstanceProfile", "InstanceInitiatedShutdownBehavior"])
def test_a_field_that_eks_rejects_is_an_error_before_the_call(key):
    with pytest.raises(SpecError, match=f"EKS rejects a launch template with {key}"):
        template(documents(node_class=LAUNCH_TEMPLATE), managed=True, base={key: "x"})


def test_user_data_that_is_too_long_is_an_error_with_its_size():
    with pytest.raises(SpecError, match="EC2 allows 16384"):
        template(
            documents(
                node_class={"userData": "#!/bin/sh\n" + "# 40 characters of comment ............\n" * 500}
            )
        )
