"""The three parts of a rehearsal's verdict in words: the same lines for the terminal and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemill.render.figures import counted, hours, usd
from tidemill.render.savings_text import comparison_lines
from tidemill.report.savings import Savings
from tidemill.sim.scenario.outcome import Outcome, Unserved

Tone = Literal["good", "warn", "bad", "none"]
MARKS: dict[Tone, str] = {"good": "✓", "warn": "!", "bad": "✗", "none": "–"}
_NAMED = 4  # of what was not served, then how many more
_UNSERVED_TEXT = {
    "uncovered": ("demand window has too few instances", "demand windows have too few instances"),
    "down": ("service was down", "services were down"),
    "failed": ("job failed", "jobs failed"),
    "late": ("job was late", "jobs were late"),
    "waiting": (
        "job still waits, although there was time for it",
        "jobs still wait, although there was time for them",
    ),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the verdict: how it went, and its lines."""

    name: str
    tone: Tone
    lines: tuple[str, ...]

    @property
    def mark(self) -> str:
        return MARKS[self.tone]


def parts(outcome: Outcome) -> tuple[Part, Part, Part]:
    return _safe(outcome), _served(outcome), _worth_it(outcome)


def headline(outcome: Outcome) -> tuple[Tone, str]:
    """Green only where the plan works: safe and served, and not dearer than on demand."""
    verdict = outcome.verdict
    if not verdict.safe:
        return "bad", f"Not safe: {_violations(outcome)}"
    if not verdict.served:
        return "bad", "Safe, but not served"
    if verdict.worth_it is False:
        return "warn", "Safe and served, but not worth it"
    return "good", "Safe, served and worth it" if verdict.worth_it else "Safe and served"


def _safe(outcome: Outcome) -> Part:
    if outcome.verdict.safe:
        return Part("safe", "good", (f"no invariant was violated in {counted(outcome.ticks, 'tick')}",))
    return Part("safe", "bad", (_violations(outcome),))


def _violations(outcome: Outcome) -> str:
    numbers = sorted({violation.invariant for violation in outcome.invariant_violations})
    which = ", ".join(str(number) for number in numbers)
    return f"{counted(len(outcome.invariant_violations), 'violation')} of invariant {which}"


def _served(outcome: Outcome) -> Part:
    verdict = outcome.verdict
    if verdict.served is None:
        return Part("served", "none", ("not judged: the run stopped at the violation",))
    if not verdict.served:
        return Part("served", "bad", tuple(_unserved(row) for row in verdict.unserved))
    words = []
    if outcome.jobs:
        done = sum(job.state == "finished" for job in outcome.jobs)
        rest = len(outcome.jobs) - done
        more = f", {rest:,} ran or came shortly before the end" if rest else ""
        words.append(f"{done:,} of {counted(len(outcome.jobs), 'job')} finished{more}")
    if outcome.services:
        words.append(f"{counted(len(outcome.services), 'service')} without downtime")
    return Part("served", "good", ("; ".join(words) or "nothing was asked for",))


def _unserved(row: Unserved) -> str:
    one, many = _UNSERVED_TEXT[row.kind]
    more = f" and {len(row.names) - _NAMED:,} more" if len(row.names) > _NAMED else ""
    return f"{counted(len(row.names), one, many)}: {', '.join(row.names[:_NAMED])}{more}"


def _worth_it(outcome: Outcome) -> Part:
    verdict = outcome.verdict
    tones: dict[bool | None, Tone] = {True: "good", False: "warn", None: "none"}
    return Part("worth it", tones[verdict.worth_it], tuple(_money(outcome, verdict.savings)))


def _money(outcome: Outcome, money: Savings) -> list[str]:
    if not money.paid_usd and not money.ahead_usd:
        return ["nothing was paid"]
    used, paid_h = outcome.gpu_hours.get("used", 0.0), outcome.gpu_hours.get("paid", 0.0)
    lines = []
    if money.paid_usd >= 0.005:
        what = (
            f"{hours(paid_h)} GPU-hours, {hours(used)} of them used"
            if paid_h
            else "nodes without accelerators"
        )
        lines.append(f"paid {usd(money.paid_usd)} for {what}")
    if money.ahead_usd >= 0.005:
        more = " more" if lines else ""
        lines.append(f"paid {usd(money.ahead_usd)}{more} for hours outside the rehearsal")
    return [*lines, *comparison_lines(money)]


def drawn_fees(outcome: Outcome) -> str:
    """Which fees the simulator drew, with what the catalog's rate would be; empty: none."""
    drawn = [block for block in outcome.blocks if block.fee_drawn and block.catalog_fee_usd is not None]
    if not drawn:
        return ""
    listed = ", ".join(
        f"{block.name or block.id} {usd(block.fee_usd)} (catalog {usd(block.catalog_fee_usd or 0)})"
        for block in drawn[:_NAMED]
    )
    more = f" and {len(drawn) - _NAMED:,} more" if len(drawn) > _NAMED else ""
    return f"fees drawn by the simulator, with the catalog's rate: {listed}{more}"
