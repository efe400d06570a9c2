"""`tidemill handover` as text: one paragraph a service, its steps in order, what would help and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.render.figures import usd
from tidemill.render.names import DisplayNames
from tidemill.report.handover import HandOverReport, ServiceMove
from tidemill.spec.units import format_duration

NAMES_OF_WAYS = {
    "a-day-more-of-b": "a day more of the successor",
    "a-days-extension-of-a": "a day's extension",
    "a-start-now-block": "a start-now block",
    "an-on-demand-bridge": "an on-demand bridge",
}


def hand_over_text(report: HandOverReport, names: DisplayNames) -> str:
    return "\n".join(_lines(report, names))


def _lines(report: HandOverReport, names: DisplayNames) -> Iterator[str]:
    before = names.block(report.before)
    after = names.block(report.after) if report.after else "whatever lasts"
    ends = f", which must be empty by {names.both(report.ends)}" if report.ends is not None else ""
    starts = f" (from {names.both(report.after_starts)})" if report.after_starts is not None else ""
    yield f"Hand-over of {before}{ends}, to {after}{starts}."
    if not report.services:
        yield ""
        yield f"No service runs on {before} now: nothing has to be handed over."
    for one in report.services:
        yield ""
        yield from _service(one, names)
    for note in report.notes:
        yield ""
        yield f"note      {names.spoken(note)}"


def _service(one: ServiceMove, names: DisplayNames) -> Iterator[str]:
    yield f"{one.service} in {one.namespace}, pool {one.pool}: {_verdict(one, names)}"
    asked = (
        f"{one.method}" if not one.lacking else f"{one.method}, which it cannot have: {one.in_effect} instead"
    )
    yield f"  method    {asked}"
    for lack in one.lacking:
        yield f"            lacks: {lack}"
    minimum = str(one.minimum) if one.minimum else "none (no budget and no annotation: nothing is promised)"
    yield f"  replicas  {one.replicas}, of which {one.leaving} leave; minimum {minimum}"
    has = _span(one.overlap_s) if one.overlap_s is not None else "none: nothing takes over"
    boot, load = (
        f"boot {_span(one.boot_s)} ({one.boot_basis})",
        f"load {_span(one.load_s)} ({one.load_basis})",
    )
    needs = f"{_span(one.needed_overlap_s)}: {boot}, {load}, the move itself and a margin"
    yield f"  overlap   needs {needs}; there is {has}"
    if one.bridged:
        yield "            nodes paid by the hour are launched for it, because what is prepaid comes too late"
    for step in one.steps:
        yield f"  {names.both(step.at)}  {names.spoken(step.what)}"
    for way in one.ways:
        price = usd(way.usd) if way.usd is not None else "not to be had"
        yield f"  would help: {NAMES_OF_WAYS[way.means]}, {price}: {names.spoken(way.words)}"


def _verdict(one: ServiceMove, names: DisplayNames) -> str:
    if not one.short:
        return "keeps its minimum" if one.minimum else "moves"
    assert one.short_from is not None
    since = names.both(one.short_from)
    if one.short_s is None:
        return f"will be short from {since} on"
    return f"will be short for {_span(one.short_s)} from {since}"


def _span(seconds: int) -> str:
    """To the minute, rounded up: what is reckoned is not known to the second."""
    return format_duration(timedelta(minutes=-(-seconds // 60)))
