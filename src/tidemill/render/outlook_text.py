"""`tidemill plan-blocks` as text: what to buy, the runner-up, what a GPU-hour costs, and the hand-overs between blocks.

Purchases are numbered in order of their start; the ids of their offers are in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import NOTHING, counted, hours, percent, short_instant, span, usd
from tidemill.render.fitting_table import ruled
from tidemill.render.handover_text import MITIGATION_NAMES
from tidemill.report.purchase_outlook import HandOverRow, PurchaseChoice, PurchaseOutlook

_SOFT = "bright_black"
_LISTED = 12


def outlook_text(outlook: PurchaseOutlook, names: DisplayNames) -> RenderableType:
    numbers = {choice.offer: f"#{number}" for number, choice in enumerate(outlook.choices, 1)}

    def readable(text: str) -> str:
        for id_, number in numbers.items():
            text = text.replace(id_, number)
        return names.readable(text)

    until = f"{short_instant(outlook.at)} to {short_instant(outlook.until)} UTC"
    heading = f"{', '.join(outlook.plans)}: {until}, {hours(outlook.demand_gpu_h)} GPU-hours needed"
    parts: list[RenderableType] = [f"{heading}; {counted(outlook.searches, 'search', 'searches')} made", ""]
    parts.append(_choices(outlook, names) if outlook.choices else "Nothing on sale is worth buying.")
    parts += [Text(line) for line in _hours(outlook)]
    parts += ["", *(Text(line) for line in _money(outlook))]
    if outlook.runner_up:
        dearer = usd(outlook.runner_up_dearer_usd or 0)
        parts.append(Text(f"runner-up  {dearer} more expensive: {readable(outlook.runner_up)}"))
    if outlook.changes:
        parts += ["", "What would change it:", *_few(Text(f"  {readable(text)}") for text in outlook.changes)]
    gaps = [hand_over for hand_over in outlook.hand_overs if hand_over.gap_s]
    for hand_over in gaps[:_LISTED]:
        parts += ["", *_hand_over(hand_over, lambda id_: numbers.get(id_) or names.block(id_), readable)]
    if outlook.left_out:
        reasons = "; ".join(f"{number} because {why}" for why, number in outlook.left_out[:3])
        parts += ["", Text(f"left out   {reasons}", _SOFT)]
    return Group(*parts)


def _choices(outlook: PurchaseOutlook, names: DisplayNames) -> Table:
    heads = ("#", "what", "zone", "start", "end", ">fee", ">GPU-hour", ">saves", "proposed")
    table = ruled(_SOFT)
    for head in heads:
        table.add_column(head.lstrip(">"), justify="right" if head[0] == ">" else "left", no_wrap=True)
    for number, choice in enumerate(outlook.choices, 1):
        table.add_row(
            f"#{number}", _what(choice, names), choice.zone, short_instant(choice.start), short_instant(choice.end),
            usd(choice.fee_usd), usd(choice.usd_per_gpu_h), usd(choice.saves_usd),
            "now" if choice.propose_from <= outlook.at else short_instant(choice.propose_from),
        )  # fmt: skip
    return table


def _what(choice: PurchaseChoice, names: DisplayNames) -> str:
    what = f"{choice.count} x {choice.type}"
    return f"{names.block(choice.extends)} longer ({what})" if choice.extends else what


def _hours(outlook: PurchaseOutlook) -> Iterable[str]:
    for run in outlook.on_demand[:_LISTED]:
        when = f"{short_instant(run.start)} to {short_instant(run.end)}"
        yield f"on demand  {run.instances} x {run.instance_type} for {run.pool}, {when}, {usd(run.usd)}"
    for gap in outlook.uncovered[:_LISTED]:
        when = f"{short_instant(gap.start)} to {short_instant(gap.end)}"
        yield f"uncovered  {counted(gap.gpus, 'GPU')} of {gap.pool}, {when}, worth {usd(gap.penalty_usd)}"
    more = max(0, len(outlook.on_demand) - _LISTED) + max(0, len(outlook.uncovered) - _LISTED)
    if more:
        yield f"           and {more} more (--json lists them)"


def _money(outlook: PurchaseOutlook) -> Iterable[str]:
    parts = [f"fees {usd(outlook.fees_usd)}"]
    parts += [f"on demand {usd(outlook.on_demand_usd)}"] if outlook.on_demand_usd else []
    parts += [f"uncovered hours worth {usd(outlook.penalty_usd)}"] if outlook.penalty_usd else []
    yield f"cost       {usd(outlook.total_usd)}: {', '.join(parts)}"
    asked_for, at_all = (
        f"at most {usd(saving)} ({percent(saving, outlook.total_usd)})"
        for bound_usd in (outlook.bound_asked_usd, outlook.bound_usd)
        for saving in (max(0.0, outlook.total_usd - bound_usd),)
    )
    searches = counted(outlook.searches, "search", "searches")
    yield f"           {asked_for} could still be saved with the offers of {searches},"
    yield f"           {at_all} with anything EC2 could sell at the rates it showed"
    yield f"           buying nothing would cost {usd(outlook.without_usd)}"
    if outlook.usd_per_gpu_h_bought is not None:
        used = NOTHING if outlook.usd_per_gpu_h_used is None else usd(outlook.usd_per_gpu_h_used)
        yield f"GPU-hour   {usd(outlook.usd_per_gpu_h_bought)} as bought, {used} as needed"


def _hand_over(
    row: HandOverRow, name: Callable[[str], str], readable: Callable[[str], str]
) -> Iterable[Text]:
    after = f"{name(row.after)} takes over" if row.after else "nothing takes over"
    gap, apart = span(timedelta(seconds=row.gap_s)), span(timedelta(seconds=row.gap_back_to_back_s))
    yield Text(
        f"hand-over  {name(row.before)} ends {short_instant(row.at)}, {after}: "
        f"{counted(row.gpus, 'GPU')} missing for {gap} in this plan, {apart} with no overlap"
    )
    for way in row.ways:
        price = "not available" if way.usd is None else usd(way.usd)
        yield Text(f"           {MITIGATION_NAMES[way.means]:<24} {price:>13}  {readable(way.words)}")


def _few(lines: Iterable[Text]) -> list[RenderableType]:
    listed = list(lines)
    more = len(listed) - _LISTED
    return [*listed[:_LISTED], *([Text(f"           and {more} more", _SOFT)] if more > 0 else [])]
