"""Training jobs for people: a table, one line for what happens to a job now, and lines of logs with their rank."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tidemill.render.figures import NOTHING, counted, short_instant, span
from tidemill.report.job_nodes import JobNodes
from tidemill.report.training_jobs import JobRow, JobState
from tidemill.spec import names
from tidemill.spec.units import format_duration
from tidemill.wording.templates import amounts

COLUMNS = ("NAME", "STATE", "NODES", "GPUS", "RAN / EXPECTED", "EARLIEST", "WHY")
RIGHT = ("NODES", "GPUS")
_SILENT = "Tidemill has said nothing about it yet"


def table_rows(rows: Sequence[JobRow], now: datetime, *, with_namespace: bool) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.namespace}/{row.name}" if with_namespace else row.name,
            _state(row),
            str(row.nodes),
            str(row.gpus),
            _times(row, now),
            short_instant(row.earliest) if row.earliest else "",
            row.reason or (_SILENT if row.state is JobState.WAITING else ""),
        )
        for row in rows
    ]


def _state(row: JobRow) -> str:
    part = 0 < row.ready < row.nodes and row.state is JobState.STARTING
    return f"{row.state} {row.ready}/{row.nodes}" if part else str(row.state)


def _times(row: JobRow, now: datetime) -> str:
    ran, expected = row.elapsed(now), row.expected
    if ran is None and expected is None:
        return ""
    return f"{NOTHING if ran is None else span(ran)} / {NOTHING if expected is None else format_duration(expected)}"


def progress_line(row: JobRow) -> str:
    """What happens to it now; another line when that changes."""
    match row.state:
        case JobState.WAITING:
            return f"waits. {_sentence(row.reason or _SILENT)}{_could_run(row)}"
        case JobState.QUEUED | JobState.SUSPENDED:
            return f"waits. {_sentence(row.reason)}"
        case JobState.STARTING:
            why = f" {_sentence(row.reason)}" if row.reason else ""
            return f"starts, {row.ready} of {counted(row.nodes, 'pod')} ready.{why}"
        case JobState.RUNNING:
            return f"runs on {counted(row.nodes, 'node')}."
        case JobState.FAILED:
            return f"failed. {_sentence(row.reason or 'No reason is given')}"
        case JobState.DONE:
            ran = row.elapsed(row.ended_at) if row.ended_at else None
            return f"is done{f' after {span(ran)}' if ran is not None else ''}."
        case JobState.STOPPING:
            return f"is being stopped; its pods have {format_duration(row.grace)} to save and end."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _could_run(row: JobRow) -> str:
    return f" It could run from {short_instant(row.earliest)} UTC." if row.earliest is not None else ""


def nodes_line(nodes: JobNodes, count: int) -> str:
    """`4 nodes of pool gpu (p5.48xlarge), each pod: 8 nvidia.com/gpu, ...`."""
    types = ", ".join(kind.name for kind in nodes.types[:4]) + (", …" if len(nodes.types) > 4 else "")
    where = f"pool {nodes.pool} ({types})" if nodes.pool else types
    what = counted(count, "node" if nodes.whole else "pod")
    devices_first = sorted(nodes.requests, key=lambda each: (each[0] in (names.CPU, names.MEMORY), each[0]))
    return f"{what} of {where}, each with {amounts(tuple(devices_first))}"


def log_text(rank: int, text: str, *, ranks: int) -> str:
    """With its rank in front where there are several; ranks are as wide as the largest."""
    width = len(str(ranks - 1))
    return f"[{rank:>{width}}] {text}" if ranks > 1 else text
