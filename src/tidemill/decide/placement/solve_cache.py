"""Solved packing problems: what waits is asked about at every tick, mostly in vain.

A problem that differs from a solved one only in what its pods and nodes are called has the same solution, by position.
So a launch that is refused again and again, in one zone and then in the next, is a handful of problems.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import ExistingNode, NewNode, PendingPod, Problem, Solution
from tidemill.model.pods import PodShape
from tidemill.spec.names import LABEL_HOSTNAME

# A decision has a few problems: the queue, then disruption, then the queue within the money there is. They come back
# while launches fail in turn: the zones and types that rest are others each time, and then the first ones again.
_KEPT = 64
# Large problems take memory, and come back less often: so many pods in all, and still those of one decision.
_PODS_KEPT, _LEAST_KEPT = 20_000, 8


@dataclass(frozen=True, slots=True)
class _Solved:
    sketch: Hashable
    problem: Problem
    solution: Solution


class SolveCache:
    def __init__(self) -> None:
        self._solved: OrderedDict[int, _Solved] = OrderedDict()  # the one that was asked for last is the last
        self._alike: dict[Hashable, list[int]] = {}  # their numbers, by what is quickly compared
        self._next, self._pods = 0, 0

    def solve(self, problem: Problem, *, thorough: bool = True) -> Solution:
        sketch = _sketch(problem, thorough)
        for number in self._alike.get(sketch, ()):
            known = self._solved[number]
            if _is_same(known.problem, problem):
                self._solved.move_to_end(number)
                return _translated(known, problem)
        solution = solve(problem, thorough=thorough)
        self._solved[self._next] = _Solved(sketch, problem, solution)
        self._alike.setdefault(sketch, []).append(self._next)
        self._next += 1
        self._pods += len(problem.pods)
        self._forget()
        return solution

    def _forget(self) -> None:
        while len(self._solved) > _KEPT or (len(self._solved) > _LEAST_KEPT and self._pods > _PODS_KEPT):
            oldest, forgotten = self._solved.popitem(last=False)
            self._pods -= len(forgotten.problem.pods)
            numbers = self._alike[forgotten.sketch]
            numbers.remove(oldest)
            if not numbers:
                del self._alike[forgotten.sketch]


def _sketch(problem: Problem, thorough: bool) -> Hashable:
    """The same for two problems with the same solution, and quick to make."""
    options = tuple((one.name, one.group, one.stock, one.price) for one in problem.options)
    return thorough, len(problem.pods), len(problem.nodes), options


def _is_same(known: Problem, problem: Problem) -> bool:
    """The names of pods and nodes aside, unless a pod asks for a node by its name."""
    return (
        known.options == problem.options
        and known.stocks == problem.stocks
        and known.budgets == problem.budgets
        and known.pod_budgets == problem.pod_budgets
        and all(map(_same_pod, known.pods, problem.pods))
        and all(map(_same_node, known.nodes, problem.nodes))
        and (
            all(one.name == other.name for one, other in zip(known.nodes, problem.nodes, strict=True))
            or not any(map(_names_a_host, {id(pod.shape): pod.shape for pod in problem.pods}.values()))
        )
    )


def _same_pod(one: PendingPod, other: PendingPod) -> bool:
    return one is other or (
        (one.shape is other.shape or one.shape == other.shape)
        and one.pending_since == other.pending_since
        and one.priority == other.priority
        and one.refuses == other.refuses
        and one.namespace == other.namespace
        and one.gang == other.gang
        and one.consumes == other.consumes
    )


def _same_node(one: ExistingNode, other: ExistingNode) -> bool:
    return one is other or (
        one.rank == other.rank
        and one.group == other.group
        and one.free == other.free
        and one.labels == other.labels
        and one.taints == other.taints
        and one.existing_pods == other.existing_pods
    )


def _names_a_host(shape: PodShape) -> bool:
    selectors = (*shape.node_terms, *(selector for _, selector in shape.preferred_nodes))
    return any(label == LABEL_HOSTNAME for label, _ in shape.node_selector) or any(
        expression.key == LABEL_HOSTNAME for selector in selectors for expression in selector
    )


def _translated(known: _Solved, problem: Problem) -> Solution:
    """With the node options of this problem, and lists of its own: the caller may change them."""
    position = {id(option): number for number, option in enumerate(known.problem.options)}
    solution = known.solution
    return Solution(
        {node: list(pods) for node, pods in solution.existing.items()},
        [NewNode(problem.options[position[id(node.option)]], list(node.pods)) for node in solution.opened],
        dict(solution.unplaced),
    )
