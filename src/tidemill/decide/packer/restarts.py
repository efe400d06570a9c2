"""Second attempts at small problems: other strategies, and then nodes emptied and filled anew where it is cheaper.

A decision is mostly about tens of pods, and there the greedy answer may cost far more than it must. How much is
tried is counted and not timed, so that the same problem has the same answer on every machine. A problem of a thousand
pods is attempted twice, a large one once. Knows problems and answers only; how an attempt is made is not its business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tidemill.decide.packer.dominance import narrowed
from tidemill.decide.packer.lower_bound import Floor
from tidemill.decide.packer.preferences import grant
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.decide.packer.ruin_and_recreate import Ruin
from tidemill.decide.packer.strategy import USUAL, Ahead, Hosts, Strategy
from tidemill.decide.packer.verify import everybody_is_content, passed_over
from tidemill.model.resources import amount
from tidemill.spec.names import ACCELERATORS

Attempt = Callable[[Problem, Strategy], Solution]

# What may be looked at in all further attempts together: a place or a flavour counts as one and an ask as ten, about
# in proportion to what they cost. Ten GPU pods take 5 to 30 ms, a hundred of all sizes 70 to 180; with 3,000 it is
# half of that, and a hundred GPU pods cost 6 % more an hour: money is dearer.
_WORK, _ASK = 5_000, 10
# Up to here a problem is attempted twice: a thousand mixed pods cost up to half a percent less for 50 ms more.
_TWICE = 3 * _WORK
_EPSILON = 1e-6

# In order of how many random small problems each of them was the first to solve best.
_OTHERS = (
    Strategy(Hosts.BY_SIZE, Ahead.ALIKE, floors=False),
    Strategy(Hosts.BY_SIZE, Ahead.EVERYBODY, floors=False, gangs_first=False),
    Strategy(Hosts.BY_SIZE, Ahead.ALIKE, floors=False, choosy_first=True),
    Strategy(Hosts.FIRST, floors=False, large_first=False),
    Strategy(Hosts.BY_SIZE, floors=False, large_first=False),
)
_ANEW = (
    Strategy(Hosts.BY_SIZE, Ahead.EVERYBODY, floors=False, gangs_first=False),
    Strategy(Hosts.LAST, floors=False),
    Strategy(Hosts.FIRST, Ahead.ALIKE, floors=False),
)


def search(problem: Problem, attempt: Attempt) -> Solution:
    best = attempt(problem, USUAL)
    if work(problem) > _WORK:
        return _second(problem, best, attempt) if work(problem) <= _TWICE else best
    # Who asks alone has the best place there is at once. For the others: a long queue asks at every tick.
    if len(problem.asks) > 1 and problem.flavours and (best.price > 0 or best.unplaced):
        best = _cheapest(problem, best, attempt)
    return grant(problem, best)


def _second(problem: Problem, best: Solution, attempt: Attempt) -> Solution:
    if not problem.flavours or best.price <= 0:
        return best
    other = attempt(problem, Strategy(floors=False))
    return other if _is_better(problem, other, best) else best


def _cheapest(problem: Problem, best: Solution, attempt: Attempt) -> Solution:
    floor, purse = Floor(problem, best.unplaced), _Purse(_WORK)
    if not _is_done(best, floor) and best.price > 0:
        floor.look_closer()
    if _is_done(best, floor) or (best.price <= 0 and not _has_hope(problem, best, attempt)):
        return best
    problem = narrowed(problem)
    best = _hurried(problem, best, attempt, purse)
    for strategy in _OTHERS:
        if purse.left < _WORK // 2 or not purse.pays(problem):
            break  # the other half is for rebuilding
        other = attempt(problem, strategy)
        best = other if _is_better(problem, other, best) else best
        if _is_done(best, floor):
            return best
    return _rebuild(problem, best, attempt, floor, purse)


def _has_hope(problem: Problem, best: Solution, attempt: Attempt) -> bool:
    """Is anybody left out who would have a place if nobody else asked? The others are asked about at every tick."""
    alone: dict[tuple[object, ...], list[int]] = {}
    for index in best.unplaced:
        ask = problem.asks[index]
        alone.setdefault((ask.gang, ask.namespace) if ask.gang is not None else (index,), []).append(index)
    asked: set[tuple[object, ...]] = set()
    for indexes in alone.values():
        first = problem.asks[indexes[0]]
        size = first.gang.size if first.gang is not None else 1
        looks = (id(first.shape), first.namespace, size, len(indexes), first.refuses)
        if looks in asked:
            continue
        asked.add(looks)
        asks = tuple(problem.asks[index] for index in indexes)
        if not attempt(replace(problem, asks=asks), USUAL).unplaced:
            return True
    return False


def _hurried(problem: Problem, best: Solution, attempt: Attempt, purse: _Purse) -> Solution:
    """Whoever is left out comes first another time: it may be that others have a choice and took its only place."""
    first: frozenset[int] = frozenset()
    last = best
    while last.unplaced and not first.issuperset(last.unplaced):
        first |= last.unplaced.keys()
        if purse.left < _WORK // 2 or not purse.pays(problem):
            break
        last = attempt(problem, Strategy(hurried=first))
        best = last if _is_better(problem, last, best) else best
    return best


def work(problem: Problem) -> int:
    return _ASK * len(problem.asks) + len(problem.places) + len(problem.flavours)


@dataclass(slots=True)
class _Purse:
    left: int

    def pays(self, problem: Problem) -> bool:
        self.left -= work(problem)
        return self.left >= 0


def _is_done(best: Solution, floor: Floor) -> bool:
    return not best.unplaced and best.price <= floor.price + _EPSILON


def _is_better(problem: Problem, one: Solution, other: Solution) -> bool:
    """Who has a place keeps it, whatever it costs and however many others could have one for it."""
    mine, theirs = _left_out(problem, one), _left_out(problem, other)
    if mine != theirs:
        return mine < theirs
    if _cost(problem, one) >= _cost(problem, other):
        return False
    return passed_over(problem, one) <= passed_over(problem, other)


def _left_out(problem: Problem, solution: Solution) -> Counter[tuple[object, ...]]:
    asks = (problem.asks[index] for index in solution.unplaced)
    return Counter((id(ask.shape), ask.namespace, ask.priority, ask.gang, ask.refuses) for ask in asks)


def _cost(problem: Problem, solution: Solution) -> tuple[float, int, int]:
    """Price, accelerators on new nodes that nobody asked for, nodes."""
    stranded = sum(
        node.flavour.capacity.get(name, 0)
        - sum(amount(problem.asks[ask].shape.requests, name) for ask in node.asks)
        for node in solution.opened
        for name in ACCELERATORS
    )
    return round(solution.price, 6), stranded, len(solution.opened)


def _rebuild(problem: Problem, best: Solution, attempt: Attempt, floor: Floor, purse: _Purse) -> Solution:
    """Empty a few nodes, let their pods find places anew, keep it if it is cheaper; until nothing is or work ends."""
    tried: set[tuple[object, ...]] = set()
    while not _is_done(best, floor):
        better = next(_rebuilt(problem, Ruin(problem, best), attempt, floor, purse, tried), None)
        if better is None:
            return best
        best = better
    return best


def _rebuilt(
    problem: Problem,
    ruin: Ruin,
    attempt: Attempt,
    floor: Floor,
    purse: _Purse,
    tried: set[tuple[object, ...]],
) -> Iterator[Solution]:
    """Better answers with the pods of one to three nodes found anew, as they are found."""
    for nodes in (few for count in (1, 2, 3) for few in combinations(ruin.order, count)):
        looks = ruin.looks_like(nodes)
        if looks in tried or not ruin.may_gain(nodes, floor):
            continue
        tried.add(looks)
        part = ruin.empty(nodes)
        for strategy in _ANEW:
            if not purse.pays(part.problem):
                return
            whole = part.joined(attempt(part.problem, strategy))
            if _is_better(problem, whole, ruin.solution) and everybody_is_content(problem, whole):
                yield whole
