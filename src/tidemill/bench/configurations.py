"""A lower bound by configurations: which sets of pods fit together on one node, and how many nodes of each set.

The configuration LP (Gilmore and Gomory) knows that a small node holds whole pods, and that a pod that keeps others
off its host does so on every node. Its columns are sets of pods on small nodes, found by pricing. Large nodes may be
filled with pieces of pods: there whole numbers matter little. Every rule that is left out makes the bound lower, so
it is never too high. For problems without existing or prepaid nodes and with pods that need a host each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from tidemill.bench.checker.hosts import host_of_option
from tidemill.bench.pod_kinds import pod_kinds
from tidemill.decide.packer.problem import Problem
from tidemill.linear_program import INFINITE, Program
from tidemill.model.pods import PodShape
from tidemill.sim.cluster.scheduler_filters import PodSelector
from tidemill.spec.names import LABEL_HOSTNAME, PODS

MOST_KINDS = 200
SMALL_NODES = 8  # so many of the cheapest types hold whole pods
LEAST_SHARE = 0.1  # of the pods: rules of fewer are left out
GAP = 0.002  # the search for better columns stops when they could change so little
ROUNDS = 60
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class _Kind:
    requests: tuple[tuple[str, int], ...]
    limits: frozenset[PodSelector]  # at most one pod that these match may be on its host: itself
    matched: frozenset[PodSelector]


@dataclass(frozen=True, slots=True)
class _Type:
    price: float
    room: Mapping[str, int]


# For each rule, whether a node keeps it: then one pod that it matches is there at most. If not, no pod that has it.
_Mode = frozenset[PodSelector]


def configuration_bound(problem: Problem) -> float | None:
    """None: this cannot state the problem."""
    counts = _kinds(problem)
    types = _types(problem)
    if counts is None or types is None or len(counts) > MOST_KINDS:
        return None
    if len({name for kind in counts for name, amount in kind.requests if amount} - {PODS}) != 2:
        return None
    rules = sorted({rule for kind in counts for rule in kind.limits}, key=repr)
    if not rules:
        return None
    modes = [
        frozenset(rule for rule, kept in zip(rules, choice, strict=True) if kept)
        for choice in product((False, True), repeat=len(rules))
    ]
    return _Master(counts, types, modes).bound()


def _host_rules(shape: PodShape, namespace: str) -> frozenset[PodSelector]:
    """The rules that let no other pod they match on the host of a pod that they match too."""
    found = [
        PodSelector.of_term(term, namespace)
        for term in shape.anti_affinity
        if term.topology_key == LABEL_HOSTNAME
    ]
    found += [
        PodSelector.of_spread(spread, namespace, shape.labels)
        for spread in shape.spread
        if spread.hard and spread.topology_key == LABEL_HOSTNAME and spread.max_skew == 1
    ]
    return frozenset(one for one in found if one.matches(namespace, dict(shape.labels)))


def _kinds(problem: Problem) -> dict[_Kind, int] | None:
    """Pods that differ in nothing but what this bound leaves out are one kind; None: some are too particular."""
    if problem.nodes:
        return None
    found = pod_kinds(problem, gangs=False)
    frequent: dict[PodSelector, int] = {}
    for each in found:
        for rule in _host_rules(each.pod.shape, each.pod.namespace):
            frequent[rule] = frequent.get(rule, 0) + each.count
    kept = {rule for rule, count in frequent.items() if count >= LEAST_SHARE * len(problem.pods)}
    counts: dict[_Kind, int] = {}
    for each in found:
        shape, namespace = each.pod.shape, each.pod.namespace
        kind = _Kind(
            tuple(sorted(each.requests.items())),
            _host_rules(shape, namespace) & kept,
            frozenset(rule for rule in kept if rule.matches(namespace, dict(shape.labels))),
        )
        counts[kind] = counts.get(kind, 0) + each.count
    return counts


def _types(problem: Problem) -> list[_Type] | None:
    """Cheapest first, as if every pod might use them all; None: some cost nothing."""
    found: dict[tuple[object, ...], _Type] = {}
    for index, option in enumerate(problem.options):
        room = host_of_option(problem, index, 0).room
        found.setdefault((option.price, *sorted(room.items())), _Type(option.price, room))
    if any(each.price <= 0 for each in found.values()) or len(found) <= SMALL_NODES:
        return None
    return sorted(found.values(), key=lambda each: each.price)


class _Master:
    def __init__(self, counts: dict[_Kind, int], types: list[_Type], modes: list[_Mode]) -> None:
        self._kinds, self._counts = list(counts), list(counts.values())
        self._small, self._large = types[:SMALL_NODES], types[SMALL_NODES:]
        self._modes = modes
        self._names = sorted({name for kind in self._kinds for name, amount in kind.requests if amount})
        self._columns: dict[tuple[tuple[int, int], ...], float] = {}  # pods of each kind on one node -> price
        # Small nodes on a grid of two resources; how many pods a node takes is left out there.
        first, second = (name for name in self._names if name != PODS)
        requests = [dict(kind.requests) for kind in self._kinds]
        units = [gcd(*(of.get(name, 0) for of in requests)) for name in (first, second)]
        self._sizes = [(of.get(first, 0) // units[0], of.get(second, 0) // units[1]) for of in requests]
        self._at = [(each.room[first] // units[0], each.room[second] // units[1]) for each in self._small]
        self._grid = (max(a for a, _ in self._at) + 1, max(b for _, b in self._at) + 1)

    def bound(self) -> float | None:
        best = 0.0
        for _ in range(ROUNDS):  # every round gives a bound
            solved = self._solve()
            if solved is None:
                return None
            cost, values = solved
            # Duals at which no set of pods is worth more than its node are a bound; these may be so much too high.
            excess = self._price_columns(values)
            best = max(best, cost / excess)
            if excess <= 1 + GAP:
                break
        return best

    def _solve(self) -> tuple[float, list[float]] | None:
        """The price with the columns so far, and what each kind of pod adds to it."""
        program = Program()
        rows: list[dict[int, float]] = [{} for _ in self._kinds]
        for pattern, price in self._columns.items():
            column = program.column(price)
            for number, count in pattern:
                rows[number][column] = float(count)
        for mode in self._modes:
            self._add_large_nodes(program, mode, rows)
        for number, count in enumerate(self._counts):
            program.row(count, INFINITE, rows[number])
        solved = program.optimum()
        if solved is None:
            return None
        return solved.objective, list(solved.duals[len(solved.duals) - len(self._kinds) :])

    def _add_large_nodes(self, program: Program, mode: _Mode, rows: list[dict[int, float]]) -> None:
        """Nodes that take pods in pieces: together no more than they hold together."""
        opened = [program.column(each.price) for each in self._large]
        here = {}
        for number, kind in enumerate(self._kinds):
            if kind.limits <= mode:
                here[number] = program.column()
                rows[number][here[number]] = 1.0
        for name in self._names:
            scale = float(self._large[0].room.get(name, 0) or 1)
            used = {c: dict(self._kinds[n].requests).get(name, 0) / scale for n, c in here.items()}
            held = {c: -each.room.get(name, 0) / scale for c, each in zip(opened, self._large, strict=True)}
            program.row(-INFINITE, 0.0, {**{c: a for c, a in used.items() if a}, **held})
        for rule in mode:
            matched = {c: 1.0 for n, c in here.items() if rule in self._kinds[n].matched}
            program.row(-INFINITE, 0.0, {**matched, **dict.fromkeys(opened, -1.0)})

    def _price_columns(self, values: list[float]) -> float:
        """Adds the best set of pods of every small node; returns the most that one is worth over its price."""
        most = 1.0
        for mode in self._modes:
            knapsack = _Knapsack(self._grid, self._sizes, self._stages(mode, values))
            for each, at in zip(self._small, self._at, strict=True):
                worth = knapsack.worth(at)
                if worth > each.price * (1 + 1e-9):
                    most = max(most, worth / each.price)
                    self._columns.setdefault(knapsack.pattern(at), each.price)
        return most

    def _stages(self, mode: _Mode, values: list[float]) -> tuple[list[dict[int, float]], dict[int, float]]:
        """Kinds of which a node takes one in all, rule by rule, and kinds of which it takes any number."""
        one_of: dict[PodSelector, dict[int, float]] = {rule: {} for rule in sorted(mode, key=repr)}
        any_number: dict[int, float] = {}
        for number, (kind, value) in enumerate(zip(self._kinds, values, strict=True)):
            if value > 0 and kind.limits <= mode:
                rule = next((rule for rule in one_of if rule in kind.matched), None)
                (any_number if rule is None else one_of[rule])[number] = value
        return list(one_of.values()), any_number


class _Knapsack:
    """The most valuable pods for every amount of two resources, by dynamic programming."""

    def __init__(
        self,
        grid: tuple[int, int],
        sizes: list[tuple[int, int]],
        stages: tuple[list[dict[int, float]], dict[int, float]],
    ) -> None:
        import numpy as np

        self._sizes, (one_of, self._any_number) = sizes, stages
        worth = np.zeros(grid)
        self._before: list[tuple[Any, dict[int, float]]] = []  # what each stage began with, and its kinds
        for kinds in one_of:
            self._before.append((worth, kinds))
            base, worth = worth, worth.copy()
            for number, value in kinds.items():
                a, b = sizes[number]
                if a < grid[0] and b < grid[1]:
                    np.maximum(worth[a:, b:], base[: grid[0] - a, : grid[1] - b] + value, out=worth[a:, b:])
        self._base, self._worth = worth, worth.copy()
        for number, value in self._any_number.items():
            a, b = sizes[number]
            for row in range(a, grid[0]) if b < grid[1] else ():
                here = self._worth[row, b:]
                np.maximum(here, self._worth[row - a, : grid[1] - b] + value, out=here)

    def worth(self, at: tuple[int, int]) -> float:
        return float(self._worth[at])

    def pattern(self, at: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        chosen: Counter[int] = Counter()
        while self._worth[at] > self._base[at] + EPSILON:
            at, number = self._step(at, self._worth[at], self._worth, self._any_number)
            chosen[number] += 1
        worth = self._base
        for before, kinds in reversed(self._before):
            if worth[at] > before[at] + EPSILON:
                at, number = self._step(at, worth[at], before, kinds)
                chosen[number] += 1
            worth = before
        return tuple(sorted(chosen.items()))

    def _step(
        self, at: tuple[int, int], worth: float, before: Any, kinds: Mapping[int, float]
    ) -> tuple[tuple[int, int], int]:
        """The pod that was added last, and what was left for the others."""
        for number, value in kinds.items():
            a, b = at[0] - self._sizes[number][0], at[1] - self._sizes[number][1]
            if a >= 0 and b >= 0 and abs(before[a, b] + value - worth) < EPSILON:
                return (a, b), number
        raise AssertionError("a worth comes from a pod")
