"""The instant that a running `tidemill up` shows, in a file, so that other commands can look at it too.

Written at most once a second, whole or not at all, and removed at the end. It is a copy of read models, not
a state anyone resumes from; a file whose process is gone counts as none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from tidemill.cli.playback import Playback, called, glimpse
from tidemill.model.errors import PortError
from tidemill.provision.reconcilers import Planned
from tidemill.report import NextSteps, PodRow, Status, next_steps, pods, status
from tidemill.report.rows import ChangeRow
from tidemill.sim.scenario.rehearsal import Rehearsal

EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """One instant of a simulated platform, as `status`, `plan` and `why` show it."""

    scenario: str
    seed: int
    status: Status
    next: NextSteps
    pods: tuple[PodRow, ...]
    pid: int = 0  # of the `tidemill up` that wrote it; 0: nobody wrote it


def look(rehearsal: Rehearsal, scenario: str) -> Look:
    world, plan = glimpse(rehearsal)
    spec = rehearsal.spec
    return Look(
        scenario,
        rehearsal.seed,
        status(
            spec,
            world,
            plan,
            called=called(rehearsal),
            used_gpu_hours=rehearsal.recorder.used_hours_until(world.now),
        ),
        next_steps(spec, world, plan, change_rows(rehearsal.planned(world))),
        pods(spec, world, plan),
        os.getpid(),
    )


def change_rows(planned: Iterable[Planned]) -> tuple[ChangeRow, ...]:
    return tuple(ChangeRow(one.verb, one.about, one.reason) for one in planned)


def path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "tidemill" / "up.json"


_FORMAT = TypeAdapter(Look)


def read() -> Look | None:
    """What a running `up` shows; None: none is running, or an older one wrote something else."""
    try:
        found = _FORMAT.validate_json(path().read_bytes())
    except (OSError, ValidationError):
        return None
    return found if _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Current:
    """Keeps the file up to date while `up` runs. Where it cannot be written, nobody can ask."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._due = 0.0

    def __enter__(self) -> Current:
        return self

    def write(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        target = path()
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            content = _FORMAT.dump_json(look(self._playback.rehearsal, self._playback.title))
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(content)
            fresh.replace(target)
        except (OSError, PortError):
            return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Only its own: another `up` may have taken over."""
        mine = read()
        if mine is not None and mine.pid == os.getpid():
            path().unlink(missing_ok=True)
