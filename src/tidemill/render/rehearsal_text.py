"""A rehearsal on one screen of text: the verdict first, then blocks, a timeline, jobs, services, cost, and problems.

Rich renderables for 80 columns or more. Colour only repeats what the text says; `color=False` leaves it out. The wall
time of the run is shown only here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidemill.render.cost_rows import cost_rows, left_out
from tidemill.render.figures import counted, exact_instant, hours, percent, share, short_instant, span, usd
from tidemill.render.fitting_table import ruled
from tidemill.render.rehearsal_facts import Ending, Facts, deaths_text, facts, purchases_text, replay_command
from tidemill.render.verdict_text import MARKS, drawn_fees
from tidemill.sim.scenario.outcome import BlockRow, Outcome

_LISTED = 10
_NAME = 28  # characters of a name in the cost table, so that it fits into 80 columns
_WIDE = 104  # with this many columns the blocks table shows every time
_SEVERE = ("forced", "failed", "killed", "down")
_NOT_DRAINED = {
    "not-yet": "not yet",
    "never-delivered": "not delivered",
    "nothing-to-drain": "unused",
    "not-drained": "not drained",
}


class _Style:
    """Styles by meaning; all empty without colour."""

    def __init__(self, color: bool) -> None:
        self.good = "bold green" if color else ""
        self.bad = "bold red" if color else ""
        self.drain = "yellow" if color else ""
        self.accent = "cyan" if color else ""
        self.soft = "bright_black" if color else ""
        self.title = "bold" if color else ""


def summary(outcome: Outcome, width: int, color: bool) -> RenderableType:
    """What `tidemill rehearse` prints; `width` is the console's."""
    style, found = _Style(color), facts(outcome)
    parts: list[RenderableType] = [*_verdict(outcome, found, style)]
    if outcome.blocks:
        parts += ["", _blocks(found, width, style), "", *_strips(outcome, width, style)]
    parts += ["", _figures(outcome, found, width, style)]
    if outcome.costs.pools:
        parts += ["", *_cost_table(outcome, style)]
    parts += [*_problems(found, width, style), "", *_next(outcome, width, style)]
    return Group(*parts)


def _verdict(outcome: Outcome, found: Facts, style: _Style) -> Iterable[RenderableType]:
    tones = {"good": style.good, "warn": style.drain, "bad": style.bad, "none": style.soft}
    yield Text.assemble((f"{MARKS[found.tone]} {found.headline}", tones[found.tone]), f"  {outcome.scenario}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for part in found.verdict:
        for number, line in enumerate(part.lines):
            grid.add_row(Text("" if number else f"  {part.mark} {part.name}", tones[part.tone]), Text(line))
    yield grid
    for violation in outcome.invariant_violations[:_LISTED]:
        where = f"  invariant {violation.invariant} at {exact_instant(violation.at)} UTC: "
        yield Text.assemble((where, style.bad), violation.sentence, f" [{', '.join(violation.objects)}]")
    if found.broken_promises:
        yield Text(
            f"  zero downtime was required, but these were down: {', '.join(found.broken_promises)}",
            style.bad,
        )
    period = f"{short_instant(outcome.start)} to {short_instant(outcome.end)} UTC"
    speed = f" ({outcome.simulated_hours * 3600 / outcome.wall_s:,.0f}x)" if outcome.wall_s > 0 else ""
    ran = f"{hours(outcome.simulated_hours)} h in {outcome.wall_s:.1f} s{speed}"
    yield Text(f"  {period}, {ran}", style.soft)
    yield Text(f"  seed {outcome.seed}, commit {outcome.commit or 'unknown'}", style.soft)


def _table(style: _Style, *heads: str) -> Table:
    """A table with a rule under its header. `>` before a header aligns the column to the right."""
    table = ruled(style.soft)
    for number, head in enumerate(heads):
        side: Literal["left", "right"] = "right" if head.startswith(">") else "left"
        table.add_column(head.lstrip(">"), justify=side, style="" if number else style.title, no_wrap=True)
    return table


def _blocks(found: Facts, width: int, style: _Style) -> Table:
    wide = width >= _WIDE
    instants = ("start", "drain from", "deadline", "end") if wide else ("start", "end")
    table = _table(style, "block", "capacity", *instants, ">to spare", ">fee", ">used")
    for ending in found.endings:
        block = ending.block
        times = [short_instant(at) for at in (block.start, block.drain_from, block.deadline, block.end)]
        tone = style.bad if ending.bad else style.good if ending.drain == "in-time" else style.soft
        table.add_row(
            Text(block.name),
            Text(f"{block.count}×{block.type}"),
            *(times if wide else (times[0], times[3])),
            Text(_to_spare(ending), tone),
            usd(block.fee_usd),
            percent(block.gpu_hours_used, block.gpu_hours_paid),
        )
    return table


def _to_spare(ending: Ending) -> str:
    """The time between the end of the last pod and the deadline."""
    if ending.spare is None:
        return _NOT_DRAINED[ending.drain]
    return span(ending.spare) if ending.drain == "in-time" else f"{span(-ending.spare)} late"


def _strips(outcome: Outcome, width: int, style: _Style) -> Iterable[Text]:
    """A timeline in characters: one line for each block and one for the GPUs in use."""
    names = [block.name[:14] for block in outcome.blocks[:_LISTED]]
    lead = max(len(name) for name in [*names, "GPUs used"]) + 2
    columns = max(20, min(width, 120) - lead - 1)
    begin, end = short_instant(outcome.start), f"{short_instant(outcome.end)} UTC"
    between = columns - len(begin) - len(end)
    yield Text(" " * lead + begin + (" " * between + end if between > 0 else ""), style.soft)
    for name, block in zip(names, outcome.blocks, strict=False):
        line = Text(name.ljust(lead))
        for piece, kind in block_strip(block, outcome, columns):
            line.append(piece, {"held": style.accent, "drain": style.drain, "none": style.soft}[kind])
        yield line
    yield Text.assemble("GPUs used".ljust(lead), (gpu_strip(outcome, columns), style.accent))
    if len(outcome.blocks) > _LISTED:
        yield Text(f"{counted(len(outcome.blocks) - _LISTED, 'more block')} not drawn", style.soft)


def _figures(outcome: Outcome, found: Facts, width: int, style: _Style) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=style.soft, no_wrap=True)
    grid.add_column()
    named = (
        ("GPU-hours", _gpu_hours(outcome, 20 if width < _WIDE else 30, style)),
        ("cost", _cost(outcome, style)),
        ("purchases", [Text(words)] if (words := purchases_text(outcome.purchases)) else []),
        ("jobs", [_jobs(outcome, found, style)]),
        ("services", _services(outcome, style)),
        ("alerts", _alerts(outcome)),
    )
    for name, lines in named:
        for number, line in enumerate(lines):
            grid.add_row("" if number else name, line)
    return grid


def _gpu_hours(outcome: Outcome, room: int, style: _Style) -> Iterable[Text]:
    paid = outcome.gpu_hours.get("paid", 0.0)
    for name in ("paid", "ready", "used"):
        amount = outcome.gpu_hours.get(name, 0.0)
        bar = (_bar(share(amount, paid), room), style.accent)
        yield Text.assemble(
            f"{name:<6}{hours(amount):>9}  ", bar, "" if name == "paid" else f"  {percent(amount, paid)}"
        )


def _cost(outcome: Outcome, style: _Style) -> Iterable[Text]:
    cost = outcome.cost_usd
    named = (("blocks", "blocks"), ("on_demand", "on-demand"), ("spot", "spot"))
    split = ", ".join(f"{word} {usd(cost[key])}" for key, word in named if cost.get(key))
    total, idle = cost.get("total", 0.0), cost.get("idle", 0.0)
    yield Text.assemble((usd(total), style.title), f"  {split}" if split else "")
    yield Text(f"idle {usd(idle)} ({percent(idle, total)}), prices of {outcome.prices_as_of}")
    if drawn := drawn_fees(outcome):
        yield Text(drawn)


def _cost_table(outcome: Outcome, style: _Style) -> Iterable[RenderableType]:
    """What pools, teams and workloads pay; a pool also pays for its idle hours."""
    table = _table(style, "charged to", "", ">GPU-hours", ">idle", ">cost", ">on demand", ">saved")
    for row in cost_rows(outcome.costs):
        saved = Text(row.saving, style.drain if row.lost else "")
        table.add_row(row.kind, Text(row.name[:_NAME]), row.used_h, row.idle_h, row.usd, row.on_demand, saved)
    yield table
    if more := left_out(outcome.costs):
        yield Text(f"and {more:,} more: see --json", style.soft)


def _alerts(outcome: Outcome) -> Iterable[Text]:
    kinds = Counter(alert.kind for alert in outcome.alerts)
    if kinds:
        yield Text(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) + " (not sent)")


def _services(outcome: Outcome, style: _Style) -> Iterable[Text]:
    for service in outcome.services[:_LISTED]:
        down = span(timedelta(seconds=service.downtime_s))
        least = max(1, service.min_available)
        yield Text.assemble(
            (service.name, style.title),
            (f"  down {down}", style.bad if service.downtime_s else style.good),
            f"  lowest {service.lowest_ready} of {service.replicas} ready, needs {least}",
            ("  zero downtime required" if service.promised else "", style.soft),
        )
    if len(outcome.services) > _LISTED:
        yield Text(f"and {counted(len(outcome.services) - _LISTED, 'more service')}", style.soft)


def _bar(ratio: float, room: int) -> str:
    full = round(ratio * room)
    return "━" * full + "╌" * (room - full)


def _jobs(outcome: Outcome, found: Facts, style: _Style) -> Text:
    tones = {"failed": style.bad, "held": style.drain, "pending": style.soft}
    line = Text(f"{len(outcome.jobs):,}: " if outcome.jobs else "none")
    counts = [(f"{count:,} {state}", tones.get(state, "")) for state, count in found.jobs_by_state_named]
    if found.late:
        counts.append((f"{found.late:,} late", style.drain))
    for number, (words, tone) in enumerate(counts):
        line.append(", " if number else "").append(words, tone)
    line.append(f"; {counted(len(outcome.evictions), 'eviction')}, {len(found.forced):,} forced")
    deaths = deaths_text(outcome)
    return line.append("; ").append(deaths, style.drain) if deaths else line


def _problems(found: Facts, width: int, style: _Style) -> Iterable[RenderableType]:
    lines = [
        *((notice.kind, notice.what, notice.why) for notice in found.notices),
        *(("forced", f"{exact_instant(row.at)}  {row.pod}", row.reason) for row in found.forced),
        *(
            (problem.state, problem.names, problem.reason or "no reason given")
            for problem in found.job_problems
        ),
    ]
    if not lines:
        return
    yield ""
    yield Text("Problems", style.title)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=max(24, (width - 8) // 2))
    grid.add_column(overflow="fold")
    listed = _some_of_each(lines)
    for kind, what, why in listed:
        grid.add_row(Text(kind, style.bad if kind in _SEVERE else style.drain), Text(what), Text(why))
    yield grid
    if len(lines) > len(listed):
        yield Text(f"and {len(lines) - len(listed):,} more: see --html or --json", style.soft)


def _some_of_each(lines: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """At most ten lines, distributed over the kinds, so that many lines of one kind do not hide the others."""
    places: Counter[str] = Counter()
    ranked = []
    for position, line in enumerate(lines):
        ranked.append((places[line[0]], position))
        places[line[0]] += 1
    chosen = sorted(position for _, position in sorted(ranked)[:_LISTED])
    return [lines[position] for position in chosen]


def _next(outcome: Outcome, width: int, style: _Style) -> Iterable[Text]:
    yield Text("Next", style.title)
    for command, what in (
        (replay_command(outcome, "--html", "report.html"), "write an HTML report"),
        (replay_command(outcome, "--json"), "print all rows as JSON"),
        (replay_command(outcome, seed=outcome.seed + 1), "play it with another seed"),
    ):
        line = Text.assemble("  ", (command, style.accent), (f"  {what}", style.soft))
        # Without its comment where the line would wrap: a wrapped command cannot be copied.
        yield line if line.cell_len < width else Text.assemble("  ", (command, style.accent))


_LEVELS = " ▁▂▃▄▅▆▇█"
_GLYPHS = {"none": "·", "held": "━", "drain": "╍"}


def block_strip(block: BlockRow, outcome: Outcome, columns: int) -> list[tuple[str, str]]:
    """Pieces of text, each `none` (outside the block), `held` (during it) or `drain` (at its end)."""
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
