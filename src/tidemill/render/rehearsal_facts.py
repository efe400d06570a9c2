"""What a reader of a rehearsal wants to know first, worked out once for the terminal and the page.

Reads the Outcome and nothing else. No layout, no colour, no markup here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tidemill.model.capacity import NEVER_CAME_STATES, UNPAID_STATES
from tidemill.render.figures import counted, span
from tidemill.render.rehearsal_notices import Notice, notices
from tidemill.sim.cluster.kubelet import Eviction
from tidemill.sim.scenario.outcome import BlockRow, JobRow, Outcome

JOB_STATES = ("finished", "running", "pending", "held", "failed")

Drain = Literal["in-time", "late", "not-drained", "nothing-to-drain", "not-yet", "never-delivered"]
_WORDS = {
    "not-yet": "ends after the rehearsal",
    "never-delivered": "never delivered",
    "nothing-to-drain": "nothing ran there",
    "not-drained": "pods were still there",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a block ended. `spare` runs from the last pod's going to the deadline; negative: too late."""

    block: BlockRow
    drain: Drain
    spare: timedelta | None = None

    @property
    def bad(self) -> bool:
        return self.drain in ("late", "not-drained")

    @property
    def sentence(self) -> str:
        if self.spare is None:
            return _WORDS[self.drain]
        side = "before" if self.drain == "in-time" else "after"
        return f"drained {span(abs(self.spare))} {side} the deadline"


def ending(block: BlockRow, rehearsal_end: datetime) -> Ending:
    if block.state in UNPAID_STATES | NEVER_CAME_STATES:
        return Ending(block, "never-delivered")
    if block.drained_at is not None and (block.drain_from is not None or block.deadline <= rehearsal_end):
        spare = block.deadline - block.drained_at
        return Ending(block, "in-time" if spare >= timedelta(0) else "late", spare)
    if block.deadline > rehearsal_end:
        return Ending(block, "not-yet")
    # Pods ran there and nobody saw the last of them go. Where none ever ran there was nothing to drain.
    return Ending(block, "not-drained" if block.gpu_hours_used > 0 else "nothing-to-drain")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Jobs that did not go well for one and the same reason."""

    state: str
    reason: str
    jobs: tuple[JobRow, ...]

    @property
    def names(self) -> str:
        """At most four names, then how many more."""
        shown = ", ".join(job.name for job in self.jobs[:4])
        return shown + (f" and {len(self.jobs) - 4:,} more" if len(self.jobs) > 4 else "")


def troubles(outcome: Outcome) -> tuple[Trouble, ...]:
    """Failed, held and late jobs, grouped by reason; within a state the largest group first."""
    groups: dict[tuple[str, str], list[JobRow]] = {}
    for job in outcome.jobs:
        if job.state in ("failed", "held"):
            groups.setdefault((job.state, job.reason), []).append(job)
        elif job.late:
            groups.setdefault(("late", job.reason or _why_late(job)), []).append(job)
    rank = {"failed": 0, "held": 1, "late": 2}
    found = (Trouble(state, reason, tuple(jobs)) for (state, reason), jobs in groups.items())
    return tuple(sorted(found, key=lambda trouble: (rank[trouble.state], -len(trouble.jobs))))


def _why_late(job: JobRow) -> str:
    if job.state == "finished":
        return "finished after its deadline"
    return f"its deadline passed while it was {job.state}"


@dataclass(frozen=True, slots=True)
class Facts:
    endings: tuple[Ending, ...]
    troubles: tuple[Trouble, ...]
    notices: tuple[Notice, ...]
    forced: tuple[Eviction, ...]
    jobs_by_state: dict[str, int]
    late: int
    downtime_s: int  # of all services together
    broken_promises: tuple[str, ...]  # services promised zero downtime that had some
    good: bool
    headline: str

    @property
    def jobs_by_state_named(self) -> Iterator[tuple[str, int]]:
        """Only the states that occur, in a fixed order."""
        return ((state, count) for state, count in self.jobs_by_state.items() if count)

    @property
    def least_spare(self) -> Ending | None:
        """The block that came closest to its deadline."""
        known = [(found.spare, found) for found in self.endings if found.spare is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None


def facts(outcome: Outcome) -> Facts:
    return Facts(
        endings=tuple(ending(block, outcome.end) for block in outcome.blocks),
        troubles=troubles(outcome),
        notices=notices(outcome),
        forced=tuple(row for row in outcome.evictions if row.forced),
        jobs_by_state={state: sum(job.state == state for job in outcome.jobs) for state in JOB_STATES},
        late=sum(job.late for job in outcome.jobs),
        downtime_s=sum(service.downtime_s for service in outcome.services),
        broken_promises=tuple(s.name for s in outcome.services if s.promised and s.downtime_s),
        good=not outcome.invariant_violations,
        headline=_headline(outcome),
    )


def _headline(outcome: Outcome) -> str:
    if not outcome.invariant_violations:
        return "No invariant was violated"
    numbers = sorted({violation.invariant for violation in outcome.invariant_violations})
    which = ", ".join(str(number) for number in numbers)
    return f"{counted(len(outcome.invariant_violations), 'violation')} of invariant {which}"


def replay_command(outcome: Outcome, *more: str, seed: int | None = None) -> str:
    """What to type to see the same run again, or the same scenario with another seed."""
    chosen = outcome.seed if seed is None else seed
    return shlex.join(["tidemill", "rehearse", outcome.scenario, "--seed", str(chosen), *more])
