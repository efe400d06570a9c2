"""Gangs: all pods in one zone, on one source, or none at all.

Each gang looks at every domain (its zone and source are part of one where there are gangs), counts what it
could have there, and takes the cheapest that holds it whole. Nothing is taken while it is only looking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.decide.problem import Problem
from tidemill.decide.solver.bins import NO_END, Bin
from tidemill.decide.solver.crowd import Crowd, Crowds
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


def place_gangs(problem: Problem, found: Crowds, filler: Filler, domains: list[Domain]) -> list[int]:
    """Asks of gangs that fit nowhere whole."""
    gangs: dict[tuple[str, str], list[Crowd]] = {}
    for crowd in found.gangs:
        first = problem.asks[crowd.asks[0]]
        assert first.gang is not None
        gangs.setdefault((first.namespace, first.gang.name), []).append(crowd)
    left: list[int] = []
    for crowds in sorted(gangs.values(), key=lambda of: _turn(problem, of)):
        best = min(_offers(crowds, filler, domains), key=_cost, default=None)
        if best is None:
            left += [ask for crowd in crowds for ask in crowd.asks]
        else:
            for offer in best:
                _accept(offer, filler)
    return left


def _turn(problem: Problem, crowds: list[Crowd]) -> tuple[object, ...]:
    """Priority, then size: the large find a place while there is one; then age."""
    first = problem.asks[crowds[0].asks[0]]
    size = sum(crowd.size * len(crowd.asks) for crowd in crowds)
    return (-first.priority, -size, first.since, crowds[0].asks[0])


def _offers(crowds: list[Crowd], filler: Filler, domains: list[Domain]) -> Iterable[list[_Offer]]:
    for domain in domains:
        whole = [_offer(crowd, filler, domain) for crowd in crowds]
        kept = [offer for offer in whole if offer is not None]
        if len(kept) == len(crowds) and (len(crowds) == 1 or _add_up(kept, filler)):
            yield kept


def _add_up(offers: list[_Offer], filler: Filler) -> bool:
    """Crowds of one gang looked one by one: together they must not count a bin, a stock or a budget twice."""
    if any(offer.there for offer in offers):
        return False
    stocks: dict[str, int] = {}
    spent: dict[tuple[str, str], int] = {}
    for offer in offers:
        stratum = offer.stratum
        assert stratum is not None
        stocks[stratum.stock] = stocks.get(stratum.stock, 0) + offer.nodes
        ladder = filler.ground.ladder(stratum, frozenset((offer.crowd.eligibility,)))
        assert ladder is not None
        for name, amount in ladder.flavours[offer.rung].consumes.items():
            key = (stratum.budget, name)
            spent[key] = spent.get(key, 0) + amount * offer.nodes
    budgets = filler.ground.budgets
    return all(
        not stock or filler.ground.stocks.get(stock, 0) >= nodes for stock, nodes in stocks.items()
    ) and all(budgets.get(budget, {}).get(name, NO_END) >= amount for (budget, name), amount in spent.items())


def _cost(offers: list[_Offer]) -> tuple[object, ...]:
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
    alone = min((cap for _, cap, own in crowd.host_caps if own), default=NO_END)
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


def _accept(offer: _Offer, filler: Filler) -> None:
    asks = offer.crowd.asks
    start = 0
    for one, count in offer.there:
        filler.put(one, offer.crowd, asks[start : start + count])
        start += count
    while start < len(asks):
        assert offer.stratum is not None
        one = filler.open(offer.crowd, offer.stratum, offer.rung)
        filler.put(one, offer.crowd, asks[start : start + offer.each])
        start += offer.each
