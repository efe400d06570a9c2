"""A problem as problems that have nothing to do with each other: pods that could never stand on one node.

Pools with selectors of their own are what makes them, and a platform has several. Knows who may use a node, and leaves
out rules about other pods and amounts: parts that could meet by these are told apart all the less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidemill.decide.packer.problem import Ask, Flavour, Place, Problem
from tidemill.decide.scheduler_rules import admitted, tolerated
from tidemill.spec.names import LABEL_HOSTNAME

# So many looks of a kind of pod at a node are worth what parts save; beyond, a problem is one part.
_MOST_LOOKS = 2_000


def parts(problem: Problem) -> list[Problem]:
    sites: tuple[Place | Flavour, ...] = (*problem.places, *problem.flavours)
    kinds: dict[tuple[object, ...], list[Ask]] = {}
    for ask in problem.asks:
        kinds.setdefault((id(ask.shape), ask.refuses), []).append(ask)
    if len(kinds) * len(sites) > _MOST_LOOKS:
        return [problem]
    found: list[tuple[set[int], list[Ask]]] = []
    for asks in kinds.values():
        mine = {number for number, site in enumerate(sites) if _may_use(asks[0], site)}
        apart = [part for part in found if mine.isdisjoint(part[0])]
        meeting = [part for part in found if not mine.isdisjoint(part[0])]
        together = [*(ask for part in meeting for ask in part[1]), *asks]
        found = [*apart, (mine.union(*(part[0] for part in meeting)), together)]
    return [_part(problem, numbers, asks) for numbers, asks in found]


def _may_use(ask: Ask, site: Place | Flavour) -> bool:
    if site.group in ask.refuses:
        return False
    labels = {LABEL_HOSTNAME: site.name, **site.labels} if isinstance(site, Place) else site.labels
    return tolerated(ask.shape, site.taints) and admitted(ask.shape, labels)


def _part(problem: Problem, numbers: Iterable[int], asks: list[Ask]) -> Problem:
    there = len(problem.places)
    chosen = sorted(numbers)
    return replace(
        problem,
        asks=tuple(asks),
        places=tuple(problem.places[number] for number in chosen if number < there),
        flavours=tuple(problem.flavours[number - there] for number in chosen if number >= there),
    )
