"""Asks that are alike are one crowd: what is true of one is worked out once for all of them.

A shape is compiled into small integers: what it needs of each resource, which counters it moves (because its
labels match somebody's selector) and which counters it minds. Nothing here knows a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.decide.problem import Problem
from tidemill.decide.rules import selects
from tidemill.spec import names
from tidemill.world import Expression, PodShape, PodTerm, Selector, Spread

HOST = names.LABEL_HOSTNAME

# Whom the pods on a host keep out is a set of bits. Bit n, for a host counter n: somebody there has as many of
# those it counts as it puts up with. Further bits: more of them are there than this many, for every many that some
# crowd minds. A crowd goes where none of the bits it minds is set. Above all these, a number tells who else may
# join the pods there.
Steps = dict[int, tuple[tuple[int, int], ...]]  # host counter -> (this many, the bit)


@dataclass(slots=True, eq=False)
class Counter:
    """Pods that match a selector, counted per value of a topology key."""

    number: int
    key: str
    selector: Selector
    namespaces: frozenset[str]
    watched: bool = False  # somebody minds how it grows: a spread, or an anti-affinity

    def matches(self, shape: PodShape, namespace: str) -> bool:
        return namespace in self.namespaces and selects(self.selector, dict(shape.labels))


@dataclass(slots=True, eq=False)
class Crowd:
    """Asks of one shape that may go to the same places."""

    shape: PodShape
    namespace: str
    priority: int
    overflow: bool
    need: timedelta
    lead: timedelta
    refuses: frozenset[str]
    asks: list[int]
    since: float = 0.0  # the oldest of them
    wants: tuple[tuple[int, int], ...] = ()  # (dimension, amount), the leading dimension first
    size: float = 0.0  # its share of a typical node, for ordering
    eligibility: int = 0  # crowds with the same number may use the same places
    names_host: bool = False  # it speaks of hosts by name: places of one group are not all alike to it
    # Counters by kind of place: the host, or a larger domain.
    host_moves: tuple[int, ...] = ()
    host_caps: tuple[
        tuple[int, int, int], ...
    ] = ()  # counter, how many may be there, whether it counts itself
    host_apart: frozenset[int] = frozenset()  # those of the caps that are anti-affinities
    host_company: tuple[tuple[int, bool], ...] = ()  # counter it must find there, whether it matches itself
    moves: tuple[int, ...] = ()
    spreads: tuple[tuple[int, Spread, int], ...] = ()  # counter, rule, whether it counts itself
    apart: tuple[tuple[int, int], ...] = ()  # counter that must be 0 in its domain, whether it counts itself
    company: tuple[tuple[int, bool], ...] = ()
    ports: tuple[tuple[str, int, str], ...] = ()
    careful: bool = False  # its rules are about particular company: counting by domain is not enough
    minds: int = 0  # bits that must not be set where it goes
    marks: tuple[
        tuple[int, int, tuple[tuple[int, int], ...]], ...
    ] = ()  # its host moves: counter, bit, steps
    alone: frozenset[int] = frozenset()  # its eligibility and no other
    solitary: bool = False  # each of its pods keeps the others off its host: as many hosts as it has pods
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
    found = Crowds()
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, ask in enumerate(problem.asks):
        gang = (ask.gang.name, ask.namespace) if ask.gang is not None else None
        key = (
            id(ask.shape),
            ask.namespace,
            ask.priority,
            ask.overflow,
            ask.need,
            ask.lead,
            ask.refuses,
            gang,
        )
        members = groups.get(key)
        if members is None:
            groups[key] = [number]
        else:
            members.append(number)
    for members in groups.values():
        first = problem.asks[members[0]]
        if any(problem.asks[member].since < first.since for member in members):
            members.sort(key=lambda member: (problem.asks[member].since, member))
            first = problem.asks[members[0]]
        crowd = Crowd(
            first.shape, first.namespace, first.priority, first.overflow, first.need, first.lead,
            first.refuses, members, since=first.since, ports=first.shape.host_ports,
        )  # fmt: skip
        (found.gangs if first.gang is not None else found.crowds).append(crowd)
    everyone = found.crowds + found.gangs
    _number_dimensions(found, everyone)
    _Compiler(problem, found).compile(everyone)
    return found


def _number_dimensions(found: Crowds, everyone: Iterable[Crowd]) -> None:
    """Accelerators lead where they are asked for, then CPU: the leading dimension is what nodes are sorted by."""
    asked = {name for crowd in everyone for name, amount in crowd.shape.requests if amount > 0}
    first = [name for name in (*names.ACCELERATORS, names.CPU, names.MEMORY) if name in asked]
    found.dimensions = [*first, *sorted(asked - set(first) - {names.PODS}), names.PODS]


class _Compiler:
    def __init__(self, problem: Problem, found: Crowds) -> None:
        self._problem, self._found = problem, found
        self._numbers: dict[tuple[str, Selector, frozenset[str]], Counter] = {}
        self._profiles: dict[tuple[object, ...], int] = {}
        self._typical = _typical_node(problem, found.dimensions)
        found.weights = [1 / amount for amount in self._typical[:-1]] + [0.0]

    def compile(self, everyone: Sequence[Crowd]) -> None:
        for crowd in everyone:
            self._compile_own(crowd)
        residents = [one for place in self._problem.places for one in place.residents]
        for shape, namespace in {
            (id(one.shape), one.namespace): (one.shape, one.namespace) for one in residents
        }.values():
            for term in shape.anti_affinity:
                self._counter(
                    term.topology_key, term.selector, term.namespaces or (namespace,)
                ).watched = True
        keys = {counter.key for counter in self._found.counters} - {HOST}
        if self._found.gangs:
            keys |= {names.LABEL_ZONE, names.LABEL_SOURCE}  # a gang runs in one zone, on one source
        self._found.keys = tuple(sorted(keys))
        matches: dict[tuple[tuple[tuple[str, str], ...], str], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for crowd in everyone:
            labelled = (crowd.shape.labels, crowd.namespace)
            moved = matches.get(labelled)
            if moved is None:
                moved = matches[labelled] = self._moved(crowd)
            crowd.host_moves, crowd.moves = moved
        self._number_bits(everyone)
        for crowd in everyone:
            crowd.picky = bool(crowd.host_moves or crowd.host_caps or crowd.host_company or crowd.ports)

    def _number_bits(self, everyone: Sequence[Crowd]) -> None:
        minded = {(counter, cap - own) for crowd in everyone for counter, cap, own in crowd.host_caps}
        bits = {entry: 1 << (len(self._found.counters) + place) for place, entry in enumerate(sorted(minded))}
        steps: dict[int, list[tuple[int, int]]] = {}
        for (counter, most), bit in bits.items():
            steps.setdefault(counter, []).append((most, bit))
        self._found.bits = len(self._found.counters) + len(minded)
        self._found.steps = {counter: tuple(of) for counter, of in steps.items()}
        for crowd in everyone:
            if crowd.host_moves or crowd.host_caps:
                crowd.marks = tuple(
                    (one, 1 << one, self._found.steps.get(one, ())) for one in crowd.host_moves
                )
                crowd.minds = sum(1 << counter for counter in crowd.host_moves)
                for counter, cap, own in crowd.host_caps:
                    crowd.minds |= bits[(counter, cap - own)]
                crowd.solitary = any(own and cap == 1 for _, cap, own in crowd.host_caps)

    def _moved(self, crowd: Crowd) -> tuple[tuple[int, ...], tuple[int, ...]]:
        hit = [one for one in self._found.counters if one.matches(crowd.shape, crowd.namespace)]
        host = tuple(one.number for one in hit if one.key == HOST)
        return host, tuple(one.number for one in hit if one.key != HOST)

    def _compile_own(self, crowd: Crowd) -> None:
        shape, index = crowd.shape, {name: place for place, name in enumerate(self._found.dimensions)}
        wants = sorted(
            (index[name], amount) for name, amount in shape.requests if amount > 0 and name != names.PODS
        )
        shares = sorted(
            ((amount / self._typical[place], place, amount) for place, amount in wants), reverse=True
        )
        crowd.wants = (*((place, amount) for _, place, amount in shares), (index[names.PODS], 1))
        crowd.size = sum(share for share, _, _ in shares)
        profile = (
            shape.node_selector, shape.node_terms, shape.tolerations, shape.volume_zones, crowd.overflow,
            crowd.need, crowd.lead, crowd.refuses,
        )  # fmt: skip
        crowd.eligibility = self._profiles.setdefault(profile, len(self._profiles))
        crowd.alone = frozenset((crowd.eligibility,))
        crowd.names_host = any(key == HOST for key, _ in shape.node_selector) or any(
            one.key == HOST for term in shape.node_terms for one in term
        )
        crowd.careful = bool(shape.host_ports)
        if not (shape.spread or shape.anti_affinity or shape.affinity):
            return
        host_caps: list[tuple[int, int, int]] = []
        spreads: list[tuple[int, Spread, int]] = []
        apart: list[tuple[int, int]] = []
        for spread in shape.spread:
            if not spread.hard:
                continue
            counter, own = self._minded(crowd, spread.topology_key, _spread_selector(spread, shape), ())
            counter.watched = True
            if spread.topology_key == HOST:
                host_caps.append((counter.number, spread.max_skew, own))
            else:
                spreads.append((counter.number, spread, own))
        for term in shape.anti_affinity:
            counter, own = self._term(crowd, term)
            counter.watched = True
            if term.topology_key == HOST:
                host_caps.append((counter.number, own, own))  # nobody else who matches
                crowd.host_apart |= {counter.number}
            else:
                apart.append((counter.number, own))
        company = [(self._term(crowd, term), term.topology_key == HOST) for term in shape.affinity]
        crowd.host_caps, crowd.spreads, crowd.apart = tuple(host_caps), tuple(spreads), tuple(apart)
        crowd.host_company = tuple((one.number, bool(own)) for (one, own), host in company if host)
        crowd.company = tuple((one.number, bool(own)) for (one, own), host in company if not host)
        crowd.careful |= bool(apart or crowd.host_company) or not all(own for _, own in crowd.company)

    def _term(self, crowd: Crowd, term: PodTerm) -> tuple[Counter, int]:
        return self._minded(crowd, term.topology_key, term.selector, term.namespaces)

    def _minded(
        self, crowd: Crowd, key: str, selector: Selector, namespaces: tuple[str, ...]
    ) -> tuple[Counter, int]:
        counter = self._counter(key, selector, namespaces or (crowd.namespace,))
        return counter, int(counter.matches(crowd.shape, crowd.namespace))

    def _counter(self, key: str, selector: Selector, namespaces: tuple[str, ...]) -> Counter:
        named = (key, selector, frozenset(namespaces))
        counter = self._numbers.get(named)
        if counter is None:
            counter = self._numbers[named] = Counter(len(self._found.counters), key, selector, named[2])
            self._found.counters.append(counter)
        return counter


def _spread_selector(spread: Spread, shape: PodShape) -> Selector:
    """matchLabelKeys adds the pod's own value of each key."""
    labels = dict(shape.labels)
    own = tuple(Expression(key, "In", (labels[key],)) for key in spread.match_label_keys if key in labels)
    return (*spread.selector, *own)


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
