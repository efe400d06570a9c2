"""What a pod costs where it runs, and the cheapest type that would hold it: in its pools, and in all the catalog.

List prices on demand, for comparison: what a block's hour cost was settled when it was bought. Which pools a pod
may use is what Kubernetes would say of their nodes (labels, taints, volumes); whether one has room, or money, is the
plan's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from tidemill.catalog import InstanceType
from tidemill.catalog.fitting import cheapest, fitting
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.decide.pool_templates import PoolTemplate, templates
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID, Source, SourceKind
from tidemill.model.nodes import Instance
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts
from tidemill.model.world import World
from tidemill.report.rows import PodPrice, TypePrice
from tidemill.spec import Spec, names


class Quotes:
    """Of one instant. Pods of one template are asked about once."""

    def __init__(self, spec: Spec, world: World) -> None:
        self._spec = spec
        self._company = Counter(pod.node for pod in world.pods if pod.node and not pod.daemon)
        self._daemons = _daemons(spec, world)
        # Shapes by identity: the world holds them alive, and hashing one costs more than all the rest.
        self._known: dict[tuple[int, str, str, str, int], PodPrice] = {}

    def price(self, pod: Pod, instance: Instance | None) -> PodPrice:
        type_name, paid_as, neighbours = "", "", 0
        if instance is not None and instance.instance_type in self._spec.catalog.types:
            type_name, paid_as = instance.instance_type, instance.source.kind.value
            neighbours = self._company[pod.node] - 1
        key = (id(pod.shape), pod.namespace, type_name, paid_as, neighbours)
        found = self._known.get(key)
        if found is None:
            inside, outside = _cheapest(self._spec, _anywhere(pod.shape), pod.namespace, self._daemons)
            kind = self._spec.catalog.types[type_name] if type_name else None
            found = self._known[key] = PodPrice(
                in_pools=inside,
                in_catalog=outside,
                node=_quote(kind) if kind else None,
                paid_as=paid_as,
                prepaid=paid_as in PREPAID,
                neighbours=neighbours,
            )
        return found


def _daemons(spec: Spec, world: World) -> Amounts:
    """The most that daemons take of anything on one of our nodes; before there are any, the usual ones."""
    ours = {
        node.kube.name
        for node in world.nodes
        if node.kube and node.instance and node.instance.owner == spec.platform.spec.deployment
    }
    taken: dict[str, Counter[str]] = {}
    for pod in world.pods:
        if pod.daemon and pod.node in ours:
            on_node = taken.setdefault(pod.node, Counter())
            on_node.update(dict(pod.shape.requests))
            on_node[names.PODS] += 1
    worst: Counter[str] = Counter()
    for on_node in taken.values():
        worst |= on_node  # the larger of each
    return tuple(sorted(worst.items())) or USUAL_DAEMONS


def _anywhere(shape: PodShape) -> PodShape:
    chosen = (names.LABEL_SOURCE, names.LABEL_HOSTNAME)
    return replace(shape, node_selector=tuple(pair for pair in shape.node_selector if pair[0] not in chosen))


@lru_cache(maxsize=1024)
def _cheapest(
    spec: Spec, shape: PodShape, namespace: str, daemons: Amounts
) -> tuple[TypePrice | None, TypePrice | None]:
    """In the pools it may use, and outside them where that is cheaper or the only choice.

    A type outside a pool is one the pool's requirements could have allowed: its nodes would carry the pool's labels
    and taints. Only of an architecture the pool uses, because a pod's image is made for one.
    """
    inside: dict[str, InstanceType] = {}
    outside: dict[str, InstanceType] = {}
    for template in templates(spec).values():
        if not template.pool.spec.serves(namespace):
            continue
        inside |= _usable(spec, template, shape, template.kinds.values())
        archs = {kind.arch for kind in template.kinds.values()}
        others = (kind for kind in spec.catalog.types.values() if kind.arch in archs)
        outside |= _usable(spec, template, shape, others)
    held = fitting(inside.values(), shape.requests, daemons)
    best = cheapest(held) or next(iter(held), None)
    other = cheapest(fitting(outside.values(), shape.requests, daemons))
    if other is None or (best is not None and (best.usd_h is None or best.usd_h <= (other.usd_h or 0.0))):
        other = None
    return _quote(best.type) if best else None, _quote(other.type) if other else None


def _usable(
    spec: Spec, template: PoolTemplate, shape: PodShape, kinds: Iterable[InstanceType]
) -> dict[str, InstanceType]:
    zones = sorted(spec.platform.spec.subnets)
    source = Source(SourceKind.ON_DEMAND)

    def usable() -> Iterator[InstanceType]:
        for kind in kinds:
            if any(admits(shape, template.labels(source, kind, zone), template.taints) for zone in zones):
                yield kind

    return {kind.name: kind for kind in usable()}


def _quote(kind: InstanceType) -> TypePrice:
    accelerator = kind.accelerator
    devices = f"{accelerator.count} x {accelerator.model}" if accelerator else ""
    return TypePrice(kind.name, devices, kind.on_demand_usd_h)
