"""The search where work must run in one zone: each slot is one more choice, and fractional mixtures look cheap.

Cuts remove fractions of zones and blocks: a zone that is picked to a share serves no more than that share, and what
whole blocks leave open stays open. Short slots (hand-overs) count as if every zone served them: nothing gets dearer by
that, so the bound holds, and half of the choices are gone. The caller prices what is found in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING

from tidemill.decide.purchasing.planner.neighbourhood import Neighbourhood
from tidemill.linear_program import INFINITE, Program, Relaxed, Row, Solution

if TYPE_CHECKING:
    from tidemill.decide.purchasing.planner.cover_program import CoverProgram


MOST_ROUNDS = 25
_STALLED = 1e-4  # progress in three rounds, of the cost: below it the cuts stop and the search begins
_CLEARLY = 1e-2  # violation of a cut, of a block: smaller ones are not added


@dataclass(frozen=True, slots=True)
class InZone:
    """What a zone serves in a slot: the column of the amount, whether it is picked, what is held, what could be.
    `most`: of columns that may be more than 1."""

    amount: int
    pick: int
    fixed: float
    terms: Mapping[int, float]
    most: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Served:
    """A slot: what is missing, columns that may fill it in any amount, blocks anywhere, blocks by zone."""

    missing: float
    amounts: Mapping[int, float]
    blocks: Mapping[int, float]
    zones: Sequence[InZone]


@dataclass(frozen=True, slots=True)
class Root:
    """The linear relaxation after the cuts."""

    rows: list[Row]
    relaxed: Relaxed


def tighten(program: Program, slots: Sequence[Served], more: Sequence[Row]) -> Root:
    relaxation = program.relaxation(more)
    rows: list[Row] = []
    bounds: list[float] = []
    relaxed = relaxation.solve()
    for _ in range(MOST_ROUNDS):
        if relaxed.bound == -INFINITE:
            break
        bounds.append(relaxed.bound)
        if len(bounds) > 3 and bounds[-1] - bounds[-4] < _STALLED * abs(bounds[-1]):
            break
        new = [row for slot in slots for row in _cuts(slot, relaxed.values)]
        if not new:
            break
        relaxation.add(new)
        rows += new
        relaxed = relaxation.solve()
    return Root([row for row in rows if _binds(row, relaxed.values)], relaxed)


def _binds(row: Row, values: Sequence[float]) -> bool:
    low, high, terms = row
    sum_ = sum(value * values[column] for column, value in terms.items())
    return sum_ < low + 1e-4 or sum_ > high - 1e-4


def _cuts(slot: Served, values: Sequence[float]) -> Iterable[Row]:
    for zone in slot.zones:
        yield from _of_a_share(zone, values)
    rounded = _rounded(slot, values)
    if rounded is not None:
        yield rounded


def _of_a_share(zone: InZone, values: Sequence[float]) -> Iterable[Row]:
    """A block serves at most the share to which it is taken, and at most the share to which its zone is picked."""
    terms, by_pick = _less_of_both(zone, values)
    most = by_pick * values[zone.pick] + sum(gpus * values[column] for column, gpus in terms.items())
    if values[zone.amount] > most + _CLEARLY / 10 * max(zone.terms.values(), default=1.0):
        limits = {column: -gpus for column, gpus in terms.items()}
        yield -INFINITE, 0.0, {zone.amount: 1.0, zone.pick: -by_pick, **limits}


def _less_of_both(zone: InZone, values: Sequence[float]) -> tuple[dict[int, float], float]:
    pick, most = values[zone.pick], zone.most
    taken = {c: gpus for c, gpus in zone.terms.items() if values[c] <= pick * most.get(c, 1)}
    picked = sum(gpus * most.get(c, 1) for c, gpus in zone.terms.items() if c not in taken)
    return taken, zone.fixed + picked


def _rounded(slot: Served, values: Sequence[float]) -> Row | None:
    """Mixed-integer rounding of the slot's row by the size of each block that is in use: the one that cuts most."""
    blocks = dict(slot.blocks)
    for zone in slot.zones:
        terms, by_pick = _less_of_both(zone, values)
        blocks |= terms
        if by_pick:
            blocks[zone.pick] = min(by_pick, slot.missing)
    best: Row | None = None
    deepest = 0.0
    filled = sum(gpus * values[column] for column, gpus in slot.amounts.items())
    for size in sorted({gpus for column, gpus in blocks.items() if values[column] > 1e-6}):
        pieces, part = ceil(slot.missing / size), slot.missing / size - floor(slot.missing / size)
        if part < 1e-6:
            continue
        steps = {column: _step(gpus / size, part) for column, gpus in blocks.items()}
        sum_ = filled / (size * part) + sum(step * values[column] for column, step in steps.items())
        depth = (pieces - sum_) * size * part
        if depth > max(deepest, _CLEARLY * size):
            deepest = depth
            amounts = {column: gpus / (size * part) for column, gpus in slot.amounts.items()}
            best = (float(pieces), INFINITE, amounts | steps)
    return best


def _step(pieces: float, part: float) -> float:
    whole = floor(pieces + 1e-9)
    return whole + min(1.0, max(0.0, pieces - whole) / part)


# --- the search ---------------------------------------------------------------------------------------


_TAKEN_FROM = (0.7, 0.5, 0.3, 1.1)  # a block is in the start if its share is at least this; the last: none is
_FAR = 0.2  # distance from the bound: happens where budgets bind hard
_NOT_FAR = 0.03  # of the cost: purchases with a higher reduced cost are not tried for a start


@dataclass(frozen=True, slots=True)
class FoundCover:
    ids: frozenset[str]
    bound: float  # no cover can cost less


def one_zone_search(
    rough: CoverProgram, money: Sequence[Row], unlike: Sequence[frozenset[str]]
) -> FoundCover | None:
    rows = [*money, *(rough.other_than(ids) for ids in unlike)]
    root = tighten(rough.program, rough.served, rows)
    start = _start(rough, root, money, unlike)
    if start is not None and root.relaxed.bound >= start.objective * (1 - rough.gap):
        return FoundCover(rough.chosen(start), root.relaxed.bound)
    if start is not None and start.objective * (1 - _FAR) > root.relaxed.bound:
        start = None  # the solver's own heuristics take time, and find a better start
    fixed, bound = _too_dear(rough, root, start)
    found = rough.program.solve(
        more=[*rows, *root.rows],
        fixed=fixed,
        gap=rough.gap,
        most_nodes=rough.problem.policy.most_nodes,
        start=start.values if start is not None else None,
    )
    if found is None:
        return None
    return FoundCover(rough.chosen(found), min(found.bound, bound))


def _too_dear(rough: CoverProgram, root: Root, start: Solution | None) -> tuple[dict[int, float], float]:
    """Fixes columns whose reduced cost is more than what is left to be saved: no cheaper solution has them."""
    if start is None:
        return {}, float("inf")
    worth_usd = start.objective * (1 - rough.gap)
    left_usd = worth_usd - root.relaxed.bound
    fixed = {
        column: 0.0
        for column in rough.choices()
        if root.relaxed.reduced[column] > left_usd and start.values[column] < 0.5
    }
    return fixed, worth_usd if fixed else float("inf")


def _start(
    rough: CoverProgram, root: Root, money: Sequence[Row], unlike: Sequence[frozenset[str]]
) -> Solution | None:
    """Starts from the blocks with a large share in the relaxation, and improves by local search."""
    values, purchases = root.relaxed.values, [*rough.take.values(), *rough.extend]
    among = [c for c in purchases if root.relaxed.reduced[c] <= _NOT_FAR * root.relaxed.bound]
    nearby = Neighbourhood(rough, _with_ceilings(rough, root, money), money)
    starts: list[frozenset[str]] = []
    for share in _TAKEN_FROM:
        nearby.begin(column for column in purchases if values[column] >= share)
        nearby.descend(among)
        ids = rough.ids_of(nearby.chosen)
        if ids not in starts and ids not in unlike:
            starts.append(ids)
    found = [rough.price(ids, free=not money) for ids in starts]
    return min((one for one in found if one is not None), key=lambda one: one.objective, default=None)


def _with_ceilings(rough: CoverProgram, root: Root, money: Sequence[Row]) -> list[float]:
    """Costs with the dual prices of the budgets: a dollar under a budget that binds is worth more than a dollar."""
    cost_usd = list(rough.program.cost)
    for number, (_, _, terms) in enumerate(money):
        worth = root.relaxed.duals[len(rough.program.rows) + number]
        for column, usd in terms.items():
            cost_usd[column] -= worth * usd
    return cost_usd
