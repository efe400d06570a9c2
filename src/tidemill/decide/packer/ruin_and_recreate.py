"""A part of an answer taken back: the pods of a few nodes as a problem of their own, everything else as it stands.

What stays is stated as places with residents, so an attempt at the part keeps out of its way. Rules that residents
do not enforce (their own spreads) are left out there: the whole is audited before it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemill.decide.packer.lower_bound import Floor, free_of_charge
from tidemill.decide.packer.problem import Ask, NewNode, Place, Problem, Resident, Solution
from tidemill.decide.packer.verify import as_place
from tidemill.model.resources import amount
from tidemill.spec.names import PODS


@dataclass(slots=True)
class Rest:
    """The part that is to be found anew."""

    problem: Problem
    asks: frozenset[int]
    _whole: Solution
    _numbers: list[int]  # of the part's asks, in the whole
    _fixed: list[int]  # of the opened nodes that stay, by place after the places there are
    _there: int  # how many places there are

    def joined(self, part: Solution) -> Solution:
        """The whole with the part's answer in place of what was taken back."""
        whole, numbers = self._whole, self._numbers
        existing = {
            place: kept
            for place, asks in whole.existing.items()
            if (kept := [ask for ask in asks if ask not in self.asks])
        }
        stay = {number: list(self._keep(whole.opened[number])) for number in self._fixed}
        for place, asks in part.existing.items():
            moved = [numbers[ask] for ask in asks]
            if place < self._there:
                existing[place] = existing.get(place, []) + moved
            else:
                stay[self._fixed[place - self._there]] += moved
        opened = [NewNode(whole.opened[number].flavour, asks) for number, asks in stay.items() if asks]
        opened += [NewNode(node.flavour, [numbers[ask] for ask in node.asks]) for node in part.opened]
        unplaced = {ask: why for ask, why in whole.unplaced.items() if ask not in self.asks}
        unplaced |= {numbers[ask]: why for ask, why in part.unplaced.items()}
        return Solution(existing, opened, unplaced)

    def _keep(self, node: NewNode) -> list[int]:
        return [ask for ask in node.asks if ask not in self.asks]


class Ruin:
    """Nodes are numbered: those opened, then the places with somebody new on them."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem, self.solution = problem, solution
        self._nodes = [node.asks for node in solution.opened] + list(solution.existing.values())
        self._prices = [node.flavour.price for node in solution.opened] + [0.0] * len(solution.existing)
        self._looks = self._look()
        self._gangs: dict[tuple[str, str], list[int]] = {}
        for number, ask in enumerate(problem.asks):
            if ask.gang is not None:
                self._gangs.setdefault((ask.namespace, ask.gang.name), []).append(number)
        self._names = {name for ask in problem.asks for name, wanted in ask.shape.requests if wanted > 0}
        self._spare = {name: self._spare_of(name) for name in self._names}
        self.order = sorted(range(len(self._nodes)), key=lambda node: (-self._prices[node], node))

    def _look(self) -> list[tuple[object, ...]]:
        """Nodes with the same look are alike: emptying the one is as good as emptying the other."""
        kinds = [-id(node.flavour) for node in self.solution.opened] + list(self.solution.existing)
        return [
            (kind, tuple(sorted(self._look_of(self.problem.asks[ask]) for ask in asks)))
            for kind, asks in zip(kinds, self._nodes, strict=True)
        ]

    def _look_of(self, ask: Ask) -> tuple[int, str, str, str, int]:
        gang = ask.gang.name if ask.gang is not None else ""
        return id(ask.shape), ask.namespace, gang, ",".join(sorted(ask.refuses)), ask.priority

    def looks_like(self, nodes: tuple[int, ...]) -> tuple[object, ...]:
        return tuple(sorted((self._looks[node] for node in nodes), key=repr))

    def _spare_of(self, name: str) -> int:
        """What is free, or free of charge, if this answer stands."""
        spare = free_of_charge(self.problem, name)
        spare += sum(
            node.flavour.capacity.get(name, 0) for node in self.solution.opened if node.flavour.price > 0
        )
        placed = (self.problem.asks[ask] for asks in self._nodes for ask in asks)
        return spare - sum(amount(ask.shape.requests, name) for ask in placed)

    def may_gain(self, nodes: tuple[int, ...], floor: Floor) -> bool:
        """Could the rest of the answer and new nodes hold these pods for less than these nodes cost?"""
        paid = sum(self._prices[node] for node in nodes)
        if paid <= 0:
            return bool(self.solution.unplaced)
        needs: dict[str, int] = {}
        for name in self._names:
            held = sum(
                self.solution.opened[node].flavour.capacity.get(name, 0)
                for node in nodes
                if self._prices[node] > 0
            )
            needs[name] = held - self._spare[name]
        return floor.least(needs) < paid - 1e-6 or bool(self.solution.unplaced)

    def empty(self, nodes: tuple[int, ...]) -> Rest:
        problem, solution = self.problem, self.solution
        taken: set[int] = set()
        for node in nodes:
            for ask in self._nodes[node]:
                gang = problem.asks[ask].gang
                taken.update(self._gangs[(problem.asks[ask].namespace, gang.name)] if gang else (ask,))
        taken |= solution.unplaced.keys()
        numbers = sorted(taken)
        asks = tuple(problem.asks[ask] for ask in numbers)
        places = [self._place(place, number, taken) for number, place in enumerate(problem.places)]
        fixed = [
            number
            for number, node in enumerate(solution.opened)
            if any(ask not in taken for ask in node.asks)
        ]
        refused = frozenset().union(*(ask.refuses for ask in asks))
        places += [self._opened(number, taken, refused) for number in fixed]
        stocks, budgets = self._left(fixed)
        part = replace(problem, asks=asks, places=tuple(places), stocks=stocks, budgets=budgets)
        return Rest(part, frozenset(taken), solution, numbers, fixed, len(problem.places))

    def _place(self, place: Place, number: int, taken: set[int]) -> Place:
        staying = self._staying(self.solution.existing.get(number, ()), taken)
        if not staying:
            return place
        residents = (*place.residents, *_residents(staying))
        return replace(place, free=_less(place.free, staying), residents=residents)

    def _opened(self, number: int, taken: set[int], refused: frozenset[str]) -> Place:
        node = self.solution.opened[number]
        flavour, staying = node.flavour, self._staying(node.asks, taken)
        open_to_all = flavour.group not in refused
        return replace(
            as_place(f"new node {number}", flavour),
            free=_less(flavour.capacity, staying) if open_to_all else {},
            residents=_residents(staying),
        )

    def _staying(self, asks: list[int] | tuple[int, ...], taken: set[int]) -> list[Ask]:
        return [self.problem.asks[ask] for ask in asks if ask not in taken]

    def _left(self, fixed: list[int]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Stocks and budgets, less what stays."""
        stocks = dict(self.problem.stocks)
        budgets = {name: dict(limits) for name, limits in self.problem.budgets.items()}
        for number in fixed:
            flavour = self.solution.opened[number].flavour
            if flavour.stock:
                stocks[flavour.stock] -= 1
            limits = budgets.get(flavour.budget, {})
            for name, used in flavour.consumes.items():
                if name in limits:
                    limits[name] -= used
        return stocks, budgets


def _less(free: Mapping[str, int], staying: list[Ask]) -> dict[str, int]:
    left = dict(free)
    for ask in staying:
        for name, wanted in ask.shape.requests:
            if name != PODS:
                left[name] = left.get(name, 0) - wanted
        left[PODS] = left.get(PODS, 0) - 1
    return left


def _residents(staying: list[Ask]) -> tuple[Resident, ...]:
    shapes = {id(ask.shape): ask.shape for ask in staying}
    counts = Counter((id(ask.shape), ask.namespace) for ask in staying)
    return tuple(Resident(shapes[shape], namespace, count) for (shape, namespace), count in counts.items())
