"""The best that anybody could do, worked out without a line of the engine: most work, and least money by the hour.

Most work is a bound from above by a linear program: it knows every job and its true duration from the start, ignores
that GPUs belong to nodes, and may start a fraction of a job. Time is in slots; a job that cannot be resumed is worked
on without a pause on one source, one that can be resumed is a fluid. Durations are rounded down to slots and arrivals
too, so rounding only helps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.linear_program import INFINITE, Program
from tidemill.sim.cluster.workloads import JobTruth

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Supply:
    """So many GPUs that work can use in a span."""

    gpus: int
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class _Kind:
    """Jobs that differ in little but their arrival."""

    gpus: int
    slots: int
    resumable: bool


def most_gpu_hours(
    jobs: Sequence[JobTruth], supplies: Sequence[Supply], begin: datetime, end: datetime, slot: timedelta
) -> float:
    """The most GPU-hours of work that any schedule gets done between `begin` and `end`."""
    count = -((begin - end) // slot)
    program = Program()
    used: dict[tuple[int, int], dict[int, float]] = {}  # by supply and slot: GPUs by column
    for kind, alike in _by_kind(jobs, slot).items():
        started: list[list[int]] = [[] for _ in range(count)]  # columns by slot
        longest_h = max(job.duration for job in alike) / HOUR
        for number, supply in enumerate(supplies):
            first = max(0, (supply.since - begin) // slot)
            last = min(count, -((begin - supply.until) // slot))
            length = 1 if kind.resumable else kind.slots
            for at in range(first, last):
                if at + length > last and last < count:
                    break  # it would not be done in time
                left_h = (count - at) * (slot / HOUR)
                done_h = slot / HOUR if kind.resumable else min(longest_h, left_h)
                column = program.column(-kind.gpus * done_h)
                started[at].append(column)
                for busy in range(at, min(at + length, count)):
                    used.setdefault((number, busy), {})[column] = float(kind.gpus)
        _after_arrival(program, kind, [(job.submitted - begin) // slot for job in alike], started)
    for (number, _), columns in used.items():
        program.row(-INFINITE, float(supplies[number].gpus), columns)
    solved = program.optimum()
    assert solved is not None
    return min(-solved.objective, sum(job.gpus * (job.duration / HOUR) for job in jobs))


def least_node_hours(jobs: Sequence[JobTruth], end: datetime, gpus_per_node: int, boot: timedelta) -> float:
    """Hours of nodes by the hour if every job starts as it comes: a bound from below. As many nodes are up as the GPUs
    in use fill; one that is not needed for a while is kept or launched again, whichever is less, and each launch costs
    a boot. It ignores that jobs do not move."""
    changes = sorted(
        change
        for job in jobs
        for change in ((job.submitted, job.gpus), (min(end, job.submitted + job.duration), -job.gpus))
        if job.submitted < end
    )
    paid, in_use = timedelta(0), 0
    free_since: list[datetime | None] = []  # by node: since when it is not needed; None: it is
    for number, (at, gpus) in enumerate(changes):
        in_use += gpus
        if number + 1 < len(changes) and changes[number + 1][0] == at:
            continue
        needed = -(-in_use // gpus_per_node)
        for node in range(max(needed, len(free_since))):
            if node == len(free_since):
                free_since.append(None)
                paid += boot
            elif node < needed and (since := free_since[node]) is not None:
                paid += min(boot, at - since)
                free_since[node] = None
            elif node >= needed and free_since[node] is None:
                free_since[node] = at
        until = changes[number + 1][0] if number + 1 < len(changes) else at
        paid += needed * (until - at)
    return paid / HOUR


def _after_arrival(program: Program, kind: _Kind, arrivals: list[int], started: list[list[int]]) -> None:
    """No more is started than has arrived; of what can be resumed, no more is done than its jobs could have done."""
    before: int | None = None  # the column of what was left to start in the slot before
    so_far = 0.0
    for at, columns in enumerate(started):
        could = _could(kind, arrivals, at)
        left = program.column()
        row = dict.fromkeys(columns, 1.0) | {left: 1.0}
        if before is not None:
            row[before] = -1.0
        program.row(could - so_far, could - so_far, row)
        before, so_far = left, could


def _could(kind: _Kind, arrivals: list[int], at: int) -> float:
    if kind.resumable:
        return float(sum(min(kind.slots + 1, at + 1 - came) for came in arrivals if came <= at))
    return float(sum(came <= at for came in arrivals))


def _by_kind(jobs: Sequence[JobTruth], slot: timedelta) -> dict[_Kind, list[JobTruth]]:
    found: dict[_Kind, list[JobTruth]] = {}
    for job in jobs:
        kind = _Kind(job.gpus, max(1, job.duration // slot), job.stream.resumes_every is not None)
        found.setdefault(kind, []).append(job)
    return found
