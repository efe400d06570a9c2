"""Pools that Karpenter launches for: which NodePools and node classes there should be, kept in step with the blocks.

A pure function of the documents and the reservations. One NodePool for each source, so that a pod pinned to a source
finds exactly its nodes; a node class selects reservations by tag where it can, so that a successor needs no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.provision.karpenter import node_class, node_pool, warnings
from tidemill.provision.karpenter.flavour import KarpenterApi
from tidemill.provision.karpenter.removal import is_over
from tidemill.provision.wanted_groups import reservations_for
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance, ComputePool, Provisioner, SourceSpec
from tidemill.spec.platform import KARPENTER_CAPACITY_BLOCKS, KARPENTER_SEVERAL_BLOCKS, KarpenterRef

RESERVED = (SourceKind.BLOCK, SourceKind.ODCR)
Object = Mapping[str, Any]


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


def objects(
    spec: Spec, pool: ComputePool, reservations: Iterable[Reservation] | None, now: datetime | None = None
) -> Objects:
    """For one pool. `reservations` None: none is known, and one NodePool takes whatever its tags select."""
    flavour = KarpenterApi.of(karpenter_of(spec))
    if pool.spec.provisioner is not Provisioner.KARPENTER:
        raise SpecError(
            f"pool {pool.name}: its provisioner is '{pool.spec.provisioner.value}', not 'karpenter'"
        )
    if pool.spec.node_class_name not in spec.node_classes:
        raise SpecError(f"pool {pool.name}: there is no NodeClass '{pool.spec.node_class_name}'")
    told = warnings.of(spec, pool, flavour)
    made: list[Object] = []
    if reservations is None:
        made += _from_documents(spec, pool, flavour)
    else:
        blocks = live_reservations(spec, pool, reservations, now)
        made += _kept_in_step(spec, pool, flavour, blocks)
        told += warnings.about(spec, pool, flavour, blocks)
    made += _by_the_hour(spec, pool, flavour, beside=bool(_reserved(pool)))
    return Objects(tuple(made), tuple(told))


def live_reservations(
    spec: Spec, pool: ComputePool, reservations: Iterable[Reservation], now: datetime | None
) -> list[Reservation]:
    """Those the pool may use and whose drain is not over: from its deadline on nothing is launched on a block."""
    found = sorted(reservations_for(spec, pool, reservations), key=lambda one: (one.start, one.id))
    return [one for one in found if now is None or not is_over(one, now)]


def _reserved(pool: ComputePool) -> list[SourceSpec]:
    return [one for one in pool.spec.sources if SourceKind(one.type) in RESERVED]


def _from_documents(spec: Spec, pool: ComputePool, flavour: KarpenterApi) -> list[Object]:
    made: list[Object] = []
    for wanted in _reserved(pool):
        kind = SourceKind(wanted.type)
        name = pool.name if kind is SourceKind.BLOCK else f"{pool.name}-{kind.value}"
        made.append(node_class.node_class(spec, pool, flavour, name, node_class.terms(spec, pool, wanted)))
        made.append(node_pool.reserved(spec, pool, flavour, name, kind))
    return made


def _kept_in_step(
    spec: Spec, pool: ComputePool, flavour: KarpenterApi, blocks: list[Reservation]
) -> list[Object]:
    """A node class for all where one selector can serve them, else one for each; and a NodePool for each.

    Which of the two never depends on the blocks: a running NodePool that is given another node class drifts.
    """
    made: list[Object] = []
    room = Allowance.of(pool.spec.limits)
    shared = _one_selector_serves(flavour)
    if blocks and shared:
        terms = node_class.terms_for(spec, pool, blocks)
        made.append(node_class.node_class(spec, pool, flavour, pool.name, terms))
    for one in blocks:
        name = node_pool.object_name(pool.name, one.id)
        if not shared:
            made.append(node_class.node_class(spec, pool, flavour, name, [{"id": one.id}]))
        made.append(node_pool.on(spec, pool, flavour, name, pool.name if shared else name, one, room))
    return made


def _one_selector_serves(flavour: KarpenterApi) -> bool:
    """Before 1.8, blocks of one type and zone hide each other behind one selector (TR-15). In Auto Mode only a node
    class can say which of them a NodePool launches on."""
    return flavour.karpenter.supports(KARPENTER_SEVERAL_BLOCKS) and not flavour.auto_mode


def _by_the_hour(spec: Spec, pool: ComputePool, flavour: KarpenterApi, *, beside: bool) -> list[Object]:
    """Spot and on-demand: the fall-back of lower weight where the pool has reserved capacity too (KP-2)."""
    wanted = [one for one in pool.spec.sources if SourceKind(one.type) not in RESERVED]
    if not wanted:
        return []
    name = node_pool.object_name(pool.name, "hourly")
    made: list[Object] = [node_class.node_class(spec, pool, flavour, name, [])]
    for place, one in enumerate(wanted):
        source = Source(SourceKind(one.type))
        made.append(node_pool.hourly(spec, pool, flavour, name, source, one, rank=place + beside))
    return made
