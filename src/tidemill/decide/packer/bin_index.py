"""The bins of one site, equal ones together, sorted by what is free where somebody asks for it.

Bins with the same free vector are one lot, and within it those that put up with the same company are one kind:
where pods are alike, thousands of bins are a few hundred lots. Where no two bins are equal, a lot is a bin.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from tidemill.decide.packer.bins import Bin, Free

BITS = 32  # room for so many lots in the low bits of a sort key: whole numbers sort fastest
MASK = (1 << BITS) - 1

Kind = dict[int, Bin]  # by number, in the order they came


class Lot:
    """Bins with the same free vector, by the company they refuse."""

    __slots__ = ("free", "kinds", "serial")

    def __init__(self, free: Free, serial: int) -> None:
        self.free = free
        self.serial = serial
        self.kinds: dict[int, Kind] = {}


class Shelf:
    __slots__ = ("_orders", "_serial", "lots", "numbered", "refusals")

    def __init__(self) -> None:
        self.lots: dict[Free, Lot] = {}
        self.numbered: dict[int, Lot] = {}
        self.refusals: dict[int, int] = {}  # what bins here refuse -> in how many lots
        self._orders: dict[int, list[int]] = {}  # by dimension: what is free of it, and the lot
        self._serial = 0

    # A bin is taken out before it changes and put back afterwards.

    def add(self, one: Bin) -> None:
        lot = self.lots.get(one.free)
        if lot is None:
            lot = self.lot(one.free)
        kind = lot.kinds.get(one.refuses)
        if kind is None:
            kind = self.kind(lot, one.refuses)
        kind[one.number] = one

    def remove(self, one: Bin) -> None:
        lot = self.lots[one.free]
        kind = lot.kinds[one.refuses]
        del kind[one.number]
        if not kind:
            self.drop_kind(lot, one.refuses)
            self.drop_if_empty(lot)

    def kind(self, lot: Lot, refused: int) -> Kind:
        """A new kind of a lot."""
        kind: Kind = {}
        lot.kinds[refused] = kind
        self.refusals[refused] = self.refusals.get(refused, 0) + 1
        return kind

    def drop_kind(self, lot: Lot, refused: int) -> None:
        del lot.kinds[refused]
        if self.refusals[refused] == 1:
            del self.refusals[refused]
        else:
            self.refusals[refused] -= 1

    def lot(self, free: Free) -> Lot:
        known = self.lots.get(free)
        if known is None:
            self._serial += 1
            known = self.lots[free] = self.numbered[self._serial] = Lot(free, self._serial)
            for dimension, order in self._orders.items():
                insort(order, (free[dimension] << BITS) | known.serial)
        return known

    def drop_if_empty(self, lot: Lot) -> None:
        if lot.kinds:
            return
        del self.lots[lot.free]
        del self.numbered[lot.serial]
        for dimension, order in self._orders.items():
            del order[bisect_left(order, (lot.free[dimension] << BITS) | lot.serial)]

    def puts_up_with(self, minded: int) -> bool:
        """Is there a bin that refuses none of this?"""
        return not minded or any(not refused & minded for refused in self.refusals)

    def tightest(self, dimension: int, amount: int, looks: int) -> Iterator[Lot]:
        """So many lots with at least this much free of a dimension, those with least of it first."""
        order = self._order(dimension)
        start = bisect_left(order, amount << BITS)
        numbered = self.numbered
        for key in order[start : start + looks]:
            yield numbered[key & MASK]

    def roomiest(self, dimension: int) -> Iterator[Lot]:
        """Those with most free of a dimension first."""
        numbered = self.numbered
        for key in reversed(self._order(dimension)):
            yield numbered[key & MASK]

    def _order(self, dimension: int) -> list[int]:
        order = self._orders.get(dimension)
        if order is None:
            order = self._orders[dimension] = sorted(
                (lot.free[dimension] << BITS) | lot.serial for lot in self.lots.values()
            )
        return order
