"""Who stands where, exactly, and whether everybody is content with it: the rules between pods on the final state.

Slower than counting by domain, and asked only where counting is not enough: after something found no room, and
for pods whose rules are about particular company.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.decide.solver.bins import Bin
from tidemill.decide.solver.crowd import HOST, Counter, Crowd, Crowds
from tidemill.decide.solver.fill import Filler
from tidemill.decide.solver.ground import counts_for
from tidemill.world import Spread, Taint


@dataclass(slots=True, eq=False)
class Party:
    """Pods of one crowd on one bin."""

    crowd: Crowd
    bin: Bin
    asks: list[int]


@dataclass(slots=True)
class Census:
    filler: Filler
    found: Crowds
    parties: list[Party] = field(default_factory=list)
    residents: dict[tuple[int, str], int] = field(
        default_factory=dict
    )  # (counter, value) -> residents that match
    closed: set[tuple[int, str]] = field(default_factory=set)  # a resident there must not meet who matches
    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    _values: dict[tuple[int, bool, bool, str], set[str]] = field(default_factory=dict)

    def value(self, one: Bin, key: str) -> str | None:
        """Of a topology key, on a bin; None: the node does not have it, so it is in no domain."""
        if key == HOST:
            return f"#{one.number}"
        return labels_of(self.filler, one).get(key)

    def settle(self, party: Party) -> None:
        self.parties.append(party)
        self._count(party, len(party.asks))

    def _count(self, party: Party, pods: int) -> None:
        for counter in self._moved(party.crowd):
            value = self.value(party.bin, counter.key)
            if value is not None:
                self.counts[(counter.number, value)] = self.counts.get((counter.number, value), 0) + pods

    def leave(self, party: Party, asks: Iterable[int]) -> None:
        gone = set(asks)
        party.asks = [ask for ask in party.asks if ask not in gone]
        self._count(party, -len(gone))

    def _moved(self, crowd: Crowd) -> Iterator[Counter]:
        for number in (*crowd.host_moves, *crowd.moves):
            yield self.found.counters[number]

    def height(self, counter: int, value: str) -> int:
        return self.counts.get((counter, value), 0) + self.residents.get((counter, value), 0)

    def anywhere(self, counter: int) -> bool:
        return any(pods > 0 and number == counter for (number, _), pods in self.counts.items()) or any(
            pods > 0 and number == counter for (number, _), pods in self.residents.items()
        )

    # --- contentment ---

    def content(self, party: Party) -> bool:
        """Is every pod of the party content with who is there? Company is asked for separately."""
        crowd, one = party.crowd, party.bin
        for counter, rule, _ in self.spreads(crowd):
            value = self.value(one, rule.topology_key)
            if (
                value is None
                or self.height(counter, value) - self.lowest(crowd, counter, rule) > rule.max_skew
            ):
                return False
        for counter, own in self.apart(crowd):
            value = self.value(one, self.found.counters[counter].key)
            if value is not None and self.height(counter, value) - own > 0:
                return False
        for moved in self._moved(crowd):
            value = self.value(one, moved.key)
            if value is not None and (moved.number, value) in self.closed:
                return False
        return True

    def spreads(self, crowd: Crowd) -> Iterator[tuple[int, Spread, int]]:
        yield from crowd.spreads
        hosts = [rule for rule in crowd.shape.spread if rule.hard and rule.topology_key == HOST]
        caps = [entry for entry in crowd.host_caps if entry[0] not in crowd.host_apart]
        for (counter, _, own), rule in zip(caps, hosts, strict=False):
            yield counter, rule, own

    def apart(self, crowd: Crowd) -> Iterator[tuple[int, int]]:
        yield from crowd.apart
        for counter, _, own in crowd.host_caps:
            if counter in crowd.host_apart:
                yield counter, own

    def lowest(self, crowd: Crowd, counter: int, rule: Spread) -> int:
        values = self.domains(crowd, rule)
        if len(values) < rule.min_domains:
            return 0
        return min((self.height(counter, value) for value in values), default=0)

    def domains(self, crowd: Crowd, rule: Spread) -> set[str]:
        """Values of the key that count for this crowd: of nodes there are, and of nodes that could be opened."""
        key = (crowd.eligibility, rule.honor_affinity, rule.honor_taints, rule.topology_key)
        if rule.topology_key == HOST or key not in self._values:
            self._values[key] = self._domains(crowd, rule)
        return self._values[key]

    def _domains(self, crowd: Crowd, rule: Spread) -> set[str]:
        keys = [one.topology_key for one in crowd.shape.spread if one.hard]
        found = set()
        for one in self.filler.bins:
            labels = labels_of(self.filler, one)
            if all(key == HOST or key in labels for key in keys) and counts_for(
                crowd.shape, rule, labels, taints_of(self.filler, one)
            ):
                value = self.value(one, rule.topology_key)
                if value is not None:
                    found.add(value)
        for flavour in self.filler.ground.problem.flavours:
            if all(key == HOST or key in flavour.labels for key in keys) and counts_for(
                crowd.shape, rule, flavour.labels, flavour.taints
            ):
                found.add("#new" if rule.topology_key == HOST else flavour.labels[rule.topology_key])
        return found

    # --- company ---

    def lonely(self) -> list[Party]:
        """Parties that could not have been bound in any order: each needs company that never comes."""
        there: dict[tuple[int, str], int] = dict(self.residents)
        waiting = [party for party in self.parties if party.asks]
        seekers = [party for party in waiting if party.crowd.company or party.crowd.host_company]
        for party in waiting:
            if party not in seekers:
                self._arrive(party, there)
        while seekers:
            ready = [party for party in seekers if self._welcome(party, there)]
            if not ready:
                ready = [party for party in seekers if self._first_of_kind(party, there)][:1]
            if not ready:
                break
            for party in ready:
                self._arrive(party, there)
                seekers.remove(party)
        return seekers

    def _arrive(self, party: Party, there: dict[tuple[int, str], int]) -> None:
        for counter in self._moved(party.crowd):
            value = self.value(party.bin, counter.key)
            if value is not None:
                there[(counter.number, value)] = there.get((counter.number, value), 0) + len(party.asks)

    def _welcome(self, party: Party, there: Mapping[tuple[int, str], int]) -> bool:
        for counter, _ in (*party.crowd.company, *party.crowd.host_company):
            value = self.value(party.bin, self.found.counters[counter].key)
            if value is None or not there.get((counter, value)):
                return False
        return True

    def _first_of_kind(self, party: Party, there: Mapping[tuple[int, str], int]) -> bool:
        """Nobody matches anywhere, and it matches itself: then it may begin."""
        for counter, own in (*party.crowd.company, *party.crowd.host_company):
            value = self.value(party.bin, self.found.counters[counter].key)
            if value is None:
                return False
            if there.get((counter, value)):
                continue
            if not own or any(number == counter and pods for (number, _), pods in there.items()):
                return False
        return True


def labels_of(filler: Filler, one: Bin) -> Mapping[str, str]:
    if one.place >= 0:
        return filler.ground.problem.places[one.place].labels
    assert one.ladder is not None
    return one.ladder.flavours[one.rung].labels


def taints_of(filler: Filler, one: Bin) -> tuple[Taint, ...]:
    if one.place >= 0:
        return filler.ground.problem.places[one.place].taints
    assert one.stratum is not None
    return one.stratum.taints
