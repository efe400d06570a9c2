"""The report of a shadow run, as text that a person reads without knowing the engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tidemill.render.figures import counted, span, usd
from tidemill.report.shadow import ShadowReport

_MOST = 10


def _at(at: datetime) -> str:
    return f"{at.astimezone(UTC):%d %b %H:%M}"


def shadow_text(report: ShadowReport) -> str:
    return "\n".join(_lines(report))


def _lines(report: ShadowReport) -> Iterator[str]:
    lasted = span(report.until - report.since)
    yield f"SHADOW  {_at(report.since)} to {_at(report.until)} UTC ({lasted}, {counted(report.ticks, 'tick')})."
    yield "Nothing was changed."
    yield from _assumptions(report)
    yield ""
    yield from _launches(report)
    yield from _ends(report)
    yield from _drains(report)
    yield from _purchases(report)
    yield from _pods(report)
    if report.other_actions:
        yield f"Besides: {', '.join(f'{kind} {count}' for kind, count in report.other_actions)}."
    if report.left_out:
        yield f"{report.left_out:,} more wishes were counted and not kept."


def _assumptions(report: ShadowReport) -> Iterator[str]:
    yield "Assumed:"
    if report.assumed_nodes:
        yield (
            f"- Nodes of others that a pool may use, {report.assumed_nodes:,} at most, count as Tidemill's own, as "
            "if made by the documents."
        )
    else:
        yield "- There was no node of others that a pool may use."
    if report.assumed_blocks:
        yield f"- Blocks that nobody's tag is on count as adopted: {', '.join(report.assumed_blocks)}."
    yield "- The world did not react: no wish of Tidemill's came true. What the other set-up did is what was seen."
    yield "- Each line is one wish, however long it lasted. Prices are the catalog's list prices."


def _launches(report: ShadowReport) -> Iterator[str]:
    if not report.launches:
        yield "It would have launched nothing."
        return
    yield f"It would have launched {counted(sum(one.count for one in report.launches), 'node')}:"
    for one in report.launches[:_MOST]:
        price = (
            "no price known" if one.usd_h is None else f"{usd(one.usd_h)} an hour" if one.usd_h else "prepaid"
        )
        what = f"{one.count} x {one.instance_type} ({one.source}, {price})"
        yield f"  {_at(one.first)}  {what} for pool {one.pool}: {one.reason}"
    yield from _more(len(report.launches))


def _ends(report: ShadowReport) -> Iterator[str]:
    if not report.ends:
        yield "It would have ended no node."
        return
    known = (
        ""
        if not report.unpriced
        else f"; {counted(report.unpriced, 'node')} without a known price not counted"
    )
    yield (
        f"It would have ended {counted(len(report.ends), 'node')}, which cost {usd(report.saved_usd)} "
        f"from then on while this ran{known}:"
    )
    for one in report.ends[:_MOST]:
        cost = "" if one.usd is None else f", {usd(one.usd)}"
        yield f"  {_at(one.first)}  {one.node} ({one.instance_type}{cost}): {one.reason}"
    yield from _more(len(report.ends))


def _drains(report: ShadowReport) -> Iterator[str]:
    if not report.drains:
        return
    pods = sum(one.pods for one in report.drains)
    yield f"It would have drained {counted(len(report.drains), 'node')} with {counted(pods, 'pod')} on them:"
    for one in report.drains[:_MOST]:
        yield f"  {_at(one.first)}  {one.node} ({counted(one.pods, 'pod')}): {one.reason}"
    yield from _more(len(report.drains))


def _purchases(report: ShadowReport) -> Iterator[str]:
    for one in report.purchases[:_MOST]:
        wanted = f"a purchase for {one.window} ({one.pool}), at most {usd(one.most_usd)}"
        yield f"{_at(one.first)}  It would have proposed {wanted}."
    yield from _more(len(report.purchases))


def _pods(report: ShadowReport) -> Iterator[str]:
    if report.admitted_pods:
        yield f"It would have let {counted(report.admitted_pods, 'pod')} start."
    if report.evicted_pods:
        yield f"It would have told {counted(report.evicted_pods, 'pod')} to leave before the end of their node."
    if not report.most_waiting:
        yield "No pod waited."
        return
    waiting = sum(one.pods for one in report.held)
    yield f"Pods waiting: {waiting} now, {report.most_waiting} at most."
    for one in report.held[:_MOST]:
        yield f"  {counted(one.pods, 'pod')}: {one.reason}"


def _more(count: int) -> Iterator[str]:
    if count > _MOST:
        yield f"  and {count - _MOST} more (all of them with --report-to FILE)"
