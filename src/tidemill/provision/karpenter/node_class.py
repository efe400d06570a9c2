"""Node classes: how Karpenter boots a node. EC2NodeClass, or NodeClass in EKS Auto Mode.

Karpenter takes a change of a node class for drift and replaces its nodes. So nothing that changes while nodes run, such
as the end of a block, is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.efa import separate_layout
from tidemill.provision.launch_template import owner_tags
from tidemill.provision.user_data import Bootstrap, Family, user_data
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, SourceSpec, matching_types
from tidemill.spec.node_class import BlockDevice, NodeClass, NodeClassSpec
from tidemill.spec.platform import KARPENTER_NETWORK_INTERFACES, KarpenterRef
from tidemill.spec.units import format_memory


@dataclass(frozen=True, slots=True)
class KarpenterApi:
    """The API of Karpenter as people install it, or of the one in EKS Auto Mode: the same objects, other names."""

    karpenter: KarpenterRef
    group: str  # of the node class
    kind: str
    labels: str  # the prefix of the labels that describe instance types
    expire_after: str  # the longest life of a node
    engine: bool = True  # False: none runs, so nodes get no taint that only an engine removes

    @classmethod
    def of(cls, karpenter: KarpenterRef) -> KarpenterApi:
        if karpenter.auto_mode:
            # Auto Mode terminates every node after 21 days, whatever the NodePool says.
            return cls(karpenter, "eks.amazonaws.com", "NodeClass", "eks.amazonaws.com", "504h")
        return cls(karpenter, "karpenter.k8s.aws", "EC2NodeClass", "karpenter.k8s.aws", "Never")

    @property
    def auto_mode(self) -> bool:
        return self.karpenter.auto_mode


Term = dict[str, Any]


def node_class(spec: Spec, pool: ComputePool, api: KarpenterApi, name: str, reservations: list[Term]) -> Term:
    """`reservations`: the selector terms; empty: it launches on no reservation."""
    own = spec.node_classes[pool.spec.node_class_name]
    body: Term = {
        **_role(spec, own, api),
        "subnetSelectorTerms": [{"id": subnet} for subnet in _subnets(spec, pool)],
        "securityGroupSelectorTerms": _security_groups(spec),
        **({"capacityReservationSelectorTerms": reservations} if reservations else {}),
        "tags": dict(owner_tags(spec, pool)),
    }
    body |= _auto_mode(own) if api.auto_mode else _self_hosted(spec, pool, api, own)
    return {
        "apiVersion": f"{api.group}/v1",
        "kind": api.kind,
        "metadata": {"name": name, "labels": dict(owner_tags(spec, pool))},
        "spec": body,
    }


# --- which reservations -----------------------------------------------------------------------------


def terms(spec: Spec, pool: ComputePool, source: SourceSpec) -> list[Term]:
    """What a source in the documents selects: by id where it is pinned, else by tag (KP-1).

    A pin of blocks moves on to those that are bought for the pool: to Karpenter `*` is any value of a tag.
    """
    if not source.ids:
        return [{"tags": tags_of(spec, pool, source)}]
    named = [{"id": id_} for id_ in source.ids]
    if source.type != SourceKind.BLOCK.value:
        return named
    own = {names.TAG_OWNER: spec.platform.spec.deployment, names.TAG_POOL: pool.name}
    return [*named, {"tags": {**source.tags, **own, names.TAG_INTENT: "*"}}]


def terms_for(spec: Spec, pool: ComputePool, blocks: Iterable[Reservation]) -> list[Term]:
    """By tag where the tags match the block, so that the next block needs no change; else by id (KP-6).

    An id is listed as long as its block lives: at a hand-over the pin moves to the next block, also to one that the
    documents do not name because it was bought for the pool.
    """
    found: list[Term] = []
    for block in blocks:
        sources = (
            source
            for source in pool.spec.sources
            if source.type == block.kind.value and (not source.ids or block.id in source.ids)
        )
        source = next(sources, None)
        tags = tags_of(spec, pool, source) if source is not None and not source.ids else {}
        by_tag = bool(tags) and set(tags.items()) <= set(block.tags)
        term: Term = {"tags": tags} if by_tag else {"id": block.id}
        if term not in found:
            found.append(term)
    return found


def tags_of(spec: Spec, pool: ComputePool, source: SourceSpec) -> dict[str, str]:
    """The tags in the documents, else the two that the pool's blocks are bought with."""
    own = {names.TAG_OWNER: spec.platform.spec.deployment, names.TAG_POOL: pool.name}
    return dict(source.tags) or own


# --- how they boot ----------------------------------------------------------------------------------


def _self_hosted(spec: Spec, pool: ComputePool, api: KarpenterApi, own: NodeClass) -> Term:
    if own.spec.launch_template is not None:
        raise SpecError(
            f"node class {own.name}: Karpenter accepts no existing launch template;"
            " write its settings into the node class"
        )
    family = Family.of(own)
    by_id = any(term.id for term in own.spec.ami_selector_terms)
    return {
        "amiSelectorTerms": [term.model_dump(exclude_none=True) for term in own.spec.ami_selector_terms],
        **({"amiFamily": {"al2023": "AL2023", "bottlerocket": "Bottlerocket"}[family]} if by_id else {}),
        **_disks(own.spec),
        **({"kubelet": {"maxPods": own.spec.max_pods}} if own.spec.max_pods else {}),
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2},
        "userData": _user_data(spec, pool.spec.node_class_name),
        **_interfaces(spec, pool, api, own),
    }


def _auto_mode(own: NodeClass) -> Term:
    """There AWS sets image, user data and kubelet; the first volume says how much disk a node has."""
    volumes = own.spec.block_device_mappings
    return {"ephemeralStorage": {"size": format_memory(volumes[0].ebs.volume_size)}} if volumes else {}


def _role(spec: Spec, own: NodeClass, api: KarpenterApi) -> Term:
    role = own.spec.role or spec.platform.spec.node_role
    if ":instance-profile/" in role:
        return {"instanceProfile": role.rpartition("/")[2]}
    if not role:
        raise SpecError(f"Platform {spec.platform.name}: nodeRole is not set, and a {api.kind} needs one")
    return {"role": role.rpartition("/")[2]}


def _subnets(spec: Spec, pool: ComputePool) -> list[str]:
    """Of all zones the pool may use: the next block may be in another zone."""
    zones = set(pool.spec.requirements.zones)
    found = [
        subnet
        for zone, subnets in sorted(spec.platform.spec.subnets.items())
        if not zones or zone in zones
        for subnet in subnets
    ]
    if not found:
        raise SpecError(f"pool {pool.name}: the platform has no subnets in the zones it may use")
    return found


def _security_groups(spec: Spec) -> list[Term]:
    """None in the documents: the one that EKS creates for the cluster, by its tag."""
    groups = spec.platform.spec.security_groups
    if groups:
        return [{"id": group} for group in groups]
    return [{"tags": {f"kubernetes.io/cluster/{spec.platform.spec.cluster.name}": "owned"}}]


def _disks(own: NodeClassSpec) -> Term:
    found: Term = {}
    if own.block_device_mappings:
        found["blockDeviceMappings"] = [_device(device) for device in own.block_device_mappings]
    if own.instance_store_policy:
        found["instanceStorePolicy"] = own.instance_store_policy
    return found


def _device(device: BlockDevice) -> Term:
    """In whole Gi, rounded up, as Karpenter requires."""
    ebs = device.ebs.model_dump(by_alias=True, exclude_none=True)
    return {
        "deviceName": device.device_name,
        "ebs": {**ebs, "volumeSize": f"{-(-device.ebs.volume_size // 2**30)}Gi"},
    }


@lru_cache(maxsize=64)
def _user_data(spec: Spec, node_class_name: str) -> str:
    """Karpenter adds the cluster, the labels and the taints; we add the kubelet's graceful shutdown.

    Cached: it follows from the documents alone, costs milliseconds, and is asked for at every look.
    """
    platform, own = spec.platform.spec, spec.node_classes[node_class_name]
    extra = (own.spec.user_data,) if own.spec.user_data.strip() else ()
    return user_data(
        Bootstrap(
            Family.of(own), platform.cluster, platform.region, own.spec, {}, (), joins=False, extra=extra
        )
    )


def _interfaces(spec: Spec, pool: ComputePool, api: KarpenterApi, own: NodeClass) -> Term:
    """Karpenter gives nodes that it launches without a pod no EFA unless the interfaces are listed (KP-9)."""
    if not (own.spec.efa and is_static(pool, api) and api.karpenter.supports(KARPENTER_NETWORK_INTERFACES)):
        return {}
    layouts = {separate_layout(kind) for kind in matching_types(spec.catalog, pool.spec.requirements)}
    if len(layouts) != 1:
        raise SpecError(
            f"pool {pool.name}: its types have different network cards, and a node class lists one layout;"
            " allow one type, or make a pool for each"
        )
    return {
        "networkInterfaces": [
            {
                "networkCardIndex": interface.card,
                "deviceIndex": interface.device,
                "interfaceType": interface.kind,
            }
            for interface in layouts.pop()
        ]
    }


def is_static(pool: ComputePool, api: KarpenterApi) -> bool:
    """Its nodes on blocks stay up without pods: the pool says `warm`, and Karpenter supports it (KP-8)."""
    return bool(pool.spec.warm) and api.karpenter.keeps_nodes_up
