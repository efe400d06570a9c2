"""The first mix on a cluster that exists: 5,000 nodes of any type, 40 to 95 % full, in three zones.

Existing pods are of the same templates as the pending ones, several replicas of a few templates on a node, and keep
their rules (except zone spread, which no cluster keeps for long).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tidemill.bench.mixes import diverse
from tidemill.bench.mixes.diverse import LETTERS, TYPES, ZONES, FakeType
from tidemill.decide.packer.problem import ExistingNode, ExistingPods, Problem
from tidemill.model.pods import PodShape
from tidemill.spec.names import LABEL_HOSTNAME, PODS

NODES = 5_000
FULL = (0.40, 0.95)
TEMPLATES = 1_000  # from which existing pods are drawn
MOST_TEMPLATES = 6  # on one node, beside those that fill it up
FILLERS = 2


def build(pods: int, seed: int) -> Problem:
    problem = diverse.build(pods, seed)
    chance = random.Random(f"{seed}/cluster")
    known = {pod.shape: pod.shape for pod in problem.pods}
    templates = [known.setdefault(shape, shape) for shape in diverse.shapes(TEMPLATES, chance)]
    homes = {letter: chance.choice(ZONES) for letter in LETTERS}
    nodes = tuple(_node(number, chance, templates, homes) for number in range(NODES))
    return replace(problem, nodes=nodes)


def _node(
    number: int, chance: random.Random, templates: Sequence[PodShape], homes: dict[str, str]
) -> ExistingNode:
    zone = chance.choice(ZONES)
    fake = FakeType(chance.randrange(TYPES))
    full = chance.uniform(*FULL)
    chosen = [chance.choice(templates) for _ in range(chance.randrange(MOST_TEMPLATES))]
    # The first fifth of the templates are generic; they fill the node up.
    fillers = [chance.choice(templates[: len(templates) // diverse.GROUPS]) for _ in range(FILLERS)]
    node = _Filling({name: int(amount * full) for name, amount in fake.capacity.items()})
    for shape in chosen:
        if _at_home(shape, zone, homes):
            node.take(shape, 1 if _one_a_node(shape) else 1 + node.most(shape) // 4)
    for shape in fillers:
        node.take(shape, node.most(shape))
    free = {name: amount - node.used[name] for name, amount in fake.capacity.items()}
    existing_pods = tuple(ExistingPods(shape, count=count) for shape, count in node.counts.items())
    return ExistingNode(f"node-{number}", fake.labels(zone, "on-demand"), free, existing_pods=existing_pods)


class _Filling:
    """A node that is being filled up to `room`."""

    def __init__(self, room: dict[str, int]) -> None:
        self._room = room
        self.used: Counter[str] = Counter()
        self.counts: Counter[PodShape] = Counter()

    def most(self, shape: PodShape) -> int:
        wanted = {PODS: 1, **dict(shape.requests)}
        return min((self._room[name] - self.used[name]) // amount for name, amount in wanted.items())

    def take(self, shape: PodShape, count: int) -> None:
        count = min(count, self.most(shape))
        if count < 1 or (_one_a_node(shape) and any(_same_rule(shape, other) for other in self.counts)):
            return
        self.counts[shape] += count
        self.used[PODS] += count
        for name, amount in shape.requests:
            self.used[name] += amount * count


def _one_a_node(shape: PodShape) -> bool:
    return bool(shape.anti_affinity) or any(rule.topology_key == LABEL_HOSTNAME for rule in shape.spread)


def _same_rule(shape: PodShape, other: PodShape) -> bool:
    return (shape.labels, shape.spread) == (other.labels, other.spread)


def _at_home(shape: PodShape, zone: str, homes: dict[str, str]) -> bool:
    """Pods that want to be together are in one zone, by their letter."""
    return not shape.affinity or homes[dict(shape.labels)["my-affinity"]] == zone
