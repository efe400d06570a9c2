"""What a node still has to give: capacity less the requests of every pod bound to it, terminating ones too.

Kept up to date by the API server's books, read by the scheduler and the kubelet. It knows amounts, not rules.
"""

from __future__ import annotations

from functools import lru_cache

from tidemill.spec import names
from tidemill.world import Amounts, KubeNode, PodShape


class Room:
    """What a node has to give, kept up to date with every pod bound to it."""

    __slots__ = ("capacity", "free", "node")

    def __init__(self, node: KubeNode, capacity: Amounts) -> None:
        self.node = node
        self.capacity = dict(capacity)
        self.free = dict(capacity)

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

    def filled_by(self, requests: Amounts) -> float:
        """How full its scarcest resource would be: accelerators if the pod wants any, else CPU and memory."""
        scarce = [name for name, _ in requests if name in names.ACCELERATORS] or [names.CPU, names.MEMORY]
        asked = dict(requests)
        return sum(
            1 - (self.free[name] - asked.get(name, 0)) / self.capacity[name]
            for name in scarce
            if self.capacity.get(name)
        ) / len(scarce)


@lru_cache(maxsize=4096)
def needs(shape: PodShape) -> Amounts:
    """The requests, zeros left out, and one slot of the node's pod limit."""
    asked = {name: count for name, count in shape.requests if count}
    return tuple(sorted({**asked, names.PODS: 1}.items()))
