"""Eight pools with weights, taints, zones and limits, three sources each with counts and end times.

Two of the pools reach their limits in the middle of the batch, so the rest must go elsewhere. The last pool takes
every pod in every zone, so that every pod can be placed. Pods are those of the first mix.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from tidemill.bench.mixes import diverse
from tidemill.bench.mixes.diverse import FAR_AWAY, TYPES, ZONES, FakeType
from tidemill.bench.mixes.end_times import refused
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import PodShape
from tidemill.model.resources import amount
from tidemill.spec.names import LABEL_POOL, LABEL_SOURCE


@dataclass(frozen=True, slots=True)
class Pool:
    weight: int
    zones: tuple[str, ...]
    team: str = ""  # its taint
    limit: float = 0.0  # of the batch's CPU demand; 0: far away


POOLS = (
    Pool(80, ZONES[:2], limit=0.10),
    Pool(70, ZONES, team="red"),
    Pool(60, ZONES[1:], limit=0.15),
    Pool(50, ZONES[:1], team="blue"),
    Pool(40, ZONES, team="green"),
    Pool(30, ZONES[2:], team="red"),
    Pool(20, ZONES[:2]),
    Pool(10, ZONES),
)
TOLERATIONS: dict[tuple[Toleration, ...], float] = {
    (): 0.4,
    (Toleration("team", "Equal", "red"),): 0.2,
    (Toleration("team", "Equal", "blue", "NoSchedule"),): 0.2,
    (Toleration("team", "Exists"),): 0.2,
}
# The two blocks of a pool: which type, how many for so many pods, and how long they last.
BLOCKS = (("short", 31, 400, timedelta(hours=12)), ("long", 63, 800, timedelta(hours=60)))
TYPE_STEP = 10  # every tenth type, so that pools offer different ones
NEEDS = {timedelta(hours=1): 0.5, timedelta(hours=24): 0.3, timedelta(hours=100): 0.2}
LEAD = timedelta(minutes=10)
# How long the sources that end can be used, by the group of their node options; on-demand nodes outlast every pod.
LASTS = {f"pool-{rank}/{block}": lasts for rank in range(len(POOLS)) for block, _, _, lasts in BLOCKS}


def build(pods: int, seed: int) -> Problem:
    chance = random.Random(seed)
    pending = tuple(_pending_pods(pods, chance))
    demand = sum(amount(pod.shape.requests, "cpu") for pod in pending)
    options: list[NodeOption] = []
    stocks: dict[str, int] = {}
    budgets: dict[str, dict[str, int]] = {}
    for rank, pool in enumerate(sorted(POOLS, key=lambda pool: -pool.weight)):
        name = f"pool-{rank}"
        options.extend(_options(rank, name, pool))
        stocks |= {f"{name}/{block}": 1 + pods // each for block, _, each, _ in BLOCKS}
        stocks[f"{name}/on-demand"] = pods
        limit = int(demand * pool.limit) if pool.limit else FAR_AWAY
        budgets[name] = {"cpu": limit, "memory": FAR_AWAY, "nodes": FAR_AWAY}
    return Problem(pending, options=tuple(options), stocks=stocks, budgets=budgets)


def _options(rank: int, name: str, pool: Pool) -> Iterator[NodeOption]:
    for order, (block, index, _, _) in enumerate(BLOCKS):
        yield _option(FakeType(index), pool, name, block, pool.zones[-1], 0.0, (rank, order))
    for index in range(rank, TYPES, TYPE_STEP):
        fake = FakeType(index)
        for zone in pool.zones:
            order = len(BLOCKS)
            yield _option(fake, pool, name, "on-demand", zone, fake.price, (rank, order))


def _option(
    fake: FakeType,
    pool: Pool,
    name: str,
    source: str,
    zone: str,
    price: float,
    rank: tuple[int, ...],
) -> NodeOption:
    hourly = source == "on-demand"
    labels = fake.labels(zone, "on-demand" if hourly else "reserved")
    return NodeOption(
        fake.name,
        {**labels, LABEL_POOL: name, LABEL_SOURCE: source if hourly else f"{name}-{source}"},
        fake.capacity,
        price,
        taints=(Taint("team", pool.team),) if pool.team else (),
        stock=f"{name}/{source}",
        budget=name,
        consumes=fake.consumes,
        rank=rank,
        group=f"{name}/{source}",
    )


def _pending_pods(pods: int, chance: random.Random) -> Iterator[PendingPod]:
    known: dict[PodShape, PodShape] = {}
    for number, drawn in enumerate(diverse.shapes(pods, chance)):
        shape = PodShape(
            drawn.requests,
            tolerations=chance.choices(list(TOLERATIONS), list(TOLERATIONS.values()))[0],
            labels=drawn.labels,
            affinity=drawn.affinity,
            anti_affinity=drawn.anti_affinity,
            spread=drawn.spread,
        )
        need = chance.choices(list(NEEDS), list(NEEDS.values()))[0]
        yield PendingPod(f"pod-{number}", known.setdefault(shape, shape), refuses=refused(need, LEAD, LASTS))
