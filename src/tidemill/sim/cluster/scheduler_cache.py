"""What kube-scheduler's cache holds: the free resources of every node, and the bound pods by class.

Kept up to date by the API server's objects with every write. It counts and finds; what is allowed is said in
`scheduler_filters` and `pod_filters`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tidemill.model.labels import Pairs
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.scheduler_filters import (
    HostPort,
    PodSelector,
    has_pod_rules,
    insufficient,
    ports_conflict,
)
from tidemill.spec import names


class NodeInfo:
    """A node, its capacity, and what the bound pods (terminating ones included) leave free of it."""

    __slots__ = ("capacity", "free", "node")

    def __init__(self, node: KubeNode, capacity: Amounts) -> None:
        self.node = node
        self.capacity = dict(capacity)
        self.free = dict(capacity)

    @property
    def labels(self) -> Mapping[str, str]:
        """Of its node; not to be changed."""
        return _as_dict(self.node.labels)

    def take(self, requests: Amounts) -> None:
        """May go below zero: a pod bound by name takes what is not there, and the kubelet refuses it."""
        for name, count in requests:
            self.free[name] = self.free.get(name, 0) - count

    def give_back(self, requests: Amounts) -> None:
        for name, count in requests:
            self.free[name] += count

    def shrink(self, name: str, count: int) -> None:
        """A device broke: it counts neither as capacity nor as free."""
        self.capacity[name] -= count
        self.free[name] -= count

    def insufficient(self, requests: Amounts) -> list[str]:
        """Names of the resources there is too little of."""
        return insufficient(requests, self.free)

    def free_share_after(self, requests: Amounts) -> float | None:
        """The share of the scarce resource left once they are taken; None if they do not fit.

        Scarce is the accelerator if the pod wants one, else CPU and memory alike.
        """
        free = self.free
        for name, count in requests:
            if count > free.get(name, 0):
                return None
        name, count = requests[0]
        if name in names.ACCELERATORS:
            return (free[name] - count) / self.capacity[name]
        asked = dict(requests)
        cpu = (free[names.CPU] - asked.get(names.CPU, 0)) / self.capacity[names.CPU]
        memory = (free[names.MEMORY] - asked.get(names.MEMORY, 0)) / self.capacity[names.MEMORY]
        return (cpu + memory) / 2


@lru_cache(maxsize=4096)
def pod_requests(shape: PodShape) -> Amounts:
    """The requests, zeros left out, and one slot of the node's pod limit; accelerators first."""
    asked = {name: count for name, count in shape.requests if count}
    asked[names.PODS] = 1
    return tuple(sorted(asked.items(), key=lambda item: (item[0] not in names.ACCELERATORS, item[0])))


@lru_cache(maxsize=4096)
def _as_dict(labels: Pairs) -> Mapping[str, str]:
    return dict(labels)


@dataclass(slots=True, eq=False)
class PodClass:
    """Bound pods of one shape in one namespace, counted by node. No node is listed with 0."""

    shape: PodShape
    namespace: str
    labels: Mapping[str, str]
    by_node: dict[str, int] = field(default_factory=dict)  # terminating ones included
    staying_by_node: dict[str, int] = field(default_factory=dict)  # and without them

    def matches(self, selector: PodSelector) -> bool:
        return selector.matches(self.namespace, self.labels)


class BoundPods:
    """All bound pods, for rules about other pods. There is none before the first pod that has such a rule."""

    def __init__(self, nodes: Mapping[str, NodeInfo], pods: Iterable[Pod]) -> None:
        self._nodes = nodes
        self._classes: dict[tuple[int, str], PodClass] = {}  # a class keeps its shape alive: no id is reused
        self._matching: dict[PodSelector, list[PodClass]] = {}
        self.with_pod_rules: list[PodClass] = []  # those whose own rules or preferences bear on a newcomer
        for pod in pods:
            if pod.node:
                self.pod_bound(pod)

    # --- keeping it up to date ----------------------------------------------------------------------

    def pod_bound(self, pod: Pod) -> None:
        pod_class = self._class_of(pod)
        _add(pod_class.by_node, pod.node, 1)
        if pod.deleting_until is None:
            _add(pod_class.staying_by_node, pod.node, 1)

    def pod_terminating(self, pod: Pod) -> None:
        """It was deleted and is still there."""
        _add(self._class_of(pod).staying_by_node, pod.node, -1)

    def pod_gone(self, pod: Pod) -> None:
        pod_class = self._class_of(pod)
        _add(pod_class.by_node, pod.node, -1)
        if pod.deleting_until is None:
            _add(pod_class.staying_by_node, pod.node, -1)

    def _class_of(self, pod: Pod) -> PodClass:
        key = (id(pod.shape), pod.namespace)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(pod.shape, pod.namespace, dict(pod.shape.labels))
            if has_pod_rules(pod.shape):
                self.with_pod_rules.append(pod_class)
            for selector, matching in self._matching.items():
                if pod_class.matches(selector):
                    matching.append(pod_class)
        return pod_class

    # --- finding ------------------------------------------------------------------------------------

    def matching(self, selector: PodSelector) -> Sequence[PodClass]:
        found = self._matching.get(selector)
        if found is None:
            found = [pod_class for pod_class in self._classes.values() if pod_class.matches(selector)]
            self._matching[selector] = found
        return found

    def count(self, key: str, classes: Iterable[PodClass]) -> Counter[str]:
        """Their pods by value of a topology key, terminating ones included; nodes without it are left out."""
        counts: Counter[str] = Counter()
        for pod_class in classes:
            for node, pods in pod_class.by_node.items():
                value = self._nodes[node].labels.get(key)
                if value is not None:
                    counts[value] += pods
        return counts

    def nodes_with_ports_taken(self, ports: Sequence[HostPort]) -> set[str]:
        """Nodes on which a pod has one of these ports."""
        return {
            node
            for pod_class in self.with_pod_rules
            if any(ports_conflict(port, taken) for port in ports for taken in pod_class.shape.host_ports)
            for node in pod_class.by_node
        }


def _add(counts: dict[str, int], node: str, pods: int) -> None:
    left = counts.get(node, 0) + pods
    if left:
        counts[node] = left
    else:
        del counts[node]
