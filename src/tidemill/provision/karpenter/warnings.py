"""What a person should know about a pool that is left to Karpenter: each in one sentence, with the way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tidemill.model.capacity import Reservation, SourceKind
from tidemill.provision.karpenter.flavour import KarpenterApi
from tidemill.provision.karpenter.node_class import is_static
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.spec.platform import (
    KARPENTER_NETWORK_INTERFACES,
    KARPENTER_SEVERAL_BLOCKS,
    KARPENTER_STATIC_CAPACITY,
)

_AUTO_MODE_LIFE = timedelta(days=21)


def of(spec: Spec, pool: ComputePool, flavour: KarpenterApi) -> list[str]:
    """From the documents alone."""
    found = []
    if any(one.ids for one in pool.spec.sources):
        found.append(
            f"pool {pool.name} is pinned to reservation ids: when they end Karpenter launches nothing until someone"
            " edits this; select by 'tags' so that the next block is taken up by itself (TR-3)"
        )
    kinds = matching_types(spec.catalog, pool.spec.requirements)
    blocks = any(one.type == "block" for one in pool.spec.sources)
    if blocks and any(kind.ultraserver for kind in kinds):
        found.append(
            f"pool {pool.name}: Karpenter drains UltraServers 40 minutes before a block's end and EC2 takes them 60"
            " minutes before it: only the engine's own drain saves their pods; 'native' has no such gap (TR-14)"
        )
    if pool.spec.warm and not flavour.auto_mode and not is_static(pool, flavour):
        how = (
            "set karpenter.staticCapacity when its feature gate is on"
            if flavour.karpenter.supports(KARPENTER_STATIC_CAPACITY)
            else "1.8 can"
        )
        found.append(f"pool {pool.name} asks for warm nodes: Karpenter brings up nodes for pods alone; {how}")
    if is_static(pool, flavour) and _lacks_efa(spec, pool, flavour):
        found.append(
            f"pool {pool.name}: nodes that Karpenter {flavour.karpenter.version} brings up beforehand have no EFA;"
            " 1.11 attaches it"
        )
    return found


def about(spec: Spec, pool: ComputePool, flavour: KarpenterApi, blocks: Sequence[Reservation]) -> list[str]:
    """From the blocks that are there."""
    found = []
    places = [(one.instance_type, one.zone) for one in blocks if one.kind is SourceKind.BLOCK]
    if len(set(places)) < len(places) and not flavour.karpenter.supports(KARPENTER_SEVERAL_BLOCKS):
        found.append(
            f"pool {pool.name} has two blocks of one type in one zone, which hide each other under one tag before"
            f" Karpenter 1.8: each has a node class of its own, by id (TR-15)"
        )
    found += [
        f"{one.id} lasts longer than the 21 days an Auto Mode node lives: its nodes are replaced meanwhile"
        for one in blocks
        if flavour.auto_mode and one.end is not None and one.end - one.start > _AUTO_MODE_LIFE
    ]
    return found


def _lacks_efa(spec: Spec, pool: ComputePool, flavour: KarpenterApi) -> bool:
    efa = spec.node_classes[pool.spec.node_class_name].spec.efa
    return efa and not flavour.karpenter.supports(KARPENTER_NETWORK_INTERFACES)
