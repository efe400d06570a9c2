"""The packing problem: the pods that are pending, the nodes that exist, and the node options that could be opened.

The packer reads nothing else, and neither do the checker and the benchmarks that judge it. Nothing here knows an
instance, an intent, the time or the ledger: `placement.problem_builder` states the engine's world as a Problem, and
benchmarks state theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.model.labels import Taint
from tidemill.model.pods import Gang, PodShape


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node. Pods of one template share one shape object."""

    id: str
    shape: PodShape
    namespace: str = "default"
    priority: int = 0
    pending_since: float = 0.0  # in seconds; among equal pods the oldest goes first
    gang: Gang | None = None
    # Groups of nodes it may not use: they end too soon, cost too much, belong to others, ...
    refuses: frozenset[str] = frozenset()
    consumes: tuple[tuple[str, int], ...] = ()  # of pod budgets, wherever it is placed


@dataclass(frozen=True, slots=True)
class ExistingPods:
    """Pods that already run on a node, as far as they matter to others: `count` of one shape."""

    shape: PodShape
    namespace: str = "default"
    count: int = 1


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """A node that is up or on its way.

    Nodes of one group differ only in their name, free resources and pods. A node without a group is like no other.
    """

    name: str
    labels: Mapping[str, str]
    free: Mapping[str, int]  # after the existing pods
    taints: tuple[Taint, ...] = ()
    existing_pods: tuple[ExistingPods, ...] = ()
    rank: tuple[int, ...] = ()  # nodes of a lower rank are used first
    group: str = ""
    left_out: int = 0  # so many more are like it, and no pod needs them


@dataclass(frozen=True, slots=True)
class NodeOption:
    """A kind of node that could be opened: an instance type from one source in one zone.

    `stock` and `budget` name entries of the Problem that several options may share: how many more nodes the source
    can give, and what the limits of the pool still allow.
    """

    name: str  # the instance type
    labels: Mapping[str, str]  # all labels of such a node except its host name
    capacity: Mapping[str, int]  # what is left for pods after daemons
    price: float  # dollars an hour; prepaid: 0
    taints: tuple[Taint, ...] = ()
    stock: str = ""  # empty: unlimited
    budget: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)  # of the budget: cpu, memory, gpus, nodes
    rank: tuple[int, ...] = ()  # pool weight and source order: a lower rank is used first, whatever the price
    group: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    pods: tuple[PendingPod, ...]
    nodes: tuple[ExistingNode, ...] = ()
    options: tuple[NodeOption, ...] = ()
    stocks: Mapping[str, int] = field(default_factory=dict)
    budgets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pod_budgets: Mapping[str, int] = field(default_factory=dict)  # what all pods placed may use of each


@dataclass(slots=True)
class NewNode:
    option: NodeOption
    pods: list[int] = field(default_factory=list)  # indexes into Problem.pods


@dataclass(slots=True)
class Solution:
    """Every pod is in exactly one of the three. `existing` maps the index of a node to indexes of pods."""

    existing: dict[int, list[int]] = field(default_factory=dict)
    opened: list[NewNode] = field(default_factory=list)
    unplaced: dict[int, str] = field(default_factory=dict)  # index of a pod -> why

    @property
    def price(self) -> float:
        return sum(node.option.price for node in self.opened)
