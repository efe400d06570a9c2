"""Who is there already: what they count for, and whom they keep out of their domain or off their host."""

from __future__ import annotations

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import HOST, Crowds
from tidemill.decide.packer.problem import Place, Problem, Resident
from tidemill.decide.packer.supply import Domain, Ground
from tidemill.decide.packer.topology_spread import Dealer


def settle_residents(problem: Problem, found: Crowds, ground: Ground, filler: Filler) -> Dealer:
    """A bin for every place, in the order of the places, and the counts of every domain."""
    places = [(ground.domain_of(place.labels), place) for place in problem.places]
    domains = sorted({domain for domain, _ in places} | set(ground.by_domain))
    dealer = Dealer(ground, found, domains)
    books = _Books(found, dealer)
    for number, (domain, place) in enumerate(places):
        one = _bin(number, domain, place, found.dimensions)
        for resident in place.residents:
            books.enter(resident, one, domain)
        filler.add(one)
    return dealer


def _bin(number: int, domain: Domain, place: Place, dimensions: list[str]) -> Bin:
    one = Bin(number, (place.rank, domain), [place.free.get(name, 0) for name in dimensions])
    one.place, one.group = number, place.group or number
    return one


class _Books:
    """Residents of one shape move and mind the same counters: worked out once."""

    def __init__(self, found: Crowds, dealer: Dealer) -> None:
        self._found, self._dealer = found, dealer
        self._moves: dict[tuple[int, str], list[tuple[int, bool]]] = {}
        self._minds: dict[tuple[int, str], list[tuple[int, bool, int]]] = {}

    def enter(self, resident: Resident, one: Bin, domain: Domain) -> None:
        key = (id(resident.shape), resident.namespace)
        if key not in self._moves:
            self._moves[key], self._minds[key] = self._moved_by(resident), self._minded_by(resident)
        for counter, on_host in self._moves[key]:
            if on_host:
                one.counts[counter] = one.counts.get(counter, 0) + resident.count
            else:
                self._dealer.count(counter, domain, resident.count)
        for counter, on_host, own in self._minds[key]:
            if on_host:
                one.caps[counter] = one.kept_caps[counter] = own
            else:
                self._dealer.bar(counter, domain)
        if resident.shape.host_ports:
            one.ports = (one.ports or set()) | set(resident.shape.host_ports)

    def _moved_by(self, resident: Resident) -> list[tuple[int, bool]]:
        return [
            (counter.number, counter.key == HOST)
            for counter in self._found.counters
            if counter.matches(resident.shape, resident.namespace)
        ]

    def _minded_by(self, resident: Resident) -> list[tuple[int, bool, int]]:
        """Counter, whether it is about the host, and how many it puts up with: itself, if it matches."""
        return [
            (counter.number, counter.key == HOST, int(counter.matches(resident.shape, resident.namespace)))
            for term in resident.shape.anti_affinity
            for counter in self._found.counters
            if (counter.key, counter.selector) == (term.topology_key, term.selector)
            and counter.namespaces == term.namespaces_of(resident.namespace)
        ]
