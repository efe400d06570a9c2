"""What follows from one node alone, computed once and kept while the node does not change.

Most nodes do not change from one tick to the next, and the world keeps unchanged objects identical: so a
node whose object and pods are the same ones as before need not be looked into again. The memory changes
how fast an answer comes, never the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from tidemill.catalog import InstanceType
from tidemill.decide.deadlines import SHORTEST_LEAD, pod_lead
from tidemill.decide.packer.problem import ExistingPods
from tidemill.decide.phases import Phase, phase_of
from tidemill.decide.pool_templates import PoolTemplate, templates
from tidemill.model.capacity import Source
from tidemill.model.nodes import KubeNode, Node
from tidemill.model.pods import Pod, PodShape, daemon_requests
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.model.resources import Resources
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Provisioner

_PROVISIONERS = {one.value: one for one in Provisioner}


# From when a node could take pods of a shape (None: now), how many (0: unknown), until when that estimate holds
# (None: while nothing changes), when it was made, and the shape.
FreeAt = tuple[datetime | None, int, datetime | None, datetime, PodShape]


@dataclass(slots=True, eq=False, kw_only=True)
class _Made:
    """What follows from its instance, its labels and its taints alone."""

    template: PoolTemplate | None  # None: the pool was removed
    kind: InstanceType | None
    source: Source
    pool_name: str
    provisioner: Provisioner  # how it was launched: that decides what else ends it
    labels: Mapping[str, str]
    drift: DrainReason | None
    order: tuple[int, int]
    ending: tuple[str, Provisioner, Source]  # nodes of one pool, provisioner and source end together
    group: int  # nodes of one group differ only in what is free on them, and in their host name
    counted: tuple[str, str]  # pool and type, for limits


@dataclass(slots=True, eq=False, kw_only=True)
class NodeFacts(_Made):
    node: Node
    bound: tuple[Pod, ...]
    phase: Phase
    pods: tuple[Pod, ...]  # bound here, daemons left out
    movers: tuple[Pod, ...]  # replicas that must move when its source ends
    standing: tuple[object, ...]  # what a hand-over depends on; equal: nothing of it has changed
    lead: timedelta  # the longest lead of its pods, at least SHORTEST_LEAD
    told: datetime | None  # the end announced to its pods, where it is the same for all
    all_told: bool  # every pod was told, and all the same
    takes_pods: bool  # ours to place pods on, and not cordoned
    name: str
    cordoned: bool  # nothing new can start there
    free: Resources  # empty unless Ready
    free_accelerators: int
    daemons: Resources  # what daemon pods take here
    keeps_away: bool  # a pod here has anti-affinity or host ports
    _existing_pods: tuple[ExistingPods, ...] | None = None
    _free_vector: tuple[tuple[str, int], ...] | None = None
    free_at: dict[int, FreeAt] = field(default_factory=dict)  # by identity of a shape (kept alive with it)

    @property
    def existing_pods(self) -> tuple[ExistingPods, ...]:
        if self._existing_pods is None:
            self._existing_pods = existing_pods_of(self.bound)
        return self._existing_pods

    @property
    def free_vector(self) -> tuple[tuple[str, int], ...]:
        """`free`, in an order that does not depend on who was placed when."""
        if self._free_vector is None:
            self._free_vector = tuple(sorted(self.free.items()))
        return self._free_vector


class NodeCache:
    """Facts by instance id, kept while the node and its pods are the very same objects."""

    def __init__(self) -> None:
        self.known: dict[str, NodeFacts] = {}
        self._groups: dict[object, int] = {}  # kept as long as the facts that carry its numbers

    def facts_of(self, spec: Spec, node: Node, bound: tuple[Pod, ...]) -> NodeFacts:
        known = self.known.get(node.key)
        if known is not None and known.node is node and known.bound is bound:
            return known
        if len(self.known) > 20_000:  # mostly nodes that are gone; the others are computed again
            self.known.clear()
        made = (
            _made(spec, self._groups, node) if known is None or not _made_alike(known.node, node) else known
        )
        fresh = self.known[node.key] = _work_out(made, node, bound)
        return fresh


def _made_alike(before: Node, node: Node) -> bool:
    """What `_Made` follows from is the same: pods come and go without changing any of it."""
    if before.instance is not node.instance or before.kube is None or node.kube is None:
        return False
    return before.kube.labels is node.kube.labels and before.kube.taints is node.kube.taints


def _made(spec: Spec, groups: dict[object, int], node: Node) -> _Made:
    instance, kube = node.instance, node.kube
    assert instance is not None
    template = templates(spec).get(instance.pool)
    provisioner = _PROVISIONERS.get(instance.provisioner, Provisioner.NATIVE)
    return _Made(
        template=template,
        kind=spec.catalog.types.get(instance.instance_type),
        source=instance.source,
        pool_name=instance.pool,
        provisioner=provisioner,
        labels=dict(kube.labels) if kube is not None else {},
        drift=_drift(node, template),
        order=template.order(instance.source) if template else (0, 0),
        ending=_shared((instance.pool, provisioner, instance.source)),
        group=_group(groups, node),
        counted=(instance.pool, instance.instance_type),
    )


def _work_out(made: _Made, node: Node, bound: tuple[Pod, ...]) -> NodeFacts:
    instance, kube = node.instance, node.kube
    assert instance is not None
    phase, template = phase_of(node), made.template
    pods = tuple([pod for pod in bound if not pod.daemon])
    movers = tuple([pod for pod in pods if moves(pod)])
    checkpoint = template.pool.spec.drain.checkpoint if template else True
    announced = {pod.ends_at for pod in pods if pod.deleting_until is None}
    cordoned = kube is not None and kube.unschedulable
    free = free_on(kube, bound) if phase is Phase.READY and kube is not None else Resources()
    return NodeFacts(
        node=node,
        bound=bound,
        phase=phase,
        template=template,
        kind=made.kind,
        source=made.source,
        pool_name=made.pool_name,
        provisioner=made.provisioner,
        pods=pods,
        movers=movers,
        standing=(
            instance.id,
            phase,
            kube.opened_at if kube else None,
            *((mover.uid, mover.ready, mover.started_at) for mover in movers),
        ),
        lead=max([pod_lead(pod, checkpoint=checkpoint) for pod in pods], default=SHORTEST_LEAD),
        told=next(iter(announced), None),
        all_told=not announced or (len(announced) == 1 and None not in announced),
        takes_pods=template is not None and made.kind is not None and not cordoned,
        name=node.name,
        cordoned=cordoned,
        labels=made.labels,
        free=free,
        free_accelerators=sum([free.get(name, 0) for name in names.ACCELERATORS]),
        daemons=daemon_requests(bound),
        drift=made.drift,
        order=made.order,
        ending=made.ending,
        group=made.group,
        counted=made.counted,
        keeps_away=any(pod.shape.anti_affinity or pod.shape.host_ports for pod in bound),
    )


def existing_pods_of(pods: Iterable[Pod]) -> tuple[ExistingPods, ...]:
    """Pods on one node, those of one shape together."""
    counts: dict[tuple[int, str], tuple[PodShape, int]] = {}
    for pod in pods:
        key = (id(pod.shape), pod.namespace)
        shape, count = counts.get(key, (pod.shape, 0))
        counts[key] = (shape, count + 1)
    return tuple(ExistingPods(shape, namespace, count) for (_, namespace), (shape, count) in counts.items())


@lru_cache(maxsize=4096)
def _shared(ending: tuple[str, Provisioner, Source]) -> tuple[str, Provisioner, Source]:
    """One object for equal keys, so that grouping by it can compare by identity."""
    return ending


def _group(known: dict[object, int], node: Node) -> int:
    """A number for everything a pod could ask of a node besides free resources and its host name."""
    instance, kube = node.instance, node.kube
    assert instance is not None
    labels = (
        frozenset(pair for pair in kube.labels if pair[0] != names.LABEL_HOSTNAME) if kube else frozenset()
    )
    key = (
        instance.pool,
        instance.source,
        instance.instance_type,
        instance.zone,
        labels,
        kube.taints if kube else (),
    )
    return known.setdefault(key, len(known))


def moves(pod: Pod) -> bool:
    """A replica of a service: its controller creates it again, and it has no end of its own."""
    return (
        bool(pod.workload) and not pod.pinned_to and pod.terms.expected is None and pod.deleting_until is None
    )


def free_on(kube: KubeNode, bound: Iterable[Pod]) -> Resources:
    """What a node has left beside the pods bound to it."""
    free = Resources(kube.allocatable)
    for pod in bound:
        free.subtract_pod(pod.shape.requests)
    return free


def _drift(node: Node, template: PoolTemplate | None) -> DrainReason | None:
    """How this node differs from what its pool would launch today."""
    instance, kube = node.instance, node.kube
    if template is None or instance is None or kube is None:
        return None
    pool = template.pool
    if instance.instance_type not in template.kinds:
        return DrainReason(DrainKind.DRIFTED_TYPE, name=instance.instance_type, pool=pool.name)
    if instance.provisioner == Provisioner.MANAGED:
        return None  # a node group takes a new template only while it is empty: another of its nodes is no newer (MG-4)
    labels = dict(kube.labels)
    for key, value in pool.spec.labels.items():
        if labels.get(key) != value:
            return DrainReason(DrainKind.DRIFTED_LABEL, name=f"{key}={value}", pool=pool.name)
    if pool.spec.admitted_pods_only and all(taint.key != names.TAINT_HELD for taint in kube.taints):
        return DrainReason(DrainKind.DRIFTED_TAINT, name=names.TAINT_HELD, pool=pool.name)
    made_from = labels.get(names.LABEL_NODE_CLASS, "")  # a node without the label was not launched by us
    if made_from and template.made_from and made_from != template.made_from:
        return DrainReason(DrainKind.DRIFTED_NODE_CLASS, name=pool.spec.node_class_name, pool=pool.name)
    return None
