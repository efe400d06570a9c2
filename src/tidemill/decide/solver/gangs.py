"""Gangs: all pods in one zone, on one source, or none at all.

Each gang looks at every domain (its zone and source are part of one where there are gangs), counts what it
could have there, and takes the cheapest that holds it whole. Nothing is taken while it is only looking.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.problem import Problem
from tidemill.decide.solver.bins import NO_END, Bin
from tidemill.decide.solver.crowd import Crowd
from tidemill.decide.solver.fill import Filler
from tidemill.decide.solver.ground import Domain, Ladder, Stratum


@dataclass(slots=True)
class _Offer:
    """How a domain would hold one crowd of a gang: on bins that are there, and on so many new ones."""

    crowd: Crowd
    there: list[tuple[Bin, int]] = field(default_factory=list)
    stratum: Stratum | None = None
    rung: int = 0
    each: int = 0  # pods on a new node
    nodes: int = 0
    price: float = 0.0

    @property
    def rank(self) -> tuple[int, ...]:
        return self.stratum.rank if self.stratum is not None else ()


def place_gangs(problem: Problem, crowds: list[Crowd], filler: Filler, domains: list[Domain]) -> list[int]:
    """Asks of gangs that fit nowhere whole, or of which not all have come yet."""
    gangs: dict[tuple[str, str], list[Crowd]] = {}
    for crowd in crowds:
        first = problem.asks[crowd.asks[0]]
        assert first.gang is not None
        gangs.setdefault((first.namespace, first.gang.name), []).append(crowd)
    left: list[int] = []
    for members in sorted(gangs.values(), key=lambda of: _turn(problem, of)):
        asks = [ask for crowd in members for ask in crowd.asks]
        gang = problem.asks[asks[0]].gang
        assert gang is not None
        if len(asks) < gang.size or not _place(members, filler, domains):
            left += asks
    return left


def _place(crowds: list[Crowd], filler: Filler, domains: list[Domain]) -> bool:
    if len(crowds) == 1:
        offers = [
            (domain, offer) for domain in domains if (offer := _offer(crowds[0], filler, domain)) is not None
        ]
        best = min(offers, key=lambda one: _cost([one[1]]), default=None)
        if best is None:
            return False
        _accept(best[1], filler)
        return True
    tried = [(cost, domain) for domain in domains if (cost := _try(crowds, filler, domain)) is not None]
    if not tried:
        return False
    _try(crowds, filler, min(tried)[1], keep=True)
    return True


def _try(
    crowds: list[Crowd], filler: Filler, domain: Domain, *, keep: bool = False
) -> tuple[tuple[int, ...], float, int] | None:
    """Place crowd after crowd, so that none counts what another has taken; then take all of it back."""
    done: list[tuple[_Offer, list[tuple[Bin, list[int]]]]] = []
    for crowd in sorted(crowds, key=lambda crowd: (-crowd.size, crowd.asks[0])):
        offer = _offer(crowd, filler, domain)
        if offer is None:
            break
        done.append((offer, _accept(offer, filler)))
    whole = len(done) == len(crowds)
    cost = _cost([offer for offer, _ in done])
    if not (whole and keep):
        for offer, taken in reversed(done):
            for one, asks in reversed(taken):
                for ask in asks:
                    filler.take_off(one, offer.crowd, ask)
                if one.place < 0 and not one.asks and one is filler.bins[-1]:
                    filler.close(one)
    return cost if whole else None


def _turn(problem: Problem, crowds: list[Crowd]) -> tuple[object, ...]:
    """Priority, then size: the large find a place while there is one; then age."""
    first = problem.asks[crowds[0].asks[0]]
    size = sum(crowd.size * len(crowd.asks) for crowd in crowds)
    return (-first.priority, -size, first.since, crowds[0].asks[0])


def _cost(offers: list[_Offer]) -> tuple[tuple[int, ...], float, int]:
    opened = [offer for offer in offers if offer.nodes]
    return (
        max((offer.rank for offer in opened), default=()),
        sum(o.price for o in offers),
        sum(o.nodes for o in offers),
    )


def _offer(crowd: Crowd, filler: Filler, domain: Domain) -> _Offer | None:
    offer = _Offer(crowd)
    missing = len(crowd.asks)
    for site in filler.sites((domain,)):
        for one in filler.by_site.get(site, ()):
            if missing and filler.may_stand(crowd, one):
                count = min(one.room(crowd.wants), one.tolerance(crowd), missing)
                if count > 0:
                    offer.there.append((one, count))
                    missing -= count
    return offer if missing == 0 else _with_new_nodes(offer, missing, filler, domain)


def _with_new_nodes(offer: _Offer, missing: int, filler: Filler, domain: Domain) -> _Offer | None:
    """The rest on new nodes of the type that costs least for all of them."""
    crowd, ground = offer.crowd, filler.ground
    alone = 1 if crowd.ports else min((cap for _, cap, own in crowd.host_caps if own), default=NO_END)
    for stratum in ground.by_domain.get(domain, ()):
        ladder = ground.ladder(stratum, frozenset((crowd.eligibility,)))
        if ladder is None:
            continue
        choices = []
        for rung in range(len(ladder.prices)):
            each = min(_holds(ladder, rung, crowd), alone)
            if each < 1:
                continue
            nodes = -(-missing // each)
            if _can_have(filler, stratum, ladder, rung, nodes):
                choices.append((nodes * ladder.prices[rung], nodes, rung, each))
        if choices:
            offer.price, offer.nodes, offer.rung, offer.each = min(choices)
            offer.stratum = stratum
            return offer
    return None


def _holds(ladder: Ladder, rung: int, crowd: Crowd) -> int:
    return min(ladder.capacities[rung][place] // amount for place, amount in crowd.wants)


def _can_have(filler: Filler, stratum: Stratum, ladder: Ladder, rung: int, nodes: int) -> bool:
    if stratum.stock and filler.ground.stocks.get(stratum.stock, 0) < nodes:
        return False
    left = filler.ground.budgets.get(stratum.budget)
    consumes = ladder.flavours[rung].consumes
    return left is None or all(left.get(name, NO_END) >= amount * nodes for name, amount in consumes.items())


def _accept(offer: _Offer, filler: Filler) -> list[tuple[Bin, list[int]]]:
    """Take it; returns who went where."""
    asks, taken = offer.crowd.asks, []
    start = 0
    for one, count in offer.there:
        taken.append((one, asks[start : start + count]))
        start += count
    while start < len(asks):
        assert offer.stratum is not None
        one = filler.open(offer.crowd, offer.stratum, offer.rung)
        taken.append((one, asks[start : start + offer.each]))
        start += offer.each
    for one, mine in taken:
        filler.put(one, offer.crowd, mine)
    return taken
