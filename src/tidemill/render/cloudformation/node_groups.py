"""An EKS managed node group as a stack. EKS brings the group, the hook and, on a block, the scale-down at T-40."""

from __future__ import annotations

from typing import Any

from tidemill.model.capacity import Source
from tidemill.provision.launch_template import owner_tags
from tidemill.provision.managed import capacity_type
from tidemill.render.cloudformation.groups import name_of, role_arn
from tidemill.render.cloudformation.stack_input import Asked
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool

OUTPUTS = {"NodeGroup": {"Value": {"Ref": "NodeGroup"}}}


def resources(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    """Labels and taints come with the user data: the template names its image, so that EKS adds none."""
    return {
        "NodeGroup": {
            "Type": "AWS::EKS::Nodegroup",
            "Properties": {
                "NodegroupName": name_of(spec, pool, asked),
                "ClusterName": spec.platform.spec.cluster.name,
                "CapacityType": capacity_type(Source(asked.kind, asked.reservation)),
                "LaunchTemplate": {
                    "Id": {"Ref": "LaunchTemplate"},
                    "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
                },
                "NodeRole": role_arn(spec, pool),
                "Subnets": {"Ref": "SubnetIds"},
                # None until the block is active: before that every launch fails.
                "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": {"Ref": "Size"}},
                "NodeRepairConfig": {"Enabled": False},
                "Tags": dict(owner_tags(spec, pool)),
            },
        }
    }
