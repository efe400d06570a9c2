"""Ruin and recreate: the pods of a few nodes as a problem of their own, everything else as it is.

The pods that stay are stated as existing pods, so an attempt at the part keeps out of their way. Existing pods do not
enforce their own spread rules, so the whole is verified before it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidemill.decide.packer.lower_bound import LowerBound, available_for_free
from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NewNode, PendingPod, Problem, Solution
from tidemill.decide.packer.verify import as_existing_node
from tidemill.model.resources import amount
from tidemill.spec.names import PODS


@dataclass(slots=True)
class RuinedPart:
    """The part that is to be recreated."""

    problem: Problem
    pods: frozenset[int]  # in the whole
    _whole: Solution
    _numbers: list[int]  # of the part's pods, in the whole
    _kept: list[int]  # opened nodes that stay; in the part they follow the existing nodes
    _node_count: int  # of existing nodes

    def merged(self, part: Solution) -> Solution:
        """The whole with the solution of the part in place of what was ruined."""
        whole, numbers = self._whole, self._numbers
        existing = {
            node: kept
            for node, pods in whole.existing.items()
            if (kept := [pod for pod in pods if pod not in self.pods])
        }
        staying = {
            number: [pod for pod in whole.opened[number].pods if pod not in self.pods]
            for number in self._kept
        }
        for node, pods in part.existing.items():
            moved = [numbers[pod] for pod in pods]
            if node < self._node_count:
                existing[node] = existing.get(node, []) + moved
            else:
                staying[self._kept[node - self._node_count]] += moved
        opened = [NewNode(whole.opened[number].option, pods) for number, pods in staying.items() if pods]
        opened += [NewNode(node.option, [numbers[pod] for pod in node.pods]) for node in part.opened]
        unplaced = {pod: why for pod, why in whole.unplaced.items() if pod not in self.pods}
        unplaced |= {numbers[pod]: why for pod, why in part.unplaced.items()}
        return Solution(existing, opened, unplaced)


class Ruin:
    """Nodes are numbered: the opened ones, then the existing ones that got pods."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem, self.solution = problem, solution
        self._nodes = [node.pods for node in solution.opened] + list(solution.existing.values())
        self._prices = [node.option.price for node in solution.opened] + [0.0] * len(solution.existing)
        self._signatures = self._sign_nodes()
        self._gangs: dict[tuple[str, str], list[int]] = {}
        for number, pod in enumerate(problem.pods):
            if pod.gang is not None:
                self._gangs.setdefault((pod.namespace, pod.gang.name), []).append(number)
        self._names = {name for pod in problem.pods for name, wanted in pod.shape.requests if wanted > 0}
        self._spare = {name: self._spare_of(name) for name in self._names}
        self.order = sorted(range(len(self._nodes)), key=lambda node: (-self._prices[node], node))

    def _sign_nodes(self) -> list[tuple[object, ...]]:
        """Ruining a node is as good as ruining another with the same signature."""
        kinds = [-id(node.option) for node in self.solution.opened] + list(self.solution.existing)
        return [
            (kind, tuple(sorted(_pod_signature(self.problem.pods[pod]) for pod in pods)))
            for kind, pods in zip(kinds, self._nodes, strict=True)
        ]

    def signature_of(self, nodes: tuple[int, ...]) -> tuple[object, ...]:
        return tuple(sorted((self._signatures[node] for node in nodes), key=repr))

    def _spare_of(self, name: str) -> int:
        """What this solution leaves free on nodes that are there, prepaid or opened."""
        spare = available_for_free(self.problem, name)
        spare += sum(
            node.option.capacity.get(name, 0) for node in self.solution.opened if node.option.price > 0
        )
        placed = (self.problem.pods[pod] for pods in self._nodes for pod in pods)
        return spare - sum(amount(pod.shape.requests, name) for pod in placed)

    def may_improve(self, nodes: tuple[int, ...], bound: LowerBound) -> bool:
        """Whether the rest of the solution and new nodes could hold these pods for less than these nodes cost."""
        paid = sum(self._prices[node] for node in nodes)
        if paid <= 0:
            return bool(self.solution.unplaced)
        needs: dict[str, int] = {}
        for name in self._names:
            held = sum(
                self.solution.opened[node].option.capacity.get(name, 0)
                for node in nodes
                if self._prices[node] > 0
            )
            needs[name] = held - self._spare[name]
        return bound.price_of(needs) < paid - 1e-6 or bool(self.solution.unplaced)

    def ruin(self, nodes: tuple[int, ...]) -> RuinedPart:
        """Empty these nodes. A gang leaves whole, and the unplaced pods get another chance."""
        problem, solution = self.problem, self.solution
        removed: set[int] = set()
        for node in nodes:
            for pod in self._nodes[node]:
                gang = problem.pods[pod].gang
                removed.update(self._gangs[(problem.pods[pod].namespace, gang.name)] if gang else (pod,))
        removed |= solution.unplaced.keys()
        numbers = sorted(removed)
        pods = tuple(problem.pods[pod] for pod in numbers)
        kept = [
            number
            for number, node in enumerate(solution.opened)
            if any(pod not in removed for pod in node.pods)
        ]
        refused = frozenset().union(*(pod.refuses for pod in pods))
        existing = [self._existing_node(number, node, removed) for number, node in enumerate(problem.nodes)]
        existing += [self._opened_node(number, removed, refused) for number in kept]
        stocks, budgets = self._left_beside(kept)
        part = replace(problem, pods=pods, nodes=tuple(existing), stocks=stocks, budgets=budgets)
        return RuinedPart(part, frozenset(removed), solution, numbers, kept, len(problem.nodes))

    def _existing_node(self, number: int, node: ExistingNode, removed: set[int]) -> ExistingNode:
        staying = self._staying(self.solution.existing.get(number, ()), removed)
        if not staying:
            return node
        pods = (*node.existing_pods, *_as_existing_pods(staying))
        return replace(node, free=_free_beside(node.free, staying), existing_pods=pods)

    def _opened_node(self, number: int, removed: set[int], refused: frozenset[str]) -> ExistingNode:
        """As an existing node. It has no group, so where a removed pod refuses its option, it takes no pod."""
        node = self.solution.opened[number]
        option, staying = node.option, self._staying(node.pods, removed)
        return replace(
            as_existing_node(f"new node {number}", option),
            free=_free_beside(option.capacity, staying) if option.group not in refused else {},
            existing_pods=_as_existing_pods(staying),
        )

    def _staying(self, pods: Iterable[int], removed: set[int]) -> list[PendingPod]:
        return [self.problem.pods[pod] for pod in pods if pod not in removed]

    def _left_beside(self, kept: list[int]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Stocks and budgets, less what the opened nodes that stay take."""
        stocks = dict(self.problem.stocks)
        budgets = {name: dict(limits) for name, limits in self.problem.budgets.items()}
        for number in kept:
            option = self.solution.opened[number].option
            if option.stock:
                stocks[option.stock] -= 1
            limits = budgets.get(option.budget, {})
            for name, used in option.consumes.items():
                if name in limits:
                    limits[name] -= used
        return stocks, budgets


def _pod_signature(pod: PendingPod) -> tuple[int, str, str, str, int]:
    gang = pod.gang.name if pod.gang is not None else ""
    return id(pod.shape), pod.namespace, gang, ",".join(sorted(pod.refuses)), pod.priority


def _free_beside(free: Mapping[str, int], staying: list[PendingPod]) -> dict[str, int]:
    left = dict(free)
    for pod in staying:
        for name, wanted in pod.shape.requests:
            if name != PODS:
                left[name] = left.get(name, 0) - wanted
        left[PODS] = left.get(PODS, 0) - 1
    return left


def _as_existing_pods(staying: list[PendingPod]) -> tuple[ExistingPods, ...]:
    shapes = {id(pod.shape): pod.shape for pod in staying}
    counts = Counter((id(pod.shape), pod.namespace) for pod in staying)
    return tuple(
        ExistingPods(shapes[shape], namespace, count) for (shape, namespace), count in counts.items()
    )
