"""A place for one more pod, with every rule asked exactly: on a node that is there, or one that is opened or grown.

Whoever found nothing is not tried again until something has changed that could help it, and neither is whoever needs
as much under the same rules. How much is looked at in all is counted, so that a long queue costs in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from tidemill.decide.packer.bins import Bin, room
from tidemill.decide.packer.constraint_state import Census, Party
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.node_growth import climbers
from tidemill.decide.packer.pod_groups import Crowd, Crowds
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.supply import Site

# Bins, and what could be opened, that are looked at in all: so many for each ask and node, and never fewer than
# these. A look takes about a microsecond; four in five problems with somebody left out stay below a tenth of it.
_LOOKS_EACH, _LEAST_LOOKS = 20, 50_000
_MANY = 8  # fewer of a kind than this are tried one by one
_CLIMBERS = 6  # new bins of a site that are asked whether they could grow
_OPENING = 10  # a site's offer of new nodes takes as long as so many bins

_Kind = tuple[object, ...]
_Vector = tuple[int, ...]


@dataclass(slots=True)
class _Failed:
    """What was too much for every place, as things stood."""

    stamp: tuple[int, int]
    needs: list[_Vector] = field(default_factory=list)


class Seeker:
    def __init__(self, problem: Problem, found: Crowds, filler: Filler, census: Census) -> None:
        self.problem, self.filler, self.census = problem, filler, census
        self.crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
        self.looks = max(_LEAST_LOOKS, _LOOKS_EACH * (len(problem.asks) + len(filler.bins)))
        self._failed: dict[_Kind, _Failed] = {}
        self._probes: list[Crowd] = []  # kept: crowds are known by their address
        self._kinds: dict[int, tuple[_Kind, _Vector]] = {}

    # --- what is not worth trying ---

    def is_hopeless(self, crowd: Crowd) -> bool:
        """Somebody with the same rules who needs no more found nothing, and nothing has changed for them since."""
        kind, vector = self._kind(crowd)
        failed = self._failed.get(kind)
        if failed is None or failed.stamp != self._stamp(crowd):
            return False
        return any(all(a <= b for a, b in zip(one, vector, strict=True)) for one in failed.needs)

    def give_up(self, crowd: Crowd) -> None:
        kind, vector = self._kind(crowd)
        failed, stamp = self._failed.get(kind), self._stamp(crowd)
        if failed is None or failed.stamp != stamp:
            failed = self._failed[kind] = _Failed(stamp)
        larger = (one for one in failed.needs if any(a < b for a, b in zip(one, vector, strict=True)))
        failed.needs = [*larger, vector]

    def _stamp(self, crowd: Crowd) -> tuple[int, int]:
        progress = self.census.progress
        return self.census.freed, sum([progress[n] for n in self.census.manners(crowd).waits_for])

    def rules(self, crowd: Crowd) -> object:
        """The same for crowds that may go to the same places and differ in what they need only."""
        return self._kind(crowd)[0]

    def _kind(self, crowd: Crowd) -> tuple[_Kind, _Vector]:
        known = self._kinds.get(id(crowd))
        if known is None:
            vector = [0] * len(self.filler.ground.dimensions)
            for place, amount in crowd.wants:
                vector[place] = amount
            kind = (crowd.eligibility, id(self.census.manners(crowd)), crowd.ports)
            known = self._kinds[id(crowd)] = (kind, tuple(vector))
        return known

    def rule_out(self, crowds: Iterable[Crowd]) -> None:
        """Of the many with the same rules, find out at once for whom there is nothing, however little they need."""
        alike: dict[_Kind, list[Crowd]] = {}
        for crowd in crowds:
            if not self.is_hopeless(crowd):
                alike.setdefault(self._kind(crowd)[0], []).append(crowd)
        for many in alike.values():
            self._rule_out(sorted(many, key=lambda crowd: crowd.size))

    def _rule_out(self, crowds: list[Crowd]) -> None:
        """By halves: what is too much for the least of the larger half is too much for all of it."""
        if len(crowds) < _MANY or self.looks <= 0:
            return
        vectors = [dict(crowd.wants) for crowd in crowds]
        least = {place: min([one.get(place, 0) for one in vectors]) for place, _ in crowds[0].wants}
        probe = replace(crowds[0], wants=tuple((place, amount) for place, amount in least.items() if amount))
        self._probes.append(probe)
        sites = self.open_to(probe, self.sites())
        if self._with_room(probe, sites, None) is None and not self._could_be_made(probe, sites):
            self.give_up(probe)
            return
        half = len(crowds) // 2
        self._rule_out(crowds[half:])
        self._rule_out(crowds[:half])

    # --- places ---

    def place(
        self, ask: int, within: Sequence[Site] | None = None, other_than: Bin | None = None
    ) -> Bin | None:
        """Put a pod on the first bin that suits everybody; None: there is none."""
        crowd = self.crowd_of[ask]
        if self.looks <= 0 or (within is None and self.is_hopeless(crowd)):
            return None
        sites = self.open_to(crowd, self.sites() if within is None else within)
        one = self._with_room(crowd, sites, other_than) or self._made_room(crowd, sites, other_than)
        if one is not None:
            self.put(one, ask)
        elif within is None and other_than is None and self.looks > 0:
            self.give_up(crowd)
        return one

    def open_to(self, crowd: Crowd, sites: Sequence[Site]) -> list[Site]:
        return [
            site
            for site in sites
            if self.filler.can_use(crowd, site) and self.census.suits_domain(crowd, site[1])
        ]

    def put(self, one: Bin, ask: int) -> None:
        crowd = self.crowd_of[ask]
        self.filler.put(one, crowd, [ask])
        self.census.settle(crowd, one, [ask])

    def take_off(self, party: Party, ask: int) -> None:
        self.census.leave(party, ask)
        here = self.census.parties[party.bin.number]
        self.filler.take_off(party.bin, party.crowd, ask, [other.crowd for other in here.values()])

    def sites(self) -> list[Site]:
        return sorted(self.filler.by_site.keys() | self.filler.ground.by_site.keys())

    def _with_room(self, crowd: Crowd, sites: Sequence[Site], other_than: Bin | None) -> Bin | None:
        by_bits = self.census.bits_are_exact()
        for site in sites:
            for one in self._roomy(crowd, site, by_bits):
                if one is not other_than and self.may_join(crowd, one):
                    return one
        return None

    def _roomy(self, crowd: Crowd, site: Site, by_bits: bool) -> Iterator[Bin]:
        shelf = self.filler.shelves.get(site)
        if shelf is None:
            return
        dimension, amount = crowd.wants[0]
        for lot in shelf.tightest(dimension, amount, max(0, self.looks)):
            self.looks -= 1
            if not room(lot.free, crowd.wants):
                continue
            for refused, kind in lot.kinds.items():
                if not (by_bits and refused & crowd.minds):
                    yield from kind.values()

    def may_join(self, crowd: Crowd, one: Bin) -> bool:
        """May it stand there, and is everybody content with that? Room aside."""
        self.looks -= 1
        return self.filler.may_stand(crowd, one) and one.ports_free(crowd) and self.census.suits(crowd, one)

    # --- more room ---

    def _made_room(self, crowd: Crowd, sites: Sequence[Site], other_than: Bin | None) -> Bin | None:
        """A bin opened, or grown, whichever costs less; a lower rank first, whatever the price."""
        for rank in dict.fromkeys(rank for rank, _ in sites):
            level = [site for site in sites if site[0] == rank and site in self.filler.ground.by_site]
            self.looks -= _OPENING * len(level)
            climb = self._climb(crowd, level, other_than)
            offers = [offer for site in level if (offer := self.filler.best_opening(crowd, site)) is not None]
            for price, stratum, rung in sorted(offers, key=lambda offer: offer[0]):
                if climb is not None and climb[0] <= price:
                    break
                one = self.filler.open(crowd, stratum, rung)
                if self.census.suits(crowd, one):
                    return one
                self.filler.close(one)
            if climb is not None:
                self.filler.settle(climb[2], climb[1])
                return climb[2]
        return None

    def _could_be_made(self, crowd: Crowd, sites: Sequence[Site]) -> bool:
        self.looks -= _OPENING * len(sites)
        return self._climb(crowd, sites, None) is not None or any(
            self.filler.best_opening(crowd, site) is not None for site in sites
        )

    def _climb(
        self, crowd: Crowd, sites: Sequence[Site], other_than: Bin | None
    ) -> tuple[float, int, Bin] | None:
        """The least extra price, the rung, and who would climb."""
        best: tuple[float, int, Bin] | None = None
        for one in (one for site in sites for one in islice(climbers(self.filler, crowd, site), _CLIMBERS)):
            self.looks -= 1
            assert one.ladder is not None
            rung, now = one.ladder.rung_above(one.rung, one.free, crowd.wants), one.rung
            if rung <= now or one is other_than or not self.filler.affords(one, rung):
                continue
            extra = one.ladder.prices[rung] - one.ladder.prices[now]
            if (
                (best is None or extra < best[0])
                and self.census.counts_alike(one, rung)
                and self.may_join(crowd, one)
            ):
                best = (extra, rung, one)
        return best
