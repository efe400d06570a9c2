"""`tidemill replay`: what a recording says.

It proves the decisions, explains an instant or a pod, and tries other documents.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli import EXIT_FAILED
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.recording.reader import RecordedTick, Recording
    from tidemill.recording.replay import ReplayedTick
    from tidemill.sim.scenario.outcome import Outcome
    from tidemill.spec import Spec

# Less of a recording shows no course of things.
SHORTEST_REHEARSAL = timedelta(hours=1)


@click.command(short_help="Decide again what a controller decided, and explain it.")
@click.argument("recording", metavar="DIR|FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--at", metavar="TIME",
    help="One instant: 2026-11-18T03:12:00Z, or 03:12 for the last time it was that.",
)  # fmt: skip
@click.option("--pod", metavar="NAME", help="What was said of this pod or workload, and when that changed.")
@click.option(
    "--with", "others", multiple=True, metavar="FILE|DIR", type=click.Path(exists=True),
    help="What these documents would decide instead. Repeatable.",
)  # fmt: skip
@click.option(
    "--export", metavar="FILE", type=click.Path(path_type=Path),
    help="Write one tick to a file: that of --at, else the last that failed, else the last.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def replay(
    ctx: click.Context, recording: Path, at: str | None, pod: str | None, others: tuple[str, ...],
    export: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Read a recording that `tidemill run --record DIR` made. Nothing is changed.

    By itself it decides every recorded tick again and compares the plans: exits 1 if one differs. With --at it shows
    status and plan at that instant; with --pod the whole story of a pod, or with both why it waited then. With --with
    it compares the decisions of other documents on the same worlds, tick by tick: the recorded world does not react to
    them, so beside it a rehearsal starts from the first world with either. A tick that failed is shown with its
    traceback, then and now; --export makes a small file of it for a report.
    """
    from tidemill.recording.reader import Recording

    opened = Recording(recording)
    if export is not None:
        body, text = _exported(opened, at, export)
    elif others:
        body, text = _compared(opened, at, others)
    elif at is not None:
        body, text = _one_instant(opened, at, pod)
    elif pod is not None:
        body, text = _story(opened, pod)
    else:
        body, text = _proved(opened)
    unread = [{"file": one.file, "why": one.why, "after": _iso(one.after)} for one in opened.unread]
    if as_json:
        click.echo(json.dumps({"recording": str(recording), **body, "unread": unread}, indent=2))
    else:
        _show(text)
        _show_unread(opened)
    if body.get("differ") and not others:
        ctx.exit(EXIT_FAILED)


def _show(text: Any) -> None:
    from tidemill.cli.terminal import console

    if isinstance(text, str):
        click.echo(text)
    else:
        console().print(text)


def _show_unread(recording: Recording) -> None:
    for one in recording.unread:
        read = "none of it is read" if one.after is None else f"read up to {_iso(one.after)}"
        click.echo(f"not read: {one.file}: {one.why}; {read}", err=True)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# --- the whole recording --------------------------------------------------------------------------------


def _proved(recording: Recording) -> tuple[dict[str, Any], str]:
    from tidemill.recording.replay import Agreement, replay
    from tidemill.render.replay_text import agreement_text, difference_json

    agreement = Agreement()
    for tick in replay(recording.ticks()):
        agreement.note(tick)
    versions = sorted(recording.versions)
    body = {
        "ticks": agreement.ticks,
        "from": _iso(agreement.first),
        "to": _iso(agreement.last),
        "versions": versions,
        "differ": agreement.differ,
        "first_difference": difference_json(agreement.first_difference),
        "failed": [
            {"at": _iso(one.recorded.world.now), "then": one.recorded.error, "again": one.error}
            for one in agreement.failed
        ],
    }
    return body, agreement_text(agreement, versions)


# --- one instant, one pod -------------------------------------------------------------------------------


def _one_instant(recording: Recording, at: str, pod: str | None) -> tuple[dict[str, Any], Any]:
    from rich.console import Group

    from tidemill.cli.status import find_pod, why_lines
    from tidemill.render.display_names import DisplayNames
    from tidemill.render.replay_text import instant_head
    from tidemill.render.status_text import plan_text, status_text
    from tidemill.report import next_steps, pods, status
    from tidemill.report.rows import plain

    tick = _decided(tick_at(recording, at))
    recorded = tick.recorded
    spec, world, head = recorded.spec, recorded.world, instant_head(tick)
    body: dict[str, Any] = {
        "at": _iso(world.now), "version": recorded.version, "same": tick.same,
        "woken_by": list(recorded.woken_by), "failed": list(recorded.failed), "error": recorded.error,
    }  # fmt: skip
    if tick.plan is None:
        return {**body, "again": tick.error}, f"{head}\n{tick.error}"
    shown = status(spec, world, tick.plan)
    names = DisplayNames({row.id: row.name for row in shown.blocks})
    if pod is not None:
        row, others_wait = find_pod(pod, pods(spec, world, tick.plan))
        return {**body, "pod": plain(row)}, f"{head}\n{why_lines(pod, row, others_wait, names)}"
    steps = next_steps(spec, world, tick.plan, ())
    body |= {"status": shown.as_json(), "plan": steps.as_json()}
    return body, Group(head, "", status_text(shown, names), "", "What it decided:", plan_text(steps))


def _story(recording: Recording, pod: str) -> tuple[dict[str, Any], str]:
    from tidemill.recording.replay import pod_history, replay
    from tidemill.render.replay_text import story_text

    chapters = list(pod_history(replay(recording.ticks()), pod))
    if not chapters:
        raise SpecError(
            f"no pod or workload '{pod}' in this recording; name it as namespace/name, or Job/name"
        )
    said = [{"at": _iso(one.at), "pod": one.pod, "sentence": one.sentence} for one in chapters]
    return {"pod": pod, "story": said}, story_text(chapters)


def _decided(tick: RecordedTick) -> ReplayedTick:
    from tidemill.recording.replay import replay

    return next(replay([tick]))


def tick_at(recording: Recording, at: str) -> RecordedTick:
    from tidemill.recording.replay import at_instant

    instant = _instant(recording, at)
    found = at_instant(recording.ticks(since=instant), instant)
    if found is None:
        first = next(recording.ticks(), None)
        begins = "" if first is None else f"; the recording begins {_iso(first.world.now)}"
        raise SpecError(f"--at: nothing was recorded at or before {_iso(instant)}{begins}")
    return found


def _instant(recording: Recording, at: str) -> datetime:
    from tidemill.spec.units import parse_instant

    if "T" in at:
        try:
            return parse_instant(at)
        except ValueError as error:
            raise SpecError(f"--at: {error}") from error
    try:
        of_day = time.fromisoformat(at)
    except ValueError:
        raise SpecError(f"--at: '{at}' is no instant; write 2026-11-18T03:12:00Z, or 03:12 (UTC)") from None
    last = last_tick(recording).world.now
    found = last.replace(hour=of_day.hour, minute=of_day.minute, second=of_day.second, microsecond=0)
    return found if found <= last else found - timedelta(days=1)


# --- other documents --------------------------------------------------------------------------------------


def _compared(recording: Recording, at: str | None, others: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    from tidemill.cli.loading import load_spec
    from tidemill.recording.replay import compare
    from tidemill.render.replay_text import comparison_json, comparison_text, rehearsals_text

    spec, _ = load_spec(others)
    since = None if at is None else _instant(recording, at)
    found = compare(_from(recording, since), spec)
    body, text = {"decisions": comparison_json(found)}, comparison_text(found)
    sides = _rehearsed(recording, since, spec)
    if sides is not None:
        body["rehearsals"] = {name: outcome.as_json() for name, outcome in sides.items()}
        text += "\n\n" + rehearsals_text(sides)
    return body, text


def _rehearsed(recording: Recording, since: datetime | None, spec: Spec) -> dict[str, Outcome] | None:
    """From the first world on, with the jobs that came, by either set of documents. None: it is too short."""
    from tidemill.cli.beginning import arrivals_in, print_not_carried_over, scenario_from
    from tidemill.cli.rehearse import run
    from tidemill.sim.scenario.rehearsal import Rehearsal

    beginning, last = arrivals_in(_from(recording, since))
    first = next(_from(recording, since), None)
    if beginning is None or last is None or first is None:
        return None
    length = last - beginning.world.now
    if length < SHORTEST_REHEARSAL:
        return None
    scenario = scenario_from(beginning.world.now, _whole_seconds(length), None)
    found: dict[str, Outcome] = {}
    for name, used in (("recorded", first.spec), ("others", spec)):
        rehearsal = Rehearsal(used, scenario, 1, initial=beginning)
        print_not_carried_over(rehearsal.not_carried_over if name == "recorded" else ())
        found[name] = run(rehearsal, (str(recording.path),))
    return found


def _whole_seconds(length: timedelta) -> timedelta:
    return timedelta(seconds=int(length.total_seconds()))


def _from(recording: Recording, since: datetime | None) -> Iterator[RecordedTick]:
    return (tick for tick in recording.ticks(since=since) if since is None or tick.world.now >= since)


# --- one tick as a file -----------------------------------------------------------------------------------


def _exported(recording: Recording, at: str | None, target: Path) -> tuple[dict[str, Any], str]:
    tick = tick_at(recording, at) if at is not None else _worth_a_report(recording)
    try:
        _export(tick, target)
    except OSError as error:
        raise SpecError(f"cannot write {target}: {error.strerror or error}") from error
    when = _iso(tick.world.now)
    body = {"exported": str(target), "at": when, "error": tick.error, "bytes": target.stat().st_size}
    why = "the last tick that failed" if tick.error else "one tick"
    return (
        body,
        f"{target}: {why}, {when}, {target.stat().st_size:,} bytes. Read it with: tidemill replay {target}",
    )


def last_tick(recording: Recording) -> RecordedTick:
    """Only the last segments are read."""
    newest = deque(recording.ticks(since=datetime(9999, 1, 1, tzinfo=UTC)), maxlen=1)
    if not newest:
        raise SpecError(f"{recording.path}: the recording has no tick")
    return newest[0]


def _worth_a_report(recording: Recording) -> RecordedTick:
    last = failed = None
    for tick in recording.ticks():
        last, failed = tick, tick if tick.error else failed
    if last is None:
        raise SpecError(f"{recording.path}: the recording has no tick")
    return failed or last


def _export(tick: RecordedTick, target: Path) -> None:
    from tidemill.recording.writer import Recorder, segments

    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder(Path(name), version=tick.version)
        recorder.rewrite(
            tick.spec, tick.world, tick.plan, tick.actions, tick.woken_by, tick.failed, tick.error
        )
        recorder.close()
        target.write_bytes(segments(Path(name))[0].read_bytes())
