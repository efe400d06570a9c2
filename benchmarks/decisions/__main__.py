"""What are the engine's decisions worth? Situations whose best outcome is known, played by three policies.

    python -m benchmarks.decisions [NAME ...] [--seed 1] [--policies tidemill script karpenter] [--markdown | --json]

For each situation: the share of the GPU-hours that any schedule could have got done, what was paid by the hour beside
the least that does the work, and the longest wait of the jobs that it is about. `script` starts what fits in the order
it comes; `karpenter` is Karpenter's rule: a node for whatever is pending, reserved first. Prepaid fees are the same for
all and left out. Exits 1 if the engine gets less than 97 % of the work done, pays 3 % more than the least, lets a
job wait longer than it has to, or boots more nodes than the work needs where that is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from benchmarks.decisions.ideal import HOUR, Supply, most_gpu_hours
from benchmarks.decisions.policies import karpenter, script
from benchmarks.decisions.scenarios import situations
from benchmarks.decisions.situation import Situation
from benchmarks.unjudged import UnjudgedRehearsal
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.model.capacity import PREPAID, SourceKind
from tidemill.sim.cloud.reservations import kill_at
from tidemill.sim.scenario.rehearsal import Rehearsal

POLICIES: dict[str, Decide] = {"tidemill": decide, "script": script, "karpenter": karpenter}
SLOT = timedelta(minutes=15)
FASTEST_BOOT = timedelta(minutes=4)  # of the simulated nodes
LEAST_WORK, MOST_MONEY = 0.97, 1.03
SLACK = timedelta(minutes=20)  # of a wait that was worked out by hand


@dataclass(frozen=True, slots=True)
class Played:
    situation: str
    policy: str
    gpu_hours: float
    best_gpu_hours: float
    usd: float
    best_usd: float | None
    wait_h: float
    best_wait_h: float | None
    never_started: int  # of the jobs whose wait counts
    launches: int
    best_launches: int | None
    violated: int = 0  # the number of the first invariant

    @property
    def work(self) -> float:
        return self.gpu_hours / self.best_gpu_hours if self.best_gpu_hours else 1.0

    @property
    def good(self) -> bool:
        dear = self.best_usd is not None and self.usd > self.best_usd * MOST_MONEY + 1
        late = self.best_wait_h is not None and self.wait_h > self.best_wait_h + SLACK / HOUR
        restless = self.best_launches is not None and self.launches > self.best_launches
        return not (self.violated or self.work < LEAST_WORK or dear or late or restless)


def play(situation: Situation, policy: str, seed: int) -> Played:
    rehearsal = UnjudgedRehearsal(situation.spec(), situation.scenario(), seed, decide=POLICIES[policy])
    rehearsal.run()
    begin, end = rehearsal.start, rehearsal.end
    jobs = list(rehearsal.cluster.jobs.values())
    supplies = list(_supplies(rehearsal))
    best = most_gpu_hours(jobs, supplies, begin, end, SLOT)
    done = sum(
        job.gpus * (job.progress.done(end) if not job.finished else job.duration) / HOUR for job in jobs
    )
    counted = [job for job in jobs if job.stream.name == (situation.counted_wait or job.stream.name)]
    waits = [(job.started or end) - job.submitted for job in counted]
    hourly = rehearsal.cloud.hourly_usd()
    return Played(
        situation.name,
        policy,
        round(done, 1),
        round(best, 1),
        round(sum(hourly[kind] for kind in (SourceKind.ON_DEMAND, SourceKind.ODCR, SourceKind.SPOT)), 2),
        None if situation.usd is None else round(situation.usd(rehearsal), 2),
        round(max(waits, default=timedelta(0)) / HOUR, 2),
        None if situation.longest_wait is None else situation.longest_wait / HOUR,
        sum(job.started is None for job in counted),
        len(rehearsal.cloud.instance_histories),
        situation.launches,
        rehearsal.first,
    )


def _supplies(rehearsal: Rehearsal) -> Iterator[Supply]:
    """Prepaid capacity while nodes can be up on it; capacity by the hour without an end."""
    types, gpus = rehearsal.spec.catalog.types, 0
    for one in rehearsal.cloud.all_reservations():
        if one.kind in PREPAID:
            since = max(one.start, rehearsal.start) + FASTEST_BOOT
            until: datetime = kill_at(one) or rehearsal.end
            yield Supply(one.count * types[one.instance_type].gpus, since, min(until, rehearsal.end))
    for pool in rehearsal.spec.pools.values():
        if any(source.type in ("on-demand", "spot") for source in pool.spec.sources) and pool.spec.limits:
            gpus += (pool.spec.limits.nodes or 0) * 8
    if gpus:
        yield Supply(gpus, rehearsal.start + FASTEST_BOOT, rehearsal.end)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="these situations alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = [one for one in situations() if not arguments.names or one.name in arguments.names]
    unknown = set(arguments.names) - {one.name for one in chosen}
    if unknown:
        parser.error(f"no situation is called {', '.join(sorted(unknown))}")
    rows: list[list[Played]] = []
    if not arguments.json:
        _heading(arguments.policies, markdown=arguments.markdown)
    for situation in chosen:
        rows.append([play(situation, policy, arguments.seed) for policy in arguments.policies])
        if not arguments.json:
            _print(rows[-1], markdown=arguments.markdown)
    if arguments.json:
        print(json.dumps([asdict(one) for row in rows for one in row], indent=2))
    ours = [one for row in rows for one in row if one.policy == "tidemill"]
    if ours and not arguments.json:
        print(f"\n{sum(one.good for one in ours)} of {len(ours)} situations as good as they could be")
    return 0 if all(one.good for one in ours) else 1


def _heading(policies: list[str], *, markdown: bool) -> None:
    cells = ["situation", "best GPU-h", "least $", "wait"]
    cells += [f"{policy}: work, $, wait" for policy in policies]
    if markdown:
        print("| " + " | ".join(cells) + " |")
        print("|---" * len(cells) + "|")
    else:
        print(
            f"{cells[0]:20} {cells[1]:>10} {cells[2]:>9} {cells[3]:>6}  "
            + "  ".join(f"{c:>34}" for c in cells[4:])
        )


def _print(row: list[Played], *, markdown: bool) -> None:
    first = row[0]
    least = "" if first.best_usd is None else f"{first.best_usd:,.0f}"
    wait = "" if first.best_wait_h is None else f"{first.best_wait_h:.1f} h"
    results = []
    for one in row:
        never = f" ({one.never_started} never)" if one.never_started else ""
        broken = f" !{one.violated}" if one.violated else ""
        mark = "" if one.good or one.policy != "tidemill" else " *"
        booted = f", {one.launches} booted" if one.best_launches is not None else ""
        results.append(
            f"{100 * one.work:.0f} % ${one.usd:,.0f} {one.wait_h:.1f} h{never}{booted}{broken}{mark}"
        )
    if markdown:
        print(
            "| " + " | ".join((first.situation, f"{first.best_gpu_hours:,.0f}", least, wait, *results)) + " |"
        )
    else:
        print(
            f"{first.situation:20} {first.best_gpu_hours:>10,.0f} {least:>9} {wait:>6}  "
            + "  ".join(f"{text:>34}" for text in results),
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
