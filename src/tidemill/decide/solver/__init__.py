"""The solver: who goes where, and which nodes to open for the rest. One general method, told in order.

Asks that are alike are one crowd. Crowds are dealt to domains on counts; within a domain, crowds with the same
needs are poured into what is free, tightest first, and then room is made the cheapest way. Deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.problem import NewNode, Problem, Solution
from tidemill.decide.solver.bins import Bin
from tidemill.decide.solver.crowd import HOST, Crowd, Crowds, gather
from tidemill.decide.solver.fill import Filler
from tidemill.decide.solver.gangs import place_gangs
from tidemill.decide.solver.ground import Domain, Ground
from tidemill.decide.solver.mend import is_needed, mend
from tidemill.decide.solver.polish import polish
from tidemill.decide.solver.topology import Dealer, Share

__all__ = ["solve"]


def solve(problem: Problem) -> Solution:
    found = gather(problem)  # 1 asks that are alike are one crowd
    ground = Ground(problem, found)  # 2 domains, and what could be opened in each
    filler = Filler(ground, found.weights)
    dealer = _settle_residents(problem, found, ground, filler)  # 3 who is there already
    homeless: list[int] = []
    for level in _levels(found):  # whoever is more important has everything placed first
        homeless += place_gangs(
            problem, level.gangs, filler, sorted(dealer.load)
        )  # 4 gangs, whole or not at all
        shares = _deal(level.crowds, ground, filler, dealer)  # 5 which domain, on counts alone
        homeless += _fill(shares, filler)  # 6 which node, and which nodes to open
    homeless += [ask for crowd in found.crowds if crowd.careful for ask in crowd.asks]
    if is_needed(found, homeless):
        homeless = mend(problem, found, filler, homeless)  # 7 who needs more than counting, asked one by one
    else:
        polish(filler, _crowd_of(problem, found))  # 8 second thoughts, where much is left over
    return _write_down(problem, filler, homeless)  # 9 each new node gets the cheapest type that holds it


@dataclass(slots=True)
class _Level:
    """Everybody of one priority."""

    crowds: list[Crowd] = field(default_factory=list)
    gangs: list[Crowd] = field(default_factory=list)


def _levels(found: Crowds) -> list[_Level]:
    levels: dict[int, _Level] = {}
    for crowd in found.crowds:
        levels.setdefault(crowd.priority, _Level()).crowds.append(crowd)
    for crowd in found.gangs:
        levels.setdefault(crowd.priority, _Level()).gangs.append(crowd)
    return [levels[priority] for priority in sorted(levels, reverse=True)]


def _settle_residents(problem: Problem, found: Crowds, ground: Ground, filler: Filler) -> Dealer:
    places = [(ground.domain_of(place.labels), place) for place in problem.places]
    domains = sorted({domain for domain, _ in places} | set(ground.by_domain))
    dealer = Dealer(ground, found, domains)
    dimensions = found.dimensions
    hits: dict[tuple[int, str], list[tuple[int, bool]]] = {}
    for number, (domain, place) in enumerate(places):
        one = Bin(number, (place.rank, domain), [place.free.get(name, 0) for name in dimensions])
        one.place = number
        for resident in place.residents:
            key = (id(resident.shape), resident.namespace)
            moved = hits.get(key)
            if moved is None:
                moved = hits[key] = [
                    (counter.number, counter.key == HOST)
                    for counter in found.counters
                    if counter.matches(resident.shape, resident.namespace)
                ]
            for counter, on_host in moved:
                if on_host:
                    one.counts[counter] = one.counts.get(counter, 0) + resident.count
                else:
                    dealer.count(counter, domain, resident.count)
            for term in resident.shape.anti_affinity:
                for minded in found.counters:
                    same = (minded.key, minded.selector) == (term.topology_key, term.selector)
                    if same and minded.namespaces == frozenset(term.namespaces or (resident.namespace,)):
                        if minded.key == HOST:
                            one.caps[minded.number] = int(minded.matches(resident.shape, resident.namespace))
                        else:
                            dealer.bar(minded.number, domain)
            if resident.shape.host_ports:
                one.ports = (one.ports or set()) | set(resident.shape.host_ports)
        filler.add(one)
    return dealer


def _deal(crowds: list[Crowd], ground: Ground, filler: Filler, dealer: Dealer) -> list[Share]:
    """Bound crowds first; what may go anywhere is dealt after the load, so that forced hosts stand where work is."""
    reach = _Reach(ground, filler, sorted(dealer.load))
    shares: list[Share] = []
    free: list[Crowd] = []
    for crowd in sorted((crowd for crowd in crowds if not crowd.careful), key=_difficulty):
        allowed = reach.of(crowd)
        if crowd.spreads or crowd.company:
            allowed = _with_keys(crowd, allowed, ground, dealer)
        if not allowed:
            shares.append(Share(crowd, crowd.asks, ()))
            continue
        if not crowd.bound:
            free.append(crowd)
            continue
        if any(
            ground.counted(crowd, rule) != _values(ground, rule.topology_key, allowed)
            for _, rule, _ in crowd.spreads
        ):
            crowd.careful = True  # domains it cannot reach hold back those it can: counting must be exact
            continue
        dealt, stuck = dealer.deal(crowd, allowed)
        shares += dealt
        if stuck:
            shares.append(Share(crowd, stuck, ()))
    for crowd in free:
        allowed = reach.of(crowd)
        if crowd.solitary and len(allowed) > 1:
            shares += _follow_load(crowd, allowed, dealer)
        else:
            shares.append(Share(crowd, crowd.asks, tuple(allowed)))
    return shares


def _with_keys(crowd: Crowd, domains: list[Domain], ground: Ground, dealer: Dealer) -> list[Domain]:
    """Without those that lack a label its rules are about: such a node is in no domain."""
    counters = [counter for counter, _, _ in crowd.spreads] + [counter for counter, _ in crowd.company]
    places = {ground.keys.index(dealer.key_of(counter)) for counter in counters}
    if all(domain[place] for domain in domains for place in places):
        return domains  # the very list: what follows from it is remembered with it
    return [domain for domain in domains if all(domain[place] for place in places)]


def _values(ground: Ground, key: str, domains: list[Domain]) -> set[str]:
    place = ground.keys.index(key)
    return {domain[place] for domain in domains}


class _Reach:
    """Domains where crowds of one eligibility could stand on something."""

    def __init__(self, ground: Ground, filler: Filler, domains: list[Domain]) -> None:
        self._ground, self._domains = ground, domains
        self._bins: dict[Domain, list[Bin]] = {}
        for one in filler.bins:
            self._bins.setdefault(one.site[1], []).append(one)
        self._may_stand = filler.may_stand
        self._known: dict[int, list[Domain]] = {}

    def of(self, crowd: Crowd) -> list[Domain]:
        known = self._known.get(crowd.eligibility)
        if known is None:
            known = self._known[crowd.eligibility] = [
                domain for domain in self._domains if self._can(crowd, domain)
            ]
        return known

    def _can(self, crowd: Crowd, domain: Domain) -> bool:
        strata = self._ground.by_domain.get(domain, ())
        if any(self._ground.allowed(stratum, crowd.eligibility) for stratum in strata):
            return True
        return any(self._may_stand(crowd, one) for one in self._bins.get(domain, ()))


def _difficulty(crowd: Crowd) -> tuple[object, ...]:
    return (-crowd.priority, not crowd.company, not crowd.apart, -crowd.size, crowd.asks[0])


def _follow_load(crowd: Crowd, domains: list[Domain], dealer: Dealer) -> list[Share]:
    total = sum(dealer.load[domain] for domain in domains)
    shares, start = [], 0
    wanted = 0.0
    for domain in domains:
        part = dealer.load[domain] / total if total else 1 / len(domains)
        wanted += part * len(crowd.asks)
        stop = min(len(crowd.asks), round(wanted))
        if stop > start:
            shares.append(Share(crowd, crowd.asks[start:stop], (domain,)))
        start = max(start, stop)
    if start < len(crowd.asks):
        shares.append(Share(crowd, crowd.asks[start:], (domains[-1],)))
    return shares


# Priority, how choosy it is about hosts, size, needs, domains, eligibility: what is filled in one go, and when.
_Turn = tuple[int, int, float, tuple[tuple[int, int], ...], tuple[Domain, ...], int]


def _fill(shares: list[Share], filler: Filler) -> list[int]:
    """Who forces hosts opens them first, who minds company comes next; the large before the small, which fill gaps."""
    left: list[int] = []
    groups: dict[_Turn, list[Share]] = {}
    for share in shares:
        crowd = share.crowd
        tier = 0 if crowd.solitary else 1 if crowd.host_caps else 2
        turn: _Turn = (-crowd.priority, tier, -crowd.size, crowd.wants, share.domains, crowd.eligibility)
        groups.setdefault(turn, []).append(share)
    raised = False
    for turn in sorted(groups):
        if turn[1] and not raised:
            raised = True
            _raise_floors([share for other in groups if other >= turn for share in groups[other]], filler)
        queue = [
            (share.crowd, share.asks) for share in sorted(groups[turn], key=lambda share: share.crowd.since)
        ]
        sites = filler.sites(turn[4])
        for site in sites:
            queue = filler.pour(queue, site)
            if not queue:
                break
        for crowd, asks in queue:
            left += filler.make_room(crowd, asks, sites)
    return left


def _raise_floors(shares: list[Share], filler: Filler) -> None:
    """What is still to come, by domain and dimension, is what the new bins there should be able to hold."""
    demand: dict[Domain, list[int]] = {}
    for share in shares:
        if len(share.domains) == 1:
            sums = demand.setdefault(share.domains[0], [0] * len(filler.ground.dimensions))
            for place, amount in share.crowd.wants:
                sums[place] += amount * len(share.asks)
    for domain, sums in demand.items():
        sites = filler.sites((domain,))
        if len(sites) == 1:
            filler.raise_floor(sites[0], sums)


def _crowd_of(problem: Problem, found: Crowds) -> list[Crowd | None]:
    """By ask; gangs are left where they are."""
    crowd_of: list[Crowd | None] = [None] * len(problem.asks)
    for crowd in found.crowds:
        for ask in crowd.asks:
            crowd_of[ask] = crowd
    return crowd_of


def _write_down(problem: Problem, filler: Filler, homeless: list[int]) -> Solution:
    solution = Solution()
    for one in filler.bins:
        if one.place >= 0:
            if one.asks:
                solution.existing[one.place] = one.asks
        elif one.asks:
            assert one.ladder is not None
            filler.shrink(one)
            solution.opened.append(NewNode(one.ladder.flavours[one.rung], one.asks))
    for ask in homeless:
        gang = problem.asks[ask].gang is not None
        solution.unplaced[ask] = "no room for the whole gang" if gang else "no room"
    return solution
