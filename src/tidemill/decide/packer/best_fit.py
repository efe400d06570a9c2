"""Pour crowds with the same needs into what is free on a site, each pod where it would leave least behind.

Many at once look at every lot of bins there is, and equal bins are looked at once; a few look only at the lots
that are tightest in what they need most. So the cost grows with kinds of pods and of bins where there are many
alike, and with pods where there are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidemill.decide.packer.bin_index import BITS, MASK, Kind, Lot, Shelf
from tidemill.decide.packer.bins import Bin, Wants, room, without
from tidemill.decide.packer.filler import PATIENCE, Filler
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Site

# One pod to so many lots: then looking at all of them at once is cheaper than a few for each.
_MANY = 24
_FEW = 8  # and so few never do

Queue = list[tuple[Crowd, list[int]]]  # crowds with the same needs and eligibility, and their asks


def pour(filler: Filler, queue: Queue, site: Site) -> Queue:
    """As many as fit into what is free on this site; returns the rest."""
    shelf = filler.shelves.get(site)
    if shelf is None or not shelf.lots or not filler.can_use(queue[0][0], site):
        return queue
    total = sum([len(asks) for _, asks in queue])
    if total >= _FEW and total * _MANY >= len(shelf.lots):
        return _Many(filler, shelf, queue).pour()
    # Nodes that are there cost nothing: before more are asked for, every one of them is looked at.
    looks = len(shelf.lots) if filler.by_site[site][0].place >= 0 else PATIENCE
    rest: Queue = []
    for crowd, asks in queue:
        left = _pour_few(filler, shelf, crowd, asks, looks)
        if left:
            rest.append((crowd, left))
    return rest


def _pour_few(filler: Filler, shelf: Shelf, crowd: Crowd, asks: list[int], looks: int) -> list[int]:
    if not shelf.puts_up_with(crowd.minds):
        return asks
    dimension, amount = crowd.wants[0]
    done, total, minds, eligibility = 0, len(asks), crowd.minds, crowd.eligibility
    for lot in shelf.tightest(dimension, amount, looks):
        each = room(lot.free, crowd.wants)
        if each == 0:
            continue
        for refused, kind in list(lot.kinds.items()):
            if refused & minds:
                continue
            for one in list(kind.values()):
                if eligibility not in one.eligibilities and not filler.may_stand(crowd, one):
                    continue
                count = min(each, total - done)
                if crowd.picky:
                    count = min(count, one.tolerance(crowd))
                filler.put(one, crowd, asks[done : done + count])
                done += count
                if done == total:
                    return []
    return asks[done:] if done else asks


class _Line:
    """Asks of one crowd that wait for their turn."""

    __slots__ = ("asks", "crowd", "done")

    def __init__(self, crowd: Crowd, asks: list[int]) -> None:
        self.crowd, self.asks, self.done = crowd, asks, 0


class _Many:
    """One pod to a bin, those bins first where least would be left over; then again, while any still fit."""

    def __init__(self, filler: Filler, shelf: Shelf, queue: Queue) -> None:
        self._filler, self._shelf = filler, shelf
        self._lines = [_Line(crowd, asks) for crowd, asks in queue]
        self._wants = queue[0][0].wants
        self._minded_by_all = self._common()
        self._shorter = False  # the line, since that was worked out

    def pour(self) -> Queue:
        lots: Iterable[Lot] = self._shelf.lots.values()
        while self._lines:
            reached: dict[int, Lot] = {}
            for lot in _by_fit(self._filler.scale, self._wants, self._shelf, lots):
                self._pour_lot(lot, reached)
                if not self._lines:
                    return []
            if not reached:
                break
            lots = reached.values()  # everybody else has refused whoever is left, and will again
        return [(line.crowd, line.asks[line.done :]) for line in self._lines]

    def _pour_lot(self, lot: Lot, reached: dict[int, Lot]) -> None:
        shelf, goal = self._shelf, None
        if self._shorter:
            self._minded_by_all, self._shorter = self._common(), False
        for refused, kind in list(lot.kinds.items()):
            if refused & self._minded_by_all:
                continue
            if goal is None:
                goal = shelf.lot(without(lot.free, self._wants))
            self._pour_kind(refused, kind, goal)
            if not kind:
                shelf.drop_kind(lot, refused)
            if not self._lines:
                break
        if goal is not None:
            shelf.drop_if_empty(lot)
            if goal.kinds:
                reached[goal.serial] = goal
            else:
                shelf.drop_if_empty(goal)

    def _pour_kind(self, refused: int, kind: Kind, goal: Lot) -> None:
        """One for each bin of a kind: whoever is first in line of those it puts up with."""
        lines, at = self._lines, 0
        bins = iter(list(kind.values()))
        while at < len(lines):
            line = lines[at]
            if refused & line.crowd.minds:
                at += 1
                continue
            self._give(line, bins, kind, goal)
            if line.done < len(line.asks):
                return  # every bin was asked
            del lines[at]
            self._shorter = True

    def _give(self, line: _Line, bins: Iterator[Bin], kind: Kind, goal: Lot) -> None:
        crowd, asks, done = line.crowd, line.asks, line.done
        eligibility, picky, total = crowd.eligibility, crowd.picky, len(asks)
        kinds, free, filler = goal.kinds, goal.free, self._filler
        for one in bins:
            if eligibility not in one.eligibilities:
                if not filler.may_stand(crowd, one):
                    continue
                filler.join(crowd, one)
            del kind[one.number]
            one.asks.append(asks[done])
            one.free = free
            if picky:
                one.meet(crowd, 1)
            same = kinds.get(one.refuses)
            if same is None:
                same = self._shelf.kind(goal, one.refuses)
            same[one.number] = one
            done += 1
            if done == total:
                break
        line.done = done

    def _common(self) -> int:
        """What everybody in line minds: a bin that refuses any of it is not worth asking."""
        common = -1
        for line in self._lines:
            common &= line.crowd.minds
        return common


def _by_fit(scale: Sequence[int], wants: Wants, shelf: Shelf, lots: Iterable[Lot]) -> list[Lot]:
    """Lots with room for one, by how much they would have left and how lopsided it would be."""
    weighed = [(place, amount) for place, amount in wants if scale[place]]
    if len(weighed) == 2:
        (first, most), (second, less) = weighed
        heavy, light = scale[first], scale[second]
        fits = []
        for lot in lots:
            free = lot.free
            a = free[first] - most
            if a >= 0 and free[-1] > 0:
                b = free[second] - less
                if b >= 0:
                    # a + b + |a - b| is twice the larger: what is left over in the dimension with most of it.
                    left, right = a * heavy, b * light
                    fits.append(((left if left > right else right) << BITS) | lot.serial)
    else:
        fits = [
            (sum([(lot.free[place] - amount) * scale[place] for place, amount in weighed]) << BITS)
            | lot.serial
            for lot in lots
            if lot.free[-1] > 0 and all(lot.free[place] >= amount for place, amount in weighed)
        ]
    fits.sort()  # a score and a number in one integer: they sort in a fraction of the time
    numbered = shelf.numbered
    return [numbered[key & MASK] for key in fits]
