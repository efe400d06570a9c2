"""Budgets that pods use up, wherever they are placed: what the pods of some namespaces may use together.

Which node a pod goes to does not matter to such a budget, so nothing else in the packer knows it. Pods are offered in
rounds: as many as the budgets hold, in the order of the queue. What found no node gives its share back, and the next
ones are offered, until the budgets are used up or everybody was asked. So a pod that waits for room holds nobody back,
no budget is ever exceeded, and a flood of pods beyond its budget takes no room from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemill.decide.packer.problem import NewNode, Problem, Solution

# Each round leaves out one more kind of pods that found no room: with more kinds the last ones wait for a later call.
MOST_ROUNDS = 8
OVER_BUDGET = "no room in its budget"


@dataclass(slots=True, eq=False)
class _Unit:
    """A pod alone, or the pods of a gang: placed all or not at all."""

    pods: list[int]
    kind: tuple[object, ...]  # where one of a kind finds no room, the others do not either
    needs: dict[str, int]

    def take(self, left: dict[str, int]) -> bool:
        """Use up what it needs of each budget; False: one of them has too little, and nothing was taken."""
        if any(left[budget] < amount for budget, amount in self.needs.items()):
            return False
        for budget, amount in self.needs.items():
            left[budget] -= amount
        return True

    def give_back(self, left: dict[str, int]) -> None:
        for budget, amount in self.needs.items():
            left[budget] += amount


def solve_within_budgets(problem: Problem, solve: Callable[[Problem], Solution]) -> Solution:
    """The solution of the last round; pods that were not part of it are unplaced."""
    left = dict(problem.pod_budgets)
    waiting = _units(problem, left)
    limited = {pod for unit in waiting for pod in unit.pods}
    offered: list[_Unit] = []
    hopeless: set[tuple[object, ...]] = set()
    solution = Solution()
    for _ in range(MOST_ROUNDS):
        new = {id(unit) for unit in waiting if unit.kind not in hopeless and unit.take(left)}
        offered += [unit for unit in waiting if id(unit) in new]
        waiting = [unit for unit in waiting if id(unit) not in new]
        chosen = {pod for unit in offered for pod in unit.pods}
        numbers = [number for number in range(len(problem.pods)) if number not in limited or number in chosen]
        solution = _translated(solve(_part(problem, numbers)), numbers)
        failed = [unit for unit in offered if unit.pods[0] in solution.unplaced]
        for unit in failed:
            unit.give_back(left)
            hopeless.add(unit.kind)
        offered = [unit for unit in offered if unit.pods[0] not in solution.unplaced]
        if not failed or not any(_may_take(unit, left, hopeless) for unit in waiting):
            break
    answered = {pod for unit in offered for pod in unit.pods} | solution.unplaced.keys()
    for number in sorted(limited - answered):
        solution.unplaced[number] = OVER_BUDGET
    return solution


def _units(problem: Problem, budgets: Mapping[str, int]) -> list[_Unit]:
    """Of the pods that use up a budget, those of a higher priority first, then in the order they are listed in."""
    units: dict[tuple[object, ...], _Unit] = {}
    for number, pod in enumerate(problem.pods):
        uses = [(budget, amount) for budget, amount in pod.consumes if budget in budgets]
        if not uses:
            continue
        key = (pod.namespace, pod.gang.name) if pod.gang is not None else (number,)
        unit = units.get(key)
        if unit is None:
            size = pod.gang.size if pod.gang is not None else 0
            unit = units[key] = _Unit([], (id(pod.shape), pod.namespace, pod.refuses, pod.priority, size), {})
        unit.pods.append(number)
        for budget, amount in uses:
            unit.needs[budget] = unit.needs.get(budget, 0) + amount
    return sorted(units.values(), key=lambda unit: (-problem.pods[unit.pods[0]].priority, unit.pods[0]))


def _may_take(unit: _Unit, left: Mapping[str, int], hopeless: set[tuple[object, ...]]) -> bool:
    return unit.kind not in hopeless and all(left[budget] >= amount for budget, amount in unit.needs.items())


def _part(problem: Problem, numbers: list[int]) -> Problem:
    """The same problem with some of its pods, and nothing that limits pods."""
    pods = tuple([problem.pods[number] for number in numbers])
    return replace(problem, pods=pods, pod_budgets={})


def _translated(solution: Solution, numbers: list[int]) -> Solution:
    return Solution(
        {node: [numbers[pod] for pod in pods] for node, pods in solution.existing.items()},
        [NewNode(node.option, [numbers[pod] for pod in node.pods]) for node in solution.opened],
        {numbers[pod]: why for pod, why in solution.unplaced.items()},
    )
