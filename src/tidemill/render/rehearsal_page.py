"""One self-contained HTML page that shows a rehearsal: no network, no server, no script needed to read it.

The same outcome gives the same bytes, so the wall time of the run is left out. All text from documents is escaped, and
the page's security policy forbids loading anything or running another script. The page contains every job, so that its
filter finds all of them; the journal is shortened, evenly by kind.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemill.render import figures
from tidemill.render.cost_rows import cost_rows, left_out
from tidemill.render.rehearsal_facts import JOB_STATES, deaths_text, facts, replay_command
from tidemill.render.rehearsal_timeline import (
    Axis,
    GpuCurves,
    close_ups,
    gpu_curves,
    marks,
    short_spans,
    source_groups,
    step_area,
    step_line,
    ticks,
)
from tidemill.render.verdict_text import drawn_fees
from tidemill.sim.scenario.outcome import JobRow, Outcome, ServiceRow
from tidemill.sim.timeline import Line
from tidemill.spec.units import format_instant

EVICTIONS_DRAWN = 2_000
COSTS_SHOWN = 50  # workloads, the most expensive first


def page(outcome: Outcome) -> str:
    """The whole page as text, ready to be written to a file."""
    template = _environment().get_template("rehearsal.html")
    style, script = _asset("rehearsal.css"), _asset("rehearsal.js")
    return template.render(
        style=Markup(style),  # our own files: safe as they are
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **_view(outcome),
    )


def _view(outcome: Outcome) -> dict[str, Any]:
    axis = Axis(outcome.start, outcome.end)
    found = facts(outcome)
    gpus = gpu_curves(outcome.series, axis)
    return {
        "outcome": outcome,
        "facts": found,
        "deaths": deaths_text(outcome),
        "drawn_fees": drawn_fees(outcome),
        "axis": axis,
        "ticks": ticks(axis),
        "groups": source_groups(outcome, axis),
        "endings": {ending.block.id: ending for ending in found.endings},
        "block_marks": {block.id: marks(block, axis) for block in outcome.blocks},
        "close_ups": close_ups(outcome, found.endings),
        "gpus": gpus,
        "gpu_paths": _gpu_paths(gpus, axis),
        "services": tuple(_service_chart(service, axis) for service in outcome.services),
        "evictions_drawn": outcome.evictions[:EVICTIONS_DRAWN],
        "costs": cost_rows(outcome.costs, jobs=COSTS_SHOWN),
        "costs_left_out": left_out(outcome.costs, jobs=COSTS_SHOWN),
        "jobs_shown": outcome.jobs[:JOBS_SHOWN],
        "journal": shorten_journal(outcome.journal),
        "replay": replay_command(outcome),
        "data": script_json(
            {
                "start": format_instant(axis.start),
                "length": axis.length_s,
                "gpus": {"x": gpus.x, "paid": gpus.paid, "ready": gpus.ready, "used": gpus.used},
                "jobs": job_table(outcome.jobs, axis),
            }
        ),
    }


def _gpu_paths(gpus: GpuCurves, axis: Axis) -> tuple[tuple[str, str, str], ...]:
    """Name, area and outline; drawn in this order, each on top of the one before it."""
    return tuple(
        (name, step_area(points, gpus.top, axis.length_s), step_line(points, gpus.top, axis.length_s))
        for name in ("paid", "ready", "used")
        for points in (gpus.points(name),)
    )


@dataclass(frozen=True, slots=True)
class ServiceChart:
    row: ServiceRow
    top: int
    area: str
    line: str
    short: tuple[tuple[int, int], ...]


def _service_chart(service: ServiceRow, axis: Axis) -> ServiceChart:
    points = tuple((axis.x(at), ready) for at, ready in service.series)
    top = max(1, service.replicas, service.min_available, *(ready for _, ready in points))
    area, line = step_area(points, top, axis.length_s), step_line(points, top, axis.length_s)
    return ServiceChart(service, top, area, line, short_spans(service, axis))


def _time(at: datetime | None, exact: bool = False) -> Markup:
    """A readable instant. The page's script shows the exact one in UTC and local time."""
    if at is None:
        return Markup('<span class="none">{}</span>').format(figures.NOTHING)
    word = figures.exact_instant(at) if exact else figures.short_instant(at)
    return Markup('<time datetime="{}">{}</time>').format(format_instant(at), word)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tidemill.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "usd": figures.usd,
        "hours": figures.hours,
        "span": figures.span,
        "seconds": lambda count: figures.span(timedelta(seconds=count)),
        "short": figures.short_instant,
        "exact": figures.exact_instant,
        "time": _time,
        "iso": format_instant,
    }
    environment.globals |= {
        "percent": figures.percent,
        "share": figures.share,
        "counted": figures.counted,
        "step_area": step_area,
    }
    return environment


@cache
def _asset(name: str) -> str:
    return files("tidemill.render").joinpath("templates", name).read_text(encoding="utf-8")


JOBS_SHOWN = 500
JOURNAL_SHOWN = 2_000


def script_json(value: Any) -> Markup:
    """JSON that is safe inside <script>: no name in it can produce `</script>`, `<!--` or an entity."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def job_table(jobs: tuple[JobRow, ...], axis: Axis) -> dict[str, Any]:
    """All jobs, in the column order that the page's script expects; repeated texts are stored once."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    rows = [
        [
            job.name,
            word(job.stream),
            word(job.team),
            job.gpus,
            job.pods,
            int((job.arrived - axis.start).total_seconds()),
            None if job.started is None else int((job.started - axis.start).total_seconds()),
            None if job.finished is None else int((job.finished - axis.start).total_seconds()),
            JOB_STATES.index(job.state),
            int(job.late),
            job.restarts,
            word(", ".join(job.sources)),
            word(job.reason),
        ]
        for job in jobs
    ]
    return {"words": list(words), "states": JOB_STATES, "rows": rows, "shown": JOBS_SHOWN}


@dataclass(frozen=True, slots=True)
class ShortenedJournal:
    lines: tuple[Line, ...]
    kinds: tuple[tuple[str, int], ...]  # kind and number of its lines, sorted by name
    left_out: tuple[tuple[str, int], ...]  # the kind with the most lines first

    @property
    def left_out_count(self) -> int:
        return sum(count for _, count in self.left_out)


def shorten_journal(
    journal: tuple[tuple[Any, str, str, str], ...], limit: int = JOURNAL_SHOWN
) -> ShortenedJournal:
    """Keep all lines of the rare kinds and the first lines of the frequent ones.

    Cutting off the end instead would hide how the run ended behind thousands of started pods.
    """
    counts = Counter(kind for _, kind, _, _ in journal)
    quota = _quota(list(counts.values()), limit)
    taken: Counter[str] = Counter()
    lines = []
    for at, kind, about, sentence in journal:
        taken[kind] += 1
        if taken[kind] <= quota:
            lines.append(Line(at, kind, about, sentence))
    left_out = ((kind, count - quota) for kind, count in counts.items() if count > quota)
    return ShortenedJournal(
        tuple(lines),
        tuple(sorted(counts.items())),
        tuple(sorted(left_out, key=lambda pair: (-pair[1], pair[0]))),
    )


def _quota(counts: list[int], limit: int) -> int:
    """How many lines each kind may have, so that all together stay within the limit."""
    left = limit
    for position, count in enumerate(sorted(counts)):
        fair = left // (len(counts) - position)
        if count > fair:
            return fair
        left -= count
    return limit
