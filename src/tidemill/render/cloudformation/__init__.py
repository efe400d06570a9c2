"""A pool's nodes as a CloudFormation stack, for people who keep their infrastructure there.

Made of the same launch template, names and tags the engine uses; what only AWS or the reader knows is a parameter.
One stack for one source of a pool: a block, an on-demand reservation, spot or on-demand.
"""

from __future__ import annotations

from typing import Any

from tidemill.model.errors import SpecError
from tidemill.render.cloudformation import groups, network, node_groups
from tidemill.render.cloudformation.intrinsics import filled_in
from tidemill.render.cloudformation.parameters import opened, parameters
from tidemill.render.cloudformation.stack_input import Asked as Asked
from tidemill.render.cloudformation.stack_input import asked_of as asked_of
from tidemill.render.cloudformation.template import launch_template_resource
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner


def stack(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    """SpecError: the pool does not launch through a group, or is no pool for such a stack."""
    open_spec = opened(spec, pool, asked)
    shared = {**network.resources(open_spec, pool, asked), **launch_template_resource(open_spec, pool, asked)}
    match pool.spec.provisioner:
        case Provisioner.ASG:
            made = groups.resources(open_spec, pool, asked)
        case Provisioner.MANAGED:
            made = node_groups.resources(open_spec, pool, asked)
        case other:
            raise SpecError(
                f"pool {pool.name}: provisioner '{other.value}' has no groups to put into a stack;"
                " 'asg' and 'managed' have"
            )
    offered = parameters(spec, pool, asked)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": _description(spec, pool, asked),
        "Parameters": offered,
        **({"Conditions": groups.CONDITIONS} if "CreateAccessEntry" in offered else {}),
        "Resources": filled_in({**shared, **made}, offered),
        "Outputs": groups.OUTPUTS if "Group" in made else node_groups.OUTPUTS,
    }


def _description(spec: Spec, pool: ComputePool, asked: Asked) -> str:
    who = (
        "an EKS managed node group"
        if pool.spec.provisioner is Provisioner.MANAGED
        else "an Auto Scaling group"
    )
    return (
        f"Nodes of pool {pool.name} ({asked.instance_type}, {asked.kind.value}) in cluster"
        f" {spec.platform.spec.cluster.name}, as {who}. Made by tidemill render cloudformation."
    )
