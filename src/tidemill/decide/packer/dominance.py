"""The same problem without dominated options: those that are never better than another.

Two options look alike to every pending pod if they differ in nothing a pod here can ask about. Of those, one that
holds no more, costs no less and uses up no less of the limits is dominated. Capacity beyond what all pods request
together counts for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidemill.decide.packer.problem import NodeOption, Problem
from tidemill.model.pods import PodShape
from tidemill.spec import names


def without_dominated(problem: Problem) -> Problem:
    shapes = list({id(pod.shape): pod.shape for pod in problem.pods}.values())
    keys = sorted({names.LABEL_ZONE, names.LABEL_SOURCE}.union(*(_labels_used(shape) for shape in shapes)))
    requested = Counter({names.PODS: len(problem.pods)})
    for pod in problem.pods:
        requested.update({name: amount for name, amount in pod.shape.requests if name != names.PODS})
    look_alikes: dict[tuple[object, ...], list[NodeOption]] = {}
    for option in problem.options:
        labels = tuple(option.labels.get(key) for key in keys)
        look = (labels, option.rank, option.taints, option.stock, option.budget, option.group)
        look_alikes.setdefault(look, []).append(option)
    kept = {id(option) for options in look_alikes.values() for option in _undominated(options, requested)}
    return replace(problem, options=tuple(option for option in problem.options if id(option) in kept))


def _labels_used(shape: PodShape) -> Iterator[str]:
    """Labels of a node that make a difference to a pod."""
    yield from (key for key, _ in shape.node_selector)
    yield from (expression.key for term in shape.node_terms for expression in term)
    yield from (expression.key for _, term in shape.preferred_nodes for expression in term)
    yield from (rule.topology_key for rule in shape.spread)
    yield from (term.topology_key for term in (*shape.affinity, *shape.anti_affinity))


def _undominated(options: list[NodeOption], requested: Mapping[str, int]) -> list[NodeOption]:
    rows = sorted(
        (
            (
                option.price,
                [min(option.capacity.get(name, 0), most) for name, most in requested.items()],
                option,
            )
            for option in options
        ),
        key=lambda row: (row[0], row[1], row[2].name),
    )
    kept: list[tuple[list[int], NodeOption]] = []
    growing = True  # each holds at least what the one before holds: then only the last one kept can dominate
    for _, held, option in rows:
        rivals = kept[-1:] if growing else kept
        if any(_is_dominated(held, option, *rival) for rival in rivals):
            continue
        growing = growing and all(a >= b for rival, _ in rivals for a, b in zip(held, rival, strict=True))
        kept.append((held, option))
    return [option for _, option in kept]


def _is_dominated(held: list[int], option: NodeOption, more: list[int], cheaper: NodeOption) -> bool:
    if any(a > b for a, b in zip(held, more, strict=True)):
        return False
    return all(option.consumes.get(name, 0) >= used for name, used in cheaper.consumes.items())
