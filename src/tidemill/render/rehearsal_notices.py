"""What of a rehearsal a person must hear of besides its jobs and evictions, one line each, with the reason.

Blocks that were not bought, extensions and words of people that came to nothing, services that were down,
pods that died with their node, and what the engine warned of. Reads the Outcome and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, timedelta

from tidemill.render.figures import counted, exact_instant, short_instant, span, usd
from tidemill.render.names import Names
from tidemill.sim.scenario.outcome import KillRow, Outcome, PurchaseRow, ServiceRow

_BOUGHT = "confirmed"
_CAME_TO_NOTHING = {
    "extension-refused": "extension",
    "extension-failed": "extension",
    "verdict-refused": "no effect",  # a person's word on a proposal that nobody could take into account
}


@dataclass(frozen=True, slots=True)
class Notice:
    kind: str
    what: str
    why: str


def notices(outcome: Outcome) -> tuple[Notice, ...]:
    """In the order of what they cost: money first, then services, then pods, then warnings."""
    return (
        *_not_bought(outcome.purchases),
        *(
            Notice(_CAME_TO_NOTHING[kind], f"{exact_instant(at)}  {about}", sentence)
            for at, kind, about, sentence in outcome.journal
            if kind in _CAME_TO_NOTHING
        ),
        *(_down(row) for row in outcome.services if row.downtime_s),
        *(_killed(row) for row in outcome.kills if not row.full_grace),
        *_warnings(outcome),
    )


def windows(purchases: Iterable[PurchaseRow]) -> dict[tuple[str, str], list[PurchaseRow]]:
    """Proposals of one demand window, in order: one that expires or is refused is followed by another."""
    found: dict[tuple[str, str], list[PurchaseRow]] = {}
    for row in purchases:
        found.setdefault((row.plan, row.window), []).append(row)
    return found


def purchases_in_words(purchases: Iterable[PurchaseRow]) -> str:
    """`week-47 bought for $10,116, week-48 not bought`; empty where nothing was ever proposed."""
    words = []
    for (_, window), rows in windows(purchases).items():
        fees = [row.fee_usd for row in rows if row.state == _BOUGHT]
        words.append(f"{window} bought for {usd(sum(fees))}" if fees else f"{window} not bought")
    return ", ".join(words)


def _not_bought(purchases: Iterable[PurchaseRow]) -> Iterator[Notice]:
    for (plan, window), rows in windows(purchases).items():
        if any(row.state == _BOUGHT for row in rows):
            continue
        # Where people gave their word, what came of it says more than that the next proposal waits for it.
        told = next((row for row in reversed(rows) if row.verdicts), rows[-1])
        what = f"{plan}/{window}: {told.count}×{told.type} for up to {usd(told.max_fee_usd)}"
        tries = f"{counted(len(rows), 'proposal')} in all" if len(rows) > 1 else ""
        words = (*told.verdicts, told.note or f"the proposal is {told.state}", tries)
        if told.state == "refused":
            words = (*told.verdicts, tries)  # its note is what the person said
        yield Notice("not bought", what, "; ".join(filter(None, words)))


def _down(row: ServiceRow) -> Notice:
    least = max(1, row.min_available)
    since = f" from {short_instant(row.down[0][0])}" if row.down else ""
    why = f"fewer than {least} of {row.replicas} ready for {span(timedelta(seconds=row.downtime_s))}{since}"
    if row.waiting and row.reason:
        why += f"; {counted(row.waiting, 'replica waits', 'replicas wait')}: {row.reason}"
    return Notice("down", row.name, why)


def _killed(row: KillRow) -> Notice:
    why = f"died with {row.node} after {row.grace_had_s} s of its {row.grace_s} s grace"
    return Notice("killed", f"{exact_instant(row.at)}  {row.pod}", why)


def _warnings(outcome: Outcome) -> Iterator[Notice]:
    """Not those about a window that has proposals: they are the reason there, or are settled by now."""
    proposed = {name for row in outcome.purchases for name in (row.window, f"{row.plan}/{row.window}")}
    names = Names({block.id: block.name for block in outcome.blocks}, UTC)
    for row in outcome.warnings:
        if row.about not in proposed:
            yield Notice("warning", row.about, names.spoken(row.sentence))


def deaths_in_words(outcome: Outcome) -> str:
    """`2 pods died with their node, 1 without its grace`; empty where none did."""
    if not outcome.kills:
        return ""
    several = len(outcome.kills) > 1
    died = f"{counted(len(outcome.kills), 'pod')} died with {'their' if several else 'its'} node"
    without = sum(not row.full_grace for row in outcome.kills)
    return f"{died}, {without:,} without {'its' if without == 1 else 'their'} grace"
