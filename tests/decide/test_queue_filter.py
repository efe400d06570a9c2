"""Of a long queue the packer sees only who could fit: asked by lanes, the answer is that of asking every item."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ago, pool, spec, world
from tidemill.decide.context import DecisionContext
from tidemill.decide.launches import reconcile_launches
from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.placement.backfill import hold_for_next
from tidemill.decide.placement.candidate_nodes import find_candidates
from tidemill.decide.placement.feasibility_filter import CandidateRoom, FeasibilityFilter
from tidemill.decide.placement.queue import Queue, waiting
from tidemill.decide.placement.queue_filter import QueueFilter
from tidemill.decide.queue_item import QueueItem
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.pods import Pod, PodShape
from tidemill.model.world import World

SPEC = spec(pool("p5", limits={"nodes": 40}))
SEEDS_AT_ONCE = 25


def _long_queue(random: Random) -> World:
    """Blocks that end at different times, nodes partly used by work that says when it is done, and a long queue."""
    blocks = [
        given.block(f"cr-{number}", ends_in=random.choice(("3h", "9h", "20h", "50h")))
        for number in range(random.randint(1, 4))
    ]
    nodes = [
        given.node(f"i-{number}", source=Source(SourceKind.BLOCK, random.choice(blocks).id))
        for number in range(random.randint(1, 8))
    ]
    shapes: dict[int, PodShape] = {}

    def shaped(pod: Pod, gpus: int) -> Pod:
        """Pods of one template share one shape."""
        return replace(pod, shape=shapes.setdefault(gpus, pod.shape))

    running = [
        shaped(given.pod(f"r-{name}-{number}", gpus=2, on=node, expected=random.choice(("45m", "4h"))), 2)
        for name, node in enumerate(nodes)
        for number in range(random.choice((0, 2, 3, 4)))
    ]
    queued: list[Pod] = []
    for number in range(random.choice((3, 40))):
        gpus = random.choice((2, 2, 8))
        fields: dict[str, Any] = {
            "gpus": gpus, "expected": random.choice(("10m", "2h", "2h", "8h", "40h")),
            "created_at": ago(random.choice(("1m", "2h"))),
            "priority": random.choice((0, 0, 1)), "overflow": random.random() < 0.1,
        }  # fmt: skip
        if random.random() < 0.1:
            del fields["expected"]
        if random.random() < 0.3:
            fields |= {"checkpoint_every": "30m", "checkpoint_time": "4m"}
        if random.random() < 0.2:
            queued += [shaped(one, gpus) for one in given.gang(f"g-{number}", 2, **fields)]
        else:
            queued.append(shaped(given.pod(f"q-{number}", **fields), gpus))
    return world(blocks, nodes, running, queued)


class _Asked:
    """Every item in turn: an item behind as many equal ones as could fit is left out."""

    def __init__(self, asking: QueueFilter, room: CandidateRoom, options: list[NodeOption]) -> None:
        self._asking, self._room, self._options = asking, room, options
        self._filters: dict[tuple[frozenset[str], tuple[int, ...]], FeasibilityFilter] = {}
        self._ahead: Counter[tuple[int, int, int]] = Counter()

    def may_fit(self, item: QueueItem) -> bool:
        refuses, holds = self._asking.refuses(item), self._asking.holds_for(item, item.turn)
        one = self._filters.get((refuses, holds))
        if one is None:
            rooms = [
                (group, self._room.of(group, holds))
                for group in self._room.with_nodes
                if self._room.names[id(group)] not in refuses
            ]
            allowed = [option for option in self._options if option.group not in refuses]
            one = self._filters[refuses, holds] = FeasibilityFilter(rooms, allowed)
        key = (id(one), id(item.shape), len(item.pods))
        if self._ahead[key] >= one.most(item):
            return False
        self._ahead[key] += 1
        return True


def _filtered(there: World, *, with_option: bool) -> tuple[list[QueueItem], list[QueueItem], Queue, int]:
    context = DecisionContext(SPEC, there)
    in_flight = reconcile_launches(context)
    queue = waiting(context)
    candidates = find_candidates(context, in_flight, accelerated=True, gangs=True, between_pods=False)
    hold_for_next(context, queue, candidates)
    room = CandidateRoom(candidates)
    options = [NodeOption("any", {}, {"cpu": 10**9}, 1.0)] if with_option else []
    asking = QueueFilter(context, room, (), options)
    asked = _Asked(QueueFilter(context, room, (), options), room, options)
    return (
        asking.that_may_fit(queue),
        [item for item in queue.items if asked.may_fit(item)],
        queue,
        len(room.holds),
    )


@pytest.mark.parametrize("first", range(0, 200, SEEDS_AT_ONCE))
def test_given_any_queue_the_lanes_let_through_whom_asking_every_item_lets_through(first: int) -> None:
    left_out = holds = 0
    for seed in range(first, first + SEEDS_AT_ONCE):
        random = Random(seed)
        by_lane, one_by_one, queue, held = _filtered(_long_queue(random), with_option=seed % 5 == 0)
        assert by_lane == one_by_one, seed
        left_out += len(queue.items) - len(by_lane)
        holds += held
    assert left_out > 0
    assert holds > 0
