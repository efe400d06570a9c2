"""Situations that an expert would know what to do in, and what the best would be.

Each has one pool unless it says otherwise, nodes with eight H100, and jobs that say truthfully how long they take. The
work that could be done is bounded by a linear program (`ideal`); what money and waits should be is worked out by hand
where they matter, beside the scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from benchmarks.decisions.money import money
from benchmarks.decisions.situation import (
    RESUMABLE,
    Situation,
    block,
    jobs,
    pool,
    small,
)


def situations() -> Iterator[Situation]:
    yield from _nobody_starves()
    yield from _of_all_sizes()
    yield from _ends()
    yield from _services_at_the_end()
    yield from money()
    yield from _priority()


def _nobody_starves() -> Iterator[Situation]:
    gang = jobs("gang", "2h", {"at": ["6h"]}, nodes=2)
    for percent in (75, 85, 95, 106):
        yield Situation(
            f"gang-{percent}",
            f"two nodes {percent} % full of one-hour jobs of one GPU, and a gang of both nodes",
            (pool(),),
            {"duration": "2d", "reservations": [block(2)], "jobs": [small(percent / 100, 2), gang]},
            # From its tenth minute on nothing need start that ends later than an hour from then, but for those who came
            # before it: where more is asked for than there is, up to two rows of them wait.
            longest_wait=timedelta(hours=1.5 if percent < 100 else 3),
            counted_wait="gang",
        )
    yield Situation(
        "whole-nodes",
        "two nodes 85 % full of one-hour jobs of one GPU, and jobs of a whole node every four hours",
        (pool(),),
        {
            "duration": "2d", "reservations": [block(2)],
            "jobs": [small(0.75, 2), jobs("whole", "1h", {"every": "4h", "from": "2h"})],
        },
        longest_wait=timedelta(hours=1.5), counted_wait="whole",
    )  # fmt: skip


def _of_all_sizes() -> Iterator[Situation]:
    yield Situation(
        "overloaded",
        "sixteen nodes, 106 % asked for: small jobs, gangs of four and of eight",
        (pool(),),
        {
            "duration": "3d", "reservations": [block(16)],
            "jobs": [
                jobs("small", "1h", {"perHour": 70}, gpus=1),
                jobs("four", "4h", {"every": "16h", "from": "3h"}, nodes=4),
                jobs("eight", "6h", {"every": "24h", "from": "5h"}, nodes=8),
                jobs("one", "3h", {"perHour": 1.4}),
            ],
        },
        # The largest in front: it waits for at most what runs (6 h) and for gangs before it.
        longest_wait=timedelta(hours=24), counted_wait="eight",
    )  # fmt: skip
    yield Situation(
        "gangs-alone",
        "gangs of two, three and four on six nodes",
        (pool(),),
        {
            "duration": "3d", "reservations": [block(6)],
            "jobs": [
                jobs("two", "2h", {"every": "3h"}, nodes=2),
                jobs("three", "3h", {"every": "5h"}, nodes=3),
                jobs("four", "1h", {"every": "4h"}, nodes=4),
            ],
        },
        longest_wait=timedelta(hours=6),
    )  # fmt: skip
    yield Situation(
        "mixed-lengths",
        "four nodes, jobs of two GPUs between ten minutes and ten hours",
        (pool(),),
        {
            "duration": "3d", "reservations": [block(4)],
            "jobs": [jobs("mixed", {"lognormal": {"median": "90m", "sigma": 0.9, "max": "10h"}},
                          {"perHour": 5.5}, gpus=2)],
        },
    )  # fmt: skip
    yield Situation(
        "large-and-small",
        "four nodes, jobs of 1, 2, 4 and 8 GPUs that fill them",
        (pool(),),
        {
            "duration": "3d", "reservations": [block(4)],
            "jobs": [jobs(f"g{size}", "2h", {"perHour": 4 / size}, gpus=size) for size in (1, 2, 4, 8)],
        },
        longest_wait=timedelta(hours=8), counted_wait="g8",
    )  # fmt: skip
    yield Situation(
        "flood",
        "two hundred jobs of one GPU at once on four nodes",
        (pool(),),
        {
            "duration": "1d", "reservations": [block(4, duration="2d")],
            "jobs": [jobs("flood", "2h", {"every": "1s", "count": 200}, gpus=1)],
        },
        longest_wait=timedelta(hours=12.5),
    )  # fmt: skip


def _ends() -> Iterator[Situation]:
    yield Situation(
        "too-long",
        "jobs of seven hours, some of them shortly before the block ends, and short ones beside",
        (pool(),),
        {
            "duration": "1d", "reservations": [block(4, duration="1d")],
            "jobs": [jobs("long", "7h", {"every": "1h30m", "count": 14}), jobs("short", "1h", {"every": "20m"})],
        },
    )  # fmt: skip
    yield Situation(
        "resumable",
        "work that can be resumed until the end of a block, and then on the next",
        (pool(),),
        {
            "duration": "3d",
            "reservations": [block(4, duration="1d"), block(4, start="1d", duration="2d", name="next")],
            "jobs": [jobs("train", "20h", {"every": "4h"}, **RESUMABLE)],
        },
    )  # fmt: skip
    yield Situation(
        "overlap",
        "two blocks that overlap, jobs of five hours that fit the one or the other",
        (pool(),),
        {
            "duration": "3d",
            "reservations": [block(4, duration="2d"), block(4, start="1d", duration="2d", name="next")],
            "jobs": [jobs("five", "5h", {"every": "50m"})],
        },
    )  # fmt: skip
    yield Situation(
        "short-left",
        "a block with six hours left beside one with two days: long jobs on the second, short ones on the first",
        (pool(),),
        {
            "duration": "18h",
            "reservations": [
                block(4, duration="1d"),
                block(4, duration="3d", name="long", zone="us-east-1b"),
            ],
            "jobs": [
                jobs("long", "16h", {"at": ["2h", "2h1m", "2h2m", "2h3m"]}),
                jobs("short", "2h", {"every": "30m"}),
            ],
        },
    )  # fmt: skip
    yield Situation(
        "gang-across",
        "a resumable gang of four that outlasts its block",
        (pool(),),
        {
            "duration": "3d",
            "reservations": [block(4, duration="1d"), block(4, start="1d", duration="2d", name="next")],
            "jobs": [jobs("gang", "40h", {"at": ["1m"]}, nodes=4, **RESUMABLE)],
        },
    )  # fmt: skip
    yield Situation(
        "silent",
        "jobs that do not say how long they take, resumable, until the end of a block",
        (pool(),),
        {
            "duration": "1d", "reservations": [block(4, duration="1d")],
            "jobs": [jobs("silent", "3h", {"every": "40m"}, saysNothing=True, **RESUMABLE)],
        },
    )  # fmt: skip


def _services_at_the_end() -> Iterator[Situation]:
    service = {
        "name": "chat", "replicas": 2, "minAvailable": 1, "gpus": 8, "cpu": "160", "memory": "1500Gi",
        "load": "10m", "grace": "1m", "nodeSelector": {"workload-type": "train"},
    }  # fmt: skip
    yield Situation(
        "service-beside",
        "a service on two of sixteen nodes of a block that ends, jobs on the others until the end",
        (pool(),),
        {
            "duration": "2d", "services": [service],
            "reservations": [
                block(16, duration="2d"),
                block(2, start="1d", duration="3d", name="next", zone="us-east-1b"),
            ],
            "jobs": [jobs("short", "1h", {"every": "4m"})],
        },
    )  # fmt: skip
    slow = {
        **service,
        "name": "slow",
        "replicas": 12,
        "minAvailable": 11,
        "gpus": 1,
        "cpu": "8",
        "memory": "64Gi",
    }
    yield Situation(
        "service-slow",
        "twelve small replicas that move one by one for four hours, on two of sixteen nodes of a block that ends",
        (pool(),),
        {
            "duration": "2d", "services": [{**slow, "load": "20m"}],
            "reservations": [
                block(16, duration="2d"),
                block(2, start="1d", duration="3d", name="next", zone="us-east-1b"),
            ],
            "jobs": [jobs("short", "1h", {"every": "4m"})],
        },
    )  # fmt: skip


def _priority() -> Iterator[Situation]:
    low = jobs("low", "10h", {"every": "2h"}, **RESUMABLE)
    yield Situation(
        "urgent",
        "four nodes full of resumable work without priority, and urgent jobs of an hour",
        (pool(),),
        {
            "duration": "2d", "reservations": [block(4)],
            "jobs": [low, jobs("urgent", "1h", {"every": "5h", "from": "9h"}, priority=1000)],
        },
        longest_wait=timedelta(hours=1), counted_wait="urgent",
    )  # fmt: skip
    yield Situation(
        "urgent-gang",
        "four nodes full of resumable work without priority, and an urgent gang of two",
        (pool(),),
        {
            "duration": "2d", "reservations": [block(4)],
            "jobs": [low, jobs("urgent", "2h", {"at": ["10h", "30h"]}, nodes=2, priority=1000)],
        },
        longest_wait=timedelta(hours=1), counted_wait="urgent",
    )  # fmt: skip
    yield Situation(
        "not-to-be-disturbed",
        "the same with work that must not be disturbed: the urgent job waits for the first that ends",
        (pool(),),
        {
            "duration": "2d", "reservations": [block(4)],
            "jobs": [
                {**low, "doNotDisrupt": True},
                jobs("urgent", "1h", {"every": "11h", "from": "9h"}, priority=1000),
            ],
        },
        longest_wait=timedelta(hours=10), counted_wait="urgent",
    )  # fmt: skip
