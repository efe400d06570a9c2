"""Two pods that mind the same company change places, where their two nodes then cost less together.

Where each host takes one pod of a kind, pods cannot just be moved; but whoever is alike but in size can be exchanged
for one another without asking anybody.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Site

# So many different bins are asked by each, and the best exchange is made.
_PARTNERS = 6
_MOST_PODS = 8  # on a node with more there is little left over, and too much to compare
_LEAST = 1e-6  # dollars an hour

Likeness = tuple[object, ...]
_Pod = tuple[Likeness, int, Crowd]


@dataclass(slots=True)
class _Deal:
    saves: float
    mine: tuple[int, Crowd, int]  # the pod that goes, and the rung its bin stands on then
    theirs: tuple[int, Crowd, int]
    other: Bin


def exchange(filler: Filler, site: Site, bins: list[Bin], crowd_of: list[Crowd | None]) -> None:
    market = _Market(filler, crowd_of)
    small = [one for one in bins if 1 < len(one.asks) <= _MOST_PODS]
    small.sort(key=lambda one: (-market.left_over(one), one.number))
    for place, one in enumerate(small):
        if market.left_over(one) <= 0:
            break
        deal = market.best_deal(one, _sample(small, place))
        if deal is not None:
            market.make(one, deal)


def _sample(bins: list[Bin], start: int) -> list[Bin]:
    """Some of them, evenly over those that waste much and those that waste little."""
    step = max(1, len(bins) // _PARTNERS)
    return bins[start % step :: step]


class _Market:
    def __init__(self, filler: Filler, crowd_of: list[Crowd | None]) -> None:
        self._filler, self._crowd_of = filler, crowd_of
        self._alike: dict[int, Likeness] = {}
        self._known: dict[int, tuple[list[int], list[_Pod]]] = {}  # by number of a bin, until it changes

    def left_over(self, one: Bin) -> float:
        return sum(free * weight for free, weight in zip(one.free, self._filler.weights, strict=True))

    def best_deal(self, one: Bin, others: list[Bin]) -> _Deal | None:
        best: _Deal | None = None
        _, mine = self._look_at(one)
        for other in others:
            if other.free == one.free:
                continue
            _, theirs = self._look_at(other)
            for likeness, asked, wanted in theirs:
                for alike, ask, crowd in mine:
                    if alike == likeness and crowd.wants != wanted.wants:
                        deal = self._weigh(one, ask, crowd, other, asked, wanted)
                        if deal is not None and deal.saves > (best.saves if best else _LEAST):
                            best = deal
        return best

    def _look_at(self, one: Bin) -> tuple[list[int], list[_Pod]]:
        """What is used there, and one pod of each crowd."""
        known = self._known.get(one.number)
        if known is None:
            found: dict[int, _Pod] = {}
            for ask in one.asks:
                crowd = self._crowd_of[ask]
                if crowd is not None and id(crowd) not in found:
                    found[id(crowd)] = (self._likeness(crowd), ask, crowd)
            known = self._known[one.number] = (one.used, list(found.values()))
        return known

    def _likeness(self, crowd: Crowd) -> Likeness:
        known = self._alike.get(id(crowd))
        if known is None:
            known = self._alike[id(crowd)] = (
                crowd.eligibility, crowd.host_moves, crowd.host_caps, crowd.host_company, crowd.ports,
            )  # fmt: skip
        return known

    def _weigh(self, one: Bin, ask: int, crowd: Crowd, other: Bin, asked: int, wanted: Crowd) -> _Deal | None:
        assert one.ladder is not None and other.ladder is not None
        here, there = self._look_at(one)[0].copy(), self._look_at(other)[0].copy()
        for place, amount in crowd.wants:
            here[place] -= amount
            there[place] += amount
        for place, amount in wanted.wants:
            here[place] += amount
            there[place] -= amount
        if wanted.size > crowd.size:  # whoever gets the smaller pod must save something
            high = other.ladder.rung(there)
            low = one.ladder.rung(here) if 0 <= high < other.rung else -1
        else:
            low = one.ladder.rung(here)
            high = other.ladder.rung(there) if 0 <= low < one.rung else -1
        if low < 0 or high < 0:
            return None
        prices, theirs = one.ladder.prices, other.ladder.prices
        saves = prices[one.rung] - prices[low] + theirs[other.rung] - theirs[high]
        return _Deal(saves, (ask, crowd, low), (asked, wanted, high), other)

    def make(self, one: Bin, deal: _Deal) -> None:
        ask, crowd, low = deal.mine
        asked, wanted, high = deal.theirs
        if not (self._filler.affords(one, low) and self._filler.affords(deal.other, high)):
            return
        del self._known[one.number], self._known[deal.other.number]
        self._take_off(one, ask, crowd)
        self._take_off(deal.other, asked, wanted)
        self._filler.settle(one, low)
        self._filler.settle(deal.other, high)
        self._filler.put(one, wanted, [asked])
        self._filler.put(deal.other, crowd, [ask])

    def _take_off(self, one: Bin, ask: int, crowd: Crowd) -> None:
        staying = [self._crowd_of[other] for other in one.asks if other != ask]
        self._filler.take_off(one, crowd, ask, staying)
