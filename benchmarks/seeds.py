"""Many seeds of one scenario: how many end without a violation, and how fast virtual time runs.

Every violation is printed with its seed: `tidemill rehearse SCENARIO --seed N` repeats it.
Run with `python -m benchmarks.seeds [SCENARIO] [--seeds 200] [--first 0]`; exits 1 if any seed failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import Pool
from pathlib import Path

from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

MIXED_SOURCES = Path(__file__).parents[1] / "examples" / "mixed-sources.yaml"


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed: what went wrong, if anything, and how long it took."""

    seed: int
    kind: str  # "", "invariant 4", "crash"
    story: str
    simulated_s: float
    wall_s: float
    ticks: int
    actions: int


@cache
def documents(scenario: Path) -> tuple[Spec, Scenario]:
    loaded = load([scenario])
    return loaded.checked_spec(), loaded.checked_scenario()


def rehearse(scenario: Path, seed: int) -> SeedResult:
    began = time.perf_counter()
    rehearsal = Rehearsal(*documents(scenario), seed)
    kind, story = "", ""
    try:
        rehearsal.run()
    except InvariantViolated as violated:
        kind, story = f"invariant {violated.number}", str(violated)
    except Exception:  # a crash of the simulator or the engine counts as a violation
        kind, story = "crash", traceback.format_exc(limit=-4)
    lasted = rehearsal.timeline.now() - rehearsal.start
    wall_s = time.perf_counter() - began
    return SeedResult(seed, kind, story, lasted.total_seconds(), wall_s, rehearsal.ticks, len(rehearsal.done))


def main() -> int:
    logging.disable(logging.WARNING)  # the engine logs every fault, thousands of times
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="?", type=Path, default=MIXED_SOURCES)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None)
    args = parser.parse_args()
    began = time.perf_counter()
    kinds: Counter[str] = Counter()
    simulated_s = busy_s = 0.0
    with Pool(args.processes) as pool:
        seeds = range(args.first, args.first + args.seeds)
        for result in pool.imap_unordered(partial(rehearse, args.scenario), seeds):
            simulated_s, busy_s = simulated_s + result.simulated_s, busy_s + result.wall_s
            if result.kind:
                kinds[result.kind] += 1
                print(f"seed {result.seed}: {result.story}", flush=True)
    wall_s = time.perf_counter() - began
    failed = sum(kinds.values())
    print(f"{args.seeds - failed} of {args.seeds} seeds without a violation" + "".join(
        f"; {kind}: {count}" for kind, count in sorted(kinds.items())
    ))  # fmt: skip
    print(f"{simulated_s / busy_s:,.0f} simulated seconds per second of one core; {wall_s:.1f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
