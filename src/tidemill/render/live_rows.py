"""The rows of the live screen as cells: pools, blocks with a countdown, nodes, waiting pods. `aligned` makes
lines of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from rich.text import Text

from tidemill.model.capacity import NOT_STARTED_STATES
from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import counted, short_instant, span, usd
from tidemill.report import BlockRow, NodeRow, PodRow, PoolRow

ACCENT, DRAIN, SOFT, BAD = "cyan", "yellow", "bright_black", "bold red"
Rows = list[Text]
Cells = list[Text]
_ROOMY = 95  # with this many columns rows show everything
_PHASE_TONES = {"ready": ACCENT, "draining": DRAIN, "gone": SOFT}


def aligned(rows: Sequence[Cells], gap: int = 2) -> Rows:
    """Each column as wide as its widest cell; the last one as it is."""
    if not rows:
        return []
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for cells in rows:
        line = Text()
        for cell, width in zip(cells[:-1], widths, strict=False):
            line.append_text(cell).append(" " * (width - cell.cell_len + (gap if width else 0)))
        lines.append(line.append_text(cells[-1]))
    return lines


def bar(room: int, *parts: tuple[float, str, str]) -> list[tuple[str, str]]:
    """A strip of parts by share, each with its character and style."""
    drawn, done, total = [], 0, 0.0
    for share, glyph, tone in parts:
        total += max(0.0, share)
        upto = min(room, round(total * room))
        drawn.append((glyph * (upto - done), tone))
        done = max(done, upto)
    return drawn


def pool_cells(row: PoolRow, room: int) -> Cells:
    scale = max(row.gpus_wanted, row.gpus_ready, row.gpus_used, 1)
    idle = max(0, row.gpus_ready - row.gpus_used)
    missing = max(0, row.gpus_wanted - max(row.gpus_ready, row.gpus_used))
    strip = bar(
        20 if room >= _ROOMY else 12,
        (row.gpus_used / scale, "━", ACCENT),
        (idle / scale, "─", DRAIN),
        (missing / scale, "╌", SOFT),
    )
    unit = " GPUs" if room >= _ROOMY else ""
    gpus = f"{row.gpus_used:>3} used {row.gpus_ready:>3} ready {row.gpus_wanted:>3} wanted{unit}"
    phases = [(f"{count} {phase}", _PHASE_TONES.get(phase, "")) for phase, count in row.nodes.items()]
    nodes = Text(" ").join(Text(*phase) for phase in phases) if phases else Text("no nodes", SOFT)
    rate = Text(f"{usd(row.usd_per_hour)}/h" if row.usd_per_hour and room >= _ROOMY else "", SOFT)
    return [Text(row.name, "bold"), Text.assemble(*strip), Text(gpus), nodes, rate]


def block_cells(row: BlockRow, now: datetime, names: DisplayNames, room: int) -> Cells:
    there = (
        f"{counted(row.nodes_up, 'node')}, {counted(row.pods, 'pod')}" if row.state == "active" else row.state
    )
    words, tone, until = _countdown(row, now)
    cells = [Text(row.name, "bold"), Text(f"{row.count}×{row.type}")]
    if room >= _ROOMY:
        cells += [Text(f"{usd(row.fee_usd)} {row.zone}", SOFT), Text(there)]
    return [*cells, Text(words, tone), Text(_when(until, now, names))]


def _countdown(row: BlockRow, now: datetime) -> tuple[str, str, datetime | None]:
    """What comes next for a block, and when."""
    if row.state in NOT_STARTED_STATES:
        return f"starts in {span(row.start - now)}", "", row.start
    if row.state != "active" or row.end is None:
        return row.state if row.state != "active" else "open end", SOFT, None
    if row.deadline is None or row.drain_from is None:
        return f"ends in {span(row.end - now)}", "", row.end
    if now < row.drain_from:
        return f"drains in {span(row.drain_from - now)}", "", row.drain_from
    if now >= row.deadline:
        return f"ends in {span(row.end - now)}", SOFT, row.end
    left = span(row.deadline - now)
    if row.pods:
        return f"DRAINING {counted(row.pods, 'pod')}, {left}", f"bold {DRAIN}", row.deadline
    return f"drained, {left} to spare", ACCENT, row.deadline


def _when(at: datetime | None, now: datetime, names: DisplayNames) -> str:
    """UTC, then the reader's time zone; with the day only if it is another day."""
    if at is None:
        return ""
    utc = f"{at:%H:%M}" if at.date() == now.date() else short_instant(at)
    return f"{utc} UTC {names.local(at)} {names.zone_name(at)}" if names.is_elsewhere(at) else f"{utc} UTC"


def node_cells(row: NodeRow, names: DisplayNames, room: int) -> Cells:
    idle = max(0, row.gpus - row.gpus_used)
    gpus = Text.assemble(("■" * row.gpus_used, ACCENT), ("□" * idle, SOFT))
    pods = ", ".join(pod.rsplit("/", 1)[-1] for pod in row.pods)
    cells = [Text(names.node(row.name)), Text(names.block(row.source), SOFT)]
    if room >= _ROOMY:
        cells.append(Text(row.type, SOFT))
    return [*cells, Text(row.phase, _PHASE_TONES.get(row.phase, "")), gpus, Text(pods)]


def waiting_cells(rows: Iterable[PodRow], names: DisplayNames) -> list[Cells]:
    """Pods of one workload with one reason share a row."""

    def key(row: PodRow) -> tuple[str, str]:
        return row.workload or row.name, row.reason

    cells = []
    for (workload, reason), group in groupby(sorted(rows, key=key), key):
        members = list(group)
        many = f" ({len(members)} pods)" if len(members) > 1 else ""
        cells.append([Text(f"{workload.rsplit('/', 1)[-1]}{many}", "bold"), Text(names.readable(reason))])
    return cells


def countdown(row: BlockRow, now: datetime) -> str:
    """The text without a style."""
    return _countdown(row, now)[0]
