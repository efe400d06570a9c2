"""Further attempts at small problems: other strategies, then ruin and recreate while that is cheaper.

A decision is mostly about tens of pods, and there the greedy solution may cost far more than it must. The work is
counted and not timed, so that the same problem has the same solution on every machine. A problem of a thousand pods
is attempted twice, a large one once. This knows problems and solutions only; how an attempt is made is in `attempt`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tidemill.decide.packer.dominance import without_dominated
from tidemill.decide.packer.lower_bound import LowerBound
from tidemill.decide.packer.placement_order import USUAL, Ahead, OnePerHost, Strategy
from tidemill.decide.packer.preferences import satisfy_preferences
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.decide.packer.ruin_and_recreate import Ruin
from tidemill.decide.packer.verify import rules_hold, skipped_lower_ranks
from tidemill.model.resources import amount
from tidemill.spec.names import ACCELERATORS

Attempt = Callable[[Problem, Strategy], Solution]

# The work of all further attempts together: a node or an option counts as one and a pod as ten, about in proportion to
# what they cost. Ten GPU pods take 5 to 30 ms, a hundred of all sizes 70 to 180; with 3,000 it is half of that, and a
# hundred GPU pods cost 6 % more an hour: money is dearer.
_WORK, _POD_WORK = 5_000, 10
# Up to here a problem is attempted twice: a thousand mixed pods cost up to half a percent less for 50 ms more.
_WORK_FOR_TWO = 3 * _WORK
_EPSILON = 1e-6

# In order of how many random small problems each of them was the first to solve best.
_STRATEGIES = (
    Strategy(OnePerHost.BY_SIZE, Ahead.ALIKE, grow_first=False),
    Strategy(OnePerHost.BY_SIZE, Ahead.ALL, grow_first=False, gangs_first=False),
    Strategy(OnePerHost.BY_SIZE, Ahead.ALIKE, grow_first=False, fewest_choices_first=True),
    Strategy(OnePerHost.FIRST, grow_first=False, large_first=False),
    Strategy(OnePerHost.BY_SIZE, grow_first=False, large_first=False),
)
_RECREATE_STRATEGIES = (
    Strategy(OnePerHost.BY_SIZE, Ahead.ALL, grow_first=False, gangs_first=False),
    Strategy(OnePerHost.LAST, grow_first=False),
    Strategy(OnePerHost.FIRST, Ahead.ALIKE, grow_first=False),
)


def search(problem: Problem, attempt: Attempt) -> Solution:
    best = attempt(problem, USUAL)
    if work(problem) > _WORK:
        if work(problem) <= _WORK_FOR_TWO and problem.options and best.price > 0:
            other = attempt(problem, Strategy(grow_first=False))
            best = other if _is_better(problem, other, best) else best
        return best
    # A single pod gets the best node at once. For the others: a long queue asks at every tick.
    if len(problem.pods) > 1 and problem.options and (best.price > 0 or best.unplaced):
        best = _improve(problem, best, attempt)
    return satisfy_preferences(problem, best)


def work(problem: Problem) -> int:
    return _POD_WORK * len(problem.pods) + len(problem.nodes) + len(problem.options)


@dataclass(slots=True)
class _WorkBudget:
    left: int

    def spend(self, problem: Problem) -> bool:
        """Whether there is enough left for an attempt at this problem."""
        self.left -= work(problem)
        return self.left >= 0


def _improve(problem: Problem, best: Solution, attempt: Attempt) -> Solution:
    bound, budget = LowerBound(problem, best.unplaced), _WorkBudget(_WORK)
    if not _is_optimal(best, bound) and best.price > 0:
        bound.tighten()
    if _is_optimal(best, bound) or (best.price <= 0 and not _could_place_more(problem, best, attempt)):
        return best
    problem = without_dominated(problem)
    best = _place_unplaced_first(problem, best, attempt, budget)
    for strategy in _STRATEGIES:
        if budget.left < _WORK // 2 or not budget.spend(problem):
            break  # the other half is for ruin and recreate
        other = attempt(problem, strategy)
        best = other if _is_better(problem, other, best) else best
        if _is_optimal(best, bound):
            return best
    return _ruin_and_recreate(problem, best, attempt, bound, budget)


def _is_optimal(best: Solution, bound: LowerBound) -> bool:
    return not best.unplaced and best.price <= bound.price + _EPSILON


def _could_place_more(problem: Problem, best: Solution, attempt: Attempt) -> bool:
    """Whether any unplaced pod or gang would have a node if it were alone. If not, no search helps."""
    together: dict[tuple[object, ...], list[int]] = {}
    for index in best.unplaced:
        pod = problem.pods[index]
        together.setdefault((pod.gang, pod.namespace) if pod.gang is not None else (index,), []).append(index)
    tried: set[tuple[object, ...]] = set()
    for indexes in together.values():
        first = problem.pods[indexes[0]]
        size = first.gang.size if first.gang is not None else 1
        kind = (id(first.shape), first.namespace, size, len(indexes), first.refuses)
        if kind in tried:
            continue
        tried.add(kind)
        pods = tuple(problem.pods[index] for index in indexes)
        if not attempt(replace(problem, pods=pods), USUAL).unplaced:
            return True
    return False


def _place_unplaced_first(
    problem: Problem, best: Solution, attempt: Attempt, budget: _WorkBudget
) -> Solution:
    """Unplaced pods go first in another attempt: others that have a choice may have taken their only node."""
    place_first: frozenset[int] = frozenset()
    last = best
    while last.unplaced and not place_first.issuperset(last.unplaced):
        place_first |= last.unplaced.keys()
        if budget.left < _WORK // 2 or not budget.spend(problem):
            break
        last = attempt(problem, Strategy(place_first=place_first))
        best = last if _is_better(problem, last, best) else best
    return best


# --- which solution is better -----------------------------------------------------------------------------


def _is_better(problem: Problem, solution: Solution, best: Solution) -> bool:
    """A pod that has a node keeps it, whatever it costs and however many others could have one instead."""
    unplaced, best_unplaced = _unplaced_kinds(problem, solution), _unplaced_kinds(problem, best)
    if unplaced != best_unplaced:
        return unplaced < best_unplaced
    if _cost(problem, solution) >= _cost(problem, best):
        return False
    return skipped_lower_ranks(problem, solution) <= skipped_lower_ranks(problem, best)


def _unplaced_kinds(problem: Problem, solution: Solution) -> Counter[tuple[object, ...]]:
    pods = (problem.pods[index] for index in solution.unplaced)
    return Counter((id(pod.shape), pod.namespace, pod.priority, pod.gang, pod.refuses) for pod in pods)


def _cost(problem: Problem, solution: Solution) -> tuple[float, int, int]:
    """Price, accelerators on new nodes that no pod requests, nodes."""
    stranded = sum(
        node.option.capacity.get(name, 0)
        - sum(amount(problem.pods[pod].shape.requests, name) for pod in node.pods)
        for node in solution.opened
        for name in ACCELERATORS
    )
    return round(solution.price, 6), stranded, len(solution.opened)


# --- ruin and recreate ------------------------------------------------------------------------------------


def _ruin_and_recreate(
    problem: Problem, best: Solution, attempt: Attempt, bound: LowerBound, budget: _WorkBudget
) -> Solution:
    """Empty a few nodes, place their pods again, keep it if it is better; until nothing is or the work is spent."""
    tried: set[tuple[object, ...]] = set()
    while not _is_optimal(best, bound):
        better = next(_recreated(problem, Ruin(problem, best), attempt, bound, budget, tried), None)
        if better is None:
            return best
        best = better
    return best


def _recreated(
    problem: Problem,
    ruin: Ruin,
    attempt: Attempt,
    bound: LowerBound,
    budget: _WorkBudget,
    tried: set[tuple[object, ...]],
) -> Iterator[Solution]:
    """Better solutions with the pods of one to three nodes placed again, as they are found."""
    for nodes in (few for count in (1, 2, 3) for few in combinations(ruin.order, count)):
        signature = ruin.signature_of(nodes)
        if signature in tried or not ruin.may_improve(nodes, bound):
            continue
        tried.add(signature)
        part = ruin.ruin(nodes)
        for strategy in _RECREATE_STRATEGIES:
            if not budget.spend(part.problem):
                return
            whole = part.merged(attempt(part.problem, strategy))
            if _is_better(problem, whole, ruin.solution) and rules_hold(problem, whole):
                yield whole
