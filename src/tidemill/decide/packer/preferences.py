"""Wishes: preferred node labels, preferred company, ScheduleAnyway spread. Granted where it costs nothing.

An answer is taken as it is, and pods move to nodes they like better: never for money, never onto a higher rank, never
against anybody's rule. A new node may become one of another zone or type at the very same price. Only for small
problems, one pod after the other, the important first: what is wished for is not worth a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidemill.decide.packer.pod_groups import gather
from tidemill.decide.packer.problem import Ask, Flavour, NewNode, Place, Problem, Solution
from tidemill.decide.packer.supply import Ground
from tidemill.decide.packer.verify import as_place, everybody_is_content
from tidemill.decide.scheduler_rules import selects
from tidemill.model.labels import Selector
from tidemill.model.pods import PodShape, PodTerm, spread_selector
from tidemill.spec.names import LABEL_HOSTNAME, PODS

# Every move is audited by everybody: so many are tried at most.
_MOST_TRIES = 64


def grant(problem: Problem, solution: Solution) -> Solution:
    wishing = [number for number, ask in enumerate(problem.asks) if _has_wishes(ask.shape)]
    if not wishing:
        return solution
    board = _Board(problem, solution)
    for number in sorted(wishing, key=lambda one: (-problem.asks[one].priority, one)):
        if number not in solution.unplaced and _may_move(problem.asks[number]):
            board.please(number)
    for node in board.nodes:
        if node.flavour is not None and any(_has_wishes(problem.asks[ask].shape) for ask in node.asks):
            board.turn_into_what_they_like(node)
    return board.written()


def _has_wishes(shape: PodShape) -> bool:
    return bool(
        shape.preferred_nodes
        or shape.preferred_affinity
        or shape.preferred_anti_affinity
        or any(not rule.hard for rule in shape.spread)
    )


def _may_move(ask: Ask) -> bool:
    """A gang stays where it is whole, and ports are not looked at here."""
    return ask.gang is None and not ask.shape.host_ports


@dataclass(slots=True, eq=False)
class _Node:
    place: Place  # as it is, or as a node on its way
    number: int  # of the place; -1: a new node
    flavour: Flavour | None
    asks: list[int]
    free: dict[str, int] = field(default_factory=dict)

    def value(self, key: str) -> str | None:
        """Of a topology key. Every node is a host of its own."""
        return f"{id(self)}" if key == LABEL_HOSTNAME else self.place.labels.get(key)


class _Board:
    def __init__(self, problem: Problem, solution: Solution) -> None:
        self._problem, self._solution = problem, solution
        found = gather(problem)
        self._ground = Ground(problem, found)
        self._crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
        self._tries = _MOST_TRIES
        self.nodes = [
            _Node(place, number, None, list(solution.existing.get(number, ())))
            for number, place in enumerate(problem.places)
        ]
        for number, node in enumerate(solution.opened):
            place = as_place(f"new node {number}", node.flavour)
            self.nodes.append(_Node(place, -1, node.flavour, list(node.asks)))
        for one in self.nodes:
            one.free = dict(one.place.free)
            for ask in one.asks:
                self._take(one, ask, 1)

    def written(self) -> Solution:
        existing = {one.number: one.asks for one in self.nodes if one.number >= 0 and one.asks}
        opened = [
            NewNode(one.flavour, one.asks) for one in self.nodes if one.flavour is not None and one.asks
        ]
        return Solution(existing, opened, self._solution.unplaced)

    def please(self, ask: int) -> None:
        """Move one pod to the node it likes best of those that have room for it."""
        here = next(one for one in self.nodes if ask in one.asks)
        likes = self._liking(ask)
        now = likes(here)
        better = [
            one for one in self.nodes if one is not here and likes(one) > now and self._fits(ask, one, here)
        ]
        for there in sorted(better, key=lambda one: -likes(one)):
            if self._tries <= 0:
                return
            self._move(ask, here, there)
            if self._stands():
                return
            self._move(ask, there, here)

    def turn_into_what_they_like(self, node: _Node) -> None:
        """Another zone or type at the same price, out of the same stock and within the same limits."""
        if any(self._problem.asks[ask].gang is not None for ask in node.asks):
            return
        now, was = self._together(node), (node.flavour, node.place, node.free)
        assert node.flavour is not None
        for other in self._alternatives(node.flavour, node):
            if self._tries <= 0:
                return
            node.flavour, node.place = other, as_place(node.place.name, other)
            node.free = dict(other.capacity)
            for ask in node.asks:
                self._take(node, ask, 1)
            fits = min(node.free.values(), default=0) >= 0
            if fits and self._together(node) > now and self._stands():
                now, was = self._together(node), (node.flavour, node.place, node.free)
            else:
                node.flavour, node.place, node.free = was

    def _alternatives(self, flavour: Flavour, node: _Node) -> Iterator[Flavour]:
        crowds = {self._crowd_of[ask].eligibility for ask in node.asks}
        for stratum in self._ground.strata:
            if (stratum.rank, stratum.stock, stratum.budget) != (flavour.rank, flavour.stock, flavour.budget):
                continue
            for position, other in enumerate(stratum.flavours):
                if (
                    other is not flavour
                    and other.price == flavour.price
                    and other.consumes == flavour.consumes
                ) and all(position in self._ground.allowed(stratum, one) for one in crowds):
                    yield other

    # --- what is possible ---

    def _fits(self, ask: int, there: _Node, here: _Node) -> bool:
        crowd, place = self._crowd_of[ask], there.place
        if place.rank > here.place.rank or (there.flavour is not None and not there.asks):
            return False
        if there.flavour is not None and there.flavour.group in crowd.refuses:
            return False
        if not self._ground.may_stand(crowd, place):
            return False
        wants = dict(self._problem.asks[ask].shape.requests) | {PODS: 1}
        return all(there.free.get(name, 0) >= amount for name, amount in wants.items())

    def _stands(self) -> bool:
        self._tries -= 1
        return everybody_is_content(self._problem, self.written())

    def _move(self, ask: int, source: _Node, target: _Node) -> None:
        self._take(source, ask, -1)
        source.asks.remove(ask)
        self._take(target, ask, 1)
        target.asks.append(ask)

    def _take(self, one: _Node, ask: int, sign: int) -> None:
        for name, amount in self._problem.asks[ask].shape.requests:
            if name != PODS:
                one.free[name] = one.free.get(name, 0) - sign * amount
        one.free[PODS] = one.free.get(PODS, 0) - sign

    # --- what is liked ---

    def _together(self, node: _Node) -> int:
        return sum(self._liking(ask)(node) for ask in node.asks)

    def _liking(self, ask: int) -> Callable[[_Node], int]:
        """How much a pod likes a node, from who is where now."""
        one = self._problem.asks[ask]
        shape = one.shape
        company = [
            (weight, term.topology_key, self._met(ask, term)) for weight, term in shape.preferred_affinity
        ]
        company += [
            (-weight, term.topology_key, self._met(ask, term))
            for weight, term in shape.preferred_anti_affinity
        ]
        evenly = [
            (
                rule.topology_key,
                self._met(ask, PodTerm(rule.topology_key, spread_selector(rule, shape.labels))),
            )
            for rule in shape.spread
            if not rule.hard
        ]

        def likes(node: _Node) -> int:
            labels = node.place.labels
            score = sum(weight for weight, term in shape.preferred_nodes if selects(term, labels))
            score += sum(weight for weight, key, there in company if there[node.value(key)])
            return score - sum(there[node.value(key)] for key, there in evenly)

        return likes

    def _met(self, ask: int, term: PodTerm) -> Counter[str | None]:
        """Pods a term means, but for the one that asks, by value of the term's key."""
        means = _Meaning(term.selector, term.namespaces_of(self._problem.asks[ask].namespace))
        there: Counter[str | None] = Counter()
        for node in self.nodes:
            value = node.value(term.topology_key)
            if value is None:
                continue
            others = (self._problem.asks[other] for other in node.asks if other != ask)
            there[value] += sum(means.pod(other.shape, other.namespace) for other in others)
            there[value] += sum(r.count for r in node.place.residents if means.pod(r.shape, r.namespace))
        return there


@dataclass(slots=True)
class _Meaning:
    selector: Selector
    namespaces: frozenset[str]
    _known: dict[tuple[int, str], bool] = field(default_factory=dict)

    def pod(self, shape: PodShape, namespace: str) -> bool:
        key = (id(shape), namespace)
        known = self._known.get(key)
        if known is None:
            known = namespace in self.namespaces and selects(self.selector, dict(shape.labels))
            self._known[key] = known
        return known
