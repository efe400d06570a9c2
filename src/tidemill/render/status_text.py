"""`status`, `plan` and `why` as text: tables for 80 columns or more.

Ids are whole, because people copy them into other commands. Colour only repeats what the text says.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import NOTHING, counted, exact_instant, short_instant, span, usd
from tidemill.render.fitting_table import ruled
from tidemill.render.live_rows import countdown
from tidemill.render.price_text import on_demand_text
from tidemill.render.savings_text import comparison_lines, paid_line
from tidemill.report import BlockRow, Money, NextSteps, NodeRow, PodRow, PoolRow, PurchaseRow, Status
from tidemill.report.rows import ChangeRow
from tidemill.wording.handover import inherited_pin_sentence

_SOFT = "bright_black"
_LISTED = 20


def status_text(status: Status, names: DisplayNames) -> RenderableType:
    parts: list[RenderableType] = [_pools(status.pools, status.blocks), *_pins(status.pools)]
    if status.blocks:
        parts += ["", _blocks(status.blocks, status.at, names), *_leads(status.blocks)]
    if status.nodes:
        parts += ["", _nodes(status.nodes)]
    if status.waiting:
        parts += ["", _waiting(status.waiting)]
    if status.purchases:
        parts += ["", _purchases(status.purchases)]
    money = status.money
    spent = f"{usd(money.fees_usd + money.hourly_usd)} of {usd(money.budget_usd)} this month"
    parts += ["", f"money     {spent}: block fees {usd(money.fees_usd)}, hourly {usd(money.hourly_usd)}"]
    parts += [f"          {line}" for line in _fees_not_counted(money)]
    parts += [f"          {line}" for line in _comparison(money)]
    parts += [Text(f"warning   {warning.about}: {warning.sentence}", "yellow") for warning in status.warnings]
    return Group(*parts, Text(_next_tick(status.wake_at, status.at), _SOFT))


def _comparison(money: Money) -> list[str]:
    """With on demand: what was saved, or where nobody counts the hours that were used, the list price of all."""
    if money.savings is not None and (paid := paid_line(money.savings)):
        return [paid, *comparison_lines(money.savings)]
    line = on_demand_text(money.delivered_on_demand_usd, money.used_on_demand_usd, money.unpriced)
    return [line] if line else []


def _fees_not_counted(money: Money) -> list[str]:
    """Blocks that this ledger did not buy count for nothing in the month's budget."""
    lines = []
    if money.other_fees_usd:
        lines.append(
            f"and {usd(money.other_fees_usd)} for blocks that were not bought here, which the budget does not count"
        )
    if money.unknown_fees:
        lines.append(f"the fee of {', '.join(money.unknown_fees)} is not known: EC2 does not tell it")
    return lines


def plan_text(steps: NextSteps) -> RenderableType:
    if steps.steps:
        table = _table("action", "about", "reason")
        for step in steps.steps:
            table.add_row(step.action, _few(step.about), Text(step.reason))
        parts: list[RenderableType] = [table]
    else:
        parts = ["Nothing to do now."]
    if steps.changes:
        parts += ["", changes_table(steps.changes)]
    if steps.waiting:
        parts += ["", _waiting(steps.waiting)]
    parts += [Text(f"warning   {warning.about}: {warning.sentence}", "yellow") for warning in steps.warnings]
    return Group(*parts, Text(_next_tick(steps.wake_at, steps.at), _SOFT))


def changes_table(changes: Iterable[ChangeRow]) -> Table:
    table = _table("change", "about", "reason")
    style = {"create": "green", "change": "yellow", "remove": "red"}
    for change in changes:
        table.add_row(Text(change.verb, style[change.verb]), change.about, Text(change.reason))
    return table


def why_text(pod: PodRow, names: DisplayNames) -> str:
    """One pod in a sentence or two."""
    until = f" until {names.both(pod.until)}" if pod.until is not None else "; no end is known"
    where = f"node {pod.node} ({pod.source})" if pod.source else f"node {pod.node}"
    match pod.state:
        case "running":
            return f"{pod.name} runs on {where} since {short_instant(pod.since)} UTC{until}."
        case "starting":
            return f"{pod.name} is starting on {where}{until}."
        case "stopping":
            return f"{pod.name} is stopping" + (f" on {where}." if pod.node else ".")
    earliest = f" It could run from {names.both(pod.earliest)}." if pod.earliest is not None else ""
    return f"{pod.name} waits: {pod.reason}.{earliest}"


def _next_tick(wake_at: datetime | None, now: datetime) -> str:
    if wake_at is None:
        return "Next tick   at the next event"
    return f"Next tick   {exact_instant(wake_at)} UTC (in {span(wake_at - now)}), or at the next event"


def _table(*heads: str) -> Table:
    """A table with a rule under its header. `>` aligns a column to the right; only the last column may fold."""
    table = ruled(_SOFT)
    for number, head in enumerate(heads):
        table.add_column(
            head.lstrip(">"),
            justify="right" if head.startswith(">") else "left",
            style="" if number else "bold",
            no_wrap=number < len(heads) - 1,
            overflow="fold",
        )
    return table


def _pools(pools: Iterable[PoolRow], blocks: Iterable[BlockRow]) -> Table:
    block_names = {row.id: row.name for row in blocks}
    table = _table("pool", ">used", ">ready", ">wanted", ">waiting", ">$/h", "blocks", "nodes")
    for row in pools:
        phases = ", ".join(f"{count} {phase}" for phase, count in row.nodes.items()) or "none"
        behind = ", ".join(block_names.get(id_, id_) for id_ in row.blocks) or NOTHING
        rate = usd(row.usd_per_hour) if row.usd_per_hour else NOTHING
        figures = (row.gpus_used, row.gpus_ready, row.gpus_wanted, row.waiting)
        table.add_row(row.name, *map(str, figures), rate, behind, phases)
    return table


def _pins(pools: Iterable[PoolRow]) -> list[Text]:
    return [
        Text(f"          {row.name}: {inherited_pin_sentence(row.pinned_to, row.pin_inherited_by)}")
        for row in pools
        if row.pin_inherited_by
    ]


def _blocks(blocks: Iterable[BlockRow], now: datetime, names: DisplayNames) -> Table:
    table = _table("block", "id", "capacity", "state", "next", "empty by")
    for row in blocks:
        deadline = names.both(row.deadline) if row.deadline is not None else NOTHING
        next_event = countdown(row, now)
        table.add_row(
            row.name if row.name != row.id else row.kind,
            row.id,
            f"{row.count}×{row.type}",
            row.state,
            "" if next_event == row.state else next_event,
            deadline,
        )
    return table


def _leads(blocks: Iterable[BlockRow]) -> list[Text]:
    """Blocks that drain earlier than the shortest lead: from when, and for which pods."""
    return [
        Text(
            f"          {row.name} drains from {exact_instant(row.drain_from)} UTC,"
            f" {span(timedelta(seconds=row.drain_lead_s))} before its deadline, for {', '.join(row.drain_lead_for)}"
        )
        for row in blocks
        if row.drain_from is not None and row.drain_lead_s is not None and row.drain_lead_for
    ]


def _nodes(nodes: Iterable[NodeRow]) -> Table:
    rows = list(nodes)
    table = _table("node", "pool", "phase", ">GPUs", "pods")
    for row in rows[:_LISTED]:
        pods = _few(tuple(pod.rsplit("/", 1)[-1] for pod in row.pods)) or NOTHING
        table.add_row(row.name, row.pool, row.phase, f"{row.gpus_used}/{row.gpus}", pods)
    if len(rows) > _LISTED:
        table.add_row(f"and {counted(len(rows) - _LISTED, 'more node')}", "", "", "", "")
    return table


def _waiting(pods: Iterable[PodRow]) -> Table:
    """Pods of one workload with one reason share a row."""
    table = _table("waits", ">pods", "earliest", "why")

    def key(row: PodRow) -> tuple[str, str]:
        return row.workload or row.name, row.reason

    for (workload, reason), group in groupby(sorted(pods, key=key), key):
        members = list(group)
        earliest = min((row.earliest for row in members if row.earliest is not None), default=None)
        table.add_row(workload, str(len(members)), short_instant(earliest), Text(reason))
    return table


def _purchases(purchases: Iterable[PurchaseRow]) -> Table:
    table = _table("purchase", "window", "state", "capacity", ">up to", "decisions")
    for row in purchases:
        fee = usd(row.fee_usd or row.max_fee_usd)
        decisions = "; ".join(row.verdicts) or row.note or NOTHING
        table.add_row(row.id, row.window, row.state, f"{row.count}×{row.type}", fee, Text(decisions))
    return table


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
