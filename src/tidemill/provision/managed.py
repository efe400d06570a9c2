"""EKS managed node groups: one for each block, ODCR, or kind of hourly capacity of a pool.

EKS brings the role, the Auto Scaling group and its own scheduled action forty minutes before a block's end: that one is
shown and never touched, and the pool's deadline is before it. The engine mends nodes, so EKS's node repair stays off.
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
# ... and leaves these by itself.
AT_WORK = ("CREATING", "UPDATING", "DELETING")
# What could not be made stays so, and launches nothing: without members it may go, and another one be made.
CREATE_FAILED = "CREATE_FAILED"
_FAILED = {CREATE_FAILED: "make", "DELETE_FAILED": "delete"}


def as_node_group(
    spec: Spec, pool: ComputePool, own: GroupSpec, node_class: NodeClass, kind: InstanceType, image_id: str
) -> GroupSpec:
    """Its instances are tagged by its template: EKS hands a node group's own tags to nobody.

    Labels and taints come with the user data where the template names an image. Only where EKS brings the image does
    EKS put them on: it would do so again to nodes that are there, whenever they change.
    """
    own = replace(
        own,
        tags=tuple(sorted((*owner_tags(spec, pool), (names.TAG_TEMPLATE, template_digest(own.template))))),
    )
    if image_id:
        return own
    return replace(
        own,
        ami_type=ami_type(Family.of(node_class), kind),
        labels=tuple(sorted(node_labels(spec, pool, own.place.source).items())),
        taints=node_taints(pool),
    )


def shape(own: GroupSpec, version: TemplateVersion) -> NodeGroupShape:
    return NodeGroupShape(
        own.name, capacity_type(own.place.source), version, own.subnets, own.role, own.maximum,
        ami_type=own.ami_type, labels=own.labels, taints=own.taints, tags=own.tags,
        repair=False,  # the engine replaces what fails (MG-7)
    )  # fmt: skip


def capacity_type(source: Source) -> CapacityType:
    """An on-demand reservation is on demand to EKS: its template names the reservation."""
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
    if (tried := _FAILED.get(node_group.status)) is not None:
        return f"EKS could not {tried} it: {issues or 'it gives no reason'}"
    return f"EKS says: {issues}" if issues else ""
