"""The nodes of an attempt: those that are there and those that were opened, and every way in which they change.

A bin stands on the shelf of its site, among its equals; whoever changes it does so here, so that it is found
where it belongs. Who goes into which bin, and when one more is opened, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from tidemill.decide.packer.bin_index import Shelf
from tidemill.decide.packer.bins import Bin, Wants, refused_by, room
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Domain, Ground, Ladder, Site, Stratum

# How many lots of equal bins a few pods look at before they ask for more room.
PATIENCE = 24

Opening = tuple[float, Stratum, int]  # price, what is opened, the rung


class Filler:
    def __init__(self, ground: Ground, weights: Sequence[float]) -> None:
        self.ground = ground
        self.weights = weights  # what one unit of each dimension is worth when fits are compared
        finest = min((weight for weight in weights if weight), default=1.0)
        self.scale = [round(weight / finest * 16) for weight in weights]  # the same, in whole numbers
        self.bins: list[Bin] = []
        self._numbers = 0  # given to bins so far
        self.by_site: dict[Site, list[Bin]] = {}
        self.shelves: dict[Site, Shelf] = {}
        self._stands: dict[tuple[int, int | str], bool] = {}
        self._sites: dict[tuple[Domain, ...], list[Site]] = {}
        self._standings: dict[frozenset[int], int] = {frozenset(): 0}
        self._usable: dict[tuple[int, Site], bool] = {}

    def add(self, one: Bin) -> None:
        self._note(one)
        self.bins.append(one)
        self._numbers += 1
        self.by_site.setdefault(one.site, []).append(one)
        self._shelf(one).add(one)

    def _note(self, one: Bin) -> None:
        """Whom a bin refuses, and who stands on it, from scratch."""
        standing = self._standings.setdefault(one.eligibilities, len(self._standings))
        one.refuses = refused_by(one, self.ground.steps) | standing << self.ground.bits

    def _shelf(self, one: Bin) -> Shelf:
        shelf = self.shelves.get(one.site)
        if shelf is None:
            shelf = self.shelves[one.site] = Shelf()
        return shelf

    def sites(self, domains: tuple[Domain, ...]) -> list[Site]:
        """Where there is or could be a bin in these domains, lowest rank first."""
        known = self._sites.get(domains)
        if known is None:
            wanted = set(domains)
            every = self.by_site.keys() | self.ground.by_site.keys()
            known = self._sites[domains] = sorted(site for site in every if site[1] in wanted)
        return known

    # --- who may stand where ---

    def can_use(self, crowd: Crowd, site: Site) -> bool:
        """Could a crowd stand on anything here? Nodes that are there are asked one by one."""
        bins = self.by_site.get(site)
        if bins and bins[0].place >= 0:
            return True
        known = self._usable.get((crowd.eligibility, site))
        if known is None:
            strata = self.ground.by_site.get(site, ())
            known = any(self.ground.allowed(stratum, crowd.eligibility) for stratum in strata)
            self._usable[(crowd.eligibility, site)] = known
        return known

    def may_stand(self, crowd: Crowd, one: Bin) -> bool:
        if crowd.eligibility in one.eligibilities:
            return True
        if one.place < 0:
            return self._joined(crowd, one) is not None
        key = (crowd.eligibility, one.number if crowd.names_host else one.group)
        known = self._stands.get(key)
        if known is None:
            known = self._stands[key] = self.ground.may_stand(crowd, self.ground.problem.places[one.place])
        return known

    def choices(self, crowd: Crowd, domains: tuple[Domain, ...]) -> int:
        """How many nodes and kinds of node it may stand on, room aside."""
        ground = self.ground
        return sum(self.may_stand(crowd, one) for one in self.bins if one.site[1] in domains) + sum(
            len(ground.allowed(stratum, crowd.eligibility))
            for domain in domains
            for stratum in ground.by_domain.get(domain, ())
        )

    def _joined(self, crowd: Crowd, one: Bin) -> tuple[frozenset[int], Ladder, int] | None:
        """Is there a flavour for the pods of a new bin and this crowd together, no dearer than the bin is now?"""
        assert one.stratum is not None and one.ladder is not None
        together, ladder = self.ground.joined(one.stratum, one.eligibilities, crowd.eligibility)
        if ladder is None:
            return None
        rung = one.rung if ladder is one.ladder else ladder.rung_of(one.ladder.flavours[one.rung])
        return (together, ladder, rung) if rung >= 0 else None

    def join(self, crowd: Crowd, one: Bin) -> None:
        """Whoever comes narrows the types a new bin may be. Only for a bin that is off its shelf."""
        if one.place >= 0 or crowd.eligibility in one.eligibilities:
            return
        joined = self._joined(crowd, one)
        assert joined is not None
        one.eligibilities, one.ladder, one.rung = joined
        bits = self.ground.bits
        standing = self._standings.setdefault(one.eligibilities, len(self._standings))
        one.refuses = (one.refuses & ((1 << bits) - 1)) | standing << bits

    # --- changes ---

    def best_opening(self, crowd: Crowd, site: Site, ahead: int = 1) -> Opening | None:
        """The cheapest new node for one of a crowd, over all that this site has to give and the limits allow."""
        ground = self.ground
        empty = [0] * len(ground.dimensions)
        used = with_one(empty.copy(), crowd.wants)
        best: tuple[float, float, Stratum, int] | None = None
        for stratum in ground.by_site.get(site, ()):
            ladder = ground.ladder(stratum, crowd.alone)
            if ladder is None or (stratum.stock and ground.stocks.get(stratum.stock, 0) < 1):
                continue
            rung = ladder.rung(used)
            while rung >= 0:
                shared = 0
                if ground.allows(stratum, ladder.flavours[rung].consumes):
                    shared = shared_by(crowd, ladder, rung, empty, ahead) if ahead > 1 else 1
                    price = round(ladder.prices[rung] / shared, 9)
                    waste = sum(map(mul, ladder.capacities[rung], self.weights))
                    if best is None or (price, waste) < best[:2]:
                        best = (price, waste, stratum, rung)
                elif ladder.rising:
                    break  # the larger ones use up more of the limits
                rung = ladder.next_rung(used, rung) if shared < ahead else -1
        return (best[0], best[2], best[3]) if best is not None else None

    def put(self, one: Bin, crowd: Crowd, asks: list[int]) -> None:
        shelf = self.shelves[one.site]
        shelf.remove(one)
        self.join(crowd, one)
        one.take(crowd, asks)
        shelf.add(one)

    def grow(self, one: Bin, rung: int, crowd: Crowd, asks: list[int]) -> int:
        """Climb, and take as many as have a place then; returns how many."""
        assert one.ladder is not None and one.stratum is not None
        shelf, flavours = self.shelves[one.site], one.ladder.flavours
        shelf.remove(one)
        if rung != one.rung:
            self.ground.exchange(one.stratum, flavours[one.rung].consumes, flavours[rung].consumes)
            one.stand_on(rung)
        count = min(one.room(crowd.wants), one.tolerance(crowd), len(asks))
        self.join(crowd, one)
        one.take(crowd, asks[:count])
        shelf.add(one)
        return count

    def open(self, crowd: Crowd, stratum: Stratum, rung: int) -> Bin:
        one = self.draft_node(crowd, stratum, rung)
        self.enter(one)
        return one

    def draft_node(self, crowd: Crowd, stratum: Stratum, rung: int) -> Bin:
        """A new bin that nobody knows of yet."""
        ladder = self.ground.ladder(stratum, crowd.alone)
        assert ladder is not None
        one = Bin(self._numbers, (stratum.rank, stratum.domain), ladder.capacities[rung])
        one.stratum, one.ladder, one.rung, one.eligibilities = stratum, ladder, rung, crowd.alone
        return one

    def enter(self, one: Bin) -> None:
        """It is opened: it counts against stock and limits."""
        assert one.stratum is not None and one.ladder is not None
        if one.stratum.stock:
            self.ground.stocks[one.stratum.stock] -= 1
        self.ground.spend(one.stratum, one.ladder.flavours[one.rung].consumes, +1)
        self.add(one)

    def repeat(self, one: Bin, asks: list[int]) -> list[int]:
        """Bins like the last one opened, for asks of the crowd that is on it, while there are any to be had."""
        assert one.stratum is not None and one.ladder is not None
        ground, stratum, consumes = self.ground, one.stratum, one.ladder.flavours[one.rung].consumes
        each = len(one.asks)
        nodes = min(len(asks) // each, ground.how_many(stratum, consumes))
        shelf, bins, here = self.shelves[one.site], self.bins, self.by_site[one.site]
        for place in range(nodes):
            other = one.twin(self._numbers + place, asks[place * each : place * each + each])
            bins.append(other)
            here.append(other)
            shelf.add(other)
        self._numbers += nodes
        if stratum.stock:
            ground.stocks[stratum.stock] -= nodes
        ground.spend(stratum, consumes, nodes)
        return asks[nodes * each :]

    def close(self, one: Bin) -> None:
        """A new bin that nobody uses after all: what it took of stock and limits is given back."""
        assert not one.asks and one.stratum is not None and one.ladder is not None
        if one is self.bins[-1]:
            self.bins.pop()
        else:
            self.bins.remove(one)
        self.by_site[one.site].remove(one)
        self.shelves[one.site].remove(one)
        if one.stratum.stock:
            self.ground.stocks[one.stratum.stock] += 1
        self.ground.spend(one.stratum, one.ladder.flavours[one.rung].consumes, -1)

    def settle(self, one: Bin, rung: int) -> None:
        """Stand on another rung, up or down."""
        if rung == one.rung:
            return
        assert one.ladder is not None and one.stratum is not None
        shelf, flavours = self.shelves[one.site], one.ladder.flavours
        self.ground.exchange(one.stratum, flavours[one.rung].consumes, flavours[rung].consumes)
        shelf.remove(one)
        one.stand_on(rung)
        shelf.add(one)

    def affords(self, one: Bin, rung: int) -> bool:
        """Do the limits of its pool let a bin stand on another rung?"""
        assert one.ladder is not None and one.stratum is not None
        flavours = one.ladder.flavours
        return rung == one.rung or self.ground.allows(
            one.stratum, flavours[rung].consumes, flavours[one.rung].consumes
        )

    # --- second thoughts ---

    def shrink(self, one: Bin) -> None:
        """Stand on the cheapest rung that holds what is there, where the limits allow it."""
        assert one.ladder is not None
        if one.ladder.is_tight(one.rung, one.free):
            return
        rung = one.ladder.rung(one.used)
        if rung >= 0 and rung != one.rung and self.affords(one, rung):
            self.settle(one, rung)

    def find(self, crowd: Crowd, site: Site, other_than: Bin) -> Bin | None:
        """The tightest bin with room for one as it stands."""
        dimension, amount = crowd.wants[0]
        for lot in self.shelves[site].tightest(dimension, amount, PATIENCE):
            if not room(lot.free, crowd.wants):
                continue
            for refused, kind in lot.kinds.items():
                if refused & crowd.minds:
                    continue
                for one in kind.values():
                    if one is not other_than and one.tolerance(crowd) and self.may_stand(crowd, one):
                        return one
        return None

    def move(self, ask: int, crowd: Crowd, source: Bin, target: Bin, staying: Sequence[Crowd | None]) -> None:
        """One pod from one bin to another; the one it leaves becomes as small as it can."""
        self.take_off(source, crowd, ask, staying)
        self.shrink(source)
        self.put(target, crowd, [ask])

    def take_off(self, one: Bin, crowd: Crowd, ask: int, staying: Sequence[Crowd | None] = ()) -> None:
        shelf = self.shelves[one.site]
        shelf.remove(one)
        one.drop(crowd, ask, staying)
        self._note(one)
        shelf.add(one)


def shared_by(crowd: Crowd, ladder: Ladder, rung: int, used: Sequence[int], ahead: int) -> int:
    """How many of those to come would share what a node on this rung has left."""
    if crowd.solitary:
        return 1
    free = tuple([a - b for a, b in zip(ladder.capacities[rung], used, strict=True)])
    return max(1, min(room(free, crowd.wants), ahead))


def with_one(used: list[int], wants: Wants) -> list[int]:
    for place, amount in wants:
        used[place] += amount
    return used
