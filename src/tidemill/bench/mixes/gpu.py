"""GPU pods over the catalog: single GPUs to gangs of sixteen whole nodes, two blocks that end, and on-demand.

1/2/4/8 GPUs at 50/20/15/15 %; half of the 8s are in gangs of 2, 4, 8 and 16 that use EFA. Prices are the
catalog's; a type whose on-demand price is not known is not offered. Two prepaid blocks end at
different times: which pods use them decides the price.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle

from tidemill.bench.mixes.end_times import refused
from tidemill.catalog import InstanceType, load
from tidemill.catalog.sizing import GIB
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem
from tidemill.model.ec2_facts import TERMINATES_BEFORE_END
from tidemill.model.labels import Expression
from tidemill.model.pods import Gang, PodShape
from tidemill.model.resources import Amounts
from tidemill.spec.names import EFA, LABEL_ARCH, LABEL_SOURCE, LABEL_TYPE, LABEL_ZONE, NVIDIA_GPU

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
FAMILIES = frozenset({"g5", "g6", "g6e", "p4d", "p5", "p5en", "p6-b200"})
GPU_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"  # MiB of one GPU, the label users already select on
FAMILY = "karpenter.k8s.aws/instance-family"
# How long each block can be used, by the group of its node option.
LASTS = {
    "cr-short": timedelta(hours=24) - TERMINATES_BEFORE_END,
    "cr-long": timedelta(hours=72) - TERMINATES_BEFORE_END,
}

GPUS = ((1, 0.50), (2, 0.20), (4, 0.15), (8, 0.15))
GANGS = (2, 4, 8, 16)
CPU_A_GPU = (2, 3, 6)
GIB_A_GPU = (8, 12, 28)
WHOLE_NODE = (("cpu", 80_000), ("memory", 512 * GIB), (NVIDIA_GPU, 8))
GANG_EFA = 4
BIG_GPU_SHARE, BIG_GPU_MIB = 0.3, 40_000  # pods that need more memory than an A10G or an L4 has
NEEDS = {timedelta(hours=2): 0.4, timedelta(hours=12): 0.4, timedelta(hours=48): 0.2}
LEAD = timedelta(minutes=15)


def build(pods: int, seed: int) -> Problem:
    chance = random.Random(seed)
    short, long = max(2, pods // 125), max(2, pods // 250)
    types = load().types
    blocks = (
        _block("cr-short", types["p5.48xlarge"], ZONES[0]),
        _block("cr-long", types["p5en.48xlarge"], ZONES[1]),
    )
    return Problem(
        tuple(_pending_pods(pods, chance)),
        options=(*blocks, *_on_demand()),
        stocks={"cr-short": short, "cr-long": long},
    )


def _labels(offered: InstanceType, zone: str, source: str) -> dict[str, str]:
    assert offered.accelerator is not None
    return {
        LABEL_ARCH: offered.arch,
        LABEL_TYPE: offered.name,
        LABEL_ZONE: zone,
        LABEL_SOURCE: source,
        FAMILY: offered.family,
        GPU_MEMORY: str(offered.accelerator.memory_mib),
    }


def _block(name: str, offered: InstanceType, zone: str) -> NodeOption:
    return NodeOption(
        offered.name,
        _labels(offered, zone, name),
        dict(offered.allocatable),
        price=0.0,  # paid already
        stock=name,
        rank=(0,),
        group=name,
    )


def _on_demand() -> Iterator[NodeOption]:
    for offered in load().types.values():
        if offered.family not in FAMILIES or offered.on_demand_usd_h is None:
            continue
        for zone in ZONES:
            labels = _labels(offered, zone, "on-demand")
            yield NodeOption(
                offered.name,
                labels,
                dict(offered.allocatable),
                offered.on_demand_usd_h,
                rank=(1,),
            )


def _pending_pods(pods: int, chance: random.Random) -> Iterator[PendingPod]:
    known: dict[PodShape, PodShape] = {}
    counts = {gpus: int(pods * share) for gpus, share in GPUS}
    counts[1] += pods - sum(counts.values())
    ganged = list(_gangs(counts[8] // 2, chance, known))
    yield from ganged
    counts[8] -= len(ganged)
    for gpus, count in counts.items():
        yield from _singles(gpus, count, chance, known)


def _singles(
    gpus: int, count: int, chance: random.Random, known: dict[PodShape, PodShape]
) -> Iterator[PendingPod]:
    for number in range(count):
        shape = _shape(_single_requests(gpus, chance), big=chance.random() < BIG_GPU_SHARE)
        refuses = refused(_need(chance), LEAD, LASTS)
        yield PendingPod(f"gpu{gpus}-{number}", known.setdefault(shape, shape), refuses=refuses)


def _gangs(members: int, chance: random.Random, known: dict[PodShape, PodShape]) -> Iterator[PendingPod]:
    """Gangs of 2, 4, 8, 16, 2, … while they fit in so many pods."""
    for number, size in enumerate(cycle(GANGS)):
        if size > members:
            return
        members -= size
        shape = _shape(tuple(sorted((*WHOLE_NODE, (EFA, GANG_EFA)))), big=False)
        refuses = refused(_need(chance), LEAD, LASTS)
        for rank in range(size):
            yield PendingPod(
                f"gang{number}-{rank}",
                known.setdefault(shape, shape),
                gang=Gang(f"gang{number}", size),
                refuses=refuses,
            )


def _single_requests(gpus: int, chance: random.Random) -> Amounts:
    if gpus == GPUS[-1][0]:
        return tuple(sorted(WHOLE_NODE))
    cpu, memory = chance.choice(CPU_A_GPU) * gpus, chance.choice(GIB_A_GPU) * gpus
    return ("cpu", cpu * 1000), ("memory", memory * GIB), (NVIDIA_GPU, gpus)


def _shape(requests: Amounts, *, big: bool) -> PodShape:
    term = (Expression(GPU_MEMORY, "Gt", (str(BIG_GPU_MIB),)),)
    return PodShape(requests, node_terms=(term,) if big else ())


def _need(chance: random.Random) -> timedelta:
    return chance.choices(list(NEEDS), list(NEEDS.values()))[0]
