"""Groups and node groups over the wire, for the tests: templates, builders with keyword overrides."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.sim.account import P5, ZONES
from tests.wire.server_builder import OURS, SimulatedAws, on_block, specs
from tidemill.model.capacity import Reservation

ROLE = "arn:aws:iam::123456789012:role/node"


def template_data(aws: SimulatedAws, block: Reservation | None, **data: Any) -> dict[str, Any]:
    """Onto a block; None: on demand."""
    given = {
        "InstanceType": P5,
        "ImageId": aws.network.images["x86_64"],
        "TagSpecifications": specs("instance", OURS),
    }
    if block is not None:
        given |= on_block(block.id)
    return {key: value for key, value in (given | data).items() if value is not None}


def template(
    aws: SimulatedAws, block: Reservation | None = None, name: str = "lt", **data: Any
) -> dict[str, str]:
    """A launch template, as groups name it."""
    made = aws.ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData=template_data(aws, block, **data)
    )
    return {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}


def second_version(aws: SimulatedAws, lt: dict[str, str], block: Reservation | None) -> None:
    aws.ec2.create_key_pair(KeyName="somebody")
    aws.ec2.create_launch_template_version(
        LaunchTemplateId=lt["LaunchTemplateId"],
        LaunchTemplateData=template_data(aws, block, KeyName="somebody"),
    )


def subnet(aws: SimulatedAws, zone: str = ZONES[0]) -> str:
    return str(aws.network.in_zone(zone).id)


def make_group(aws: SimulatedAws, block: Reservation | None = None, name: str = "g", **given: Any) -> None:
    asked: dict[str, Any] = {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 8,
        "LaunchTemplate": template(aws, block, f"lt-{name}"),
        "VPCZoneIdentifier": subnet(aws),
        "Tags": [{"Key": "Name", "Value": "ml-g-Node", "PropagateAtLaunch": True}],
    }
    aws.client("autoscaling").create_auto_scaling_group(**asked | given)


def group(aws: SimulatedAws, name: str = "g") -> dict[str, Any]:
    (found,) = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    return dict(found)


def make_cluster(aws: SimulatedAws, name: str = "ml") -> None:
    aws.client("eks").create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": [subnet(aws)]})


def make_node_group(aws: SimulatedAws, block: Reservation | None, **given: Any) -> dict[str, Any]:
    lt = given.pop("template", None) or template(aws, block, "lt-eks")
    asked: dict[str, Any] = {
        "clusterName": "ml",
        "nodegroupName": "train-a",
        "nodeRole": ROLE,
        "subnets": [subnet(aws)],
        "scalingConfig": {"minSize": 0, "desiredSize": 0, "maxSize": 2},
        "launchTemplate": {"id": lt["LaunchTemplateId"], "version": lt["Version"]},
        "capacityType": "CAPACITY_BLOCK" if block is not None else "ON_DEMAND",
        "tags": OURS,
    }
    return dict(aws.client("eks").create_nodegroup(**asked | given)["nodegroup"])


def node_group(aws: SimulatedAws) -> dict[str, Any]:
    return dict(aws.client("eks").describe_nodegroup(clusterName="ml", nodegroupName="train-a")["nodegroup"])


def schedule(aws: SimulatedAws, name: str, at: datetime, desired: int) -> None:
    aws.client("autoscaling").put_scheduled_update_group_action(
        AutoScalingGroupName="g", ScheduledActionName=name, StartTime=at, DesiredCapacity=desired
    )
