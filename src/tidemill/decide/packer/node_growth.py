"""Make room where there is none: let a new node be a larger type, or open one more, whichever costs less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler, shared_by, with_one
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Ladder, Site

# How many of the bins that could grow are compared.
_CLIMBERS = 16
# Floors are raised a little beyond the demand: what is not used is not kept, and large pods find their place.
_HEADROOM = 1.02

Climb = tuple[tuple[float, float], int, Bin]  # extra price and waste, the rung, who climbs


def raise_floor(filler: Filler, site: Site, demand: list[int]) -> None:
    """Let new bins grow evenly until together they could hold what is to come, the smallest first.

    Growing before filling pays for the same number of steps, but gives the large pods many bins to choose
    from and the small ones many gaps to fill.
    """
    short = [int(amount * _HEADROOM) for amount in demand]
    by_rung: dict[int, dict[Ladder, list[Bin]]] = {}
    for one in filler.by_site.get(site, ()):
        for place, amount in enumerate(one.free):
            if amount > 0:
                short[place] -= amount
        if one.ladder is not None:
            by_rung.setdefault(one.rung, {}).setdefault(one.ladder, []).append(one)
    floor: dict[Bin, int] = {}
    while by_rung and any(amount > 0 for amount in short):
        rung = min(by_rung)
        for ladder, bins in by_rung.pop(rung).items():
            if rung + 1 >= len(ladder.prices):
                continue
            gain = ladder.gain(rung)
            steps = _steps(short, gain, len(bins))
            short = [amount - more * steps for amount, more in zip(short, gain, strict=True)]
            floor |= dict.fromkeys(bins[:steps], rung + 1)
            by_rung.setdefault(rung + 1, {}).setdefault(ladder, []).extend(bins[:steps])
    for one, rung in floor.items():
        while rung > one.rung and not filler.affords(one, rung):
            rung -= 1
        filler.settle(one, rung)


def _steps(short: Sequence[int], gain: Sequence[int], most: int) -> int:
    """How many bins must take a step that gains so much, until nothing is short any more."""
    steps = 0
    for amount, more in zip(short, gain, strict=True):
        if amount > 0:
            steps = max(steps, -(-amount // more) if more > 0 else most)
    return min(steps, most)


def make_room(
    filler: Filler, crowd: Crowd, asks: list[int], sites: Sequence[Site], ahead: int = 1
) -> list[int]:
    """Climb or open, whichever costs less for the next pod, until all have room or nothing can be had.

    Sites come in order of rank: a lower rank is used up before the next, whatever the price. `ahead` is for
    how many pods the price of a node is shared: as many as it holds, if so many are to come.
    """
    sites = [site for site in sites if filler.can_use(crowd, site)]
    for rank in dict.fromkeys(rank for rank, _ in sites):
        count = len(asks)
        asks = _make_room(filler, crowd, asks, [site for site in sites if site[0] == rank], ahead)
        ahead = max(1, ahead - count + len(asks))
        if not asks:
            return asks
    return asks


def _make_room(filler: Filler, crowd: Crowd, asks: list[int], sites: Sequence[Site], ahead: int) -> list[int]:
    # Bins only get fuller, so a site's answer stands until something is put there.
    climbs = {site: _best_climb(filler, crowd, site, ahead) for site in sites}
    openings = {site: filler.best_opening(crowd, site, ahead) for site in sites}
    while asks:
        climb = min(filter(None, climbs.values()), key=lambda one: one[0], default=None)
        opening = min(filter(None, openings.values()), key=lambda one: one[0], default=None)
        if climb is not None and (opening is None or climb[0][0] <= opening[0]):
            one, opening = climb[2], None
            if not filler.affords(one, climb[1]):  # no longer, after what was opened since
                climbs[one.site] = _best_climb(filler, crowd, one.site, ahead)
                continue
            count = filler.grow(one, climb[1], crowd, asks)
        elif opening is not None:
            one = filler.draft_node(crowd, opening[1], opening[2])
            count = _start(filler, one, crowd, asks)
        else:
            return asks
        if count <= 0:
            return asks  # what was offered does not hold it after all: somebody else may find it a place
        asks = asks[count:]
        if not asks:
            break
        fewer, ahead = ahead, max(1, ahead - count)
        if opening is None:
            climbs[one.site] = _best_climb(filler, crowd, one.site, ahead)
        else:
            again = _better(filler, crowd, one, ahead, None) if one.tolerance(crowd) else None
            if fewer == ahead and (again is None or again[0][0] > opening[0]):
                asks = filler.repeat(one, asks)  # the next one would choose the same
            climbs[one.site] = min(
                filter(None, (climbs[one.site], again)), key=lambda one: one[0], default=None
            )
        shared = one.stratum is not None and (one.stratum.budget or one.stratum.stock)
        for site in sites if shared or fewer != ahead else (one.site,):
            openings[site] = filler.best_opening(crowd, site, ahead)
            if fewer != ahead and site != one.site and climbs[site]:
                climbs[site] = _best_climb(filler, crowd, site, ahead)
    return asks


def _start(filler: Filler, one: Bin, crowd: Crowd, asks: list[int]) -> int:
    """Open a bin with as many as it should hold; returns how many."""
    most = min(one.tolerance(crowd), len(asks))
    count = min(one.room(crowd.wants), most)
    if 0 < count < most:
        _leap(filler, one, crowd, most)
        count = min(one.room(crowd.wants), most)
    if count > 0:
        one.take(crowd, asks[:count])
        filler.enter(one)
    return count


def _leap(filler: Filler, one: Bin, crowd: Crowd, pods: int) -> None:
    """Begin further up, while a pod's part of the price does not rise: many alike need not climb one by one."""
    assert one.ladder is not None and one.stratum is not None
    ladder, holds, best = one.ladder, one.room(crowd.wants), one.rung
    share = ladder.prices[best] / holds
    while holds < pods:
        holds = min(2 * holds, pods)
        wanted = [0] * len(one.free)
        for place, amount in crowd.wants:
            wanted[place] = amount * holds
        rung = ladder.rung(wanted)
        if rung < 0 or not filler.ground.allows(one.stratum, ladder.flavours[rung].consumes):
            break
        if ladder.prices[rung] / holds <= share:
            best, share = rung, ladder.prices[rung] / holds
    one.stand_on(best)


def _best_climb(filler: Filler, crowd: Crowd, site: Site, ahead: int) -> Climb | None:
    """The new bin that makes room for one more at the least extra price."""
    best: Climb | None = None
    for one in climbers(filler, crowd, site):
        best = _better(filler, crowd, one, ahead, best)
    return best


def _better(filler: Filler, crowd: Crowd, one: Bin, ahead: int, best: Climb | None) -> Climb | None:
    """The best so far, or this bin on a higher rung, if that is better."""
    assert one.ladder is not None
    ladder, now = one.ladder, one.rung
    rung = ladder.rung_above(now, one.free, crowd.wants)
    while rung >= 0:
        shared = shared_by(crowd, ladder, rung, one.used, ahead) if ahead > 1 else 1
        extra = round((ladder.prices[rung] - ladder.prices[now]) / shared, 9)
        if best is None or extra <= best[0][0]:
            score = (extra, _left_over(filler.weights, one, rung))
            if best is None or score < best[0]:
                if filler.affords(one, rung):
                    best = (score, rung, one)
                elif ladder.rising:
                    break  # the larger ones use up more of the limits
                else:
                    shared = 0
        rung = ladder.next_rung(with_one(one.used, crowd.wants), rung) if shared < ahead else -1
    return best


def _left_over(weights: Sequence[float], one: Bin, rung: int) -> float:
    """What would be free on another rung, but for what is put there, which is the same wherever it goes."""
    assert one.ladder is not None
    after, before = one.ladder.capacities[rung], one.ladder.capacities[one.rung]
    waste = 0.0
    for weight, high, low, free in zip(weights, after, before, one.free, strict=True):
        waste += (high - low + free) * weight
    return waste


def climbers(filler: Filler, crowd: Crowd, site: Site) -> Iterator[Bin]:
    """New bins with the most free: a larger type wastes least where only a little was missing."""
    shelf = filler.shelves.get(site)
    if shelf is None or not shelf.puts_up_with(crowd.minds):
        return
    tried, minds, eligibility, careful = 0, crowd.minds, crowd.eligibility, crowd.careful
    for lot in shelf.roomiest(crowd.wants[0][0]):
        for refused, kind in lot.kinds.items():
            if refused & minds:
                continue
            one = next(iter(kind.values()))  # its equals have nothing else to offer
            if one.place < 0 and eligibility in one.eligibilities and (not careful or one.tolerance(crowd)):
                yield one
                tried += 1
                if tried >= _CLIMBERS:
                    return
