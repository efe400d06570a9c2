"""What a launch names must be there, and its image must run on its type: directly, by template, fleet and group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.wire.groups import make_group, template
from tests.wire.server_builder import SimulatedAws

G6 = "g6.xlarge"
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "security group": ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound", "does not exist"),
    "no id of one": ({"SecurityGroupIds": ["default"]}, "InvalidGroupId.Malformed", "expecting"),
    "on a card": (
        {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-0123456789abcdef0"]}]},
        "InvalidGroup.NotFound",
        "does not exist",
    ),
    "profile": (
        {"IamInstanceProfile": {"Name": "nobody"}},
        "InvalidParameterValue",
        "Invalid IAM Instance Profile name",
    ),
    "profile's ARN": (
        {"IamInstanceProfile": {"Arn": "arn:aws:iam::123456789012:instance-profile/nobody"}},
        "InvalidParameterValue",
        "Invalid IAM Instance Profile ARN",
    ),
    "image": ({"ImageId": "arm64"}, "InvalidParameterValue", "does not match the architecture 'arm64'"),
}  # fmt: skip


def directly(aws: SimulatedAws, **data: Any) -> Any:
    return aws.run(**{"InstanceType": G6, **data})


def by_template(aws: SimulatedAws, **data: Any) -> Any:
    used = template(aws, InstanceType=G6, **data)
    return aws.ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=used)


def by_fleet(aws: SimulatedAws, **data: Any) -> Any:
    used = template(aws, InstanceType=G6, **data)
    return aws.ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": used}],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    )


def by_group(aws: SimulatedAws, **data: Any) -> Any:
    make_group(aws, LaunchTemplate=template(aws, InstanceType=G6, **data), DesiredCapacity=1)


@pytest.mark.parametrize("launch", [directly, by_template, by_fleet])
@pytest.mark.parametrize("what", WRONG)
def test_ec2_refuses_what_does_not_go_together(
    aws: SimulatedAws, launch: Callable[..., Any], what: str
) -> None:
    wrong, code, told = WRONG[what]
    with pytest.raises(ClientError, match=told) as raised:
        launch(aws, **_with_image(aws, wrong))
    assert raised.value.response["Error"]["Code"] == code
    assert not aws.cloud.instance_histories


@pytest.mark.parametrize("what", WRONG)
def test_a_group_is_not_made_from_such_a_template(aws: SimulatedAws, what: str) -> None:
    wrong, _, told = WRONG[what]
    with pytest.raises(ClientError, match=told) as raised:
        by_group(aws, **_with_image(aws, wrong))
    assert raised.value.response["Error"]["Code"] == "ValidationError"
    assert not aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]


def test_what_the_account_has_is_launched_with(aws: SimulatedAws) -> None:
    arm = {"InstanceType": "c6g.medium", "ImageId": aws.network.images["arm64"]}
    made = aws.ec2.create_security_group(GroupName="mine", Description="mine", VpcId=aws.network.vpc)
    aws.client("iam").create_instance_profile(InstanceProfileName="mine")
    (one,) = aws.run(**arm, SecurityGroupIds=[made["GroupId"]], IamInstanceProfile={"Name": "mine"})[
        "Instances"
    ]
    assert one["IamInstanceProfile"]["Arn"].endswith(":instance-profile/mine")


def _with_image(aws: SimulatedAws, wrong: dict[str, Any]) -> dict[str, Any]:
    return {**wrong, "ImageId": aws.network.images["arm64"]} if "ImageId" in wrong else wrong
