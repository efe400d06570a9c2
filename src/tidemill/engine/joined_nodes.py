"""Instances and Kubernetes nodes, joined by the instance id in the node's provider id.

Every Kubernetes node is in the answer once. One without an instance of ours stands alone, and nothing is done to it:
nodes of other clouds, of other node groups, and the older of two Node objects that name one instance. What is
unchanged stays the same object, and so does the whole tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import is_

from tidemill.model.changes import different
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance, InstanceState, KubeNode, Node
from tidemill.spec import names

# A list that leaves out an instance whose node is Ready is wrong. For longer than this it is believed: somebody may
# have taken our owner tag off, and then the node is not ours to drain.
BELIEVED_FOR = timedelta(minutes=10)
# Of a node that has just joined, the list was read before its instance was there. No event tells when it is listed.
LISTED_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Joined:
    nodes: tuple[Node, ...]
    changed: Sequence[Node] = ()  # with an instance, and not as they were at the last look
    gone: Iterable[str] = ()  # ids of instances that are no longer there


class JoinedNodes:
    """Remembers the last answer, and instances with a node that a list may leave out."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._from: tuple[Sequence[Instance] | None, tuple[KubeNode, ...]] = (None, ())
        self._nodes: tuple[Node, ...] = ()
        self._before: dict[str, Node] = {}  # the same, by instance id or node name
        self._left_out: dict[str, datetime] = {}  # since when
        self._newest_alone: datetime | None = (
            None  # when the newest node of a pool joined whose instance is not listed
        )

    def join(self, instances: Sequence[Instance], kubes: tuple[KubeNode, ...], now: datetime) -> Joined:
        if self._from[0] is instances and not self._left_out:
            if self._from[1] is kubes:
                return Joined(self._nodes)
            if (joined := self._with_changed(kubes)) is not None:
                return joined
        by_instance, others = _by_instance(kubes)
        missing = self._missing(instances, by_instance, now)
        before, by_key, changed = self._before, dict[str, Node](), []
        for instance in (*instances, *missing):
            kube, node = by_instance.pop(instance.id, None), before.get(instance.id)
            if node is None or node.kube is not kube or not _same(node.instance, instance):
                node = Node(instance, kube)
                changed.append(node)
            by_key[instance.id] = node
        alone = [kube.joined_at for kube in by_instance.values() if _has_a_pool(kube)]
        self._newest_alone = max(alone, default=None)
        for kube in (*by_instance.values(), *others):
            key = _alone(kube)
            node = before.get(key)
            by_key[key] = node if node is not None and node.kube is kube else Node(None, kube)
        nodes = tuple(by_key.values())
        same = len(nodes) == len(self._nodes) and all(map(is_, nodes, self._nodes))
        self._from, self._before = (instances, kubes), by_key
        self._nodes = self._nodes if same else nodes
        return Joined(self._nodes, changed, before.keys() - by_key.keys())

    def awaits_listing(self, now: datetime) -> bool:
        """A node of a pool has just joined, and its instance is not in the list yet."""
        return self._newest_alone is not None and now - self._newest_alone < LISTED_WITHIN

    def _with_changed(self, kubes: tuple[KubeNode, ...]) -> Joined | None:
        """The instances are the same, and no Kubernetes node came, went or changed its instance: those that did change
        take the place of what they were. None: something else happened, and all are joined anew."""
        before = self._from[1]
        if len(before) != len(kubes):
            return None
        places = different(before, kubes)
        if any(_joins(before[place]) != _joins(kubes[place]) for place in places):
            return None
        for place in places:
            old, kube = before[place], kubes[place]
            known = self._before.get(old.instance_id)
            if known is not None and known.kube is old:
                self._before[old.instance_id] = Node(known.instance, kube)
            else:
                self._before[_alone(kube)] = Node(None, kube)
        last, self._nodes = self._nodes, tuple(self._before.values())
        self._from = (self._from[0], kubes)
        changed = [self._nodes[place] for place in different(last, self._nodes)]
        return Joined(self._nodes, [node for node in changed if node.instance is not None])

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


def _has_a_pool(kube: KubeNode) -> bool:
    return any(key == names.LABEL_POOL for key, _ in kube.labels)


def _alone(kube: KubeNode) -> str:
    """The key of one without an instance of ours: a node may be named like an instance."""
    return f"node/{kube.name}"


def _joins(kube: KubeNode) -> tuple[str, str, datetime]:
    """What decides which instance it is joined to."""
    return kube.name, kube.instance_id, kube.joined_at


def _same(known: Instance | None, instance: Instance) -> bool:
    return known is instance or known == instance
