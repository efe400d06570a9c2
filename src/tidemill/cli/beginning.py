"""Where a rehearsal begins that starts from what is true: a tick of a recording, or the running cluster now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import LiveChoice
from tidemill.model.pods import Pod
from tidemill.sim.scenario.initial_state import Arrival, Beginning, NotCarriedOver
from tidemill.spec import Spec
from tidemill.spec.scenario import Scenario

if TYPE_CHECKING:
    from tidemill.recording.reader import RecordedTick

DEFAULT_LENGTH = timedelta(hours=24)


def begin_recorded(path: Path, at: str | None) -> tuple[Spec, Beginning]:
    """The documents that were recorded, and the world at that instant, or the last one."""
    from tidemill.cli.replay import last_tick, tick_at
    from tidemill.recording.reader import Recording

    recording = Recording(path)
    tick = last_tick(recording) if at is None else tick_at(recording, at)
    click.echo(f"from {path}, {tick.world.now:%Y-%m-%d %H:%M:%S} UTC", err=True)
    return tick.spec, Beginning(tick.world)


def begin_live(files: tuple[str, ...], live: LiveChoice) -> tuple[Spec, Beginning]:
    """What the engine would see now. Nothing is changed."""
    from tidemill.cli.live import live_session, look

    with live_session(files, live) as session:
        return session.spec, Beginning(look(session).world)


def scenario_from(now: datetime, length: timedelta | None, written: Scenario | None) -> Scenario:
    """It begins at that instant, whatever the document says. Without a document nothing new arrives."""
    begins = now.replace(microsecond=0)
    if written is None:
        spec = {"start": begins, "duration": length or DEFAULT_LENGTH}
        return Scenario.model_validate({"metadata": {"name": "from-what-is-true"}, "spec": spec})
    changed = {"start": begins, **({} if length is None else {"duration": length})}
    return written.model_copy(update={"spec": written.spec.model_copy(update=changed)})


def arrivals_in(ticks: Iterable[RecordedTick]) -> tuple[Beginning | None, datetime | None]:
    """The first world, the jobs that came after it, and the last instant."""
    first, last, known = None, None, set[str]()
    arrivals: list[Arrival] = []
    for tick in ticks:
        world = tick.world
        last = world.now
        fresh: dict[str, list[Pod]] = {}
        for pod in world.pods:
            if pod.of_job and pod.workload not in known:
                fresh.setdefault(pod.workload, []).append(pod)
        known |= fresh.keys()
        if first is None:
            first = world
            continue
        at = world.now.replace(microsecond=0)
        arrivals += [Arrival(at, tuple(pods)) for pods in fresh.values()]
    return (None if first is None else Beginning(first, tuple(arrivals))), last


def print_not_carried_over(found: Iterable[NotCarriedOver]) -> None:
    for one in found:
        some = (
            f" ({', '.join(one.examples)}{', …' if one.count > len(one.examples) else ''})"
            if one.examples
            else ""
        )
        click.echo(f"not as it was: {one.what}: {one.count}{some}", err=True)
