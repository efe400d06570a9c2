"""`tidemill plan-blocks` as text: what to buy, what came second, what an hour costs, and how blocks follow each other.

Purchases have numbers here, in the order they begin; their offers' ids are in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidemill.render.figures import NOTHING, counted, hours, percent, short_instant, span, usd
from tidemill.render.fitting_table import ruled
from tidemill.render.names import DisplayNames
from tidemill.report.purchase_outlook import HandOverRow, PurchaseChoice, PurchaseOutlook

_SOFT = "bright_black"
_LISTED = 12
_WAYS = {
    "a-day-more-of-b": "a day more of the next",
    "a-days-extension-of-a": "a day's extension",
    "a-start-now-block": "a block that starts now",
    "an-on-demand-bridge": "a bridge on demand",
}


def outlook_text(told: PurchaseOutlook, names: DisplayNames) -> RenderableType:
    numbers = {one.offer: f"#{number}" for number, one in enumerate(told.choices, 1)}

    def say(words: str) -> str:
        for id_, number in numbers.items():
            words = words.replace(id_, number)
        return names.spoken(words)

    until = f"{short_instant(told.at)} to {short_instant(told.until)} UTC"
    asked = f"{', '.join(told.plans)}: {until}, {hours(told.demand_gpu_h)} GPU-hours needed"
    parts: list[RenderableType] = [f"{asked}; {counted(told.searches, 'search', 'searches')} answered", ""]
    parts.append(_choices(told, names) if told.choices else "Nothing on sale is worth buying.")
    parts += [Text(line) for line in _hours(told)]
    parts += ["", *(Text(line) for line in _money(told))]
    if told.runner_up:
        dearer = usd(told.runner_up_dearer_usd or 0)
        parts.append(Text(f"runner-up  {dearer} dearer: {say(told.runner_up)}"))
    if told.changes:
        parts += ["", "What would change it:", *_few(Text(f"  {say(words)}") for words in told.changes)]
    gaps = [one for one in told.hand_overs if one.gap_s]
    for one in gaps[:_LISTED]:
        parts += ["", *_hand_over(one, lambda id_: numbers.get(id_) or names.block(id_), say)]
    if told.left_out:
        reasons = "; ".join(f"{number} because {why}" for why, number in told.left_out[:3])
        parts += ["", Text(f"left out   {reasons}", _SOFT)]
    return Group(*parts)


def _choices(told: PurchaseOutlook, names: DisplayNames) -> Table:
    heads = ("#", "what", "zone", "start", "end", ">fee", ">GPU-hour", ">saves", "proposed")
    table = ruled(_SOFT)
    for head in heads:
        table.add_column(head.lstrip(">"), justify="right" if head[0] == ">" else "left", no_wrap=True)
    for number, one in enumerate(told.choices, 1):
        table.add_row(
            f"#{number}", _what(one, names), one.zone, short_instant(one.start), short_instant(one.end),
            usd(one.fee_usd), usd(one.usd_per_gpu_h), usd(one.saves_usd),
            "now" if one.propose_from <= told.at else short_instant(one.propose_from),
        )  # fmt: skip
    return table


def _what(one: PurchaseChoice, names: DisplayNames) -> str:
    what = f"{one.count} x {one.type}"
    return f"{names.block(one.extends)} longer ({what})" if one.extends else what


def _hours(told: PurchaseOutlook) -> Iterable[str]:
    for run in told.on_demand[:_LISTED]:
        when = f"{short_instant(run.start)} to {short_instant(run.end)}"
        yield f"on demand  {run.instances} x {run.instance_type} for {run.pool}, {when}, {usd(run.usd)}"
    for gap in told.uncovered[:_LISTED]:
        when = f"{short_instant(gap.start)} to {short_instant(gap.end)}"
        yield f"uncovered  {counted(gap.gpus, 'GPU')} of {gap.pool}, {when}, worth {usd(gap.penalty_usd)}"
    more = max(0, len(told.on_demand) - _LISTED) + max(0, len(told.uncovered) - _LISTED)
    if more:
        yield f"           and {more} more (--json lists them)"


def _money(told: PurchaseOutlook) -> Iterable[str]:
    parts = [f"fees {usd(told.fees_usd)}"]
    parts += [f"on demand {usd(told.on_demand_usd)}"] if told.on_demand_usd else []
    parts += [f"uncovered hours worth {usd(told.penalty_usd)}"] if told.penalty_usd else []
    yield f"cost       {usd(told.total_usd)}: {', '.join(parts)}"
    could = max(0.0, told.total_usd - told.bound_usd)
    yield f"           at most {usd(could)} ({percent(could, told.total_usd)}) could still be saved"
    yield f"           buying nothing would cost {usd(told.without_usd)}"
    if told.usd_per_gpu_h_bought is not None:
        used = NOTHING if told.usd_per_gpu_h_used is None else usd(told.usd_per_gpu_h_used)
        yield f"GPU-hour   {usd(told.usd_per_gpu_h_bought)} as bought, {used} as needed"


def _hand_over(one: HandOverRow, name: Callable[[str], str], say: Callable[[str], str]) -> Iterable[Text]:
    after = f"{name(one.after)} takes over" if one.after else "nothing takes over"
    gap, apart = span(timedelta(seconds=one.gap_s)), span(timedelta(seconds=one.gap_back_to_back_s))
    yield Text(
        f"hand-over  {name(one.before)} ends {short_instant(one.at)}, {after}: "
        f"{counted(one.gpus, 'GPU')} missing for {gap} in this plan, {apart} with no overlap"
    )
    for way in one.ways:
        price = "not to be had" if way.usd is None else usd(way.usd)
        yield Text(f"           {_WAYS[way.means]:<24} {price:>13}  {say(way.words)}")


def _few(lines: Iterable[Text]) -> list[RenderableType]:
    listed = list(lines)
    more = len(listed) - _LISTED
    return [*listed[:_LISTED], *([Text(f"           and {more} more", _SOFT)] if more > 0 else [])]
