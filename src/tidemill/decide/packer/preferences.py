"""Preferences (preferred node labels, preferred affinity, ScheduleAnyway spread), satisfied where it costs nothing.

Takes a solution as it is and moves pods to nodes they prefer: never for money, never to a higher rank, never against a
rule. A new node may become one of another zone or type at the same price. Only for small problems, one pod after
another, the highest priority first: preferences are not worth a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidemill.decide.packer.pod_groups import group_pods
from tidemill.decide.packer.problem import ExistingNode, NewNode, NodeOption, PendingPod, Problem, Solution
from tidemill.decide.packer.supply import Supply
from tidemill.decide.packer.verify import as_existing_node, rules_hold
from tidemill.decide.scheduler_rules import selects
from tidemill.model.labels import Selector
from tidemill.model.pods import PodShape, PodTerm, spread_selector
from tidemill.spec.names import LABEL_HOSTNAME, PODS

# Every move is verified against all rules: this many are tried at most.
_MOST_TRIES = 64


def satisfy_preferences(problem: Problem, solution: Solution) -> Solution:
    preferring = [number for number, pod in enumerate(problem.pods) if _has_preferences(pod.shape)]
    if not preferring:
        return solution
    mover = _Mover(problem, solution)
    for number in sorted(preferring, key=lambda number: (-problem.pods[number].priority, number)):
        if number not in solution.unplaced and _may_move(problem.pods[number]):
            mover.move_to_preferred(number)
    for node in mover.nodes:
        if node.option is not None and any(_has_preferences(problem.pods[pod].shape) for pod in node.pods):
            mover.switch_to_preferred_option(node)
    return mover.solution()


def _has_preferences(shape: PodShape) -> bool:
    return bool(
        shape.preferred_nodes
        or shape.preferred_affinity
        or shape.preferred_anti_affinity
        or any(not rule.hard for rule in shape.spread)
    )


def _may_move(pod: PendingPod) -> bool:
    """A gang stays where it is whole, and host ports are not checked here."""
    return pod.gang is None and not pod.shape.host_ports


@dataclass(slots=True, eq=False)
class _Node:
    node: ExistingNode  # a new node as if it were on its way
    index: int  # in Problem.nodes; -1: a new node
    option: NodeOption | None  # of a new node
    pods: list[int]
    free: dict[str, int] = field(default_factory=dict)

    def value(self, key: str) -> str | None:
        """Of a topology key. Every node is a host of its own."""
        return f"{id(self)}" if key == LABEL_HOSTNAME else self.node.labels.get(key)


class _Mover:
    def __init__(self, problem: Problem, solution: Solution) -> None:
        self._problem, self._unplaced = problem, solution.unplaced
        grouped = group_pods(problem)
        self._supply, self._group_of = Supply(problem, grouped), grouped.group_of()
        self._tries = _MOST_TRIES
        self.nodes = [
            _Node(node, index, None, list(solution.existing.get(index, ())))
            for index, node in enumerate(problem.nodes)
        ]
        for number, new in enumerate(solution.opened):
            node = as_existing_node(f"new node {number}", new.option)
            self.nodes.append(_Node(node, -1, new.option, list(new.pods)))
        for each in self.nodes:
            each.free = dict(each.node.free)
            for pod in each.pods:
                self._take(each, pod, 1)

    def solution(self) -> Solution:
        existing = {node.index: node.pods for node in self.nodes if node.index >= 0 and node.pods}
        opened = [
            NewNode(node.option, node.pods) for node in self.nodes if node.option is not None and node.pods
        ]
        return Solution(existing, opened, self._unplaced)

    def move_to_preferred(self, pod: int) -> None:
        """Move one pod to the node it prefers most of those that have room for it."""
        here = next(node for node in self.nodes if pod in node.pods)
        score = self._score_of(pod)
        now = score(here)
        better = [
            node
            for node in self.nodes
            if node is not here and score(node) > now and self._fits(pod, node, here)
        ]
        for target in sorted(better, key=lambda node: -score(node)):
            if self._tries <= 0:
                return
            self._move(pod, here, target)
            if self._rules_hold():
                return
            self._move(pod, target, here)

    def switch_to_preferred_option(self, node: _Node) -> None:
        """Another zone or type at the same price, out of the same stock and within the same limits."""
        if any(self._problem.pods[pod].gang is not None for pod in node.pods):
            return
        best, before = self._total_score(node), (node.option, node.node, node.free)
        assert node.option is not None
        for option in self._alternatives(node.option, node):
            if self._tries <= 0:
                return
            node.option, node.node = option, as_existing_node(node.node.name, option)
            node.free = dict(option.capacity)
            for pod in node.pods:
                self._take(node, pod, 1)
            fits = min(node.free.values(), default=0) >= 0
            if fits and self._total_score(node) > best and self._rules_hold():
                best, before = self._total_score(node), (node.option, node.node, node.free)
            else:
                node.option, node.node, node.free = before

    def _alternatives(self, option: NodeOption, node: _Node) -> Iterator[NodeOption]:
        eligibilities = {self._group_of[pod].eligibility for pod in node.pods}
        for option_group in self._supply.option_groups:
            if (option_group.rank, option_group.stock, option_group.budget) != (
                option.rank, option.stock, option.budget,
            ):  # fmt: skip
                continue
            for position, other in enumerate(option_group.options):
                if (
                    other is not option and other.price == option.price and other.consumes == option.consumes
                ) and all(
                    position in self._supply.allowed_options(option_group, eligibility)
                    for eligibility in eligibilities
                ):
                    yield other

    # --- what is possible ---

    def _fits(self, pod: int, target: _Node, here: _Node) -> bool:
        group = self._group_of[pod]
        if target.node.rank > here.node.rank or (target.option is not None and not target.pods):
            return False
        if target.option is not None and target.option.group in group.refuses:
            return False
        if not self._supply.may_use(group, target.node):
            return False
        requests = dict(self._problem.pods[pod].shape.requests) | {PODS: 1}
        return all(target.free.get(name, 0) >= amount for name, amount in requests.items())

    def _rules_hold(self) -> bool:
        self._tries -= 1
        return rules_hold(self._problem, self.solution())

    def _move(self, pod: int, source: _Node, target: _Node) -> None:
        self._take(source, pod, -1)
        source.pods.remove(pod)
        self._take(target, pod, 1)
        target.pods.append(pod)

    def _take(self, node: _Node, pod: int, sign: int) -> None:
        for name, amount in self._problem.pods[pod].shape.requests:
            if name != PODS:
                node.free[name] = node.free.get(name, 0) - sign * amount
        node.free[PODS] = node.free.get(PODS, 0) - sign

    # --- scores ---

    def _total_score(self, node: _Node) -> int:
        return sum(self._score_of(pod)(node) for pod in node.pods)

    def _score_of(self, number: int) -> Callable[[_Node], int]:
        """How much a pod prefers a node, with the other pods where they are now."""
        shape = self._problem.pods[number].shape
        terms = [(weight, term) for weight, term in shape.preferred_affinity]
        terms += [(-weight, term) for weight, term in shape.preferred_anti_affinity]
        weighted = [(weight, term.topology_key, self._matching(number, term)) for weight, term in terms]
        soft_spreads = [
            (
                rule.topology_key,
                self._matching(number, PodTerm(rule.topology_key, spread_selector(rule, shape.labels))),
            )
            for rule in shape.spread
            if not rule.hard
        ]

        def score(node: _Node) -> int:
            labels = node.node.labels
            total = sum(weight for weight, term in shape.preferred_nodes if selects(term, labels))
            total += sum(weight for weight, key, matching in weighted if matching[node.value(key)])
            return total - sum(matching[node.value(key)] for key, matching in soft_spreads)

        return score

    def _matching(self, number: int, term: PodTerm) -> Counter[str | None]:
        """How many other pods match a term, by value of the term's key."""
        matcher = _PodMatcher(term.selector, term.namespaces_of(self._problem.pods[number].namespace))
        matching: Counter[str | None] = Counter()
        for node in self.nodes:
            value = node.value(term.topology_key)
            if value is None:
                continue
            others = (self._problem.pods[other] for other in node.pods if other != number)
            matching[value] += sum(matcher.matches(pod.shape, pod.namespace) for pod in others)
            matching[value] += sum(
                pods.count for pods in node.node.existing_pods if matcher.matches(pods.shape, pods.namespace)
            )
        return matching


@dataclass(slots=True)
class _PodMatcher:
    selector: Selector
    namespaces: frozenset[str]
    _known: dict[tuple[int, str], bool] = field(default_factory=dict)

    def matches(self, shape: PodShape, namespace: str) -> bool:
        key = (id(shape), namespace)
        known = self._known.get(key)
        if known is None:
            known = namespace in self.namespaces and selects(self.selector, dict(shape.labels))
            self._known[key] = known
        return known
