"""Covers next to a cover: one purchase more, one less, or one for another, by an estimate of what they cost.

The estimate knows fees, zones and the cheaper of on-demand and penalty in every slot, not launches, quotas or shares:
it says where to look, never what is cheap. Whoever takes a cover from here prices it by the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tidemill.linear_program import Row

if TYPE_CHECKING:
    from tidemill.decide.purchasing.planner.cover_program import CoverProgram

Move = tuple[float, tuple[int, ...]]  # dollars more, columns that change
# GPUs by zone in a slot, the zone it adds to, how many, what is needed, USD for one that is missing, how zones count.
_Serves = tuple[list[int], int, int, int, float, Callable[[list[int]], int]]
_NOISE_USD = 1.0  # smaller differences of the estimate mean nothing


class Neighbourhood:
    """A set of purchases, by their columns, that can be changed one by one within ceilings on fees."""

    def __init__(
        self, program: CoverProgram, cost_usd: Sequence[float], ceilings: Sequence[Row] = ()
    ) -> None:
        self.chosen: set[int] = set()
        self._cost_usd = cost_usd
        self._group = _groups(program)
        self._in_use: set[object] = set()
        self._serves: dict[int, list[_Serves]] = {}
        self._span: dict[int, tuple[int, int, int]] = {}  # pool, first and last slot
        self._left_usd = [high for _, high, _ in ceilings]
        self._fees: dict[int, list[tuple[int, float]]] = {column: [] for column in self._group}
        for number, (_, _, terms) in enumerate(ceilings):
            for column in terms.keys() & self._fees.keys():
                self._fees[column].append((number, terms[column]))
        self._read(program)

    def _read(self, program: CoverProgram) -> None:
        problem = program.problem
        names = {offer.zone for offer in problem.offers} | {block.zone for block in problem.held}
        numbers = {name: number for number, name in enumerate(sorted(names))}
        for (pool, slot), by_zone in sorted(program.zones.items()):
            need = problem.needs[pool][slot]
            held, served = [0] * len(numbers), max if problem.demand[pool].one_zone else sum
            usd = _least_usd(program, pool, slot, self._cost_usd) if need else 0.0
            for name, zone in by_zone.items():
                held[numbers[name]] = zone.fixed
                for column, gpus in zone.terms.items() if need else ():
                    if column in self._group:
                        about = (held, numbers[name], int(gpus), need, usd, served)
                        self._serves.setdefault(column, []).append(about)
                        _, first, _ = self._span.get(column, (pool, slot, slot))
                        self._span[column] = pool, first, slot

    def begin(self, chosen: Iterable[int]) -> None:
        for column in sorted(self.chosen):
            self._flip(column)
        for column in sorted(chosen):
            if self._may_take(column):
                self._flip(column)

    def descend(self, among: Sequence[int]) -> float:
        """Local search: to a cover that no single change makes cheaper. Returns the change of cost, 0 or less."""
        all_usd = 0.0
        while True:
            singles = self.leave() + self.add(among)
            more_usd, columns = min(singles, default=(0.0, ()))
            if more_usd > -_NOISE_USD:
                more_usd, columns = min(self.swap(among), default=(0.0, ()))
            if more_usd > -_NOISE_USD:
                return all_usd
            all_usd += more_usd
            for column in columns:
                self._flip(column)

    def leave(self) -> list[Move]:
        return [(self._more_usd(column), (column,)) for column in sorted(self.chosen)]

    def add(self, among: Iterable[int]) -> list[Move]:
        return [(self._more_usd(column), (column,)) for column in among if self._may_take(column)]

    def swap(self, among: Sequence[int]) -> list[Move]:
        """Only purchases that overlap in time: others are two independent changes."""
        found: list[Move] = []
        for old in sorted(self.chosen & self._span.keys()):
            pool, first, last = self._span[old]
            less_usd = self._flip(old)
            for new in among:
                its, its_first, its_last = self._span.get(new, (pool, last + 1, last))
                meet = its == pool and its_first <= last and first <= its_last
                if meet and new != old and self._may_take(new):
                    found.append((less_usd + self._more_usd(new), (old, new)))
            self._flip(old)
        return found

    def _may_take(self, column: int) -> bool:
        free = self._group[column] not in self._in_use and column in self._span
        return free and all(usd <= self._left_usd[row] for row, usd in self._fees[column])

    def _more_usd(self, column: int) -> float:
        """The change of cost if this purchase is added, or removed if it is chosen."""
        sign = -1 if column in self.chosen else 1
        more_usd = sign * self._cost_usd[column]
        for held, zone, gpus, need, usd, served in self._serves.get(column, ()):
            before = served(held)
            held[zone] += sign * gpus
            after = served(held)
            held[zone] -= sign * gpus
            if before < need or after < need:
                more_usd += usd * (max(need - after, 0) - max(need - before, 0))
        return more_usd

    def _flip(self, column: int) -> float:
        more_usd = self._more_usd(column)
        sign = -1 if column in self.chosen else 1
        for held, zone, gpus, *_ in self._serves.get(column, ()):
            held[zone] += sign * gpus
        for row, usd in self._fees[column]:
            self._left_usd[row] -= sign * usd
        self.chosen ^= {column}
        self._in_use ^= {self._group[column]}
        return more_usd


def _least_usd(program: CoverProgram, pool: int, slot: int, cost_usd: Sequence[float]) -> float:
    """The cheaper of on-demand and penalty, for a GPU during the slot."""
    problem = program.problem
    ways = [problem.demand[pool].penalty_usd_gpu_h * problem.slots[slot].hours]
    for name in problem.demand[pool].types:
        column = program.on_demand.get((pool, name, slot))
        if column is not None:
            ways.append(cost_usd[column] / problem.prices[name].gpus)
    return min(ways)


def _groups(program: CoverProgram) -> dict[int, object]:
    """At most one purchase of a group is chosen: offers of one window in a zone are the same capacity, and a block is
    extended once."""
    found: dict[int, object] = {}
    for (number, _), column in program.take.items():
        offer = program.problem.offers[number]
        found[column] = (offer.instance_type, offer.zone, offer.start, offer.end)
    for one, column in zip(program.problem.extensions, program.extend, strict=True):
        found[column] = one.block
    return found
