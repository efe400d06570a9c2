"""`tidemill run --record`: every tick is kept beside the loop, and no disk stops the engine."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from tests.controller.running import Running
from tests.decide.builders import hourly_pool, pod, spec
from tidemill.controller.flight_recorder import MOST_WAITING, RETRY_S, FlightRecorder
from tidemill.controller.loop import TickReport
from tidemill.recording.reader import Recording
from tidemill.recording.replay import Agreement, replay

pytestmark = pytest.mark.requirement("GB-1")
POOL = hourly_pool("g6", "g6.xlarge")
LIMIT = 64 * 2**20


class Hands:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def reports(seconds: float = 30.0) -> list[TickReport]:
    running = Running(spec(POOL))
    running.outside.cluster.pods = [pod(gpus=1)]
    running.wakes.coming = [(at, "pod made") for at in range(1, 20, 2)]
    running.run_for(seconds)
    return running.reports.all


def kept(recorder: FlightRecorder, ticks: list[TickReport]) -> None:
    recorder.start()
    for tick in ticks:
        recorder.report(tick)
    recorder.stop()
    assert not recorder.alive


def test_every_tick_is_kept_and_gives_the_same_plan_again(tmp_path: Path):
    ticks = reports()
    recorder = FlightRecorder(tmp_path, LIMIT)
    kept(recorder, ticks)
    agreement = Agreement()
    for tick in replay(Recording(tmp_path).ticks()):
        agreement.note(tick)
    assert (recorder.kept, recorder.lost, recorder.trouble) == (len(ticks), 0, "")
    assert (agreement.ticks, agreement.differ) == (len(ticks), 0)
    assert recorder.bytes_used > 0


def test_a_folder_that_cannot_be_written_stops_nobody_and_is_tried_again(tmp_path: Path):
    """A file is where the folder is to be: as on a read-only disk, nothing can be written, whoever runs this."""
    ticks, hands = reports(), Hands()
    folder = tmp_path / "recording"
    folder.write_text("in the way")
    recorder = FlightRecorder(folder, LIMIT, now_s=hands)
    for tick in ticks[:3]:
        recorder._keep(tick)
    assert (recorder.kept, recorder.lost) == (0, 3)
    assert recorder.trouble == "File exists"
    folder.unlink()
    hands.at_s += RETRY_S
    recorder._keep(ticks[3])
    assert (recorder.kept, recorder.lost, recorder.trouble) == (1, 3, "")
    recorder._close()


def test_a_full_disk_stops_nobody_and_is_tried_again(tmp_path: Path):
    """No file may grow beyond some bytes, which the documents alone need: a write fails as on a full disk."""
    ticks, hands = reports(), Hands()
    recorder = FlightRecorder(tmp_path, LIMIT, now_s=hands)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        recorder._keep(ticks[0])
        recorder._flush()
        recorder._keep(ticks[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert recorder.trouble == "File too large"
    assert recorder.lost == 2
    hands.at_s += RETRY_S
    recorder._keep(ticks[2])
    recorder._close()
    assert recorder.trouble == ""
    assert [tick.world.now for tick in Recording(tmp_path).ticks()] == [ticks[2].seen[0].now]  # type: ignore[index]


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path):
    ticks, hands = reports(), Hands()
    folder = tmp_path / "recording"
    recorder = FlightRecorder(folder, LIMIT, now_s=hands)
    recorder._keep(ticks[0])
    shutil.rmtree(folder)
    recorder._failed(OSError("somebody removed it"))
    hands.at_s += RETRY_S
    recorder._keep(ticks[1])
    recorder._close()
    assert len(list(Recording(folder).ticks())) == 1


def test_a_thread_that_is_behind_makes_no_tick_wait(tmp_path: Path):
    """It was never started: the queue fills, and what does not fit is counted."""
    (tick, *_) = reports()
    recorder = FlightRecorder(tmp_path, LIMIT)
    for _ in range(MOST_WAITING + 5):
        recorder.report(tick)
    assert recorder.lost == 5


def test_a_crash_report_is_a_recording(tmp_path: Path):
    """A tick that raises while it decides is kept with the world that it saw, and raises again in a replay."""
    running = Running(spec(POOL))
    running.run_for(5)
    engine = running.engines[-1]

    def broken(spec: object, world: object) -> object:
        raise RuntimeError("planted")

    engine._decide = broken  # type: ignore[assignment]
    engine.__dict__.pop("tick", None)
    report = running.loop.tick(lambda: True, ("due",))
    assert isinstance(report.error, RuntimeError)
    assert report.seen is not None
    assert report.seen[1] is None
    recorder = FlightRecorder(tmp_path, LIMIT)
    kept(recorder, [report])
    (tick,) = Recording(tmp_path).ticks()
    assert "RuntimeError: planted" in tick.error
    assert tick.world.now == report.seen[0].now
    assert tick.plan == b""


def test_a_tick_that_saw_nothing_has_nothing_to_keep(tmp_path: Path):
    (tick, *_) = reports()
    recorder = FlightRecorder(tmp_path, LIMIT)
    kept(recorder, [TickReport(1, tick.spec, (), None, 0.0)])
    assert (recorder.kept, recorder.lost) == (0, 0)
