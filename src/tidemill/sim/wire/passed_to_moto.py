"""Which calls moto answers. All others are the account's own (`operations`) or refused as not simulated.

EC2, Auto Scaling and EKS share their state with the account: a call that moto would answer from its own state would
seem to work and change nothing. So only calls about what is moto's alone go there: networks, images, key pairs, launch
templates, clusters. Other services are moto's as a whole, or not simulated.
"""

from __future__ import annotations

from typing import Final

# Their state is moto's alone, and so is every call.
WHOLE_SERVICES: Final = frozenset(
    {
        "cloudformation",
        "elasticache",
        "events",
        "iam",
        "rds",
        "s3",
        "secretsmanager",
        "sns",
        "sqs",
        "ssm",
        "sts",
    },
)

OPERATIONS: Final = frozenset(
    {
        *(
            f"ec2:{action}"
            for action in (
                # networks
                "AssociateRouteTable",
                "AttachInternetGateway",
                "AuthorizeSecurityGroupEgress",
                "AuthorizeSecurityGroupIngress",
                "CreateInternetGateway",
                "CreateRoute",
                "CreateRouteTable",
                "CreateSecurityGroup",
                "CreateSubnet",
                "CreateVpc",
                "DeleteSecurityGroup",
                "DeleteSubnet",
                "DeleteVpc",
                "DescribeInternetGateways",
                "DescribeRouteTables",
                "DescribeSecurityGroupRules",
                "DescribeSecurityGroups",
                "DescribeSubnets",
                "DescribeVpcAttribute",
                "DescribeVpcs",
                "ModifySubnetAttribute",
                "ModifyVpcAttribute",
                "RevokeSecurityGroupEgress",
                "RevokeSecurityGroupIngress",
                # images and key pairs
                "CreateKeyPair",
                "DeleteKeyPair",
                "DeregisterImage",
                "DescribeImages",
                "DescribeKeyPairs",
                "ImportKeyPair",
                "RegisterImage",
                # launch templates
                "CreateLaunchTemplate",
                "DeleteLaunchTemplate",
                "DescribeLaunchTemplateVersions",
                "DescribeLaunchTemplates",
                "ModifyLaunchTemplate",
                # what EC2 has
                "DescribeAvailabilityZones",
                "DescribeRegions",
            )
        ),
        *(
            f"eks:{action}"
            for action in (
                "DeleteCluster",
                "DescribeCluster",
                "ListClusters",
                "ListTagsForResource",
            )
        ),
    }
)


def is_moto_s(service: str, action: str) -> bool:
    return service in WHOLE_SERVICES or f"{service}:{action}" in OPERATIONS
