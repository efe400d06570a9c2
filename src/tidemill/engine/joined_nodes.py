"""Instances and Kubernetes nodes, joined by the instance id in the node's provider id.

Every Kubernetes node is in the answer once. One without an instance of ours stands alone, and nothing is done to it:
nodes of other clouds, of other node groups, and the older of two Node objects that name one instance. What is
unchanged stays the same object, and so does the whole tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance, InstanceState, KubeNode, Node

# A list that leaves out an instance whose node is Ready is wrong. For longer than this it is believed: somebody may
# have taken our owner tag off, and then the node is not ours to drain.
BELIEVED_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Joined:
    nodes: tuple[Node, ...]
    changed: Sequence[Node] = ()  # with an instance, and not as they were at the last look
    gone: Iterable[str] = ()  # ids of instances that are no longer there


class JoinedNodes:
    """Remembers the last answer, and instances with a node that a list may leave out."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._from: tuple[object, object] = (None, None)
        self._nodes: tuple[Node, ...] = ()
        self._before: dict[str, Node] = {}  # the same, by instance id or node name
        self._left_out: dict[str, datetime] = {}  # since when

    def join(self, instances: Sequence[Instance], kubes: tuple[KubeNode, ...], now: datetime) -> Joined:
        if self._from[0] is instances and self._from[1] is kubes and not self._left_out:
            return Joined(self._nodes)
        by_instance, others = _by_instance(kubes)
        missing = self._missing(instances, by_instance, now)
        before, joined, changed = self._before, {}, []
        for instance in (*instances, *missing):
            kube, node = by_instance.pop(instance.id, None), before.get(instance.id)
            if node is None or node.kube is not kube or not _same(node.instance, instance):
                node = Node(instance, kube)
                changed.append(node)
            joined[instance.id] = node
        for kube in (*by_instance.values(), *others):
            key = f"node/{kube.name}"  # a node may be named like an instance
            node = before.get(key)
            joined[key] = node if node is not None and node.kube is kube else Node(None, kube)
        nodes = tuple(joined.values())
        same = len(nodes) == len(self._nodes) and all(map(lambda a, b: a is b, nodes, self._nodes))
        self._from, self._before = (instances, kubes), joined
        self._nodes = self._nodes if same else nodes
        return Joined(self._nodes, changed, before.keys() - joined.keys())

    def _missing(
        self, instances: Sequence[Instance], by_instance: dict[str, KubeNode], now: datetime
    ) -> list[Instance]:
        """Instances of ours that the list leaves out although their Kubernetes node is there.

        What was seen to end does not come back: it stays ended as long as its node lingers, so that the node can be
        removed.
        Of one that ran, a Ready node is proof for a while; without it nothing is known, and nothing is done.
        """
        listed = {instance.id for instance in instances}
        found = []
        for id_, kube in by_instance.items():
            known = self._before.get(id_)
            instance = known.instance if known is not None and id_ not in listed else None
            if instance is None or instance.owner != self._owner:
                continue
            since = self._left_out.setdefault(id_, now)
            recently = now - since < BELIEVED_FOR
            if instance.state in INSTANCE_ENDED_STATES:
                found.append(instance if recently else replace(instance, state=InstanceState.TERMINATED))
            elif kube.ready and recently:
                found.append(instance)
        kept = {instance.id for instance in found}
        self._left_out = {id_: since for id_, since in self._left_out.items() if id_ in kept}
        return found


def _by_instance(kubes: Iterable[KubeNode]) -> tuple[dict[str, KubeNode], list[KubeNode]]:
    """The newest node of each instance; and the others: older ones, and nodes without an instance id."""
    newest: dict[str, KubeNode] = {}
    others: list[KubeNode] = []
    for kube in kubes:
        if not kube.instance_id:
            others.append(kube)
            continue
        rival = newest.setdefault(kube.instance_id, kube)
        if rival is not kube:
            older, newer = sorted((rival, kube), key=lambda one: (one.joined_at, one.name))
            newest[kube.instance_id] = newer
            others.append(older)
    return newest, others


def _same(known: Instance | None, instance: Instance) -> bool:
    return known is instance or known == instance
