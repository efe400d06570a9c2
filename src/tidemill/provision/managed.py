"""The managed provisioner: one EKS managed node group per source.

EKS adds the role, the Auto Scaling group and a scheduled action of its own that scales the group to 0 before the end of
a block. That action is never changed; the pool's deadline is the same instant. The engine replaces nodes that fail, so
EKS's node repair stays off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tidemill.catalog import InstanceType
from tidemill.model.capacity import Source, SourceKind
from tidemill.ports.compute import NodeGroup, NodeGroupShape, TemplateVersion
from tidemill.provision.group_spec import GroupSpec, template_digest
from tidemill.provision.images import ami_type
from tidemill.provision.launch_template import node_labels, node_taints, owner_tags
from tidemill.provision.user_data import Family
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass

CapacityType = Literal["CAPACITY_BLOCK", "ON_DEMAND", "SPOT"]
# EKS changes a node group only in these states.
CHANGEABLE = ("ACTIVE", "DEGRADED")
# EKS leaves these states by itself.
AT_WORK = ("CREATING", "UPDATING", "DELETING")
# A node group that could not be created launches nothing. Without members it is deleted and created again.
CREATE_FAILED = "CREATE_FAILED"
_FAILED_TO = {CREATE_FAILED: "create", "DELETE_FAILED": "delete"}


def as_node_group(
    spec: Spec,
    pool: ComputePool,
    group_spec: GroupSpec,
    node_class: NodeClass,
    kind: InstanceType,
    image_id: str,
) -> GroupSpec:
    """With tags, and with labels and taints where EKS brings the image.

    Its instances get their tags from the template: EKS does not pass a node group's tags on. Where the template names
    an image, labels and taints come with the user data: EKS would apply them again to nodes that exist already whenever
    they change.
    """
    digest = (names.TAG_TEMPLATE, template_digest(group_spec.template))
    group_spec = replace(group_spec, tags=tuple(sorted((*owner_tags(spec, pool), digest))))
    if image_id:
        return group_spec
    return replace(
        group_spec,
        ami_type=ami_type(Family.of(node_class), kind),
        labels=tuple(sorted(node_labels(spec, pool, group_spec.key.source).items())),
        taints=node_taints(pool),
    )


def shape(group_spec: GroupSpec, version: TemplateVersion) -> NodeGroupShape:
    return NodeGroupShape(
        name=group_spec.name,
        capacity_type=capacity_type(group_spec.key.source),
        template=version,
        subnets=group_spec.subnets,
        role=group_spec.role,
        maximum=group_spec.maximum,
        ami_type=group_spec.ami_type,
        labels=group_spec.labels,
        taints=group_spec.taints,
        tags=group_spec.tags,
        repair=False,  # the engine replaces nodes that fail (MG-7)
    )


def capacity_type(source: Source) -> CapacityType:
    """To EKS an on-demand reservation is ON_DEMAND; the template names the reservation."""
    match source.kind:
        case SourceKind.BLOCK:
            return "CAPACITY_BLOCK"
        case SourceKind.SPOT:
            return "SPOT"
        case SourceKind.ODCR | SourceKind.ON_DEMAND:
            return "ON_DEMAND"


def problem_of(node_group: NodeGroup) -> str:
    """What EKS says is wrong with it; empty: nothing."""
    issues = "; ".join(map(str, node_group.issues))
    if (verb := _FAILED_TO.get(node_group.status)) is not None:
        return f"EKS could not {verb} it: {issues or 'it gives no reason'}"
    return f"EKS says: {issues}" if issues else ""
