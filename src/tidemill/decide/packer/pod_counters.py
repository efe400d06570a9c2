"""Rules between pods (affinity, anti-affinity, spread), compiled into counters.

A counter counts the pods that match a selector, per value of a topology key. Pods with the same labels and the same
rules share one compiled form, whatever their size. Nothing here knows a node, or where a pod is placed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.scheduler_rules import selects
from tidemill.model.labels import Selector
from tidemill.model.pods import PodShape, PodTerm, Spread, spread_selector
from tidemill.spec import names

HOST = names.LABEL_HOSTNAME

_NOWHERE = ("",)  # the namespace of no pod: an empty tuple would mean the pod's own

# Which pods the pods on a host keep out is a set of bits, `blocked`.
# Bit n, for host counter n: a pod there allows no more of the pods that this counter counts.
# Further bits, one for each (counter, number) that some pod group asks about: more than this number are there.
# A group goes where none of the bits in its `blocked_by` is set. The bits above these are a number that tells which
# other pods may share the node, see `PackingState`.
Thresholds = dict[int, tuple[tuple[int, int], ...]]  # host counter -> (number of pods, bit)


@dataclass(slots=True, eq=False)
class PodCounter:
    """Pods that match a selector, counted per value of a topology key."""

    number: int
    key: str
    selector: Selector
    namespaces: frozenset[str]

    def matches(self, shape: PodShape, namespace: str) -> bool:
        return namespace in self.namespaces and selects(self.selector, dict(shape.labels))


@dataclass(slots=True, eq=False)
class CompiledRules:
    """The labels and rules of a pod as counter numbers: `host_*` per host, the others per larger domain."""

    shape: PodShape
    namespace: str
    host_counted_by: tuple[int, ...] = ()  # counters that count this pod
    host_limits: tuple[tuple[int, int, int], ...] = ()  # counter, most on its host, whether it counts itself
    host_affinity: tuple[tuple[int, bool], ...] = ()  # counter that must not be 0, whether it matches itself
    counted_by: tuple[int, ...] = ()
    spreads: tuple[tuple[int, Spread, int], ...] = ()  # counter, rule, whether it counts itself
    anti_affinity: tuple[tuple[int, int], ...] = ()  # counter that must be 0, whether it counts itself
    affinity: tuple[tuple[int, bool], ...] = ()
    needs_exact_check: bool = False  # its rules are about particular pods: counting by domain is not enough
    blocked_by: int = 0  # bits that must not be set where it goes
    # For each of `host_counted_by`: the counter, its bit, its thresholds.
    counter_bits: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = ()
    one_per_host: bool = False  # each of its pods keeps the others off its host


@dataclass(slots=True)
class CounterRegistry:
    """Every counter that some rule needs, and the compiled rules of every pod seen."""

    counters: list[PodCounter] = field(default_factory=list)
    thresholds: Thresholds = field(default_factory=dict)
    bit_count: int = 0
    _by_selector: dict[tuple[str, Selector, frozenset[str]], PodCounter] = field(default_factory=dict)
    _compiled: dict[tuple[object, ...], CompiledRules] = field(default_factory=dict)

    def compile(self, shape: PodShape, namespace: str) -> CompiledRules:
        key = (shape.labels, shape.spread, shape.affinity, shape.anti_affinity, shape.host_ports, namespace)
        known = self._compiled.get(key)
        if known is None:
            known = self._compiled[key] = self._compile(shape, namespace)
        return known

    def add_anti_affinity(self, shape: PodShape, namespace: str) -> None:
        """The anti-affinity of an existing pod keeps others out: those are counted even if no pending pod asks."""
        for term in shape.anti_affinity:
            self._counter(term.topology_key, term.selector, term.namespaces_of(namespace))

    def complete(self) -> None:
        """Call when every counter is known: sets which counters count whom, and the bits."""
        for rules in self._compiled.values():
            matching = [counter for counter in self.counters if counter.matches(rules.shape, rules.namespace)]
            rules.host_counted_by = tuple(counter.number for counter in matching if counter.key == HOST)
            rules.counted_by = tuple(counter.number for counter in matching if counter.key != HOST)
        asked = {
            (counter, limit - own)
            for rules in self._compiled.values()
            for counter, limit, own in rules.host_limits
        }
        self.bit_count = len(self.counters) + len(asked)
        bits = {entry: 1 << (len(self.counters) + position) for position, entry in enumerate(sorted(asked))}
        for (counter, most), bit in bits.items():
            self.thresholds[counter] = (*self.thresholds.get(counter, ()), (most, bit))
        for rules in self._compiled.values():
            rules.counter_bits = tuple(
                (number, 1 << number, self.thresholds.get(number, ())) for number in rules.host_counted_by
            )
            rules.blocked_by = sum(1 << number for number in rules.host_counted_by)
            for number, limit, own in rules.host_limits:
                rules.blocked_by |= bits[(number, limit - own)]

    def _compile(self, shape: PodShape, namespace: str) -> CompiledRules:
        host_limits: list[tuple[int, int, int]] = []
        spreads: list[tuple[int, Spread, int]] = []
        anti_affinity: list[tuple[int, int]] = []
        for spread in shape.spread:
            if not spread.hard:
                continue
            counter = self._counter(
                spread.topology_key, spread_selector(spread, shape.labels), frozenset((namespace,))
            )
            own = int(counter.matches(shape, namespace))
            if spread.topology_key == HOST:
                host_limits.append((counter.number, spread.max_skew, own))
            else:
                spreads.append((counter.number, spread, own))
        for term in shape.anti_affinity:
            number, own = self._term(term, shape, namespace)
            if term.topology_key == HOST:
                host_limits.append((number, own, own))  # no other pod that matches
            else:
                anti_affinity.append((number, own))
        rules = CompiledRules(shape, namespace)
        affinity = [
            (self._term(term, shape, namespace), term.topology_key == HOST)
            for term in _joined(shape.affinity, namespace)
        ]
        rules.host_limits, rules.spreads, rules.anti_affinity = (
            tuple(host_limits), tuple(spreads), tuple(anti_affinity),
        )  # fmt: skip
        rules.host_affinity = tuple((number, bool(own)) for (number, own), on_host in affinity if on_host)
        rules.affinity = tuple((number, bool(own)) for (number, own), on_host in affinity if not on_host)
        rules.needs_exact_check = bool(
            shape.host_ports or anti_affinity or rules.host_affinity or len(shape.affinity) > 1
        ) or not all(own for _, own in rules.affinity)  # fmt: skip
        rules.one_per_host = any(own and limit == 1 for _, limit, own in host_limits)
        return rules

    def _term(self, term: PodTerm, shape: PodShape, namespace: str) -> tuple[int, int]:
        """The number of its counter, and whether the counter counts the pod itself."""
        counter = self._counter(term.topology_key, term.selector, term.namespaces_of(namespace))
        return counter.number, int(counter.matches(shape, namespace))

    def _counter(self, key: str, selector: Selector, namespaces: frozenset[str]) -> PodCounter:
        identity = (key, selector, namespaces)
        counter = self._by_selector.get(identity)
        if counter is None:
            counter = self._by_selector[identity] = PodCounter(len(self.counters), key, selector, namespaces)
            self.counters.append(counter)
        return counter


def _joined(terms: tuple[PodTerm, ...], namespace: str) -> tuple[PodTerm, ...]:
    """Affinity terms as kube-scheduler counts them: only pods that match every term, for each term's topology key."""
    if len(terms) < 2:
        return terms
    selector = tuple(dict.fromkeys(one for term in terms for one in term.selector))
    namespaces = frozenset.intersection(*(term.namespaces_of(namespace) for term in terms))
    return tuple(
        PodTerm(term.topology_key, selector, tuple(sorted(namespaces)) or _NOWHERE) for term in terms
    )


def counters_of_existing(
    counters: list[PodCounter], shape: PodShape, namespace: str
) -> tuple[list[PodCounter], list[PodCounter]]:
    """The counters that count an existing pod, and those that count the pods its anti-affinity keeps out."""
    terms = {
        (term.topology_key, term.selector, term.namespaces_of(namespace)) for term in shape.anti_affinity
    }
    counting = [counter for counter in counters if counter.matches(shape, namespace)]
    kept_out = [
        counter for counter in counters if (counter.key, counter.selector, counter.namespaces) in terms
    ]
    return counting, kept_out
