"""Which crowds go to which domains: those bound by rules on counts, the others wherever the load is."""

from __future__ import annotations

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.gangs import room_in
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Domain, Ground
from tidemill.decide.packer.topology_spread import Dealer, Share


def deal(crowds: list[Crowd], ground: Ground, filler: Filler, dealer: Dealer) -> list[Share]:
    """Bound crowds first; what may go anywhere is dealt after the load, so that forced hosts stand where work is."""
    reach = _Reach(ground, filler, sorted(dealer.load))
    shares: list[Share] = []
    free: list[Crowd] = []
    stuck: list[tuple[Crowd, list[int], list[Domain]]] = []
    uneven = dealer.is_uneven()
    for crowd in sorted(
        (crowd for crowd in crowds if not crowd.careful), key=lambda crowd: _difficulty(crowd, uneven)
    ):
        allowed, exact = reach.counting(crowd, dealer)
        if not allowed:
            shares.append(Share(crowd, crowd.asks, ()))
        elif not crowd.bound:
            free.append(crowd)
        elif not exact:
            crowd.careful = True  # domains it cannot reach hold back those it can: counting must be exact
        else:
            if crowd.company:
                allowed = _with_room(crowd, allowed, filler, dealer)
            dealt, left = dealer.deal(crowd, crowd.asks, allowed)
            shares += dealt
            if left:
                stuck.append((crowd, left, allowed))
    shares += _deal_again(stuck, dealer)
    for crowd in free:
        allowed = reach.of(crowd)
        if crowd.solitary and len(allowed) > 1:
            shares += _follow_load(crowd, allowed, dealer)
        else:
            shares.append(Share(crowd, crowd.asks, tuple(allowed)))
    return shares


def _deal_again(stuck: list[tuple[Crowd, list[int], list[Domain]]], dealer: Dealer) -> list[Share]:
    """Who had no domain when its turn came may have one now that others have levelled the counts."""
    shares: list[Share] = []
    progress = True
    while stuck and progress:
        before, stuck, progress = stuck, [], False
        for crowd, asks, allowed in before:
            dealt, left = dealer.deal(crowd, asks, allowed)
            shares += dealt
            progress |= bool(dealt)
            if left:
                stuck.append((crowd, left, allowed))
    return shares + [Share(crowd, asks, ()) for crowd, asks, _ in stuck]


def _with_keys(crowd: Crowd, domains: list[Domain], ground: Ground, dealer: Dealer) -> list[Domain]:
    """Without those that lack a label its rules are about: such a node is in no domain."""
    counters = [counter for counter, _, _ in crowd.spreads] + [counter for counter, _ in crowd.company]
    places = {ground.keys.index(dealer.key_of(counter)) for counter in counters}
    if all(domain[place] for domain in domains for place in places):
        return domains  # the very list: what follows from it is remembered with it
    return [domain for domain in domains if all(domain[place] for place in places)]


def _with_room(crowd: Crowd, domains: list[Domain], filler: Filler, dealer: Dealer) -> list[Domain]:
    """Who must stay together goes where all of them find room, if there is such a place."""
    roomy = [domain for domain in domains if room_in(filler, crowd, domain, len(crowd.asks))]
    if len(roomy) == len(domains):
        return domains
    return [domain for domain in roomy if dealer.allows(crowd, domain, domains)] or domains


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
        self._counting: dict[tuple[int, int, int], tuple[list[Domain], bool]] = {}

    def counting(self, crowd: Crowd, dealer: Dealer) -> tuple[list[Domain], bool]:
        """Those where the labels its rules are about exist, and whether they are all that count for its spreads."""
        # Crowds with the same rules share the very tuples they were compiled into.
        key = (crowd.eligibility, id(crowd.spreads), id(crowd.company))
        known = self._counting.get(key)
        if known is None:
            allowed, ground = self.of(crowd), self._ground
            if crowd.spreads or crowd.company:
                allowed = _with_keys(crowd, allowed, ground, dealer)
            exact = all(
                len(values := _values(ground, rule.topology_key, allowed)) >= rule.min_domains
                and ground.counted(crowd, rule) == values
                and not ground.strays(crowd, rule, counter)
                for counter, rule, _ in crowd.spreads
            )  # with fewer domains than it wants, what others do counts against nothing: asked one by one
            known = self._counting[key] = (allowed, exact)
        return known

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


def _difficulty(crowd: Crowd, uneven: bool) -> tuple[object, ...]:
    """Where counts are uneven to begin with, who minds them goes first: whoever does not can level them."""
    rules = (not crowd.company, not crowd.apart, uneven and not crowd.spreads)
    return (-crowd.priority, rules, -crowd.size, crowd.asks[0])


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
