"""The instant that a running `tidemill up` shows, in a file, so that `status`, `plan` and `why` can read it.

The file is replaced at most once a second and removed at the end. It is a copy of read models; nothing resumes from
it. A file whose process has ended is ignored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from tidemill.cli.playback import Playback, observe_and_decide, reservation_names
from tidemill.model.errors import PortError
from tidemill.provision.provisioned_cloud import PlannedChange
from tidemill.report import NextSteps, PodRow, Status, next_steps, pods, status
from tidemill.report.rows import ChangeRow
from tidemill.report.savings import savings
from tidemill.sim.scenario.costs import rehearsal_costs
from tidemill.sim.scenario.rehearsal import Rehearsal

EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One instant of a simulated platform, as `status`, `plan` and `why` show it."""

    scenario: str
    seed: int
    status: Status
    next: NextSteps
    pods: tuple[PodRow, ...]
    pid: int = 0  # of the `tidemill up` that wrote it; 0: not written


def take_snapshot(rehearsal: Rehearsal, scenario: str) -> Snapshot:
    world, plan = observe_and_decide(rehearsal)
    spec = rehearsal.spec
    return Snapshot(
        scenario,
        rehearsal.seed,
        status(
            spec,
            world,
            plan,
            block_names=reservation_names(rehearsal),
            used_gpu_hours=rehearsal.recorder.used_hours_until(world.now),
            savings=savings(rehearsal_costs(rehearsal, world.now)),
        ),
        next_steps(spec, world, plan, change_rows(rehearsal.planned(world))),
        pods(spec, world, plan),
        os.getpid(),
    )


def change_rows(planned: Iterable[PlannedChange]) -> tuple[ChangeRow, ...]:
    return tuple(ChangeRow(change.verb, change.about, change.reason) for change in planned)


def snapshot_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "tidemill" / "up.json"


_FORMAT = TypeAdapter(Snapshot)


def read_snapshot() -> Snapshot | None:
    """What a running `up` shows. None: no `up` is running, or another version wrote the file."""
    try:
        found = _FORMAT.validate_json(snapshot_path().read_bytes())
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


class SnapshotFile:
    """Keeps the file up to date while `up` runs. A file that cannot be written is not an error."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._due = 0.0

    def __enter__(self) -> SnapshotFile:
        return self

    def write(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        target = snapshot_path()
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            content = _FORMAT.dump_json(take_snapshot(self._playback.rehearsal, self._playback.title))
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(content)
            fresh.replace(target)
        except (OSError, PortError):
            return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove our own file only: another `up` may have replaced it."""
        mine = read_snapshot()
        if mine is not None and mine.pid == os.getpid():
            snapshot_path().unlink(missing_ok=True)
