"""Rules about other pods, compiled into counters: which ones a pod moves, and which ones it minds.

A counter is the pods that match a selector, per value of a topology key. Pods of any size with the same labels
and the same rules share one compiled form. Nothing here knows a node, or where anybody stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.scheduler_rules import selects
from tidemill.model.labels import Selector
from tidemill.model.pods import PodShape, PodTerm, Spread, spread_selector
from tidemill.spec import names

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
class Company:
    """What the labels and rules of a pod come to. Counters by kind of place: the host, or a larger domain."""

    shape: PodShape
    namespace: str
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
    careful: bool = False  # its rules are about particular company: counting by domain is not enough
    minds: int = 0  # bits that must not be set where it goes
    marks: tuple[
        tuple[int, int, tuple[tuple[int, int], ...]], ...
    ] = ()  # its host moves: counter, bit, steps
    solitary: bool = False  # each of its pods keeps the others off its host: as many hosts as it has pods


@dataclass(slots=True)
class Registry:
    """Every counter that somebody minds, and the compiled rules of everybody seen."""

    counters: list[Counter] = field(default_factory=list)
    steps: Steps = field(default_factory=dict)
    bits: int = 0  # how many there are
    _numbers: dict[tuple[str, Selector, frozenset[str]], Counter] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Company] = field(default_factory=dict)

    def company(self, shape: PodShape, namespace: str) -> Company:
        key = (shape.labels, shape.spread, shape.affinity, shape.anti_affinity, shape.host_ports, namespace)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compile(shape, namespace)
        return known

    def watch(self, shape: PodShape, namespace: str) -> None:
        """A resident keeps others away: they are counted even if nobody who comes minds."""
        for term in shape.anti_affinity:
            self._counter(term.topology_key, term.selector, term.namespaces_of(namespace)).watched = True

    def complete(self) -> None:
        """When every counter is known: who moves which, and the bits."""
        for one in self._known.values():
            hit = [counter for counter in self.counters if counter.matches(one.shape, one.namespace)]
            one.host_moves = tuple(counter.number for counter in hit if counter.key == HOST)
            one.moves = tuple(counter.number for counter in hit if counter.key != HOST)
        minded = {(counter, cap - own) for one in self._known.values() for counter, cap, own in one.host_caps}
        self.bits = len(self.counters) + len(minded)
        bits = {entry: 1 << (len(self.counters) + place) for place, entry in enumerate(sorted(minded))}
        for (counter, most), bit in bits.items():
            self.steps[counter] = (*self.steps.get(counter, ()), (most, bit))
        for one in self._known.values():
            one.marks = tuple((number, 1 << number, self.steps.get(number, ())) for number in one.host_moves)
            one.minds = sum(1 << number for number in one.host_moves)
            for number, cap, own in one.host_caps:
                one.minds |= bits[(number, cap - own)]

    def _compile(self, shape: PodShape, namespace: str) -> Company:
        one = Company(shape, namespace, careful=bool(shape.host_ports))
        host_caps: list[tuple[int, int, int]] = []
        spreads: list[tuple[int, Spread, int]] = []
        apart: list[tuple[int, int]] = []
        for spread in shape.spread:
            if not spread.hard:
                continue
            selector = spread_selector(spread, shape.labels)
            counter, own = self._minded(one, spread.topology_key, selector, frozenset((namespace,)))
            counter.watched = True
            if spread.topology_key == HOST:
                host_caps.append((counter.number, spread.max_skew, own))
            else:
                spreads.append((counter.number, spread, own))
        for term in shape.anti_affinity:
            counter, own = self._term(one, term)
            counter.watched = True
            if term.topology_key == HOST:
                host_caps.append((counter.number, own, own))  # nobody else who matches
                one.host_apart |= {counter.number}
            else:
                apart.append((counter.number, own))
        company = [(self._term(one, term), term.topology_key == HOST) for term in shape.affinity]
        one.host_caps, one.spreads, one.apart = tuple(host_caps), tuple(spreads), tuple(apart)
        one.host_company = tuple((minded.number, bool(own)) for (minded, own), host in company if host)
        one.company = tuple((minded.number, bool(own)) for (minded, own), host in company if not host)
        one.careful |= bool(apart or one.host_company) or not all(own for _, own in one.company)
        one.solitary = any(own and cap == 1 for _, cap, own in host_caps)
        return one

    def _term(self, one: Company, term: PodTerm) -> tuple[Counter, int]:
        return self._minded(one, term.topology_key, term.selector, term.namespaces_of(one.namespace))

    def _minded(
        self, one: Company, key: str, selector: Selector, namespaces: frozenset[str]
    ) -> tuple[Counter, int]:
        counter = self._counter(key, selector, namespaces)
        return counter, int(counter.matches(one.shape, one.namespace))

    def _counter(self, key: str, selector: Selector, namespaces: frozenset[str]) -> Counter:
        named = (key, selector, namespaces)
        counter = self._numbers.get(named)
        if counter is None:
            counter = self._numbers[named] = Counter(len(self.counters), key, selector, namespaces)
            self.counters.append(counter)
        return counter
