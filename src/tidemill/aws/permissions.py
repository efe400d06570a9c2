"""Every AWS action the adapter calls, and which of the three policies allows it. `tidemill iam` prints from this table.

A test records what boto3 really sends while the whole suite runs, and fails on an action that is missing here or that
nothing calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    OBSERVER = "observer"  # reads; everybody needs it
    PROVISIONER = "provisioner"  # launches and ends nodes: the engine
    PURCHASER = "purchaser"  # spends: a process and a service account of its own


# GetCallerIdentity needs no permission; it is listed so that the table is whole.
ACTIONS: Mapping[str, Role] = {
    "sts:GetCallerIdentity": Role.OBSERVER,
    "ec2:DescribeCapacityReservations": Role.OBSERVER,
    "ec2:DescribeCapacityBlockExtensionHistory": Role.OBSERVER,
    "ec2:DescribeCapacityBlockOfferings": Role.OBSERVER,
    "ec2:DescribeCapacityBlockExtensionOfferings": Role.OBSERVER,
    "ec2:DescribeInstances": Role.OBSERVER,
    "ec2:DescribeInstanceStatus": Role.OBSERVER,
    "ec2:DescribeSpotInstanceRequests": Role.OBSERVER,
    "ec2:DescribeLaunchTemplates": Role.OBSERVER,
    "ec2:DescribeLaunchTemplateVersions": Role.OBSERVER,
    "ssm:GetParameter": Role.OBSERVER,
    "ec2:RunInstances": Role.PROVISIONER,
    "ec2:TerminateInstances": Role.PROVISIONER,
    "ec2:CreateLaunchTemplate": Role.PROVISIONER,
    "ec2:CreateLaunchTemplateVersion": Role.PROVISIONER,
    "ec2:DeleteLaunchTemplate": Role.PROVISIONER,
    "ec2:PurchaseCapacityBlock": Role.PURCHASER,
    "ec2:PurchaseCapacityBlockExtension": Role.PURCHASER,
    "ec2:CreateTags": Role.PURCHASER,  # of an adopted block; at a launch EC2 asks for it too
}
# Asked for by AWS along with a call above, and never called by itself.
IMPLIED: Mapping[str, Role] = {"iam:PassRole": Role.PROVISIONER}


def policy_with(action: str) -> str:
    """The name of the policy that allows an action; empty: none of ours does."""
    role = ACTIONS.get(action) or IMPLIED.get(action)
    return role.value if role else ""
