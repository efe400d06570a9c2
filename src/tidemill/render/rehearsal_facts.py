"""What a reader of a rehearsal wants to know first, computed once for the terminal and the page: how blocks ended,
which jobs and services had problems, and what else needs attention.

Reads the Outcome and nothing else. No layout, no colour, no markup.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tidemill.model.capacity import NEVER_CAME_STATES, UNPAID_STATES
from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import counted, exact_instant, short_instant, span, usd
from tidemill.render.verdict_text import Part, Tone, headline, parts
from tidemill.sim.cluster.kubelet import Eviction
from tidemill.sim.scenario.outcome import BlockRow, JobRow, KillRow, Outcome, PurchaseRow, ServiceRow

JOB_STATES = ("finished", "running", "pending", "held", "failed")

Drain = Literal["in-time", "late", "not-drained", "nothing-to-drain", "not-yet", "never-delivered"]
_ENDING_TEXT = {
    "not-yet": "ends after the rehearsal",
    "never-delivered": "never delivered",
    "nothing-to-drain": "no pod ran there",
    "not-drained": "pods were still running at the deadline",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a block ended. `spare` is the time from the end of the last pod to the deadline; negative: too late."""

    block: BlockRow
    drain: Drain
    spare: timedelta | None = None

    @property
    def bad(self) -> bool:
        return self.drain in ("late", "not-drained")

    @property
    def sentence(self) -> str:
        if self.spare is None:
            return _ENDING_TEXT[self.drain]
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
    # Pods ran there and the end of the last was not seen. Where no pod ran, there was nothing to drain.
    return Ending(block, "not-drained" if block.gpu_hours_used > 0 else "nothing-to-drain")


@dataclass(frozen=True, slots=True)
class JobProblem:
    """Jobs that failed, were held or were late, all for the same reason."""

    state: str
    reason: str
    jobs: tuple[JobRow, ...]

    @property
    def names(self) -> str:
        """At most four names, then how many more."""
        shown = ", ".join(job.name for job in self.jobs[:4])
        return shown + (f" and {len(self.jobs) - 4:,} more" if len(self.jobs) > 4 else "")


def job_problems(outcome: Outcome) -> tuple[JobProblem, ...]:
    """Failed, held and late jobs, grouped by reason; within a state the largest group first."""
    groups: dict[tuple[str, str], list[JobRow]] = {}
    for job in outcome.jobs:
        if job.state in ("failed", "held"):
            groups.setdefault((job.state, job.reason), []).append(job)
        elif job.late:
            groups.setdefault(("late", job.reason or _why_late(job)), []).append(job)
    rank = {"failed": 0, "held": 1, "late": 2}
    problems = (JobProblem(state, reason, tuple(jobs)) for (state, reason), jobs in groups.items())
    return tuple(sorted(problems, key=lambda problem: (rank[problem.state], -len(problem.jobs))))


def _why_late(job: JobRow) -> str:
    if job.state == "finished":
        return "finished after its deadline"
    return f"its deadline passed while it was {job.state}"


@dataclass(frozen=True, slots=True)
class Facts:
    endings: tuple[Ending, ...]
    job_problems: tuple[JobProblem, ...]
    notices: tuple[Notice, ...]
    forced: tuple[Eviction, ...]
    jobs_by_state: dict[str, int]
    late: int
    downtime_s: int  # of all services together
    broken_promises: tuple[str, ...]  # services promised zero downtime that had some
    tone: Tone  # of the verdict
    headline: str
    verdict: tuple[Part, Part, Part]  # safe, served, worth it

    @property
    def jobs_by_state_named(self) -> Iterator[tuple[str, int]]:
        """Only the states that occur, in a fixed order."""
        return ((state, count) for state, count in self.jobs_by_state.items() if count)

    @property
    def least_spare(self) -> Ending | None:
        """The block that came closest to its deadline."""
        known = [(ending.spare, ending) for ending in self.endings if ending.spare is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None


def facts(outcome: Outcome) -> Facts:
    tone, words = headline(outcome)
    return Facts(
        endings=tuple(ending(block, outcome.end) for block in outcome.blocks),
        job_problems=job_problems(outcome),
        notices=notices(outcome),
        forced=tuple(row for row in outcome.evictions if row.forced),
        jobs_by_state={state: sum(job.state == state for job in outcome.jobs) for state in JOB_STATES},
        late=sum(job.late for job in outcome.jobs),
        downtime_s=sum(service.downtime_s for service in outcome.services),
        broken_promises=tuple(s.name for s in outcome.services if s.promised and s.downtime_s),
        tone=tone,
        headline=words,
        verdict=parts(outcome),
    )


def replay_command(outcome: Outcome, *more: str, seed: int | None = None) -> str:
    """The command that repeats this run, or plays the scenario with another seed."""
    chosen = outcome.seed if seed is None else seed
    return shlex.join(
        ["tidemill", "rehearse", *(outcome.files or (outcome.scenario,)), "--seed", str(chosen), *more]
    )


_BOUGHT = "confirmed"
_FAILED_ACTIONS = {
    "extension-refused": "extension",
    "extension-failed": "extension",
    "verdict-refused": "no effect",  # an approval or refusal that came too late or did not apply
}


@dataclass(frozen=True, slots=True)
class Notice:
    kind: str
    what: str
    why: str


def notices(outcome: Outcome) -> tuple[Notice, ...]:
    """Purchases first, then failed actions, services, pods and warnings."""
    return (
        *_not_bought(outcome.purchases),
        *(
            Notice(_FAILED_ACTIONS[kind], f"{exact_instant(at)}  {about}", sentence)
            for at, kind, about, sentence in outcome.journal
            if kind in _FAILED_ACTIONS
        ),
        *(_down(row) for row in outcome.services if row.downtime_s),
        *(_killed(row) for row in outcome.kills if not row.full_grace),
        *_warnings(outcome),
    )


def windows(purchases: Iterable[PurchaseRow]) -> dict[tuple[str, str], list[PurchaseRow]]:
    """The proposals for each demand window, in order."""
    found: dict[tuple[str, str], list[PurchaseRow]] = {}
    for row in purchases:
        found.setdefault((row.plan, row.window), []).append(row)
    return found


def purchases_text(purchases: Iterable[PurchaseRow]) -> str:
    """`week-47 bought for $10,116, week-48 not bought`; empty without proposals."""
    parts = []
    for (_, window), rows in windows(purchases).items():
        fees = [row.fee_usd for row in rows if row.state == _BOUGHT]
        parts.append(f"{window} bought for {usd(sum(fees))}" if fees else f"{window} not bought")
    return ", ".join(parts)


def _not_bought(purchases: Iterable[PurchaseRow]) -> Iterator[Notice]:
    for (plan, window), rows in windows(purchases).items():
        if any(row.state == _BOUGHT for row in rows):
            continue
        # A proposal that people decided on says more than the last one, which waits for a decision.
        decided = next((row for row in reversed(rows) if row.verdicts), rows[-1])
        what = f"{plan}/{window}: {decided.count}×{decided.type} for up to {usd(decided.max_fee_usd)}"
        tries = f"{counted(len(rows), 'proposal')} in all" if len(rows) > 1 else ""
        reasons = (*decided.verdicts, decided.note or f"the proposal is {decided.state}", tries)
        if decided.state == "refused":
            reasons = (*decided.verdicts, tries)  # the verdicts already contain the note
        yield Notice("not bought", what, "; ".join(filter(None, reasons)))


def _down(row: ServiceRow) -> Notice:
    least = max(1, row.min_available)
    since = f" from {short_instant(row.down[0][0])}" if row.down else ""
    why = f"fewer than {least} of {row.replicas} ready for {span(timedelta(seconds=row.downtime_s))}{since}"
    if row.waiting and row.reason:
        why += f"; {counted(row.waiting, 'replica waits', 'replicas wait')}: {row.reason}"
    return Notice("down", row.name, why)


def _killed(row: KillRow) -> Notice:
    why = f"died with {row.node} after {row.grace_had_s} s of its {row.grace_s} s grace period"
    return Notice("killed", f"{exact_instant(row.at)}  {row.pod}", why)


def _warnings(outcome: Outcome) -> Iterator[Notice]:
    """Without those about a window that has proposals: the purchase notices cover it."""
    proposed = {name for row in outcome.purchases for name in (row.window, f"{row.plan}/{row.window}")}
    names = DisplayNames({block.id: block.name for block in outcome.blocks}, UTC)
    for row in outcome.warnings:
        if row.about not in proposed:
            yield Notice("warning", row.about, names.readable(row.sentence))


def deaths_text(outcome: Outcome) -> str:
    """`2 pods died with their node, 1 without its grace period`; empty where none did."""
    if not outcome.kills:
        return ""
    several = len(outcome.kills) > 1
    died = f"{counted(len(outcome.kills), 'pod')} died with {'their' if several else 'its'} node"
    without = sum(not row.full_grace for row in outcome.kills)
    return f"{died}, {without:,} without {'its' if without == 1 else 'their'} grace period"
