"""Which NodePools and node classes a pool of Karpenter's should have, and what a person should know about them.

A pure function of the documents and the reservations. There is one NodePool for each source, so that a pod pinned to a
source finds exactly its nodes. A node class selects reservations by tag where it can: the next block needs no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.karpenter import node_class, node_pool
from tidemill.provision.karpenter.node_class import KarpenterApi, is_static
from tidemill.provision.karpenter.removal import is_over
from tidemill.provision.wanted_groups import reservations_for
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance, ComputePool, Provisioner, SourceSpec, matching_types
from tidemill.spec.platform import (
    KARPENTER_CAPACITY_BLOCKS,
    KARPENTER_NETWORK_INTERFACES,
    KARPENTER_SEVERAL_BLOCKS,
    KARPENTER_STATIC_CAPACITY,
    KarpenterRef,
)

RESERVED = (SourceKind.BLOCK, SourceKind.ODCR)
Object = Mapping[str, Any]
_AUTO_MODE_LIFE = timedelta(days=21)


@dataclass(frozen=True, slots=True)
class Objects:
    """Kubernetes objects as they should be, and what a person should know about them."""

    objects: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()
    unwritten: frozenset[str] = (
        frozenset()
    )  # pools whose objects cannot be said: what is there stays as it is


def karpenter_of(spec: Spec) -> KarpenterRef:
    """SpecError: there is none, or one that is too old for blocks (KP-5)."""
    found = spec.platform.spec.karpenter
    if found is None or not (found.version or found.auto_mode):
        raise SpecError(
            f"Platform {spec.platform.name}: which Karpenter runs in the cluster is not said;"
            ' set karpenter.version, such as "1.8.2", or karpenter.autoMode'
        )
    if not found.supports(KARPENTER_CAPACITY_BLOCKS):
        raise SpecError(
            f"Karpenter {found.version} knows nothing of Capacity Blocks and would buy on-demand nodes beside them:"
            " 1.6 is the oldest that can; upgrade it, or use another provisioner"
        )
    return found


def karpenter_objects(
    spec: Spec, pool: ComputePool, reservations: Iterable[Reservation] | None, now: datetime | None = None
) -> Objects:
    """For one pool. `reservations` None: none is known, and one NodePool takes whatever its tags select."""
    api = KarpenterApi.of(karpenter_of(spec))
    if pool.spec.provisioner is not Provisioner.KARPENTER:
        raise SpecError(
            f"pool {pool.name}: its provisioner is '{pool.spec.provisioner.value}', not 'karpenter'"
        )
    if pool.spec.node_class_name not in spec.node_classes:
        raise SpecError(f"pool {pool.name}: there is no NodeClass '{pool.spec.node_class_name}'")
    told = _warnings_of_documents(spec, pool, api)
    made: list[Object] = []
    if reservations is None:
        made += _from_documents(spec, pool, api)
    else:
        blocks = live_reservations(spec, pool, reservations, now)
        made += _kept_in_step(spec, pool, api, blocks)
        told += _warnings_of_blocks(spec, pool, api, blocks)
    made += _by_the_hour(spec, pool, api, beside=bool(_reserved(pool)))
    return Objects(tuple(made), tuple(told))


def live_reservations(
    spec: Spec, pool: ComputePool, reservations: Iterable[Reservation], now: datetime | None
) -> list[Reservation]:
    """Those the pool may use and whose drain is not over: from its deadline on nothing is launched on a block."""
    found = sorted(reservations_for(spec, pool, reservations), key=lambda one: (one.start, one.id))
    return [one for one in found if now is None or not is_over(one, now)]


def _reserved(pool: ComputePool) -> list[SourceSpec]:
    return [source for source in pool.spec.sources if SourceKind(source.type) in RESERVED]


def _from_documents(spec: Spec, pool: ComputePool, api: KarpenterApi) -> list[Object]:
    made: list[Object] = []
    for wanted in _reserved(pool):
        kind = SourceKind(wanted.type)
        name = pool.name if kind is SourceKind.BLOCK else f"{pool.name}-{kind.value}"
        made.append(node_class.node_class(spec, pool, api, name, node_class.terms(spec, pool, wanted)))
        made.append(node_pool.reserved(spec, pool, api, name, kind))
    return made


def _kept_in_step(
    spec: Spec, pool: ComputePool, api: KarpenterApi, blocks: list[Reservation]
) -> list[Object]:
    """A node class for all where one selector can serve them, else one for each; and a NodePool for each.

    Which of the two never depends on the blocks: a running NodePool that is given another node class drifts.
    """
    made: list[Object] = []
    room = Allowance.of(pool.spec.limits)
    shared = _one_selector_serves(api)
    if blocks and shared:
        terms = node_class.terms_for(spec, pool, blocks)
        made.append(node_class.node_class(spec, pool, api, pool.name, terms))
    for block in blocks:
        name = node_pool.object_name(pool.name, block.id)
        if not shared:
            made.append(node_class.node_class(spec, pool, api, name, [{"id": block.id}]))
        made.append(node_pool.on(spec, pool, api, name, pool.name if shared else name, block, room))
    return made


def _one_selector_serves(api: KarpenterApi) -> bool:
    """Before 1.8, blocks of one type and zone hide each other behind one selector (TR-15). In Auto Mode only a node
    class can say which of them a NodePool launches on."""
    return api.karpenter.supports(KARPENTER_SEVERAL_BLOCKS) and not api.auto_mode


def _by_the_hour(spec: Spec, pool: ComputePool, api: KarpenterApi, *, beside: bool) -> list[Object]:
    """Spot and on-demand: the fall-back of lower weight where the pool has reserved capacity too (KP-2)."""
    wanted = [one for one in pool.spec.sources if SourceKind(one.type) not in RESERVED]
    if not wanted:
        return []
    name = node_pool.object_name(pool.name, "hourly")
    made: list[Object] = [node_class.node_class(spec, pool, api, name, [])]
    for place, one in enumerate(wanted):
        source = Source(SourceKind(one.type))
        made.append(node_pool.hourly(spec, pool, api, name, source, one, rank=place + beside))
    return made


# --- warnings -----------------------------------------------------------------------------------------


def _warnings_of_documents(spec: Spec, pool: ComputePool, api: KarpenterApi) -> list[str]:
    """From the documents alone."""
    found = []
    if any(source.ids for source in pool.spec.sources):
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
    if pool.spec.warm and not api.auto_mode and not is_static(pool, api):
        how = (
            "set karpenter.staticCapacity when its feature gate is on"
            if api.karpenter.supports(KARPENTER_STATIC_CAPACITY)
            else "1.8 can"
        )
        found.append(f"pool {pool.name} asks for warm nodes: Karpenter brings up nodes for pods alone; {how}")
    if is_static(pool, api) and _lacks_efa(spec, pool, api):
        found.append(
            f"pool {pool.name}: nodes that Karpenter {api.karpenter.version} brings up beforehand have no EFA;"
            " 1.11 attaches it"
        )
    return found


def _warnings_of_blocks(
    spec: Spec, pool: ComputePool, api: KarpenterApi, blocks: Sequence[Reservation]
) -> list[str]:
    """From the blocks that are there."""
    found = []
    places = [(block.instance_type, block.zone) for block in blocks if block.kind is SourceKind.BLOCK]
    if len(set(places)) < len(places) and not api.karpenter.supports(KARPENTER_SEVERAL_BLOCKS):
        found.append(
            f"pool {pool.name} has two blocks of one type in one zone, which hide each other under one tag before"
            f" Karpenter 1.8: each has a node class of its own, by id (TR-15)"
        )
    found += [
        f"{one.id} lasts longer than the 21 days an Auto Mode node lives: its nodes are replaced meanwhile"
        for one in blocks
        if api.auto_mode and one.end is not None and one.end - one.start > _AUTO_MODE_LIFE
    ]
    return found


def _lacks_efa(spec: Spec, pool: ComputePool, api: KarpenterApi) -> bool:
    efa = spec.node_classes[pool.spec.node_class_name].spec.efa
    return efa and not api.karpenter.supports(KARPENTER_NETWORK_INTERFACES)
