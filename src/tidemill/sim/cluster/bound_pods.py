"""Who is where: the pods bound to nodes, by shape and namespace, for rules that are about other pods.

Kept up to date by the API server's books, from the first pod on that minds where others are; a cluster without
such pods has none of this. It counts and finds; what is allowed is said in `neighbours`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.decide.scheduler_rules import HostPort, ports_clash, selects
from tidemill.model.labels import Selector
from tidemill.model.pods import Pod, PodShape, PodTerm
from tidemill.sim.cluster.free_resources import Room


@dataclass(slots=True, eq=False)
class Group:
    """Pods of one shape in one namespace, counted by node. No node is listed with 0."""

    shape: PodShape
    namespace: str
    labels: Mapping[str, str]
    at: dict[str, int] = field(default_factory=dict)  # terminating ones included
    staying: dict[str, int] = field(default_factory=dict)  # and without them

    def is_meant_by(self, term: PodTerm, namespace: str) -> bool:
        """By a term of a pod in `namespace`."""
        return self.namespace in (term.namespaces or (namespace,)) and selects(term.selector, self.labels)


class Company:
    def __init__(self, rooms: Mapping[str, Room], pods: Iterable[Pod]) -> None:
        self._rooms = rooms
        self._groups: dict[tuple[int, str], Group] = {}  # a group keeps its shape alive: its id is not reused
        self._meant: dict[tuple[Selector, tuple[str, ...]], list[Group]] = {}
        self.groups: list[Group] = []
        self.minding: list[Group] = []  # those whose own rules or wishes about others bear on a newcomer
        for pod in pods:
            if pod.node:
                self.came(pod)

    # --- keeping the books --------------------------------------------------------------------------

    def came(self, pod: Pod) -> None:
        group = self._group(pod)
        _add(group.at, pod.node, 1)
        if pod.deleting_until is None:
            _add(group.staying, pod.node, 1)

    def leaving(self, pod: Pod) -> None:
        """It was told to go and is still there."""
        _add(self._group(pod).staying, pod.node, -1)

    def gone(self, pod: Pod) -> None:
        group = self._group(pod)
        _add(group.at, pod.node, -1)
        if pod.deleting_until is None:
            _add(group.staying, pod.node, -1)

    def _group(self, pod: Pod) -> Group:
        key = (id(pod.shape), pod.namespace)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(pod.shape, pod.namespace, dict(pod.shape.labels))
            self.groups.append(group)
            if pod.shape.sociable:
                self.minding.append(group)
            for (selector, namespaces), found in self._meant.items():
                if pod.namespace in namespaces and selects(selector, group.labels):
                    found.append(group)
        return group

    # --- finding ------------------------------------------------------------------------------------

    def meant(self, selector: Selector, namespaces: tuple[str, ...]) -> Sequence[Group]:
        key = (selector, namespaces)
        found = self._meant.get(key)
        if found is None:
            found = self._meant[key] = [
                group
                for group in self.groups
                if group.namespace in namespaces and selects(selector, group.labels)
            ]
        return found

    def meant_by(self, term: PodTerm, namespace: str) -> Sequence[Group]:
        return self.meant(term.selector, term.namespaces or (namespace,))

    def count(self, key: str, groups: Iterable[Group]) -> Counter[str]:
        """Their pods by value of a topology key, terminating ones included; nodes without it are left out."""
        found: Counter[str] = Counter()
        for group in groups:
            for node, pods in group.at.items():
                value = self._rooms[node].labels.get(key)
                if value is not None:
                    found[value] += pods
        return found

    def ports_taken(self, wanted: Sequence[HostPort]) -> set[str]:
        """Nodes on which somebody has one of these ports."""
        return {
            node
            for group in self.minding
            if any(ports_clash(one, other) for one in wanted for other in group.shape.host_ports)
            for node in group.at
        }


def _add(counts: dict[str, int], node: str, pods: int) -> None:
    left = counts.get(node, 0) + pods
    if left:
        counts[node] = left
    else:
        del counts[node]
