"""Solutions of the packing problems of the last decisions. Mostly the same pods wait for the same nodes at every tick.

The packer is a function of its problem, so an equal problem has the same solution: nothing depends on what is
remembered. Comparing costs little compared with solving, since what did not change is mostly the same object.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NewNode, Problem, Solution

# A decision has a few problems: the queue, then disruption, then the queue within the money there is.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Solved:
    problem: Problem
    thorough: bool
    solution: Solution


class SolveCache:
    def __init__(self) -> None:
        self._solved: deque[_Solved] = deque(maxlen=_KEPT)

    def solve(self, problem: Problem, *, thorough: bool = True) -> Solution:
        for known in self._solved:
            if known.thorough is thorough and _is_same(known.problem, problem):
                return _translated(known, problem)
        solution = solve(problem, thorough=thorough)
        self._solved.appendleft(_Solved(problem, thorough, solution))
        return solution


def _is_same(known: Problem, problem: Problem) -> bool:
    """Lengths first: tuples of different length are otherwise compared element by element."""
    same_lengths = len(known.pods) == len(problem.pods) and len(known.nodes) == len(problem.nodes)
    return same_lengths and known == problem


def _translated(known: _Solved, problem: Problem) -> Solution:
    """With the node options of this problem, and lists of its own: the caller may change them."""
    position = {id(option): number for number, option in enumerate(known.problem.options)}
    solution = known.solution
    return Solution(
        {node: list(pods) for node, pods in solution.existing.items()},
        [NewNode(problem.options[position[id(node.option)]], list(node.pods)) for node in solution.opened],
        dict(solution.unplaced),
    )
