"""Gangs: all pods in one zone, on one source, or none at all.

Each gang looks at every domain (its zone and source are part of one where there are gangs), counts what it
could have there, and takes the cheapest that holds it whole. Nothing is taken while it is only looking.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemill.decide.packer.bins import NO_END, Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.problem import Flavour, Problem
from tidemill.decide.packer.supply import Domain, Ladder, Stratum


@dataclass(slots=True)
class _Nodes:
    """So many new nodes of one type, with so many pods on each."""

    stratum: Stratum
    flavour: Flavour
    rung: int
    each: int
    count: int


@dataclass(slots=True)
class _Offer:
    """How a domain would hold one crowd of a gang: on bins that are there, and on new ones."""

    crowd: Crowd
    there: list[tuple[Bin, int]] = field(default_factory=list)
    new: list[_Nodes] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, ...]:
        return max((one.stratum.rank for one in self.new), default=())

    @property
    def price(self) -> float:
        return sum(one.flavour.price * one.count for one in self.new)

    @property
    def nodes(self) -> int:
        return sum(one.count for one in self.new)


def place_gangs(problem: Problem, crowds: list[Crowd], filler: Filler, domains: list[Domain]) -> list[int]:
    """Asks of gangs that fit nowhere whole, or of which not all have come yet."""
    gangs: dict[tuple[str, str], list[Crowd]] = {}
    for crowd in crowds:
        first = problem.asks[crowd.asks[0]]
        assert first.gang is not None
        gangs.setdefault((first.namespace, first.gang.name), []).append(crowd)
    left: list[int] = []
    too_many: dict[tuple[int, int], int] = {}
    for members in sorted(gangs.values(), key=lambda of: _turn(problem, of)):
        asks = [ask for crowd in members for ask in crowd.asks]
        gang = problem.asks[asks[0]].gang
        assert gang is not None
        alike = (id(members[0].shape), members[0].eligibility) if len(members) == 1 else None
        if len(asks) < gang.size or (alike is not None and too_many.get(alike, NO_END) <= len(asks)):
            left += asks
        elif not _place(members, filler, domains):
            left += asks
            if alike is not None:
                too_many[alike] = len(asks)  # room only gets less: as many of the same will not fit either
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
                if one.place < 0 and not one.asks:
                    filler.close(one)
    return cost if whole else None


def _turn(problem: Problem, crowds: list[Crowd]) -> tuple[object, ...]:
    """Priority, then size: the large find a place while there is one; then age.

    Whoever has waited too long is of a higher priority by then: classes of age are stated as such.
    """
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
    """The rest on new nodes: of the one type that costs least for all of them, or else of several."""
    types = _types(offer.crowd, filler, domain)
    whole = [replace(one, count=count) for one in types if one.count >= (count := -(-missing // one.each))]
    if whole:
        offer.new = [min(whole, key=lambda one: (one.stratum.rank, one.count * one.flavour.price, one.count))]
        return offer
    purse = _Purse(filler)
    for one in sorted(types, key=lambda one: (one.stratum.rank, one.flavour.price / one.each, one.rung)):
        count = min(-(-missing // one.each), purse.most(one.stratum, one.flavour))
        if count > 0:
            purse.pay(one.stratum, one.flavour, count)
            offer.new.append(replace(one, count=count))
            missing -= count * one.each
            if missing <= 0:
                return offer
    return None


def room_in(filler: Filler, crowd: Crowd, domain: Domain, wanted: int) -> bool:
    """Could so many of a crowd be in one domain, on new nodes and on those that are there?"""
    if any(
        _has_plenty(filler, crowd, stratum, wanted) for stratum in filler.ground.by_domain.get(domain, ())
    ):
        return True
    for site in filler.sites((domain,)):
        for there in filler.by_site.get(site, ()):
            if filler.may_stand(crowd, there):
                wanted -= min(there.room(crowd.wants), there.tolerance(crowd))
                if wanted <= 0:
                    return True
    purse = _Purse(filler)
    for one in sorted(_types(crowd, filler, domain), key=lambda one: -one.each):
        count = min(-(-wanted // one.each), purse.most(one.stratum, one.flavour))
        purse.pay(one.stratum, one.flavour, count)
        wanted -= count * one.each
        if wanted <= 0:
            return True
    return False


def _has_plenty(filler: Filler, crowd: Crowd, stratum: Stratum, wanted: int) -> bool:
    """The usual answer at once: would the largest type do?"""
    ladder = filler.ground.ladder(stratum, crowd.alone)
    each = min(_holds(ladder, -1, crowd), _together(crowd)) if ladder is not None else 0
    if ladder is None or each <= 0:
        return False
    return filler.ground.how_many(stratum, ladder.flavours[-1].consumes) >= -(-wanted // each)


def _together(crowd: Crowd) -> int:
    """How many of a crowd put up with each other on one host."""
    return 1 if crowd.ports else min((cap for _, cap, own in crowd.host_caps if own), default=NO_END)


def _types(crowd: Crowd, filler: Filler, domain: Domain) -> list[_Nodes]:
    """What could be opened for a crowd in a domain, and how many of each if nothing else is."""
    alone = _together(crowd)
    purse, found = _Purse(filler), []
    for stratum in filler.ground.by_domain.get(domain, ()):
        if stratum.stock and filler.ground.stocks.get(stratum.stock, 0) < 1:
            continue
        ladder = filler.ground.ladder(stratum, crowd.alone)
        for rung, flavour in enumerate(ladder.flavours if ladder is not None else ()):
            assert ladder is not None
            each, count = min(_holds(ladder, rung, crowd), alone), purse.most(stratum, flavour)
            if each > 0 and count > 0:
                found.append(_Nodes(stratum, flavour, rung, each, count))
    return found


def _holds(ladder: Ladder, rung: int, crowd: Crowd) -> int:
    return min(ladder.capacities[rung][place] // amount for place, amount in crowd.wants)


class _Purse:
    """Stocks and limits as they would be after some of them were used."""

    def __init__(self, filler: Filler) -> None:
        self._stocks = dict(filler.ground.stocks)
        self._budgets = {name: dict(left) for name, left in filler.ground.budgets.items()}

    def most(self, stratum: Stratum, flavour: Flavour) -> int:
        """How many nodes could still be had."""
        most = self._stocks.get(stratum.stock, 0) if stratum.stock else NO_END
        left = self._budgets.get(stratum.budget, {})
        for name, used in flavour.consumes.items():
            if used > 0 and name in left:
                most = min(most, left[name] // used)
        return max(most, 0)

    def pay(self, stratum: Stratum, flavour: Flavour, count: int) -> None:
        if stratum.stock:
            self._stocks[stratum.stock] -= count
        left = self._budgets.get(stratum.budget, {})
        for name in left.keys() & flavour.consumes.keys():
            left[name] -= flavour.consumes[name] * count


def _accept(offer: _Offer, filler: Filler) -> list[tuple[Bin, list[int]]]:
    """Take it; returns who went where."""
    asks, taken = offer.crowd.asks, []
    start = 0
    for one, count in offer.there:
        taken.append((one, asks[start : start + count]))
        start += count
    for new in offer.new:
        for _ in range(new.count):
            one = filler.open(offer.crowd, new.stratum, new.rung)
            taken.append((one, asks[start : start + new.each]))
            start += new.each
    for one, mine in taken:
        filler.put(one, offer.crowd, mine)
    return taken
