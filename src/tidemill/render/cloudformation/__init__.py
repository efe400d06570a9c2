"""A pool's nodes as a CloudFormation stack, for people who keep their infrastructure there.

It uses the engine's launch template, names and tags. What only AWS or the reader knows is a parameter. One stack is for
one source of a pool: a block, an On-Demand Capacity Reservation, spot or on-demand.
"""

from __future__ import annotations

from typing import Any

from tidemill.model.errors import SpecError
from tidemill.render.cloudformation.parameters import parameters, with_placeholders
from tidemill.render.cloudformation.resources import (
    AUTO_SCALING_OUTPUTS,
    CONDITIONS,
    NODE_GROUP_OUTPUTS,
    auto_scaling_resources,
    efa_resources,
    launch_template_resource,
    node_group_resources,
    tell_nodes_output,
)
from tidemill.render.cloudformation.stack_input import StackInput as StackInput
from tidemill.render.cloudformation.stack_input import fill_placeholders
from tidemill.render.cloudformation.stack_input import resolve_stack_input as resolve_stack_input
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner


def stack(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    """Raises SpecError if the pool does not launch through a group."""
    open_spec = with_placeholders(spec, pool, wanted)
    shared = {**efa_resources(open_spec, pool, wanted), **launch_template_resource(open_spec, pool, wanted)}
    match pool.spec.provisioner:
        case Provisioner.ASG:
            made = auto_scaling_resources(open_spec, pool, wanted)
        case Provisioner.MANAGED:
            made = node_group_resources(open_spec, pool, wanted)
        case other:
            raise SpecError(
                f"pool {pool.name}: a stack needs provisioner 'asg' or 'managed', not '{other.value}'"
            )
    offered = parameters(spec, pool, wanted)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": _description(spec, pool, wanted),
        "Parameters": offered,
        **({"Conditions": CONDITIONS} if "CreateAccessEntry" in offered else {}),
        "Resources": fill_placeholders({**shared, **made}, offered),
        "Outputs": {
            **(AUTO_SCALING_OUTPUTS if "Group" in made else NODE_GROUP_OUTPUTS),
            **tell_nodes_output(wanted),
        },
    }


def _description(spec: Spec, pool: ComputePool, wanted: StackInput) -> str:
    who = (
        "an EKS managed node group"
        if pool.spec.provisioner is Provisioner.MANAGED
        else "an Auto Scaling group"
    )
    return (
        f"Nodes of pool {pool.name} ({wanted.instance_type}, {wanted.kind.value}) in cluster"
        f" {spec.platform.spec.cluster.name}, as {who}. Made by tidemill render cloudformation."
    )
