"""The packing problem, stated once: what waits, what there is, and what could be opened beside it.

The solver reads nothing else, and neither do the checker and the reference that judge it. Nothing here knows
an instance, an intent or the ledger: `serve` states the engine's world as a Problem, benchmarks state theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.model.labels import Taint
from tidemill.model.pods import Gang, PodShape


@dataclass(frozen=True, slots=True)
class Ask:
    """A pod that waits for a place. Asks of one template share one shape object."""

    id: str
    shape: PodShape
    namespace: str = "default"
    priority: int = 0
    since: float = 0.0  # when it began to wait, in seconds; the older comes first among equals
    gang: Gang | None = None
    refuses: frozenset[str] = frozenset()  # groups it may not use, for reasons that are none of the solver's


@dataclass(frozen=True, slots=True)
class Resident:
    """Pods that are there already, as far as they matter to others: `count` of one shape."""

    shape: PodShape
    namespace: str = "default"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A node that is there, or on its way.

    Places of one group are alike but for their name, what is free and who is there; no group: like no other.
    """

    name: str
    labels: Mapping[str, str]
    free: Mapping[str, int]  # beside the residents
    taints: tuple[Taint, ...] = ()
    residents: tuple[Resident, ...] = ()
    rank: tuple[int, ...] = ()  # the lower the sooner it is used, other things being equal
    group: str = ""


@dataclass(frozen=True, slots=True)
class Flavour:
    """A kind of node that could be opened. `capacity` is what is left for pods beside daemons.

    `stock` and `budget` name entries of the Problem that several flavours may share: how many more the source
    can give, and what the pool's limits still allow.
    """

    name: str  # the instance type
    labels: Mapping[str, str]  # everything a node of it would carry, its host name excepted
    capacity: Mapping[str, int]
    price: float  # dollars an hour; prepaid: 0
    taints: tuple[Taint, ...] = ()
    stock: str = ""  # empty: there is no end of it
    budget: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)  # of the budget: cpu, memory, gpus, nodes
    rank: tuple[int, ...] = ()  # pool weight and source order: a lower rank is taken whatever the price
    group: str = ""  # what it is refused by


@dataclass(frozen=True, slots=True)
class Problem:
    asks: tuple[Ask, ...]
    places: tuple[Place, ...] = ()
    flavours: tuple[Flavour, ...] = ()
    stocks: Mapping[str, int] = field(default_factory=dict)
    budgets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class NewNode:
    flavour: Flavour
    asks: list[int] = field(default_factory=list)  # indexes into Problem.asks


@dataclass(slots=True)
class Solution:
    """Every ask is in exactly one of the three. `existing` maps the index of a place to indexes of asks."""

    existing: dict[int, list[int]] = field(default_factory=dict)
    opened: list[NewNode] = field(default_factory=list)
    unplaced: dict[int, str] = field(default_factory=dict)  # index of an ask -> why, one word or sentence

    @property
    def price(self) -> float:
        return sum(node.flavour.price for node in self.opened)
