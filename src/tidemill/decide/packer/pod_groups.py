"""Asks that are alike are one crowd: what is true of one is worked out once for all of them.

A shape is compiled into small integers: what it needs of each resource, where it may go, and (in `company`) which
counters it moves and minds. Nothing here knows a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from tidemill.decide.packer.affinity_counters import HOST as HOST
from tidemill.decide.packer.affinity_counters import Counter as Counter
from tidemill.decide.packer.affinity_counters import Registry, Steps
from tidemill.decide.packer.problem import Ask, Problem
from tidemill.model.pods import PodShape, Spread
from tidemill.model.resources import Amounts
from tidemill.spec import names


@dataclass(slots=True, eq=False)
class Crowd:
    """Asks of one shape that may go to the same places."""

    shape: PodShape
    namespace: str
    priority: int
    refuses: frozenset[str]
    asks: list[int]
    since: float = 0.0  # the oldest of them
    wants: tuple[tuple[int, int], ...] = ()  # (dimension, amount), the leading dimension first
    size: float = 0.0  # its share of a typical node, for ordering
    eligibility: int = 0  # crowds with the same number may use the same places
    alone: frozenset[int] = frozenset()  # its eligibility and no other
    names_host: bool = False  # it speaks of hosts by name: places of one group are not all alike to it
    # Its `Company`, at hand: what it moves and minds on hosts and in larger domains.
    host_moves: tuple[int, ...] = ()
    host_caps: tuple[tuple[int, int, int], ...] = ()
    host_apart: frozenset[int] = frozenset()
    host_company: tuple[tuple[int, bool], ...] = ()
    moves: tuple[int, ...] = ()
    spreads: tuple[tuple[int, Spread, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    company: tuple[tuple[int, bool], ...] = ()
    minds: int = 0
    marks: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = ()
    solitary: bool = False
    ports: tuple[tuple[str, int, str], ...] = ()
    careful: bool = False  # its rules are about particular company: counting by domain is not enough
    picky: bool = False  # who else is on its host matters, to it or to them

    @property
    def bound(self) -> bool:
        """Where it goes matters beyond the host: to itself, or to somebody who watches."""
        return bool(self.moves or self.spreads or self.apart or self.company)


@dataclass(slots=True)
class Crowds:
    crowds: list[Crowd] = field(default_factory=list)
    gangs: list[Crowd] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    dimensions: list[str] = field(default_factory=list)
    weights: list[float] = field(
        default_factory=list
    )  # what a unit of each dimension is worth, pods left out
    steps: Steps = field(default_factory=dict)
    bits: int = 0  # how many there are
    keys: tuple[str, ...] = ()  # topology keys other than the host, in a fixed order


def gather(problem: Problem) -> Crowds:
    """Group the asks, number the counters, and compile every crowd."""
    found, registry, profiles = Crowds(), Registry(), _Profiles()
    groups = _alike(problem)
    firsts = [problem.asks[members[0]] for members in groups]
    _number_dimensions(found, {first.shape.requests for first in firsts})
    needs = _Needs(problem, found.dimensions)
    companies = [registry.company(first.shape, first.namespace) for first in firsts]
    residents = {(id(one.shape), one.namespace): one for place in problem.places for one in place.residents}
    for resident in residents.values():
        registry.watch(resident.shape, resident.namespace)
    registry.complete()
    for first, members, one in zip(firsts, groups, companies, strict=True):
        wants, size = needs.of(first.shape)
        eligibility, alone, names_host = profiles.of(first)
        crowd = Crowd(
            first.shape, first.namespace, first.priority, first.refuses, members,
            first.since, wants, size, eligibility, alone, names_host,
            host_moves=one.host_moves, host_caps=one.host_caps, host_apart=one.host_apart,
            host_company=one.host_company, moves=one.moves, spreads=one.spreads, apart=one.apart,
            company=one.company, minds=one.minds, marks=one.marks, solitary=one.solitary,
            ports=first.shape.host_ports, careful=one.careful,
            picky=bool(one.minds or one.host_company or first.shape.host_ports),
        )  # fmt: skip
        (found.gangs if first.gang is not None else found.crowds).append(crowd)
    found.weights = needs.weights
    found.counters, found.steps, found.bits = registry.counters, registry.steps, registry.bits
    keys = {counter.key for counter in registry.counters} - {HOST}
    if found.gangs:
        keys |= {names.LABEL_ZONE, names.LABEL_SOURCE}  # a gang runs in one zone, on one source
    found.keys = tuple(sorted(keys))
    return found


_TERMS = attrgetter("namespace", "priority", "refuses", "gang")


def _alike(problem: Problem) -> list[list[int]]:
    """Asks of one shape object on the same terms, the oldest first."""
    asks = problem.asks
    groups: dict[tuple[int, tuple[object, ...]], list[int]] = {}
    shapes = [id(ask.shape) for ask in asks]
    for number, key in enumerate(zip(shapes, map(_TERMS, asks), strict=True)):
        members = groups.get(key)
        if members is None:
            groups[key] = [number]
        else:
            members.append(number)
    by_age = [ask.since for ask in asks]
    if by_age != sorted(by_age):
        for members in groups.values():
            members.sort(key=lambda member: (asks[member].since, member))
    return list(groups.values())


def _number_dimensions(found: Crowds, requests: Iterable[Amounts]) -> None:
    """Accelerators lead where they are asked for, then CPU: the leading dimension is what nodes are sorted by."""
    asked = {name for amounts in requests for name, amount in amounts if amount > 0}
    first = [name for name in (*names.ACCELERATORS, names.CPU, names.MEMORY) if name in asked]
    found.dimensions = [*first, *sorted(asked - set(first) - {names.PODS}), names.PODS]


class _Needs:
    """Requests as numbered dimensions, what is most of a typical node first."""

    def __init__(self, problem: Problem, dimensions: Sequence[str]) -> None:
        self._index = {name: place for place, name in enumerate(dimensions)}
        self._typical = _typical_node(problem, dimensions)
        self.weights = [1 / amount for amount in self._typical[:-1]] + [0.0]
        self._known: dict[Amounts, tuple[tuple[tuple[int, int], ...], float]] = {}

    def of(self, shape: PodShape) -> tuple[tuple[tuple[int, int], ...], float]:
        known = self._known.get(shape.requests)
        if known is None:
            shares = [
                (amount / self._typical[self._index[name]], self._index[name], amount)
                for name, amount in shape.requests
                if amount > 0 and name != names.PODS
            ]
            shares.sort(reverse=True)
            wants = (*[(place, amount) for _, place, amount in shares], (self._index[names.PODS], 1))
            known = self._known[shape.requests] = (wants, sum([share for share, _, _ in shares]))
        return known


class _Profiles:
    """Crowds that may use the same places have one eligibility."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[int, frozenset[int], bool]] = {}

    def of(self, ask: Ask) -> tuple[int, frozenset[int], bool]:
        shape = ask.shape
        profile = (
            shape.node_selector, shape.node_terms, shape.tolerations, shape.volume_zones, ask.refuses,
        )  # fmt: skip
        known = self._known.get(profile)
        if known is None:
            number = len(self._known)
            named = any(key == HOST for key, _ in shape.node_selector) or any(
                one.key == HOST for term in shape.node_terms for one in term
            )
            known = self._known[profile] = (number, frozenset((number,)), named)
        return known


def _typical_node(problem: Problem, dimensions: Sequence[str]) -> list[float]:
    """The median capacity on offer in each dimension: what a request is large or small against."""
    typical = []
    for name in dimensions:
        amounts = sorted(flavour.capacity.get(name, 0) for flavour in problem.flavours)
        amounts = [amount for amount in amounts if amount > 0] or sorted(
            place.free.get(name, 0) for place in problem.places if place.free.get(name, 0) > 0
        )
        typical.append(float(amounts[len(amounts) // 2]) if amounts else 1.0)
    return typical
