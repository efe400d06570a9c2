"""One self-contained HTML page that shows a rehearsal: no network, no server, no script needed to read it.

The same outcome gives the same bytes, so the wall time of the run is left out. Every word that comes from a
document is escaped, and the page's own security policy forbids it to load anything or run another script.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemill.render import figures
from tidemill.render.price_text import on_demand_words
from tidemill.render.rehearsal_costs import cost_rows, left_out
from tidemill.render.rehearsal_endings import close_ups, marks
from tidemill.render.rehearsal_facts import facts, replay_command
from tidemill.render.rehearsal_lanes import (
    Axis,
    Curves,
    curves,
    groups,
    short_spans,
    step_area,
    step_line,
    ticks,
)
from tidemill.render.rehearsal_notices import deaths_in_words
from tidemill.render.rehearsal_rows import JOBS_SHOWN, cut_journal, job_table, script_json
from tidemill.sim.scenario.outcome import Outcome, ServiceRow
from tidemill.spec.units import format_instant

EVICTIONS_DRAWN = 2_000
COSTS_SHOWN = 50  # workloads, the dearest first


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
    gpus = curves(outcome.series, axis)
    same = outcome.on_demand_equivalent
    return {
        "outcome": outcome,
        "facts": found,
        "deaths": deaths_in_words(outcome),
        "on_demand": on_demand_words(same.delivered_usd, same.used_usd, same.unpriced, same.fees_usd),
        "axis": axis,
        "ticks": ticks(axis),
        "groups": groups(outcome, axis),
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
        "journal": cut_journal(outcome.journal),
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


def _gpu_paths(gpus: Curves, axis: Axis) -> tuple[tuple[str, str, str], ...]:
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
    """An instant as people read it; the exact one, in UTC and local time, is the script's to show."""
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
