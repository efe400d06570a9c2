"""Answers to packing problems that were solved a moment ago. What waits is asked about at every tick, mostly in vain.

The solver is a function of its problem, so an equal problem has the same answer: nothing depends on whether it is
remembered. Comparing costs little beside solving, since what did not change is mostly the very same object.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NewNode, Problem, Solution

# A decision asks a few questions: what waits, then moves of nodes, then the same within the money there is.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Kept:
    problem: Problem
    thorough: bool
    solution: Solution


class SolveCache:
    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=_KEPT)

    def solve(self, problem: Problem, *, thorough: bool = True) -> Solution:
        for known in self._kept:
            if known.thorough is thorough and _is_same(known.problem, problem):
                return _carried_over(known, problem)
        solution = solve(problem, thorough=thorough)
        self._kept.appendleft(_Kept(problem, thorough, solution))
        return solution


def _is_same(one: Problem, other: Problem) -> bool:
    """Lengths first: a tuple of other length is otherwise compared up to its end."""
    return len(one.asks) == len(other.asks) and len(one.places) == len(other.places) and one == other


def _carried_over(known: _Kept, problem: Problem) -> Solution:
    """In terms of this problem's own flavours, and as lists of its own: a reader may change them."""
    at = {id(flavour): place for place, flavour in enumerate(known.problem.flavours)}
    solution = known.solution
    return Solution(
        {place: list(asks) for place, asks in solution.existing.items()},
        [NewNode(problem.flavours[at[id(node.flavour)]], list(node.asks)) for node in solution.opened],
        dict(solution.unplaced),
    )
