"""What must hold of an answer that was put together from parts, asked exactly, of the whole.

Amounts, stocks, limits and who may stand where are kept by every part for itself. What only the whole can tell is
how pods of one part look to those of another, and whether a lower rank was passed over for a better price.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.decide.packer.binding_order import lonely
from tidemill.decide.packer.existing_pods import settle_residents
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import gather
from tidemill.decide.packer.problem import Flavour, Place, Problem, Solution
from tidemill.decide.packer.repair import take_census
from tidemill.decide.packer.supply import Ground


def everybody_is_content(problem: Problem, solution: Solution) -> bool:
    if not any(ask.shape.spread or ask.shape.affinity or ask.shape.anti_affinity for ask in problem.asks):
        return True
    stood = replace(problem, places=(*problem.places, *_opened(problem, solution)))
    found = gather(stood)
    filler = Filler(Ground(stood, found), found.weights)
    settle_residents(stood, found, filler.ground, filler)
    crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
    here = dict(solution.existing)
    here |= {len(problem.places) + number: node.asks for number, node in enumerate(solution.opened)}
    for place, asks in here.items():
        for ask in asks:
            filler.put(filler.bins[place], crowd_of[ask], [ask])
    census = take_census(stood, found, filler)
    return all(map(census.content, census.everybody())) and not lonely(census)


def passed_over(problem: Problem, solution: Solution) -> int:
    """Nodes opened though a node of a lower rank would have done for every single pod on them.

    A rank is a wish of its own, whatever the price: only who cannot have a lower one opens a higher one. Others may
    join whoever did.
    """
    if len({flavour.rank for flavour in problem.flavours}) < 2:
        return 0
    found = gather(problem)
    ground = Ground(problem, found)
    filler = Filler(ground, found.weights)
    crowd_of = {ask: crowd for crowd in (*found.crowds, *found.gangs) for ask in crowd.asks}
    for node in solution.opened:
        _use(ground, node.flavour, 1)
    passed = 0
    for node in solution.opened:
        _use(ground, node.flavour, -1)
        lower = [site for site in ground.by_site if site[0] < node.flavour.rank]
        crowds = {id(crowd_of[ask]): crowd_of[ask] for ask in node.asks}.values()
        passed += all(any(filler.best_opening(crowd, site) for site in lower) for crowd in crowds)
        _use(ground, node.flavour, 1)
    return passed


def _use(ground: Ground, flavour: Flavour, sign: int) -> None:
    if flavour.stock:
        ground.stocks[flavour.stock] -= sign
    left = ground.budgets.get(flavour.budget, {})
    for name in left.keys() & flavour.consumes.keys():
        left[name] -= sign * flavour.consumes[name]


def _opened(problem: Problem, solution: Solution) -> list[Place]:
    return [as_place(f"new node {number}", node.flavour) for number, node in enumerate(solution.opened)]


def as_place(name: str, flavour: Flavour) -> Place:
    """A node of this flavour, as if it were on its way."""
    return Place(name, flavour.labels, flavour.capacity, flavour.taints, rank=flavour.rank)
