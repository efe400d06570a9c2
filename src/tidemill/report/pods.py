"""Pods and next steps: which pods run until when, which wait and why, what they cost, and what the plan would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from tidemill.catalog import InstanceType
from tidemill.catalog.fitting import cheapest, fitting
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.decide.read_models import PoolTemplate, admits, templates
from tidemill.model.capacity import PREPAID, Source, SourceKind
from tidemill.model.labels import Toleration
from tidemill.model.nodes import Instance
from tidemill.model.plan import Action, Plan
from tidemill.model.pods import Pod, PodPhase, PodShape
from tidemill.model.purchases import PurchaseIntent
from tidemill.model.resources import Amounts, amount
from tidemill.model.world import World
from tidemill.report.rows import ChangeRow, NextSteps, PodPrice, PodRow, StepRow, TypePrice, WarningRow
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.wording import sentence


def next_steps(spec: Spec, world: World, plan: Plan, changes: tuple[ChangeRow, ...] = ()) -> NextSteps:
    by_uid = {pod.uid: pod.full_name for pod in world.pods}
    return NextSteps(
        at=world.now,
        steps=tuple(
            StepRow(type(action).__name__, touched(action, by_uid), sentence(action.reason))
            for action in plan.actions
        ),
        waiting=tuple(row for row in pods(spec, world, plan) if row.state == "waiting"),
        warnings=warnings(plan),
        wake_at=plan.wake_at,
        changes=changes,
    )


def touched(action: Action, pod_names: Mapping[str, str]) -> tuple[str, ...]:
    """What an action changes: pods by name, else the node, the instance, the window or the type."""
    uids: tuple[str, ...] = getattr(action, "pods", ()) or tuple(filter(None, (getattr(action, "pod", ""),)))
    if uids:
        return tuple(pod_names.get(uid, uid) for uid in uids)
    intent, query = getattr(action, "intent", None), getattr(action, "query", None)
    if isinstance(intent, PurchaseIntent):
        return (f"{intent.plan}/{intent.window}", intent.id)
    if intent is not None:
        return (f"{intent.count} x {intent.instance_type} on {intent.source.label}",)
    if query is not None:
        return (f"{query.count} x {query.instance_type}",)
    named = (getattr(action, key, "") for key in ("node", "instance_id", "intent_id", "workload"))
    return tuple(name for name in named if name)


def pods(spec: Spec, world: World, plan: Plan) -> tuple[PodRow, ...]:
    """Every pod that is not a daemon's, those that wait with the reason the plan gives."""
    unmet = {item.pod: item for item in plan.unmet}
    nodes = {node.kube.name: node for node in world.nodes if node.kube is not None}
    queues, quotes = _Queues(spec), Quotes(spec, world)
    rows = []
    for pod in world.pods:
        if pod.daemon:
            continue
        node, wait = nodes.get(pod.node), unmet.get(pod.uid)
        instance = node.instance if node is not None else None
        rows.append(
            PodRow(
                name=pod.full_name,
                state=_pod_state(pod),
                workload=pod.workload,
                pool=instance.pool if instance is not None else queues.pool(pod),
                node=pod.node,
                source=instance.source.label if instance is not None else pod.pinned_to,
                gpus=gpus(pod.shape),
                since=pod.started_at or pod.created_at,
                until=pod.ends_at,
                code=wait.code if wait else "",
                reason=sentence(wait.reason) if wait else ("" if pod.node else _unplanned(pod)),
                earliest=wait.earliest if wait else None,
                price=quotes.price(pod, instance),
            )
        )
    return tuple(rows)


def _pod_state(pod: Pod) -> str:
    if pod.deleting_until is not None:
        return "stopping"
    if not pod.node:
        return "waiting"
    return "running" if pod.phase is PodPhase.RUNNING else "starting"


def _unplanned(pod: Pod) -> str:
    """The reason for a pod that is not in the plan: somebody else holds it, or the scheduler is about to place it."""
    if pod.held_by_others:
        return f"another controller holds it{': ' if pod.message else ''}{pod.message}"
    return pod.message or "it was admitted and is being scheduled"


def warnings(plan: Plan) -> tuple[WarningRow, ...]:
    return tuple(WarningRow(warning.about, sentence(warning.reason)) for warning in plan.warnings)


class _Queues:
    """The pool in whose queue a waiting pod is: the first, by weight, that its node selector and GPUs match.

    Whether the pool can serve the pod, and why not, is in the plan.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._pools = sorted(spec.pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
        self._known: dict[tuple[PodShape, str], str] = {}

    def pool(self, pod: Pod) -> str:
        key = (pod.shape, pod.namespace)
        if key not in self._known:
            asked = (pool.name for pool in self._pools if self._is_asked_for(pool, pod))
            self._known[key] = next(asked, "")
        return self._known[key]

    def _is_asked_for(self, pool: ComputePool, pod: Pod) -> bool:
        if not pool.spec.serves(pod.namespace):
            return False
        wanted = {key: value for key, value in pod.shape.node_selector if key not in _CHOSEN_BY_ENGINE}
        return any(
            wanted.items() <= _labels(pool, kind).items() and gpus(pod.shape) <= kind.gpus
            for kind in matching_types(self._spec.catalog, pool.spec.requirements)
        )


# The engine chooses source and zone, so a selector for one names no pool.
_CHOSEN_BY_ENGINE = (names.LABEL_SOURCE, names.LABEL_ZONE)


def _labels(pool: ComputePool, kind: InstanceType) -> dict[str, str]:
    own = {names.LABEL_POOL: pool.name, names.LABEL_TYPE: kind.name, names.LABEL_ARCH: kind.arch}
    return {**pool.spec.labels, **own}


def gpus(shape: PodShape) -> int:
    return sum(amount(shape.requests, name) for name in names.ACCELERATORS)


class Quotes:
    """Prices of pods at one instant, from list prices on demand. Pods of one template are priced once.

    Which pools a pod may use follows from labels, taints and namespaces; whether a pool has capacity or money is in
    the plan.
    """

    def __init__(self, spec: Spec, world: World) -> None:
        self._spec = spec
        self._company = Counter(pod.node for pod in world.pods if pod.node and not pod.daemon)
        self._daemons = _daemons(spec, world)
        # Shapes by identity: the world keeps them alive, and hashing a shape is expensive.
        self._known: dict[tuple[int, bool, str, str, str, int], PodPrice] = {}

    def price(self, pod: Pod, instance: Instance | None) -> PodPrice:
        type_name, paid_as, neighbours = "", "", 0
        if instance is not None and instance.instance_type in self._spec.catalog.types:
            type_name, paid_as = instance.instance_type, instance.source.kind.value
            neighbours = self._company[pod.node] - 1
        key = (id(pod.shape), pod.gated, pod.namespace, type_name, paid_as, neighbours)
        price = self._known.get(key)
        if price is None:
            inside, outside = _cheapest(self._spec, _anywhere(pod), pod.namespace, self._daemons)
            kind = self._spec.catalog.types[type_name] if type_name else None
            price = self._known[key] = PodPrice(
                in_pools=inside,
                in_catalog=outside,
                node=_quote(kind) if kind else None,
                paid_as=paid_as,
                prepaid=paid_as in PREPAID,
                neighbours=neighbours,
            )
        return price


def _daemons(spec: Spec, world: World) -> Amounts:
    """The most that daemons request on one of our nodes; before there are nodes, the usual daemons."""
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


def _anywhere(pod: Pod) -> PodShape:
    """Bound to no source and no node; a gated one with the toleration that admission adds."""
    shape, chosen = pod.shape, (names.LABEL_SOURCE, names.LABEL_HOSTNAME)
    selector = tuple(pair for pair in shape.node_selector if pair[0] not in chosen)
    added = (Toleration(names.TAINT_HELD, "Exists"),) if pod.gated else ()
    return replace(shape, node_selector=selector, tolerations=(*shape.tolerations, *added))


@lru_cache(maxsize=1024)
def _cheapest(
    spec: Spec, shape: PodShape, namespace: str, daemons: Amounts
) -> tuple[TypePrice | None, TypePrice | None]:
    """The cheapest type in the pools it may use, and one outside them if that is cheaper or the only choice.

    A type outside counts as if the pool's requirements allowed it: its nodes would have the pool's labels and taints.
    Only types of an architecture that the pool uses, because a pod's image is made for one.
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
