"""Which NodePools and node classes a Karpenter pool should have, and what a person should know about them.

A pure function of the documents and the reservations. There is one NodePool for each source, so that a pod pinned to a
source finds exactly its nodes. A node class selects reservations by tag where it can: the next block needs no change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.karpenter import node_class, node_pool
from tidemill.provision.karpenter.node_class import KarpenterApi, is_static
from tidemill.provision.karpenter.removal import is_over
from tidemill.provision.karpenter.room import Demand, Rooms, divide
from tidemill.provision.wanted_groups import reservations_for
from tidemill.spec import Spec, traps
from tidemill.spec.compute_pool import ComputePool, Provisioner, SourceSpec, matching_types
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
    # Pools whose documents have an error: their objects in the cluster stay as they are.
    unwritten: frozenset[str] = frozenset()


def karpenter_of(spec: Spec) -> KarpenterRef:
    """SpecError: there is none, or one that is too old for blocks (KP-5)."""
    found = spec.platform.spec.karpenter
    if found is None or not (found.version or found.auto_mode):
        raise SpecError(
            f"Platform {spec.platform.name}: the version of Karpenter is not set;"
            ' set karpenter.version, such as "1.8.2", or karpenter.autoMode'
        )
    if not found.supports(KARPENTER_CAPACITY_BLOCKS):
        raise SpecError(
            f"Karpenter {found.version} does not support Capacity Blocks and would launch on-demand nodes beside them:"
            " upgrade it to 1.6 or later, or use another provisioner"
        )
    return found


def karpenter_objects(
    spec: Spec,
    pool: ComputePool,
    reservations: Iterable[Reservation] | None,
    now: datetime | None = None,
    affordable: Mapping[str, float] | None = None,
    demand: Demand | None = None,
    *,
    engine: bool = True,
    only: Collection[str] = (),
) -> Objects:
    """For one pool. `reservations` None: not known, and one NodePool launches on whatever its tags select.
    `affordable`: by type of hourly source, the dollars an hour that its money is enough for; 0: it may launch nothing.
    `demand`: what runs and who waits; None: nothing and nobody. `engine` False: none will run. `only`: of reservations
    that are not known, those with these ids, whatever the sources say."""
    api = replace(KarpenterApi.of(karpenter_of(spec)), engine=engine)
    if pool.spec.provisioner is not Provisioner.KARPENTER:
        raise SpecError(
            f"pool {pool.name}: its provisioner is '{pool.spec.provisioner.value}', not 'karpenter'"
        )
    if pool.spec.node_class_name not in spec.node_classes:
        raise SpecError(f"pool {pool.name}: there is no NodeClass '{pool.spec.node_class_name}'")
    warnings = [*_warnings_of_pins(spec, pool, only), *_warnings_of_documents(spec, pool, api)]
    made: list[Object] = []
    demand = demand or Demand()
    blocks = [] if reservations is None else live_reservations(spec, pool, reservations, now)
    affordable = affordable or {}
    spent = [type_ for type_, usd_h in affordable.items() if not usd_h]
    rooms = divide(spec.catalog, pool, blocks, spent, demand, now, static=is_static(pool, api))
    if reservations is None:
        made += _from_documents(spec, pool, api, only)
        warnings += _warnings_of_fixed_limits(pool)
    else:
        made += _for_reservations(spec, pool, api, blocks, rooms)
        warnings += _warnings_of_blocks(spec, pool, api, blocks)
    made += _hourly(spec, pool, api, affordable, demand, rooms)
    return Objects(tuple(made), tuple(warnings))


def live_reservations(
    spec: Spec, pool: ComputePool, reservations: Iterable[Reservation], now: datetime | None
) -> list[Reservation]:
    """Those the pool may use and whose deadline has not passed: after it nothing is launched on a block."""
    usable = reservations_for(spec, pool, reservations)
    usable.sort(key=lambda reservation: (reservation.start, reservation.id))
    return [reservation for reservation in usable if now is None or not is_over(reservation, now)]


def _reserved(pool: ComputePool) -> list[SourceSpec]:
    return [source for source in pool.spec.sources if SourceKind(source.type) in RESERVED]


def _paid_by_the_hour(pool: ComputePool) -> list[SourceSpec]:
    return [source for source in pool.spec.sources if SourceKind(source.type) not in RESERVED]


def _from_documents(spec: Spec, pool: ComputePool, api: KarpenterApi, only: Collection[str]) -> list[Object]:
    made: list[Object] = []
    for source in _reserved(pool):
        terms = [{"id": id_} for id_ in only] or node_class.terms(spec, pool, source)
        kind = SourceKind(source.type)
        name = pool.name if kind is SourceKind.BLOCK else f"{pool.name}-{kind.value}"
        made.append(node_class.node_class(spec, pool, api, name, terms))
        made.append(node_pool.reserved(spec, pool, api, name, kind))
    return made


def _for_reservations(
    spec: Spec, pool: ComputePool, api: KarpenterApi, blocks: list[Reservation], rooms: Rooms
) -> list[Object]:
    """One node class for all reservations where one selector is enough, else one for each; and a NodePool for each.

    Which of the two never depends on the blocks: the nodes of a NodePool that gets another node class drift.
    """
    made: list[Object] = []
    shared = _one_selector_is_enough(api)
    if blocks and shared:
        terms = node_class.terms_for(spec, pool, blocks)
        made.append(node_class.node_class(spec, pool, api, pool.name, terms))
    for block in blocks:
        name = node_pool.object_name(pool.name, block.id)
        if not shared:
            made.append(node_class.node_class(spec, pool, api, name, [{"id": block.id}]))
        class_name = pool.name if shared else name
        count, replicas = rooms.reserved[block.id], rooms.replicas[block.id]
        made.append(
            node_pool.for_reservation(
                spec, pool, api, name, class_name, block, count, replicas, ending=block.id in rooms.ending
            )
        )
    return made


def _one_selector_is_enough(api: KarpenterApi) -> bool:
    """Before 1.8 Karpenter sees only one of several blocks of one type and zone behind one selector (TR-15). In Auto
    Mode only the node class can say which block a NodePool launches on."""
    return api.karpenter.supports(KARPENTER_SEVERAL_BLOCKS) and not api.auto_mode


def _hourly(
    spec: Spec,
    pool: ComputePool,
    api: KarpenterApi,
    affordable: Mapping[str, float],
    demand: Demand,
    rooms: Rooms,
) -> list[Object]:
    """Spot and on-demand. Where the pool has reserved capacity too, they are the fall-back: a lower weight (KP-2)."""
    sources, beside = _paid_by_the_hour(pool), bool(_reserved(pool))
    if not sources:
        return []
    name = node_pool.object_name(pool.name, "hourly")
    made: list[Object] = [node_class.node_class(spec, pool, api, name, [])]
    for position, source in enumerate(sources):
        kind = Source(SourceKind(source.type))
        caps = [cap for cap in (source.max_hourly_usd, affordable.get(source.type)) if cap is not None]
        given = source.model_copy(update={"max_hourly_usd": min(caps, default=None)})
        use, free = demand.used.get(kind.label, {}), rooms.hourly.get(kind.label)
        made.append(node_pool.hourly(spec, pool, api, name, kind, given, use, free, rank=position + beside))
    return made


# --- warnings -----------------------------------------------------------------------------------------


def _warnings_of_pins(spec: Spec, pool: ComputePool, only: Collection[str]) -> list[str]:
    """A pin moves on only to what is bought for the pool, and here it is to be written by hand."""
    bought = any(plan.spec.pool == pool.name for plan in spec.plans.values())
    stays = [source for source in pool.spec.sources if source.ids and not (source.type == "block" and bought)]
    if not only and not stays:
        return []
    warning = (
        f"pool {pool.name} is pinned to reservation ids: when they end, Karpenter launches nothing until somebody"
        " edits them; select by 'tags' and the next block is used without an edit (TR-3)"
    )
    return [warning]


def _warnings_of_documents(spec: Spec, pool: ComputePool, api: KarpenterApi) -> list[str]:
    """From the documents alone."""
    found = []
    kinds = matching_types(spec.catalog, pool.spec.requirements)
    blocks = any(source.type == "block" for source in pool.spec.sources)
    if blocks and (late := traps.drained_after_ec2(kinds)):
        found.append(f"pool {pool.name}: {late}; 'native' has no such gap (TR-14)")
    if pool.spec.warm and not api.auto_mode and not is_static(pool, api):
        how = (
            "set karpenter.staticCapacity when its feature gate is on"
            if api.karpenter.supports(KARPENTER_STATIC_CAPACITY)
            else "upgrade it to 1.8"
        )
        found.append(f"pool {pool.name} asks for warm nodes: Karpenter launches nodes only for pods; {how}")
    efa = spec.node_classes[pool.spec.node_class_name].spec.efa
    if efa and is_static(pool, api) and not api.karpenter.supports(KARPENTER_NETWORK_INTERFACES):
        found.append(
            f"pool {pool.name}: nodes that Karpenter {api.karpenter.version} launches without a pod have no EFA;"
            " upgrade it to 1.11"
        )
    return found


def _warnings_of_fixed_limits(pool: ComputePool) -> list[str]:
    """Nobody moves room between these NodePools as they need it."""
    first, *others = [
        node_pool.object_name(pool.name, source.type) for source in _paid_by_the_hour(pool)
    ] or [""]
    found = []
    if others:
        found.append(
            f"pool {pool.name}: Karpenter has limits only for each NodePool, so {first} has all of the pool's and"
            f" {', '.join(others)} none; the engine moves them to where pods wait, without it divide them by hand"
        )
    if first and _reserved(pool):
        found.append(
            f"pool {pool.name}: {first} and the NodePools of reserved capacity each have the limits of the pool;"
            " only the engine keeps them together within the limits, without it divide them by hand"
        )
    return found


def _warnings_of_blocks(
    spec: Spec, pool: ComputePool, api: KarpenterApi, blocks: Sequence[Reservation]
) -> list[str]:
    """From the blocks that exist."""
    found = []
    places = [(block.instance_type, block.zone) for block in blocks if block.kind is SourceKind.BLOCK]
    if len(set(places)) < len(places) and not api.karpenter.supports(KARPENTER_SEVERAL_BLOCKS):
        found.append(
            f"pool {pool.name} has two blocks of one type in one zone, and before 1.8 Karpenter sees only one of"
            " them behind one tag: each has its own node class, by id (TR-15)"
        )
    found += [
        f"{block.id} lasts longer than the 21 days of an Auto Mode node: its nodes are replaced meanwhile"
        for block in blocks
        if api.auto_mode and block.end is not None and block.end - block.start > _AUTO_MODE_LIFE
    ]
    return found
