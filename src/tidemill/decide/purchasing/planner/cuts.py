"""Rows that cut off fractions of zones and blocks: true of every choice, and not of most mixtures of choices.

Where one zone serves, a mixture looks cheap: half of a zone here, half of another there. Of a zone that is picked to a
share no block serves to more than that share; and what whole blocks leave open is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from tidemill.decide.purchasing.planner.mip_solver import INFINITE, Program, Relaxed, Row

MOST_ROUNDS = 25
_STALLED = 1e-4  # of the cost, in three rounds: the rest is for the search
_CLEARLY = 1e-2  # of a block: what is cut off must be worth a row


@dataclass(frozen=True, slots=True)
class InZone:
    """What a zone serves in a slot: the column of the amount, whether it is picked, what is held, what could be."""

    amount: int
    pick: int
    fixed: float
    terms: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Served:
    """A slot: what is missing, columns that may fill it in any amount, blocks anywhere, blocks by zone."""

    missing: float
    amounts: Mapping[int, float]
    blocks: Mapping[int, float]
    zones: Sequence[InZone]


@dataclass(frozen=True, slots=True)
class Root:
    """The question without whole numbers, made tight."""

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
    """A block serves no more than it is taken, and no more than its zone is picked: whichever is less here."""
    terms, by_pick = _less_of_both(zone, values)
    most = by_pick * values[zone.pick] + sum(gpus * values[column] for column, gpus in terms.items())
    if values[zone.amount] > most + _CLEARLY / 10 * max(zone.terms.values(), default=1.0):
        limits = {column: -gpus for column, gpus in terms.items()}
        yield -INFINITE, 0.0, {zone.amount: 1.0, zone.pick: -by_pick, **limits}


def _less_of_both(zone: InZone, values: Sequence[float]) -> tuple[dict[int, float], float]:
    pick = values[zone.pick]
    taken = {column: gpus for column, gpus in zone.terms.items() if values[column] <= pick}
    return taken, zone.fixed + sum(gpus for column, gpus in zone.terms.items() if column not in taken)


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
