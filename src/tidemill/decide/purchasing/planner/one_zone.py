"""The search where work must stand in one zone: each stretch of time is one more choice, and mixtures look cheap.

Short stretches (hand-overs) count as if every zone served them: nothing gets dearer by that, so the bound holds, and
half of the choices are gone. What is found is priced in full by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.decide.purchasing.planner.cuts import Root, tighten
from tidemill.decide.purchasing.planner.mip_solver import Row, Solution
from tidemill.decide.purchasing.planner.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from tidemill.decide.purchasing.planner.cover_program import CoverProgram

_TAKEN_FROM = (0.7, 0.5, 0.3, 1.1)  # shares of a block from which it is taken for a start; the last: none
_FAR = 0.2  # from the bound: happens where ceilings bind hard
_NOT_FAR = 0.03  # of the cost: what must cost more than that is not tried for a start


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
        start = None  # the solver's own guesses, which cost time, are better than that
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
    """What would cost more than is left to be saved can be left out; nothing with it costs less than that."""
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
    """From the blocks that the question without whole numbers takes to a good share, one by one to better ones."""
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
    """What columns cost where money is short: a dollar under a ceiling that binds is worth more than a dollar."""
    cost_usd = list(rough.program.cost)
    for number, (_, _, terms) in enumerate(money):
        worth = root.relaxed.duals[len(rough.program.rows) + number]
        for column, usd in terms.items():
            cost_usd[column] -= worth * usd
    return cost_usd
