"""The same problem with fewer flavours: those that are never better than another are left out.

Two flavours are alike to everybody who waits if they differ in nothing a pod here can ask about. Of those, the one
that holds no more, costs no less and uses up no less is of no use; and nobody needs more than all ask for together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidemill.decide.packer.problem import Flavour, Problem
from tidemill.model.pods import PodShape
from tidemill.spec import names


def narrowed(problem: Problem) -> Problem:
    shapes = list({id(ask.shape): ask.shape for ask in problem.asks}.values())
    keys = sorted({names.LABEL_ZONE, names.LABEL_SOURCE}.union(*(_asks_about(shape) for shape in shapes)))
    wanted = Counter({names.PODS: len(problem.asks)})
    for ask in problem.asks:
        wanted.update({name: amount for name, amount in ask.shape.requests if name != names.PODS})
    alike: dict[tuple[object, ...], list[Flavour]] = {}
    for one in problem.flavours:
        look = (
            tuple(one.labels.get(key) for key in keys), one.rank, one.taints, one.stock, one.budget, one.group,
        )  # fmt: skip
        alike.setdefault(look, []).append(one)
    kept = {id(one) for flavours in alike.values() for one in _useful(flavours, wanted)}
    return replace(problem, flavours=tuple(one for one in problem.flavours if id(one) in kept))


def _asks_about(shape: PodShape) -> Iterator[str]:
    """Labels of a node that make a difference to a pod."""
    yield from (key for key, _ in shape.node_selector)
    yield from (one.key for term in shape.node_terms for one in term)
    yield from (one.key for _, term in shape.preferred_nodes for one in term)
    yield from (rule.topology_key for rule in shape.spread)
    yield from (term.topology_key for term in (*shape.affinity, *shape.anti_affinity))


def _useful(flavours: list[Flavour], wanted: Mapping[str, int]) -> list[Flavour]:
    rows = sorted(
        (
            (one.price, [min(one.capacity.get(name, 0), most) for name, most in wanted.items()], one)
            for one in flavours
        ),
        key=lambda row: (row[0], row[1], row[2].name),
    )
    kept: list[tuple[list[int], Flavour]] = []
    growing = True  # each holds at least what the one before holds: then only the last can be as good
    for _, held, one in rows:
        against = kept[-1:] if growing else kept
        if any(_is_no_better(held, one, *other) for other in against):
            continue
        growing = growing and all(a >= b for other, _ in against for a, b in zip(held, other, strict=True))
        kept.append((held, one))
    return [one for _, one in kept]


def _is_no_better(held: list[int], one: Flavour, more: list[int], cheaper: Flavour) -> bool:
    if any(a > b for a, b in zip(held, more, strict=True)):
        return False
    return all(one.consumes.get(name, 0) >= used for name, used in cheaper.consumes.items())
