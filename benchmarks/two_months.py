"""Two months of examples/two-months.yaml under many seeds: how many seeds violate an invariant?

Run with `python -m benchmarks.two_months [--seeds 1000] [--first 0]`; exits 1 if any seed does. Among the invariants: a
promised service that has somewhere to go in time is never short (9), and no pod is on a node at its deadline (4). In
addition no pod is evicted with less than its grace while the engine runs. Downtime from bad luck (a short delivery, a
node that fails) is counted and printed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path

from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

SCENARIO = Path(__file__).parents[1] / "examples" / "two-months.yaml"


@dataclass(frozen=True, slots=True)
class SeedResult:
    seed: int
    wrong: tuple[str, ...]
    cpu_s: float
    evictions: int
    extended: int
    unlucky: int  # promised services that were short, and no decision could have prevented it


@cache
def documents() -> tuple[Spec, Scenario]:
    loaded = load([SCENARIO])
    return loaded.checked_spec(), loaded.checked_scenario()


def rehearse(seed: int) -> SeedResult:
    logging.disable(logging.WARNING)  # the engine logs every fault, thousands of times
    began = time.process_time()
    rehearsal = Rehearsal(*documents(), seed)
    wrong: list[str] = []
    try:
        rehearsal.run()
    except InvariantViolated as violated:
        wrong.append(str(violated))
    wrong += [
        f"seed {seed}: {row.pod} was evicted with a grace of {row.grace_s} s at {row.at}: {row.reason}"
        for row in rehearsal.cluster.cut_short
        if not rehearsal.was_absent_before(row.at)
    ]
    services = rehearsal.cluster.services.values()
    short = sum(service.promised and service.downtime_s(rehearsal.end) > 0 for service in services)
    extended = sum(extension.paid for extension in rehearsal.cloud.bought_extensions)
    cpu_s = time.process_time() - began
    return SeedResult(seed, tuple(wrong), cpu_s, len(rehearsal.cluster.evictions), extended, short)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None)
    args = parser.parse_args()
    bad, cpu_s, evictions, extended, unlucky = 0, 0.0, 0, 0, 0
    began = time.monotonic()
    with Pool(args.processes) as pool:
        for result in pool.imap_unordered(rehearse, range(args.first, args.first + args.seeds)):
            bad += bool(result.wrong)
            cpu_s, evictions = cpu_s + result.cpu_s, evictions + result.evictions
            extended, unlucky = extended + result.extended, unlucky + bool(result.unlucky)
            for sentence in result.wrong:
                print(sentence, flush=True)
    print(
        f"{args.seeds:,} seeds of two months, {bad} with a violation; {evictions:,} evictions, {extended:,} paid "
        f"extensions, {unlucky} seeds in which bad luck left a service short; "
        f"{(time.monotonic() - began) / args.seeds:.1f} s a seed, {cpu_s / args.seeds:.1f} s of CPU"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
