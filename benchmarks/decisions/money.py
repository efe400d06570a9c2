"""Situations about money: prepaid capacity first, and as few hours of other nodes as the work needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from benchmarks.decisions.ideal import HOUR, least_node_hours
from benchmarks.decisions.situation import (
    BLOCK,
    HOURLY,
    ON_DEMAND,
    RESUMABLE,
    TYPE,
    Situation,
    block,
    jobs,
    pool,
)
from tidemill.sim.scenario.rehearsal import Rehearsal

# Hours of a node that nobody can use: five minutes to boot and be verified at the least, five until it is given back.
BOOTED = 1 / 6


def money() -> Iterator[Situation]:
    yield from _prepaid_first()
    yield from _beside_a_block()
    yield from _two_pools()
    yield from _by_the_hour()


def _prepaid_first() -> Iterator[Situation]:
    mixed = pool("train", BLOCK, HOURLY, nodes=8)
    yield Situation(
        "limit-held",
        "hourly nodes hold the pool's limit when a block of eight is delivered",
        (mixed,),
        {
            "duration": "30h", "reservations": [block(8, start="4h", duration="1d")],
            "jobs": [jobs("long", "40h", {"every": "1s", "count": 8}, overflow=True, **RESUMABLE)],
        },
        usd=lambda run: 8 * (30 - 19.5) * _usd_h(run),  # but for the block: from 15:30 to 11:00, when EC2 ends it
    )  # fmt: skip
    yield Situation(
        "block-is-near",
        "eight jobs come ten minutes before a paid block of eight nodes",
        (pool("train", BLOCK, HOURLY, nodes=16),),
        {
            "duration": "30h", "reservations": [block(8, start="4h", duration="1d")],
            "jobs": [jobs("job", "6h", {"every": "1s", "from": "3h50m", "count": 8}, overflow=True)],
        },
        usd=lambda run: 0.0, longest_wait=timedelta(minutes=30),
    )  # fmt: skip
    yield Situation(
        "limits-are-near",
        "eight long jobs that would start over come an hour before a paid block that fills the pool's limits",
        (pool("train", BLOCK, HOURLY, nodes=8),),
        {
            "duration": "30h", "reservations": [block(8, start="4h", duration="2d")],
            "jobs": [jobs("job", "20h", {"every": "1s", "from": "3h", "count": 8}, overflow=True)],
        },
        usd=lambda run: 0.0, longest_wait=timedelta(hours=1),
    )  # fmt: skip


def _beside_a_block() -> Iterator[Situation]:
    yield Situation(
        "overflow",
        "a full block, and jobs that may go on demand beside it",
        (pool("train", BLOCK, HOURLY, nodes=16),),
        {
            "duration": "1d", "reservations": [block(4)],
            "jobs": [
                jobs("base", "22h", {"every": "1s", "count": 4}),
                jobs("extra", "3h", {"at": ["2h", "8h", "14h"]}, overflow=True),
            ],
        },
        usd=lambda run: 3 * (3 + BOOTED) * _usd_h(run),
    )  # fmt: skip
    yield Situation(
        "comes-free",
        "a job that may go on demand ten minutes before a prepaid node comes free",
        (pool("train", BLOCK, HOURLY, nodes=16),),
        {
            "duration": "12h", "reservations": [block(1)],
            "jobs": [
                jobs("base", "4h", {"at": ["0s"]}),
                jobs("next", "4h", {"at": ["4h"]}, overflow=True),
            ],
        },
        usd=lambda run: 0.0, longest_wait=timedelta(minutes=30),
    )  # fmt: skip
    yield Situation(
        "odcr-first",
        "an on-demand reservation beside a block: the block is used first, the reservation next, then on demand",
        (pool("train", BLOCK, {"type": "odcr"}, HOURLY, nodes=16),),
        {
            "duration": "1d",
            "reservations": [
                block(2), block(1, name="odcr", type="odcr", zone="us-east-1b"),
            ],
            "jobs": [jobs("job", "20h", {"every": "1s", "count": 3}, overflow=True)],
        },
        usd=lambda run: 24 * _usd_h(run),  # the reservation costs its rate whether used or not
    )  # fmt: skip


def _two_pools() -> Iterator[Situation]:
    yield Situation(
        "two-pools",
        "two pools on one block, jobs of both in turn",
        (pool("train"), pool("other")),
        {
            "duration": "2d", "reservations": [block(2)],
            "jobs": [
                jobs("a", "20m", {"every": "1h"}),
                jobs("b", "20m", {"every": "1h", "from": "30m"}, at="other"),
            ],
        },
        longest_wait=timedelta(minutes=30), launches=2,  # one node of each pool, for all of it
    )  # fmt: skip
    yield Situation(
        "two-pools-full",
        "two pools on one block of four nodes, each of which could use all of it for hours",
        (pool("train"), pool("other")),
        {
            "duration": "2d", "reservations": [block(4)],
            "jobs": [
                jobs("a", "40m", {"every": "10m", "count": 20}),
                jobs("b", "40m", {"every": "10m", "from": "6h", "count": 20}, at="other"),
                jobs("c", "40m", {"every": "30m", "from": "14h", "count": 40}),
                jobs("d", "40m", {"every": "30m", "from": "14h15m", "count": 40}, at="other"),
            ],
        },
        # Four nodes for the first, all of them swapped for the second, and two back again for both.
        longest_wait=timedelta(minutes=30), launches=10,
    )  # fmt: skip


def _by_the_hour() -> Iterator[Situation]:
    hourly = pool("train", ON_DEMAND, disruption={"consolidateAfter": "5m"})
    yield Situation(
        "stream",
        "one-hour jobs of a node on demand, two an hour",
        (hourly,),
        {"duration": "2d", "jobs": [jobs("job", "1h", {"perHour": 2})]},
        usd=_least_usd,
    )
    yield Situation(
        "small-stream",
        "jobs of one GPU on demand, forty minutes each, ten an hour",
        (hourly,),
        {"duration": "2d", "jobs": [jobs("job", "40m", {"perHour": 10}, gpus=1)]},
        usd=_least_usd,
    )
    yield Situation(
        "sparse",
        "a job of twenty minutes every six hours: the node does not stay",
        (hourly,),
        {"duration": "2d", "jobs": [jobs("job", "20m", {"every": "6h"})]},
        usd=_least_usd,
    )
    yield Situation(
        "burst",
        "forty jobs of one GPU at once: five nodes of eight",
        (hourly,),
        {"duration": "6h", "jobs": [jobs("job", "2h", {"every": "1s", "count": 40}, gpus=1)]},
        usd=_least_usd,
    )
    yield Situation(
        "gang-by-the-hour",
        "gangs of four on demand",
        (hourly,),
        {"duration": "1d", "jobs": [jobs("gang", "3h", {"every": "8h"}, nodes=4)]},
        usd=_least_usd,
    )
    yield Situation(
        "spot-lost",
        "resumable work on spot that is interrupted three times",
        (pool("train", {"type": "spot"}, ON_DEMAND),),
        {
            "duration": "1d", "jobs": [jobs("job", "10h", {"at": ["0s", "1s"]}, **RESUMABLE)],
            "faults": [{"at": at, "fault": "spot-interruption"} for at in ("2h", "5h", "7h")],
        },
    )  # fmt: skip


def _usd_h(run: Rehearsal) -> float:
    return run.spec.catalog.types[TYPE].on_demand_usd_h or 0.0


def _least_usd(run: Rehearsal) -> float:
    """If every job starts as it comes, on nodes by the hour alone."""
    return least_node_hours(list(run.cluster.jobs.values()), run.end, 8, BOOTED * HOUR) * _usd_h(run)
