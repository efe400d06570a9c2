"""The solver: who goes where, and which nodes to open for the rest. One general method, told in order.

Asks that are alike are one crowd. Crowds are dealt to domains on counts; within a domain, crowds with the same
needs are poured into what is free, tightest first, and then room is made the cheapest way. Deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.packer.domain_assignment import deal
from tidemill.decide.packer.existing_pods import settle_residents
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.gangs import place_gangs
from tidemill.decide.packer.local_search import polish
from tidemill.decide.packer.placement_order import fill
from tidemill.decide.packer.pod_groups import Crowd, Crowds, gather
from tidemill.decide.packer.problem import NewNode, Problem, Solution
from tidemill.decide.packer.repair import is_needed, mend
from tidemill.decide.packer.restarts import search
from tidemill.decide.packer.strategy import USUAL, Strategy
from tidemill.decide.packer.supply import Ground

__all__ = ["solve"]


def solve(problem: Problem, *, thorough: bool = True) -> Solution:
    """The answer of one attempt, or (if `thorough`) of several where the problem is small."""
    return search(problem, attempt) if thorough else attempt(problem, USUAL)


def attempt(problem: Problem, strategy: Strategy) -> Solution:
    found = gather(problem)  # 1 asks that are alike are one crowd
    ground = Ground(problem, found)  # 2 domains, and what could be opened in each
    filler = Filler(ground, found.weights)
    dealer = settle_residents(problem, found, ground, filler)  # 3 who is there already
    if strategy.hurried is not None:
        everybody = list(range(len(problem.asks)))
        return _write_down(problem, filler, mend(problem, found, filler, everybody, strategy.hurried))
    homeless: list[int] = []
    for level in _levels(found):  # whoever is more important has everything placed first
        gangs, domains = level.gangs, sorted(dealer.load)
        if strategy.gangs_first:
            homeless += place_gangs(problem, gangs, filler, domains)  # 4 gangs, whole or not at all
        shares = deal(level.crowds, ground, filler, dealer)  # 5 which domain, on counts alone
        homeless += fill(shares, filler, strategy)  # 6 which node, and which nodes to open
        if not strategy.gangs_first:
            homeless += place_gangs(problem, gangs, filler, domains)
    homeless += [ask for crowd in found.crowds if crowd.careful for ask in crowd.asks]
    if is_needed(found, homeless):
        homeless = mend(problem, found, filler, homeless)  # 7 who needs more than counting, asked one by one
    else:
        polish(filler, _crowd_of(problem, found))  # 8 second thoughts, where much is left over
    return _write_down(problem, filler, homeless)  # 9 each new node gets the cheapest type that holds it


@dataclass(slots=True)
class _Level:
    """Everybody of one priority."""

    crowds: list[Crowd] = field(default_factory=list)
    gangs: list[Crowd] = field(default_factory=list)


def _levels(found: Crowds) -> list[_Level]:
    levels: dict[int, _Level] = {}
    for crowd in found.crowds:
        levels.setdefault(crowd.priority, _Level()).crowds.append(crowd)
    for crowd in found.gangs:
        levels.setdefault(crowd.priority, _Level()).gangs.append(crowd)
    return [levels[priority] for priority in sorted(levels, reverse=True)]


def _crowd_of(problem: Problem, found: Crowds) -> list[Crowd | None]:
    """By ask; gangs are left where they are."""
    crowd_of: list[Crowd | None] = [None] * len(problem.asks)
    for crowd in found.crowds:
        for ask in crowd.asks:
            crowd_of[ask] = crowd
    return crowd_of


def _write_down(problem: Problem, filler: Filler, homeless: list[int]) -> Solution:
    solution = Solution()
    for one in filler.bins:
        if one.place >= 0:
            if one.asks:
                solution.existing[one.place] = one.asks
        elif one.asks:
            assert one.ladder is not None
            filler.shrink(one)
            solution.opened.append(NewNode(one.ladder.flavours[one.rung], one.asks))
    for ask in homeless:
        gang = problem.asks[ask].gang is not None
        solution.unplaced[ask] = "no room for the whole gang" if gang else "no room"
    return solution
