"""The last hour or two of each block, enlarged: the part of a rehearsal that is too short to see on a week.

Says when the drain began, when the last pod went, and how far that was from the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.render.figures import span
from tidemill.render.rehearsal_facts import Ending
from tidemill.render.rehearsal_lanes import Axis, Life, life
from tidemill.sim.scenario.outcome import BlockRow, NodeSpan, Outcome

CLOSE_UPS = 24  # blocks shown enlarged; the table below them has all
_NODES_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """One instant of a block's end. `before_end` reads `T−41m 17s`, the way the rules are written."""

    kind: str
    word: str
    at: datetime
    left: str
    before_end: str


@dataclass(frozen=True, slots=True)
class CloseUp:
    ending: Ending
    axis: Axis
    marks: tuple[Mark, ...]
    lives: tuple[Life, ...]
    nodes_left_out: int
    spare_left: str  # where the band between drained and deadline begins and how wide it is; empty: no band
    spare_width: str


def marks(block: BlockRow, axis: Axis) -> tuple[Mark, ...]:
    """In the order of time; two that fall on one instant are one mark."""
    named = [
        ("start", "start", block.start),
        ("drain", "drain from", block.drain_from),
        ("drained", "drained", block.drained_at),
        ("deadline", "deadline", block.deadline),
        ("kill", "kill", block.kill_at),
        ("end", "end", block.end),
    ]
    found: list[Mark] = []
    for kind, word, at in sorted(
        ((kind, word, at) for kind, word, at in named if at is not None), key=lambda mark: mark[2]
    ):
        if not axis.holds(at):
            continue
        before = "T" if at == block.end else f"T−{span(block.end - at)}"
        if found and found[-1].at == at:
            last = found.pop()
            found.append(Mark(last.kind, f"{last.word}, {word}", at, last.left, before))
        else:
            found.append(Mark(kind, word, at, axis.left(at), before))
    return tuple(found)


def close_up(ending: Ending, nodes: tuple[NodeSpan, ...]) -> CloseUp:
    block = ending.block
    first = min(at for at in (block.drain_from, block.drained_at, block.deadline) if at is not None)
    # Never more than three hours: a job that drained early is said in words, not by shrinking the rest.
    begin = max(first, block.end - timedelta(hours=3)) - timedelta(minutes=10)
    last = max(at for at in (block.end, block.drained_at) if at is not None)
    axis = Axis(max(begin, block.start), last + timedelta(minutes=5))
    alive = [
        n for n in nodes if n.phases and n.phases[0][1] < axis.end and (n.gone_at or axis.end) > axis.start
    ]
    left = width = ""
    if ending.spare is not None and ending.spare > timedelta(0) and block.drained_at is not None:
        since = max(block.drained_at, axis.start)
        left = axis.left(since)
        width = f"{100 * (axis.x(block.deadline) - axis.x(since)) / axis.length_s:.4f}%"
    lives = tuple(life(node, axis) for node in alive[:_NODES_SHOWN])
    return CloseUp(ending, axis, marks(block, axis), lives, max(0, len(alive) - _NODES_SHOWN), left, width)


def close_ups(outcome: Outcome, endings: tuple[Ending, ...]) -> tuple[CloseUp, ...]:
    """Only blocks that came to their deadline within the rehearsal; those that went wrong first."""
    ended = [found for found in endings if found.drain not in ("not-yet", "never-delivered")]
    ended.sort(key=lambda found: (not found.bad, found.block.end, found.block.id))
    return tuple(
        close_up(found, tuple(node for node in outcome.nodes if node.source == found.block.id))
        for found in ended[:CLOSE_UPS]
    )
