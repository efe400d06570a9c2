"""The quick way for the usual problem: nodes that exist, no node to open, and pods without rules about other pods.

Most ticks place a pod or two on a node that is up. This gives the very answer of the general way (`packer.attempt`)
without its counters, ladders and domains: gangs first, whole, in the first zone and source with room; then the single
pods, the largest first, each on the node of the lowest rank where least is left of what it requests most; many equal
ones are spread over the nodes. It returns None where the general way has more to say; a test compares the two on
random problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.decide.packer.best_fit import CLASSES_A_POD, FEW_PODS
from tidemill.decide.packer.bins import Free, Requests, fit_count, free_after
from tidemill.decide.packer.packing_state import as_integers
from tidemill.decide.packer.pod_groups import (
    GANG_KEYS,
    RequestVectors,
    equal_pods,
    number_dimensions,
    selects_hostname,
)
from tidemill.decide.packer.problem import ExistingNode, PendingPod, Problem, Solution
from tidemill.decide.scheduler_rules import admitted, tolerated
from tidemill.model.pods import PodShape

_Domain = tuple[str, ...]
_Rank = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Node:
    """An existing node: what is free on it, and the pods that were put there."""

    number: int
    node: ExistingNode
    group: int | str  # nodes of one group take the same pods
    free: Free
    site: _Site
    pods: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Equals:
    """Nodes of one site with the same free vector, in the order they came to it."""

    serial: int
    nodes: dict[int, _Node] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Site:
    """The nodes of one rank and domain, those with the same free vector together."""

    rank: _Rank
    domain: _Domain
    classes: dict[Free, _Equals] = field(default_factory=dict)
    serial: int = 0

    def add(self, node: _Node) -> None:
        equals = self.classes.get(node.free)
        if equals is None:
            self.serial += 1
            equals = self.classes[node.free] = _Equals(self.serial)
        equals.nodes[node.number] = node

    def put(self, node: _Node, requests: Requests, pods: list[int]) -> None:
        equals = self.classes[node.free]
        del equals.nodes[node.number]
        if not equals.nodes:
            del self.classes[node.free]
        node.free = free_after(node.free, requests, len(pods))
        node.pods += pods
        self.add(node)

    def tightest(self, requests: Requests) -> list[tuple[_Equals, int]]:
        """Where a pod fits and how many do, first where least is free of what it requests most."""
        dominant = requests[0][0]
        fitting = [
            (free[dominant], equals.serial, equals, count)
            for free, equals in self.classes.items()
            if (count := fit_count(free, requests))
        ]
        fitting.sort(key=lambda one: one[:2])
        return [(equals, count) for _, _, equals, count in fitting]


@dataclass(slots=True, eq=False)
class _Group:
    """Equal pods."""

    first: PendingPod
    pods: list[int]
    requests: Requests
    size: float
    eligibility: int


_Queue = list[tuple[_Group, list[int]]]


def place_on_existing(problem: Problem) -> Solution | None:
    """The solution of the general way; None: only that one knows it."""
    if problem.options or problem.pod_budgets or any(node.existing_pods for node in problem.nodes):
        return None
    shapes = {id(pod.shape): pod.shape for pod in problem.pods}
    if not all(_is_plain(shape) for shape in shapes.values()):
        return None
    if len(problem.pods) == 1 and problem.pods[0].gang is None:
        return _place_one(problem)
    return _Placement(problem).solve()


def _place_one(problem: Problem) -> Solution:
    """A single pod, on the node that `_Placement` would choose: most ticks place one."""
    pod = problem.pods[0]
    dimensions = number_dimensions({pod.shape.requests})
    requests, _ = RequestVectors(problem, dimensions).of(pod.shape)
    wanted = [(dimensions[dimension], amount) for dimension, amount in requests]
    dominant = wanted[0][0]
    usable: dict[int | str, bool] = {}  # by group of nodes
    best: list[int] = []  # equally good nodes
    best_rank: _Rank = ()
    least = 0
    for number, node in enumerate(problem.nodes):
        free, rank = node.free, node.rank
        left = free.get(dominant, 0)
        if best and (rank > best_rank or (rank == best_rank and left > least)):
            continue
        if any(free.get(name, 0) < amount for name, amount in wanted):
            continue
        group = node.group or number
        known = usable.get(group)
        if known is None:
            known = usable[group] = _may_use(pod, node)
        if known:
            if best and (rank, left) == (best_rank, least):
                best.append(number)
            else:
                best, best_rank, least = [number], rank, left
    if not best:
        return Solution(unplaced={0: "no room"})
    chosen = best[0] if len(best) == 1 else _first_of_equals(problem, dimensions, best)
    return Solution({chosen: [0]})


def _first_of_equals(problem: Problem, dimensions: list[str], numbers: list[int]) -> int:
    """Nodes with the same free vector are one class: the class that comes first, and its first node."""

    def vector(node: ExistingNode) -> Free:
        return tuple([node.free.get(name, 0) for name in dimensions])

    rank = problem.nodes[numbers[0]].rank
    first: dict[Free, int] = {}
    for number, node in enumerate(problem.nodes):
        if node.rank == rank:
            first.setdefault(vector(node), number)
    return min(numbers, key=lambda number: (first[vector(problem.nodes[number])], number))


def _may_use(pod: PendingPod, node: ExistingNode) -> bool:
    return (
        node.group not in pod.refuses
        and tolerated(pod.shape, node.taints)
        and admitted(pod.shape, node.labels)
    )


def _is_plain(shape: PodShape) -> bool:
    return not (shape.sociable or shape.preferred_nodes or selects_hostname(shape))


class _Placement:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        members = equal_pods(problem)
        dimensions = number_dimensions({problem.pods[pods[0]].shape.requests for pods in members})
        vectors = RequestVectors(problem, dimensions)
        eligibilities: dict[tuple[object, ...], int] = {}
        self._groups: list[_Group] = []
        for pods in members:
            first = problem.pods[pods[0]]
            shape = first.shape
            key = (
                shape.node_selector, shape.node_terms, shape.tolerations, shape.volume_zones, first.refuses,
            )  # fmt: skip
            eligibility = eligibilities.setdefault(key, len(eligibilities))
            self._groups.append(_Group(first, pods, *vectors.of(shape), eligibility))
        keys = GANG_KEYS if any(group.first.gang is not None for group in self._groups) else ()
        sites: dict[tuple[_Rank, _Domain], _Site] = {}
        self._nodes: list[_Node] = []
        for number, node in enumerate(problem.nodes):
            where = (node.rank, tuple([node.labels.get(key, "") for key in keys]))
            site = sites.get(where)
            if site is None:
                site = sites[where] = _Site(*where)
            free = tuple([node.free.get(name, 0) for name in dimensions])
            self._nodes.append(_Node(number, node, node.group or number, free, site))
            site.add(self._nodes[-1])
        self._sites = [sites[where] for where in sorted(sites)]
        self._known: dict[tuple[int, int | str], bool] = {}  # by eligibility and group of nodes
        self._gangs: set[tuple[str, str]] = set()
        self._scale = as_integers(vectors.weights)

    def solve(self) -> Solution | None:
        singles: list[_Group] = []
        unplaced: list[int] = []
        single_is_left = False
        for level in self._levels():
            gangs = [group for group in level if group.first.gang is not None]
            alone = [group for group in level if group.first.gang is None]
            if not self._place_gangs(gangs, unplaced):
                return None
            for batch in self._batches(alone):
                left = self._place_batch(batch)
                unplaced += left
                single_is_left = single_is_left or bool(left)
            singles += alone
        if single_is_left and self._another_could_move(singles, set(unplaced)):
            return None
        solution = Solution({node.number: node.pods for node in self._nodes if node.pods})
        for pod in sorted(unplaced):
            gang = self._problem.pods[pod].gang is not None
            solution.unplaced[pod] = "no room for the whole gang" if gang else "no room"
        return solution

    def _levels(self) -> Iterator[list[_Group]]:
        """All pods of a higher priority are placed first."""
        levels: dict[int, list[_Group]] = {}
        for group in self._groups:
            levels.setdefault(group.first.priority, []).append(group)
        return (levels[priority] for priority in sorted(levels, reverse=True))

    def _may_use(self, group: _Group, node: _Node) -> bool:
        key = (group.eligibility, node.group)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _may_use(group.first, node.node)
        return known

    # --- gangs ---

    def _place_gangs(self, groups: list[_Group], unplaced: list[int]) -> bool:
        """False: a gang has pods that differ."""
        for group in groups:
            assert group.first.gang is not None
            key = (group.first.namespace, group.first.gang.name)
            if key in self._gangs:
                return False
            self._gangs.add(key)
        domains = sorted({site.domain for site in self._sites})
        too_many: dict[tuple[int, int], int] = {}  # of equal gangs: so many pods found no room
        for group in sorted(groups, key=_turn):
            assert group.first.gang is not None
            count, equal = len(group.pods), (id(group.first.shape), group.eligibility)
            small = count < group.first.gang.size or too_many.get(equal, count + 1) <= count
            plans = (self._plan(group, domain) for domain in domains if not small)
            plan = next((plan for plan in plans if plan is not None), None)
            if plan is None:
                unplaced += group.pods
                if count >= group.first.gang.size:
                    too_many[equal] = min(count, too_many.get(equal, count))
                continue
            start = 0
            for node, there in plan:
                node.site.put(node, group.requests, group.pods[start : start + there])
                start += there
        return True

    def _plan(self, group: _Group, domain: _Domain) -> list[tuple[_Node, int]] | None:
        """How many of its pods go where; None: not all of them find room."""
        missing, plan = len(group.pods), []
        for site in self._sites:
            if site.domain != domain:
                continue
            roomy = [
                node
                for free, equals in site.classes.items()
                if fit_count(free, group.requests)
                for node in equals.nodes.values()
            ]
            for node in sorted(roomy, key=lambda node: node.number):
                if self._may_use(group, node):
                    count = min(fit_count(node.free, group.requests), missing)
                    plan.append((node, count))
                    missing -= count
                    if not missing:
                        return plan
        return None

    # --- single pods ---

    def _batches(self, groups: list[_Group]) -> list[list[_Group]]:
        """Pods that are placed in one go, in the order of their turns, the oldest first."""
        batches: dict[tuple[float, Requests, tuple[_Domain, ...], int], list[_Group]] = {}
        for group in groups:
            turn = (-group.size, group.requests, self._domains(group), group.eligibility)
            batches.setdefault(turn, []).append(group)
        ordered = (batches[turn] for turn in sorted(batches))
        return [sorted(batch, key=_age) for batch in ordered]

    def _domains(self, group: _Group) -> tuple[_Domain, ...]:
        return tuple(sorted({node.site.domain for node in self._nodes if self._may_use(group, node)}))

    def _place_batch(self, batch: list[_Group]) -> list[int]:
        """Pods with the same requests and eligibility; returns those that are left."""
        queue = [(group, group.pods) for group in batch]
        for site in self._sites:
            total = sum([len(pods) for _, pods in queue])
            if total < FEW_PODS or total * CLASSES_A_POD < len(site.classes):
                queue = [(group, self._fill_tightest(site, group, pods)) for group, pods in queue]
            else:
                queue = self._spread(site, queue)
            queue = [(group, pods) for group, pods in queue if pods]
            if not queue:
                break
        return [pod for _, pods in queue for pod in pods]

    def _fill_tightest(self, site: _Site, group: _Group, pods: list[int]) -> list[int]:
        """Fill one node after the other; returns the pods that are left."""
        for equals, each in site.tightest(group.requests):
            for node in list(equals.nodes.values()):
                if self._may_use(group, node):
                    count = min(each, len(pods))
                    site.put(node, group.requests, pods[:count])
                    pods = pods[count:]
                    if not pods:
                        return []
        return pods

    def _spread(self, site: _Site, queue: _Queue) -> _Queue:
        """Many equal pods: one to a node, first where least would be left over; then again, while any still fit."""
        group = queue[0][0]
        pods = [pod for _, pods in queue for pod in pods]  # who may use a node is the same for all
        done, classes = 0, list(site.classes)
        while classes and done < len(pods):
            reached: dict[Free, None] = {}
            for free in self._by_leftover(site, group.requests, classes):
                for node in list(site.classes[free].nodes.values()):
                    if done < len(pods) and self._may_use(group, node):
                        site.put(node, group.requests, [pods[done]])
                        reached[node.free] = None
                        done += 1
            classes = list(reached)
        return [(group, pods[done:])]

    def _by_leftover(self, site: _Site, requests: Requests, classes: list[Free]) -> list[Free]:
        """Where a pod fits, by how much would be left over: with two dimensions of that with more, else of all."""
        weighed = [(dimension, amount) for dimension, amount in requests if self._scale[dimension]]
        combine = max if len(weighed) == 2 else sum
        fitting = [
            (
                combine(
                    [(free[dimension] - amount) * self._scale[dimension] for dimension, amount in weighed]
                ),
                site.classes[free].serial,
                free,
            )
            for free in classes
            if free in site.classes and fit_count(free, requests)
        ]
        return [free for _, _, free in sorted(fitting)]

    def _another_could_move(self, groups: list[_Group], unplaced: set[int]) -> bool:
        """A pod with a node has room on another one too: it might make way for a pod without."""
        placed = (group for group in groups if not unplaced.issuperset(group.pods))
        return any(
            fit_count(free, group.requests) and self._may_use(group, node)
            for group in placed
            for site in self._sites
            for free, equals in site.classes.items()
            for node in equals.nodes.values()
        )


def _age(group: _Group) -> tuple[float, int]:
    return group.first.pending_since, group.pods[0]


def _turn(gang: _Group) -> tuple[object, ...]:
    """The largest first, then the oldest."""
    return (-gang.size * len(gang.pods), gang.first.pending_since, gang.pods[0])
