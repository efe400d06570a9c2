"""What the flight recorder costs: CPU beside the engine's, bytes of a day, how fast a replay is, and whether it agrees.

Run with `python -m benchmarks.recording [--nodes 200] [--jobs 5000] [--days 1]`. The engine is a rehearsal's, so what
is measured beside it is `decide`, a simulated cluster and the invariants; a real one spends more on looking, and the
share is smaller (`tests/cluster/test_recording.py` prints that of a controller on a real API server). Bytes are those
of a controller whose clock is the wall's: a segment an hour, and each tick on the disk within a second.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.rehearsal import scenario, spec
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.recording.reader import Recording
from tidemill.recording.replay import Agreement, replay
from tidemill.recording.writer import Recorder, size
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec

Seen = tuple[Spec, World, Plan]


def record(folder: Path, rehearsal: Rehearsal) -> tuple[float, float, list[Seen]]:
    """CPU seconds of the rehearsal and of the recorder, in turn in one run; and what was recorded."""
    recorder, ticks, spent_s, began_s = Recorder(folder), 0, 0.0, time.process_time()
    seen: list[Seen] = []
    while rehearsal.step():
        if rehearsal.ticks != ticks and rehearsal.world is not None:
            ticks, at_s = rehearsal.ticks, time.process_time()
            recorder.tick(rehearsal.spec, rehearsal.world, rehearsal.plan)
            spent_s += time.process_time() - at_s
            seen.append((rehearsal.spec, rehearsal.world, rehearsal.plan))
    at_s = time.process_time()
    recorder.close()
    spent_s += time.process_time() - at_s
    return time.process_time() - began_s - spent_s, spent_s, seen


def bytes_of(seen: list[Seen]) -> int:
    """On the disk of a controller that made these ticks at these instants."""
    now_s = 0.0
    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder(Path(name), now_s=lambda: now_s)
        for of, world, plan in seen:
            now_s = world.now.timestamp()
            recorder.tick(of, world, plan)
        recorder.close()
        return size(Path(name))


def measure(days: int, nodes: int, jobs: int, seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rehearsal = Rehearsal(spec(nodes), scenario(days, nodes, jobs), seed)
        engine_s, recorder_s, seen = record(folder, rehearsal)
        on_disk = bytes_of(seen)
        agreement, began_s = Agreement(), time.process_time()
        for tick in replay(Recording(folder).ticks()):
            agreement.note(tick)
        replay_s = time.process_time() - began_s
    return {
        "ticks": agreement.ticks,
        "plans_that_differ": agreement.differ,
        "engine_cpu_s": round(engine_s, 2),
        "recorder_cpu_s": round(recorder_s, 2),
        "overhead_percent": round(100 * recorder_s / engine_s, 1),
        "mb_per_day": round(on_disk / 2**20 / days, 2),
        "replay_times_real_time": round(days * 86400 / replay_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for name, value in measure(asked.days, asked.nodes, asked.jobs, asked.seed).items():
        print(f"{name:>24} {value:>12,}")


if __name__ == "__main__":
    main()
