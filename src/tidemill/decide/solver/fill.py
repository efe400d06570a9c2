"""Fill nodes: what is free first, then the cheapest way to make room, a larger node or one more.

Crowds with the same needs are poured in one go. Many at once look at every bin of the site and take those
they would leave least behind in; a few look only at the bins that are tightest in what they need most, found by
bisection. So the cost grows with kinds and bins where there are many alike, and with pods where there are not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from tidemill.decide.solver.bins import NO_END, Bin
from tidemill.decide.solver.crowd import Crowd
from tidemill.decide.solver.ground import Domain, Ground, Site, Stratum

_BITS = 24  # room for 16 million bins in the low bits of a sort key
_MASK = (1 << _BITS) - 1
# How many bins a few pods look at before they ask for more room.
_PATIENCE = 24
_CLIMBERS = 16  # and how many of those that could grow are compared
# One in so many bins wanted: then looking at all of them at once is cheaper than one by one.
_MANY = 40
_FEW = 8  # and so few never do
_LOOK_DOWN_THE_LINE = 6
# Floors are raised a little beyond the demand: what is not used is not kept, and large pods find their place.
_HEADROOM = 1.02

Queue = list[tuple[Crowd, list[int]]]  # crowds with the same needs, and their asks
Climb = tuple[tuple[float, float], int, Bin]  # extra price and waste, the rung, who climbs


class Shelf:
    """The bins of one site, sorted by what is free of one dimension."""

    __slots__ = ("dimension", "keys", "stale")

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.keys: list[int] = []
        self.stale = True


class Filler:
    def __init__(self, ground: Ground, weights: Sequence[float]) -> None:
        self.ground = ground
        self.weights = weights  # what one unit of each dimension is worth when fits are compared
        finest = min((weight for weight in weights if weight), default=1.0)
        self._scale = [round(weight / finest * 16) for weight in weights]  # the same, in whole numbers
        self.bins: list[Bin] = []
        self.by_site: dict[Site, list[Bin]] = {}
        self._shelves: dict[Site, dict[int, Shelf]] = {}
        self._stands: dict[tuple[int, int | str], bool] = {}
        self._sites: dict[tuple[Domain, ...], list[Site]] = {}

    def add(self, one: Bin) -> None:
        self.bins.append(one)
        self.by_site.setdefault(one.site, []).append(one)
        for shelf in self._shelves.get(one.site, {}).values():
            if not shelf.stale:
                insort(shelf.keys, _key(one, shelf.dimension))

    def sites(self, domains: tuple[Domain, ...]) -> list[Site]:
        """Where there is or could be a bin in these domains, lowest rank first."""
        known = self._sites.get(domains)
        if known is None:
            wanted = set(domains)
            every = self.by_site.keys() | self.ground.by_site.keys()
            known = self._sites[domains] = sorted(site for site in every if site[1] in wanted)
        return known

    # --- pouring ---

    def pour(self, queue: Queue, site: Site) -> Queue:
        """As many as fit into what is free on this site; returns the rest."""
        bins = self.by_site.get(site)
        if not bins:
            return queue
        total = sum(len(asks) for _, asks in queue)
        if total >= _FEW and total * _MANY >= len(bins):
            while queue:
                rest = self._pour_many(queue, bins)
                if sum(len(asks) for _, asks in rest) == total:
                    break
                queue, total = rest, sum(len(asks) for _, asks in rest)
            self.disturb(site)
            return queue
        return self._pour_few(queue, site)

    def _pour_many(self, queue: Queue, bins: list[Bin]) -> Queue:
        """One pod to a bin, those bins first where least would be left over.

        Who is not put up with on a bin lets the next few in line try, who need the same.
        """
        every, may_stand = self.bins, self.may_stand
        crowds, asks = [crowd for crowd, _ in queue], [asks for _, asks in queue]
        done, first, end = [0] * len(queue), 0, len(queue)
        for key in self._fits(crowds[0], bins):
            one = every[key & _MASK]
            for place in range(first, min(first + _LOOK_DOWN_THE_LINE, end)):
                crowd, at = crowds[place], done[place]
                if at == len(asks[place]):
                    continue
                if (crowd.picky and one.tolerance(crowd) <= 0) or (
                    crowd.eligibility not in one.eligibilities and not may_stand(crowd, one)
                ):
                    continue
                one.take_one(crowd, asks[place][at])
                done[place] = at + 1
                break
            while done[first] == len(asks[first]):
                first += 1
                if first == end:
                    return []
        return [
            (crowds[place], asks[place][done[place] :])
            for place in range(end)
            if done[place] < len(asks[place])
        ]

    def _fits(self, crowd: Crowd, bins: list[Bin]) -> list[int]:
        """Bins with room for one, by how much they would have left and how lopsided it would be.

        A score and a number in one integer: whole lists of them are sorted in a fraction of the time.
        """
        scale = self._scale
        wants = [(place, amount) for place, amount in crowd.wants if scale[place]]
        if len(wants) == 2:
            (first, most), (second, less) = wants
            heavy, light = scale[first], scale[second]
            fits = []
            for one in bins:
                free = one.free
                a = free[first] - most
                if a >= 0 and free[-1] > 0:
                    b = free[second] - less
                    if b >= 0:
                        # a + b + |a - b| is twice the larger: what is left over in the dimension with most of it.
                        left, right = a * heavy, b * light
                        fits.append(((left if left > right else right) << _BITS) | one.number)
        else:
            fits = [
                (sum((one.free[place] - amount) * scale[place] for place, amount in wants) << _BITS)
                | one.number
                for one in bins
                if one.free[-1] > 0 and all(one.free[place] >= amount for place, amount in wants)
            ]
        fits.sort()
        return fits

    def _pour_few(self, queue: Queue, site: Site) -> Queue:
        rest: Queue = []
        for crowd, asks in queue:
            left = self._pour_crowd(crowd, asks, site)
            if left:
                rest.append((crowd, left))
        # Nodes that are there cost nothing: before more are asked for, every one of them is looked at.
        if rest and self.by_site[site][0].place >= 0:
            rest = self._pour_many(rest, self.by_site[site])
            self.disturb(site)
        return rest

    def _pour_crowd(self, crowd: Crowd, asks: list[int], site: Site) -> list[int]:
        dimension, amount = crowd.wants[0]
        keys, bins = self._shelf(site, dimension).keys, self.bins
        start = bisect_left(keys, amount << _BITS)
        done, total = 0, len(asks)
        changed: list[tuple[Bin, list[int]]] = []
        for key in keys[start : start + _PATIENCE]:
            one = bins[key & _MASK]
            count = one.room(crowd.wants)
            if count == 0 or not self.may_stand(crowd, one):
                continue
            count = min(count, one.tolerance(crowd), total - done)
            if count > 0:
                changed.append((one, one.free.copy()))
                one.take(crowd, asks[done : done + count])
                done += count
                if done == total:
                    break
        for one, before in changed:
            self._moved(one, before)
        return asks[done:] if done else asks

    def may_stand(self, crowd: Crowd, one: Bin) -> bool:
        if crowd.eligibility in one.eligibilities:
            return True
        if one.place < 0:
            return self._joins(crowd, one)
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

    def _joins(self, crowd: Crowd, one: Bin) -> bool:
        """Is there a flavour for the pods of a new bin and this crowd together, no dearer than the bin is now?"""
        assert one.stratum is not None and one.ladder is not None
        together = one.eligibilities | {crowd.eligibility}
        ladder = self.ground.ladder(one.stratum, together)
        if ladder is None:
            return False
        rung = one.rung if ladder is one.ladder else ladder.rung_of(one.ladder.flavours[one.rung])
        if rung < 0:
            return False
        one.eligibilities, one.ladder, one.rung = together, ladder, rung
        return True

    # --- making room ---

    def raise_floor(self, site: Site, demand: list[int]) -> None:
        """Let new bins grow evenly until together they could hold what is to come, the smallest first.

        Growing before filling pays for the same number of steps, but gives the large pods many bins to choose
        from and the small ones many gaps to fill.
        """
        bins = self.by_site.get(site, [])
        free = [0] * len(demand)
        for one in bins:
            for place, amount in enumerate(one.free):
                if amount > 0:
                    free[place] += amount
        wanted = [int(amount * _HEADROOM) for amount in demand]
        heap = [(one.rung, one.number) for one in bins if one.ladder is not None]
        heapify(heap)
        floor: dict[int, int] = {}
        while heap and any(short > there for short, there in zip(wanted, free, strict=True)):
            rung, number = heap[0]
            ladder = self.bins[number].ladder
            assert ladder is not None
            if rung + 1 >= len(ladder.prices):
                heappop(heap)
                continue
            for place, more in enumerate(ladder.gain(rung)):
                free[place] += more
            floor[number] = rung + 1
            heapreplace(heap, (rung + 1, number))
        for number, rung in floor.items():
            one = self.bins[number]
            while rung > one.rung and not self._affords(one, rung):
                rung -= 1
            self.settle(one, rung)
        self.disturb(site)

    def make_room(self, crowd: Crowd, asks: list[int], sites: Sequence[Site], ahead: int = 1) -> list[int]:
        """Climb or open, whichever costs less for the next pod, until all have room or nothing can be had.

        Sites come in order of rank: a lower rank is used up before the next, whatever the price. `ahead` is for
        how many pods the price of a node is shared: as many as it holds, if so many are to come.
        """
        for rank in dict.fromkeys(rank for rank, _ in sites):
            count = len(asks)
            asks = self._make_room(crowd, asks, [site for site in sites if site[0] == rank], ahead)
            ahead = max(1, ahead - count + len(asks))
            if not asks:
                return asks
        return asks

    def _make_room(self, crowd: Crowd, asks: list[int], sites: Sequence[Site], ahead: int) -> list[int]:
        # Bins only get fuller, so a site's answer stands until something is put there.
        climbs = {site: self._climb_of(crowd, site, ahead) for site in sites}
        openings = {site: self.best_opening(crowd, site, ahead) for site in sites}
        while asks:
            climb = min(
                (one for one in climbs.values() if one is not None), key=lambda one: one[0], default=None
            )
            opening = min(
                (one for one in openings.values() if one is not None), key=lambda one: one[0], default=None
            )
            if climb is not None and (opening is None or climb[0][0] <= opening[0]):
                one = climb[2]
                before = one.free.copy()
                self._climb(one, climb[1])
                self._moved(one, before)
            elif opening is not None:
                one = self.open(crowd, opening[1], opening[2])
            else:
                return asks
            count = min(one.room(crowd.wants), one.tolerance(crowd), len(asks))
            if count <= 0:
                return asks  # what was offered does not hold it after all: somebody else may find it a place
            self.put(one, crowd, asks[:count])
            asks = asks[count:]
            if not asks:
                break
            fewer, ahead = ahead, max(1, ahead - count)
            if opening is not None and climb is None and len(sites) == 1 and one.tolerance(crowd) <= 0:
                asks = self._open_many(crowd, asks, opening[1], opening[2], count)
            climbs[one.site] = (
                self._climb_of(crowd, one.site, ahead) if climbs[one.site] or one.tolerance(crowd) > 0 else None
            )
            shared = one.stratum is not None and (one.stratum.budget or one.stratum.stock)
            for site in sites if shared or fewer != ahead else (one.site,):
                openings[site] = self.best_opening(crowd, site, ahead)
                if fewer != ahead and site != one.site and climbs[site]:
                    climbs[site] = self._climb_of(crowd, site, ahead)
        return asks

    def _climb_of(self, crowd: Crowd, site: Site, ahead: int) -> Climb | None:
        found = self._best_climb(crowd, site, 6 * _PATIENCE, ahead)
        if found is None and not crowd.solitary:
            found = self._best_climb(crowd, site, len(self.bins), ahead)  # before a node is opened, all are asked
        return found

    def _open_many(self, crowd: Crowd, asks: list[int], stratum: Stratum, rung: int, each: int) -> list[int]:
        """Those who keep each other off their hosts: one new bin after the other, while there are any to be had."""
        ladder = self.ground.ladder(stratum, frozenset((crowd.eligibility,)))
        assert ladder is not None
        consumes, start = ladder.flavours[rung].consumes, 0
        while start < len(asks):
            if stratum.stock and self.ground.stocks.get(stratum.stock, 0) < 1:
                break
            if not self._budget_allows(stratum, consumes):
                break
            self.open(crowd, stratum, rung).take(crowd, asks[start : start + each])
            start += each
        self.disturb((stratum.rank, stratum.domain))
        return asks[start:]

    def put(self, one: Bin, crowd: Crowd, asks: list[int]) -> None:
        before = one.free.copy()
        one.take(crowd, asks)
        self._moved(one, before)

    def _best_climb(self, crowd: Crowd, site: Site, looks: int, ahead: int) -> Climb | None:
        """The new bin that makes room for one more at the least extra price."""
        best: Climb | None = None
        for one in self._climbers(crowd, site, looks):
            assert one.ladder is not None
            used = one.used.copy()
            for place, amount in crowd.wants:
                used[place] += amount
            prices, rung = one.ladder.prices, one.ladder.rung(used)
            if 0 <= rung < one.rung and one.room(crowd.wants):
                rung = one.rung  # one that was overlooked while pouring needs not grow at all
            while rung >= 0:
                shared, capacity = 0, one.ladder.capacities[rung]
                if self._affords(one, rung):
                    shared = self._shared_by(crowd, capacity, one.used, ahead) if ahead > 1 else 1
                    score = (round((prices[rung] - prices[one.rung]) / shared, 9), self._waste(capacity, used))
                    if best is None or score < best[0]:
                        best = (score, rung, one)
                rung = one.ladder.next_rung(used, rung) if shared < ahead else -1
        return best

    def _shared_by(self, crowd: Crowd, capacity: list[int], used: Sequence[int], ahead: int) -> int:
        """How many of those to come would share what a node of this capacity has left."""
        if crowd.solitary:
            return 1
        room = min((capacity[place] - used[place]) // amount for place, amount in crowd.wants)
        return max(1, min(room, ahead))

    def _climbers(self, crowd: Crowd, site: Site, looks: int) -> Iterator[Bin]:
        """New bins with the most free: a larger type wastes least where only a little was missing."""
        keys = self._shelf(site, crowd.wants[0][0]).keys
        tried = 0
        for place in range(len(keys) - 1, max(-1, len(keys) - 1 - looks), -1):
            one = self.bins[keys[place] & _MASK]
            if one.place < 0 and crowd.eligibility in one.eligibilities and one.tolerance(crowd) > 0:
                yield one
                tried += 1
                if tried >= _CLIMBERS:
                    return

    def best_opening(self, crowd: Crowd, site: Site, ahead: int = 1) -> tuple[float, Stratum, int] | None:
        """The cheapest new node for one of a crowd, over all that this site has to give and the limits allow."""
        used, empty = [0] * len(self.ground.dimensions), [0] * len(self.ground.dimensions)
        for place, amount in crowd.wants:
            used[place] = amount
        best: tuple[float, float, Stratum, int] | None = None
        for stratum in self.ground.by_site.get(site, ()):
            ladder = self.ground.ladder(stratum, frozenset((crowd.eligibility,)))
            if ladder is None or (stratum.stock and self.ground.stocks.get(stratum.stock, 0) < 1):
                continue
            rung = ladder.rung(used)
            while rung >= 0:
                shared = 0
                if self._budget_allows(stratum, ladder.flavours[rung].consumes):
                    capacity = ladder.capacities[rung]
                    shared = self._shared_by(crowd, capacity, empty, ahead) if ahead > 1 else 1
                    price, waste = round(ladder.prices[rung] / shared, 9), self._waste(capacity, used)
                    if best is None or (price, waste) < best[:2]:
                        best = (price, waste, stratum, rung)
                rung = ladder.next_rung(used, rung) if shared < ahead else -1
        return (best[0], best[2], best[3]) if best is not None else None

    def _waste(self, capacity: list[int], used: list[int]) -> float:
        return sum((a - b) * weight for a, b, weight in zip(capacity, used, self.weights, strict=True))

    def open(self, crowd: Crowd, stratum: Stratum, rung: int) -> Bin:
        ladder = self.ground.ladder(stratum, frozenset((crowd.eligibility,)))
        assert ladder is not None
        one = Bin(len(self.bins), (stratum.rank, stratum.domain), list(ladder.capacities[rung]))
        one.stratum, one.ladder, one.rung = stratum, ladder, rung
        one.used = [0] * len(self.ground.dimensions)
        one.eligibilities = frozenset((crowd.eligibility,))
        if stratum.stock:
            self.ground.stocks[stratum.stock] -= 1
        self._spend(stratum, ladder.flavours[rung].consumes, +1)
        self.add(one)
        return one

    # --- second thoughts ---

    def settle(self, one: Bin, rung: int) -> None:
        """Stand on another rung, up or down."""
        if rung != one.rung:
            self._climb(one, rung)

    def shrink(self, one: Bin) -> None:
        """Stand on the cheapest rung that holds what is there, where the limits allow it."""
        assert one.ladder is not None
        rung = one.ladder.rung(one.used)
        if rung >= 0 and rung != one.rung and self._affords(one, rung):
            self.settle(one, rung)

    def find(self, crowd: Crowd, site: Site, other_than: Bin) -> Bin | None:
        """The tightest bin with room for one as it stands."""
        dimension, amount = crowd.wants[0]
        keys = self._shelf(site, dimension).keys
        start = bisect_left(keys, amount << _BITS)
        for key in keys[start : start + _PATIENCE]:
            one = self.bins[key & _MASK]
            if (
                one is not other_than
                and one.room(crowd.wants)
                and one.tolerance(crowd)
                and self.may_stand(crowd, one)
            ):
                return one
        return None

    def move(self, ask: int, crowd: Crowd, source: Bin, target: Bin, staying: Sequence[Crowd | None]) -> None:
        """One pod from one bin to another; the one it leaves becomes as small as it can."""
        before = source.free.copy()
        source.drop(crowd, ask, staying)
        self.shrink(source)
        self._moved(source, before)
        self.put(target, crowd, [ask])

    def take_off(self, one: Bin, crowd: Crowd, ask: int) -> None:
        one.drop(crowd, ask, ())
        self.disturb(one.site)

    def close(self, one: Bin) -> None:
        """The last bin opened, not used after all."""
        assert one is self.bins[-1] and not one.asks and one.stratum is not None and one.ladder is not None
        self.bins.pop()
        self.by_site[one.site].remove(one)
        self.disturb(one.site)
        if one.stratum.stock:
            self.ground.stocks[one.stratum.stock] += 1
        self._spend(one.stratum, one.ladder.flavours[one.rung].consumes, -1)

    def _climb(self, one: Bin, rung: int) -> None:
        assert one.ladder is not None and one.stratum is not None
        if one.stratum.budget:
            self._spend(one.stratum, one.ladder.flavours[one.rung].consumes, -1)
            self._spend(one.stratum, one.ladder.flavours[rung].consumes, +1)
        one.stand_on(rung)

    def _affords(self, one: Bin, rung: int) -> bool:
        assert one.ladder is not None and one.stratum is not None
        if not one.stratum.budget:
            return True
        now, then = one.ladder.flavours[one.rung].consumes, one.ladder.flavours[rung].consumes
        left = self.ground.budgets.get(one.stratum.budget, {})
        return all(left.get(name, NO_END) >= amount - now.get(name, 0) for name, amount in then.items())

    def _budget_allows(self, stratum: Stratum, consumes: Mapping[str, int]) -> bool:
        left = self.ground.budgets.get(stratum.budget)
        return left is None or all(left.get(name, NO_END) >= amount for name, amount in consumes.items())

    def _spend(self, stratum: Stratum, consumes: Mapping[str, int], sign: int) -> None:
        left = self.ground.budgets.get(stratum.budget)
        if left is not None:
            for name, amount in consumes.items():
                if name in left:
                    left[name] -= sign * amount

    # --- shelves ---

    def _shelf(self, site: Site, dimension: int) -> Shelf:
        shelves = self._shelves.setdefault(site, {})
        shelf = shelves.get(dimension)
        if shelf is None:
            shelf = shelves[dimension] = Shelf(dimension)
        if shelf.stale:
            shelf.keys = sorted(_key(one, dimension) for one in self.by_site.get(site, ()))
            shelf.stale = False
        return shelf

    def disturb(self, site: Site) -> None:
        for shelf in self._shelves.get(site, {}).values():
            shelf.stale = True

    def _moved(self, one: Bin, before: list[int]) -> None:
        """Put a bin where it belongs now, on every shelf of its site."""
        for shelf in self._shelves.get(one.site, {}).values():
            if shelf.stale:
                continue
            keys, was = shelf.keys, before[shelf.dimension]
            place = bisect_left(keys, (max(0, was) << _BITS) | one.number)
            del keys[place]
            insort(keys, _key(one, shelf.dimension))


def _key(one: Bin, dimension: int) -> int:
    return (max(0, one.free[dimension]) << _BITS) | one.number
