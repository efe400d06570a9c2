"""The security group through which EFA nodes say anything to each other (PE-19), where the pool has EFA."""

from __future__ import annotations

from typing import Any

from tidemill.provision.launch_template import has_efa, owner_tags
from tidemill.render.cloudformation.stack_input import Asked
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool


def resources(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    if not has_efa(spec, pool, asked.instance_type):
        return {}
    own = {"Fn::GetAtt": ["EfaSecurityGroup", "GroupId"]}
    everything = {"GroupId": own, "IpProtocol": "-1"}
    return {
        "EfaSecurityGroup": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": f"EFA traffic between nodes of pool {pool.name}",
                "VpcId": {"Ref": "VpcId"},
                "Tags": tag_list(spec, pool),
            },
        },
        # Rules of their own: a group cannot name itself while it is being made.
        "EfaIngress": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**everything, "SourceSecurityGroupId": own},
        },
        "EfaEgress": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**everything, "DestinationSecurityGroupId": own},
        },
    }


def tag_list(spec: Spec, pool: ComputePool) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in owner_tags(spec, pool)]
