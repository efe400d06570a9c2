"""What a node still has to give: capacity less the requests of every pod bound to it, terminating ones too.

Kept up to date by the API server's books, read by the scheduler and the kubelet. It knows amounts, not rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tidemill.model.labels import Pairs
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import PodShape
from tidemill.model.resources import Amounts
from tidemill.spec import names


class Room:
    """What a node has to give, kept up to date with every pod bound to it."""

    __slots__ = ("capacity", "free", "node")

    def __init__(self, node: KubeNode, capacity: Amounts) -> None:
        self.node = node
        self.capacity = dict(capacity)
        self.free = dict(capacity)

    @property
    def labels(self) -> Mapping[str, str]:
        """Of its node; not to be changed."""
        return _by_name(self.node.labels)

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

    def lacks(self, requests: Amounts) -> list[str]:
        """Names of the resources there is too little of."""
        return [name for name, count in requests if count > self.free.get(name, 0)]

    def left_after(self, requests: Amounts) -> float | None:
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
def needs(shape: PodShape) -> Amounts:
    """The requests, zeros left out, and one slot of the node's pod limit; accelerators first."""
    asked = {name: count for name, count in shape.requests if count}
    asked[names.PODS] = 1
    return tuple(sorted(asked.items(), key=lambda item: (item[0] not in names.ACCELERATORS, item[0])))


@lru_cache(maxsize=4096)
def _by_name(labels: Pairs) -> Mapping[str, str]:
    return dict(labels)
