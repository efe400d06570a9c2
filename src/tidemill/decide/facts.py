"""What can be said of one node from its own facts alone, worked out once and kept while they last.

Most nodes do not change from one tick to the next, and the world keeps unchanged objects identical: so a
node whose object and pods are the same ones as before need not be looked into again. The memory changes
how fast an answer comes, never the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from tidemill.catalog import InstanceType
from tidemill.decide.nodes import SHORTEST_LEAD, Phase, phase_of, pod_lead
from tidemill.decide.pools import PoolTemplate, templates
from tidemill.decide.rules import left_over
from tidemill.spec import Spec, names
from tidemill.spec.models import Provisioner
from tidemill.world import Node, Pod, Source

_PROVISIONERS = {one.value: one for one in Provisioner}


@dataclass(slots=True, eq=False)
class NodeFacts:
    node: Node
    bound: tuple[Pod, ...]
    phase: Phase
    template: PoolTemplate | None  # None: the pool was removed
    kind: InstanceType | None
    source: Source
    pool_name: str
    provisioner: Provisioner  # how it was launched, which decides who else will end it
    pods: tuple[Pod, ...]  # bound here, daemons left out
    lead: timedelta  # the longest its pods need, at least the shortest there is
    announced: frozenset[datetime | None]  # the ends its pods were told
    labels: Mapping[str, str]
    free: Mapping[str, int]  # empty unless Ready
    free_accelerators: int
    daemons: Mapping[str, int]  # what daemon pods take here
    drift: str | None
    order: tuple[int, int]
    group: int  # nodes of one group differ only in what is free on them, and in their host name


def facts_of(spec: Spec, node: Node, bound: tuple[Pod, ...]) -> NodeFacts:
    memory = _memory(spec)
    known = memory.get(node.key)
    if known is not None and known.node is node and known.bound is bound:
        return known
    if len(memory) > 20_000:  # nodes that are gone; the living come back at once
        memory.clear()
    fresh = memory[node.key] = _work_out(spec, node, bound)
    return fresh


@lru_cache(maxsize=8)
def _memory(spec: Spec) -> dict[str, NodeFacts]:
    return {}


def _work_out(spec: Spec, node: Node, bound: tuple[Pod, ...]) -> NodeFacts:
    instance, kube = node.instance, node.kube
    assert instance is not None
    template = templates(spec).get(instance.pool)
    phase = phase_of(node)
    pods = tuple(pod for pod in bound if not pod.daemon)
    checkpoint = template.pool.spec.drain.checkpoint if template else True
    free = left_over(kube.allocatable, bound) if phase is Phase.READY and kube is not None else {}
    return NodeFacts(
        node=node,
        bound=bound,
        phase=phase,
        template=template,
        kind=spec.catalog.types.get(instance.instance_type),
        source=instance.source,
        pool_name=instance.pool,
        provisioner=_PROVISIONERS.get(instance.provisioner, Provisioner.NATIVE),
        pods=pods,
        lead=max((pod_lead(pod, checkpoint=checkpoint) for pod in pods), default=SHORTEST_LEAD),
        announced=frozenset(pod.ends_at for pod in pods if pod.deleting_until is None),
        labels=dict(kube.labels) if kube is not None else {},
        free=free,
        free_accelerators=sum(free.get(name, 0) for name in names.ACCELERATORS),
        daemons=_daemons(bound),
        drift=_drift(node, template),
        order=template.order(instance.source) if template else (0, 0),
        group=_group(spec, node),
    )


@lru_cache(maxsize=8)
def _groups(spec: Spec) -> dict[object, int]:
    return {}


def _group(spec: Spec, node: Node) -> int:
    """A small number for everything a pod could ask of a node besides room and its host name."""
    instance, kube = node.instance, node.kube
    assert instance is not None
    labels = frozenset(pair for pair in kube.labels if pair[0] != names.LABEL_HOSTNAME) if kube else frozenset()
    key = (instance.pool, instance.source, instance.instance_type, instance.zone, labels, kube.taints if kube else ())
    known = _groups(spec)
    return known.setdefault(key, len(known))


def _daemons(bound: tuple[Pod, ...]) -> dict[str, int]:
    taken: dict[str, int] = {}
    for pod in bound:
        if pod.daemon:
            taken[names.PODS] = taken.get(names.PODS, 0) + 1
            for name, wanted in pod.shape.requests:
                taken[name] = taken.get(name, 0) + wanted
    return taken


def _drift(node: Node, template: PoolTemplate | None) -> str | None:
    """What about this node its pool would not launch today."""
    instance, kube = node.instance, node.kube
    if template is None or instance is None or kube is None:
        return None
    pool = template.pool
    if instance.instance_type not in template.kinds:
        return f"pool {pool.name} no longer allows {instance.instance_type}"
    labels = dict(kube.labels)
    for key, value in pool.spec.labels.items():
        if labels.get(key) != value:
            return f"it lacks the label {key}={value} of pool {pool.name}"
    return None
