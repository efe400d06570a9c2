"""Who stands where, exactly, and whether everybody is content with it: the rules between pods on the final state.

Slower than counting by domain, and asked only where counting is not enough: after something found no room, and
for pods whose rules are about particular company. Every answer is looked up, none is worked out by going through
everybody: a batch of thousands may have thousands without a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import HOST, Counter, Crowd, Crowds
from tidemill.decide.packer.problem import Problem, Resident
from tidemill.decide.packer.spread_levels import Gauge
from tidemill.decide.packer.supply import Domain
from tidemill.model.pods import Spread


@dataclass(slots=True, eq=False)
class Party:
    """Pods of one crowd on one bin."""

    crowd: Crowd
    bin: Bin
    asks: list[int]


@dataclass(slots=True, eq=False)
class Manners:
    """The rules of a crowd, by the counters they are about."""

    moves: tuple[Counter, ...]
    gauged: tuple[tuple[Gauge, Spread, int], ...]  # its spreads, and whether it counts itself
    apart: tuple[Counter, ...]
    company: tuple[tuple[Counter, bool], ...]  # whom it must find, and whether it matches itself

    waits_for: tuple[int, ...]  # counters that may come to suit it as others are placed


Key = tuple[int, str | None]  # counter, value of its topology key


class Census:
    def __init__(self, problem: Problem, filler: Filler, found: Crowds) -> None:
        self.problem, self.filler, self.found = problem, filler, found
        self.parties: dict[int, dict[int, Party]] = {}  # by number of the bin, by crowd
        self.freed = 0  # how often something was given back
        self.progress = [0] * len(found.counters)  # how often a counter may have come to suit somebody
        self.fallen: set[Gauge] = set()  # whose lowest fell since this was last looked at
        self._gauges: dict[tuple[object, ...], Gauge] = {}
        self._of_counter: list[list[Gauge]] = [[] for _ in found.counters]
        self._manners: dict[tuple[int, ...], Manners] = {}
        self._of_crowd: dict[int, Manners] = {}
        self._positions = {key: place for place, key in enumerate(filler.ground.keys)}
        self.counts: dict[Key, int] = {}
        self.totals = [0] * len(found.counters)
        self._closed: dict[Key, int] = {}  # pods there that must not meet who matches
        self._barred: set[Key] = set()  # the same, of residents
        self._watched: dict[
            tuple[Gauge, str], dict[tuple[int, int], int]
        ] = {}  # skew, domains wanted -> pods
        for crowd in (*found.crowds, *found.gangs):
            self.manners(crowd)
        self._count_residents()

    # --- what the rules of a crowd come to ---

    def manners(self, crowd: Crowd) -> Manners:
        known = self._of_crowd.get(id(crowd))
        if known is None:
            # Crowds with the same rules share the very tuples they were compiled into.
            key = (
                crowd.eligibility, id(crowd.marks), id(crowd.moves), id(crowd.host_caps), id(crowd.spreads),
                id(crowd.apart), id(crowd.company), id(crowd.host_company),
            )  # fmt: skip
            known = self._manners.get(key)
            if known is None:
                known = self._manners[key] = self._understand(crowd)
            self._of_crowd[id(crowd)] = known
        return known

    def _understand(self, crowd: Crowd) -> Manners:
        counters = self.found.counters
        hosts = [rule for rule in crowd.shape.spread if rule.hard and rule.topology_key == HOST]
        # Among the caps of a crowd, its spreads over hosts come first.
        spreads = [
            (counter, rule, own) for (counter, _, own), rule in zip(crowd.host_caps, hosts, strict=False)
        ]
        apart = [counter for counter, _, _ in crowd.host_caps[len(hosts) :]] + [one for one, _ in crowd.apart]
        spreads = [*crowd.spreads, *spreads]
        company = (*crowd.company, *crowd.host_company)
        return Manners(
            tuple(counters[number] for number in (*crowd.host_moves, *crowd.moves)),
            tuple((self._gauge(number, crowd, rule), rule, own) for number, rule, own in spreads),
            tuple(counters[number] for number in apart),
            tuple((counters[number], own) for number, own in company),
            (*[number for number, _, _ in spreads], *[number for number, _ in company]),
        )

    def _gauge(self, number: int, crowd: Crowd, rule: Spread) -> Gauge:
        shape = crowd.shape
        keys = frozenset(one.topology_key for one in shape.spread if one.hard)
        wanted = (shape.node_selector, shape.node_terms) if rule.honor_affinity else ()
        key = (number, keys, wanted, shape.tolerations if rule.honor_taints else None)
        known = self._gauges.get(key)
        if known is None:
            known = self._gauges[key] = Gauge(self.problem, self.found.counters[number], crowd, rule)
            there = (one for one in self.filler.bins if self._includes(known, one))
            known.extend(
                {value for one in there if (value := self.value(one, rule.topology_key)) is not None}
            )
            self._of_counter[number].append(known)
        return known

    def _includes(self, gauge: Gauge, one: Bin) -> bool:
        if one.place >= 0:
            place = self.problem.places[one.place]
            return gauge.includes(one.group, place.labels, place.taints)
        assert one.ladder is not None
        flavour = one.ladder.flavours[one.rung]
        return gauge.includes(-id(flavour), flavour.labels, flavour.taints)

    def bits_are_exact(self) -> bool:
        """Whether what a bin says it refuses is all there is: it takes the emptiest host to be empty."""
        return all(gauge.low == 0 for gauge in self._gauges.values() if gauge.counter.key == HOST)

    def counts_alike(self, one: Bin, rung: int) -> bool:
        """Would a new bin count for the same rules if it were of another type?"""
        assert one.ladder is not None
        flavour = one.ladder.flavours[rung]
        return all(
            gauge.includes(-id(flavour), flavour.labels, flavour.taints) == self._includes(gauge, one)
            for gauge in self._gauges.values()
            if gauge.choosy
        )

    def value(self, one: Bin, key: str) -> str | None:
        """Of a topology key, on a bin; None: the node does not have it, so it is in no domain."""
        return f"#{one.number}" if key == HOST else self._value_in(one.site[1], key)

    def _value_in(self, domain: Domain, key: str) -> str | None:
        return domain[self._positions[key]] or None

    # --- coming and going ---

    def _count_residents(self) -> None:
        known: dict[tuple[int, str], tuple[list[Counter], list[Counter]]] = {}
        for one in self.filler.bins:
            for resident in self.problem.places[one.place].residents if one.place >= 0 else ():
                key = (id(resident.shape), resident.namespace)
                if key not in known:
                    known[key] = self._matched_and_barred(resident)
                moves, bars = known[key]
                self._count(moves, one, resident.count)
                for counter in bars:
                    if (value := self.value(one, counter.key)) is not None:
                        self._barred.add((counter.number, value))

    def _matched_and_barred(self, resident: Resident) -> tuple[list[Counter], list[Counter]]:
        terms = {
            (term.topology_key, term.selector, term.namespaces_of(resident.namespace))
            for term in resident.shape.anti_affinity
        }
        counters = self.found.counters
        return [one for one in counters if one.matches(resident.shape, resident.namespace)], [
            one for one in counters if (one.key, one.selector, one.namespaces) in terms
        ]

    def _count(self, moves: Iterable[Counter], one: Bin, pods: int) -> None:
        for counter in moves:
            value = self.value(one, counter.key)
            if value is None:
                continue
            key = (counter.number, value)
            before = self.counts.get(key, 0)
            self.counts[key] = before + pods
            self.totals[counter.number] += pods
            self.progress[counter.number] += before == 0
            for gauge in self._of_counter[counter.number]:
                if self._includes(gauge, one):
                    risen = gauge.change(value, pods)
                    self.progress[counter.number] += risen > 0
                    if risen < 0:
                        self.fallen.add(gauge)

    def settle(self, crowd: Crowd, one: Bin, asks: list[int]) -> None:
        here = self.parties.setdefault(one.number, {})
        party = here.get(id(crowd))
        if party is None:
            party = here[id(crowd)] = Party(crowd, one, [])
        party.asks += asks
        self._enter(crowd, one, len(asks))

    def leave(self, party: Party, ask: int) -> None:
        party.asks.remove(ask)
        if not party.asks:
            del self.parties[party.bin.number][id(party.crowd)]
        self.freed += 1
        self._enter(party.crowd, party.bin, -1)

    def _enter(self, crowd: Crowd, one: Bin, pods: int) -> None:
        manners = self.manners(crowd)
        self._count(manners.moves, one, pods)
        for counter in manners.apart:
            if (value := self.value(one, counter.key)) is not None:
                key = (counter.number, value)
                self._closed[key] = self._closed.get(key, 0) + pods
        for gauge, rule, _ in manners.gauged:
            if (value := self.value(one, rule.topology_key)) is not None:
                watching = self._watched.setdefault((gauge, value), {})
                terms = (rule.max_skew, rule.min_domains)
                watching[terms] = watching.get(terms, 0) + pods

    # --- would it be welcome? ---

    def suits_domain(self, crowd: Crowd, domain: Domain) -> bool:
        """Would one more of a crowd be content in a domain, hosts aside?"""
        manners = self.manners(crowd)
        for gauge, rule, own in manners.gauged:
            if rule.topology_key != HOST:
                value = self._value_in(domain, rule.topology_key)
                if value is None or not _level(gauge, value, rule.max_skew, rule.min_domains, own):
                    return False
        for counter in manners.apart:
            if counter.key != HOST and self.counts.get((counter.number, self._value_in(domain, counter.key))):
                return False
        for counter in manners.moves:
            key = (counter.number, self._value_in(domain, counter.key) if counter.key != HOST else None)
            if self._closed.get(key) or key in self._barred:
                return False
        return all(
            self._finds(counter, own, self._value_in(domain, counter.key))
            for counter, own in manners.company
            if counter.key != HOST
        )

    def _finds(self, counter: Counter, own: bool, value: str | None) -> bool:
        """Company is there; or it is of the kind, and would be the first of it."""
        if value is None:
            return False
        return bool(self.counts.get((counter.number, value))) or (own and not self.totals[counter.number])

    def suits(self, crowd: Crowd, one: Bin) -> bool:
        """Would everybody be content with one more of a crowd on a bin, itself included?"""
        manners = self.manners(crowd)
        for counter, alike in manners.company:
            if not self._finds(counter, alike, self.value(one, counter.key)):
                return False
        for gauge, rule, own in manners.gauged:
            value = self.value(one, rule.topology_key)
            if value is None or not _level(gauge, value, rule.max_skew, rule.min_domains, own):
                return False
        for counter in manners.apart:
            value = self.value(one, counter.key)
            if value is not None and self.counts.get((counter.number, value)):
                return False
        return all(self._welcome(counter, one) for counter in manners.moves)

    def _welcome(self, counter: Counter, one: Bin) -> bool:
        """Do those who are there put up with one more of these?"""
        value = self.value(one, counter.key)
        if value is None:
            return True
        key = (counter.number, value)
        if self._closed.get(key) or key in self._barred:
            return False
        for gauge in self._of_counter[counter.number]:
            watching = self._watched.get((gauge, value))
            if watching and self._includes(gauge, one):
                for (skew, domains), pods in watching.items():
                    if pods and not _level(gauge, value, skew, domains, 1):
                        return False
        return True

    # --- is it content where it is? ---

    def content(self, party: Party) -> bool:
        """Is every pod of the party content with who is there? Company is asked for separately."""
        manners, one = self.manners(party.crowd), party.bin
        for gauge, rule, _ in manners.gauged:
            value = self.value(one, rule.topology_key)
            if value is None or not _level(gauge, value, rule.max_skew, rule.min_domains, 0):
                return False
        for counter in manners.apart:
            value = self.value(one, counter.key)
            if value is not None and self.counts.get((counter.number, value), 0) > (counter in manners.moves):
                return False
        return not any(
            (counter.number, value) in self._barred
            for counter in (manners.moves if self._barred else ())
            if (value := self.value(one, counter.key)) is not None
        )

    def everybody(self) -> Iterator[Party]:
        for here in self.parties.values():
            yield from here.values()

    def watches(self, crowd: Crowd) -> tuple[Gauge, ...]:
        return tuple(gauge for gauge, _, _ in self.manners(crowd).gauged)


def _level(gauge: Gauge, value: str, skew: int, min_domains: int, more: int) -> bool:
    """Is a domain not too full, with so many more there? One more where it is lowest never is."""
    return gauge.heights.get(value, 0) + more - gauge.lowest(min_domains) <= skew
