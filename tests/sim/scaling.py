"""Templates and groups for the tests, with keyword overrides."""

from __future__ import annotations

from typing import Any

from tests.sim.account import P5, ZONES, Account, tags
from tidemill.model.capacity import Reservation
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.launch_template import launch_spec_of
from tidemill.sim.cloud.node_groups import NodeGroupRequest
from tidemill.sim.cloud.scaling_group import AutoScalingGroup


def template_data(block: Reservation | None = None, **given: Any) -> dict[str, Any]:
    """LaunchTemplateData of a launch onto a block; None: on demand."""
    data: dict[str, Any] = {"InstanceType": P5, "ImageId": "ami-0a1b2c3d4e5f60718"}
    if block is not None:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        target = {"CapacityReservationId": block.id}
        data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    return data | given


def tagged(data: dict[str, Any], pairs: Pairs = ()) -> dict[str, Any]:
    """With the tags of its instances, which EKS takes from nowhere else."""
    spelled = [{"Key": key, "Value": value} for key, value in pairs or tags(provisioner="managed")]
    return data | {"TagSpecifications": [{"ResourceType": "instance", "Tags": spelled}]}


def make_group(
    account: Account, block: Reservation | None = None, name: str = "g", **given: Any
) -> AutoScalingGroup:
    settings: dict[str, Any] = {
        "zones": (block.zone if block is not None else ZONES[0],),
        "maximum": 8,
        "propagated": tags(provisioner="asg"),
    } | given
    return account.cloud.groups.create(name, launch_spec_of(template_data(block)), **settings)


def node_group_request(block: Reservation | None, **given: Any) -> NodeGroupRequest:
    """An EKS node group on a block, as EKS wants it."""
    settings: dict[str, Any] = {
        "name": "train-a",
        "role": "arn:aws:iam::123456789012:role/node",
        "data": tagged(template_data(block)),
        "subnets": ("subnet-0a1",),
        "zones": (ZONES[0],),
        "size": (0, 0, 8),
        "capacity_type": "CAPACITY_BLOCK" if block is not None else "ON_DEMAND",
    }
    return NodeGroupRequest(**settings | given)


def states(group: AutoScalingGroup) -> list[str]:
    return [member.state for member in group.members.values()]
