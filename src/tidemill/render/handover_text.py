"""`tidemill handover` as text: one paragraph for each service, with its steps in order and the mitigations with
prices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import usd
from tidemill.report.handover import HandOverReport, ServiceMove
from tidemill.spec.units import format_duration

MITIGATION_NAMES = {
    "a-day-more-of-b": "a day more of the successor",
    "a-days-extension-of-a": "a day's extension",
    "a-start-now-block": "a start-now block",
    "an-on-demand-bridge": "an on-demand bridge",
}


def hand_over_text(report: HandOverReport, names: DisplayNames) -> str:
    return "\n".join(_lines(report, names))


def _lines(report: HandOverReport, names: DisplayNames) -> Iterator[str]:
    before = names.block(report.before)
    after = names.block(report.after) if report.after else "any capacity that lasts"
    ends = f", which must be empty by {names.both(report.ends)}" if report.ends is not None else ""
    starts = f" (from {names.both(report.after_starts)})" if report.after_starts is not None else ""
    yield f"Hand-over of {before}{ends}, to {after}{starts}."
    if not report.services:
        yield ""
        yield f"No service runs on {before} now: there is nothing to hand over."
    for service in report.services:
        yield ""
        yield from _service(service, names)
    for note in report.notes:
        yield ""
        yield f"note      {names.readable(note)}"


def _service(move: ServiceMove, names: DisplayNames) -> Iterator[str]:
    # In a cluster the namespace is part of the name.
    where = "" if f"/{move.namespace}/" in move.service else f" in {move.namespace}"
    yield f"{move.service}{where}, pool {move.pool}: {_verdict(move, names)}"
    method = (
        f"{move.method}"
        if not move.lacking
        else f"{move.method}, which is not possible; {move.in_effect} instead"
    )
    yield f"  method    {method}"
    for lack in move.lacking:
        yield f"            missing: {lack}"
    minimum = str(move.minimum) if move.minimum else "none (no PodDisruptionBudget and no annotation)"
    yield f"  replicas  {move.replicas}, of which {move.leaving} leave; minimum {minimum}"
    has = _span(move.overlap_s) if move.overlap_s is not None else "none: nothing takes over"
    boot, load = (
        f"boot {_span(move.boot_s)} ({move.boot_basis})",
        f"load {_span(move.load_s)} ({move.load_basis})",
    )
    needs = f"{_span(move.needed_overlap_s)}: {boot}, {load}, the move itself and a margin"
    yield f"  overlap   needs {needs}; has {has}"
    if move.bridged:
        yield "            nodes by the hour are launched for it, if EC2 has them, because prepaid ones come too late"
    for step in move.steps:
        yield f"  {names.both(step.at)}  {names.readable(step.what)}"
    for way in move.ways:
        price = usd(way.usd) if way.usd is not None else "not available"
        yield f"  option: {MITIGATION_NAMES[way.means]}, {price}: {names.readable(way.words)}"


def _verdict(move: ServiceMove, names: DisplayNames) -> str:
    if not move.short:
        return "keeps its minimum" if move.minimum else "moves"
    assert move.short_from is not None
    since = names.both(move.short_from)
    if move.short_s is None:
        return f"will have fewer than its minimum from {since} on"
    return f"will have fewer than its minimum for {_span(move.short_s)} from {since}"


def _span(seconds: int) -> str:
    """Rounded up to the minute: an estimate is not known to the second."""
    return format_duration(timedelta(minutes=-(-seconds // 60)))
