"""A rehearsal's timeline in characters: one line per block, one for the GPUs in use.

A character stands for a slice of the run. What is short but matters, the drain, takes at least one character.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby

from tidemill.sim.scenario.outcome import BlockRow, Outcome

_LEVELS = " ▁▂▃▄▅▆▇█"
_GLYPHS = {"none": "·", "held": "━", "drain": "╍"}


def block_strip(block: BlockRow, outcome: Outcome, columns: int) -> list[tuple[str, str]]:
    """Pieces of text, each `none` (outside the block), `held` (while it lasts) or `drain` (at its end)."""
    slice_s = max(1.0, (outcome.end - outcome.start).total_seconds() / columns)

    def column(at: datetime) -> int:
        return int((at - outcome.start).total_seconds() // slice_s)

    first, last = column(block.start), column(block.end - timedelta(seconds=1))
    drain = min(last, column(block.drain_from)) if block.drain_from is not None else last + 1
    kinds = ["none" if not first <= n <= last else "drain" if n >= drain else "held" for n in range(columns)]
    return [(_GLYPHS[kind] * len(list(run)), kind) for kind, run in groupby(kinds)]


def gpu_strip(outcome: Outcome, columns: int) -> str:
    """GPUs in use, averaged over each slice, against the most ever paid for at once."""
    series = outcome.series
    top = max((*series.paid, *series.used), default=0)
    if not top:
        return ""
    length_s = max(1, int((outcome.end - outcome.start).total_seconds()))
    sums = [0.0] * columns
    ends = (*series.at[1:], outcome.end)
    for begin, end, used in zip(series.at, ends, series.used, strict=True):
        x, until = (
            max(0.0, (at - outcome.start).total_seconds() / length_s * columns) for at in (begin, end)
        )
        while used and x < min(until, columns):
            edge = min(until, int(x) + 1)
            sums[int(x)] += used * (edge - x)
            x = edge
    # Rounded up, so that a single busy GPU among many still shows.
    return "".join(_LEVELS[min(8, -(-int(800 * total / top) // 100))] for total in sums)
