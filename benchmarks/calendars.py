"""What does planning a calendar save over simple rules, rehearsed for eight weeks?

    python -m benchmarks.calendars [--seeds 10] [--markdown]

The example `weekly-calendar.yaml` is rehearsed three times on each seed, with the same offers: with the planner; with a
block for each week of the size of its peak (as without the solver HiGHS); and with windows as a person would write them
(the service by the week, the training from Monday to Friday). A fee counts by its share inside the eight weeks. Hours
of the calendar that no block covers cost the penalty. Exits 1 if an invariant is violated, if a rule is cheaper, or if
with the planner something is not served.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tidemill.decide.purchasing.coverage import missing_gpus
from tidemill.decide.purchasing.planner.demand import calendar_demand
from tidemill.model.capacity import SourceKind
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

EXAMPLE = Path(__file__).parents[1] / "examples" / "weekly-calendar.yaml"
PLAN = "rolling"
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Played:
    fees_usd: float
    uncovered_gpu_h: float
    penalty_usd: float
    purchases: int
    served: bool | None
    took_s: float

    @property
    def total_usd(self) -> float:
        return self.fees_usd + self.penalty_usd


def play(spec: Spec, scenario: Scenario, seed: int, asked: Spec) -> Played:
    began = time.process_time()
    rehearsal = Rehearsal(spec, scenario, seed)
    rehearsal.run()
    took_s = time.process_time() - began
    demand = calendar_demand(asked, PLAN, 0)
    deployment = spec.platform.spec.deployment
    blocks = [
        block
        for block in rehearsal.cloud.all_reservations()
        if block.kind is SourceKind.BLOCK and block.owner == deployment and block.end is not None
    ]
    ever = [replace(block, pool=demand.pool) for block in blocks]
    short = missing_gpus(asked, demand, ever, rehearsal.start, rehearsal.end)
    gpu_h = sum(step.amount * ((step.end - step.start) / HOUR) for step in short)
    fees = 0.0
    for block in blocks:
        assert block.end is not None
        inside = min(block.end, rehearsal.end) - max(block.start, rehearsal.start)
        fees += block.fee_usd * max(0.0, inside / (block.end - block.start))
    served = tally(rehearsal, scenario=EXAMPLE.stem, wall_s=took_s).verdict.served
    return Played(fees, gpu_h, gpu_h * demand.penalty_usd_gpu_h, len(blocks), served, took_s)


def by_windows(spec: Spec, scenario: Scenario) -> Spec:
    """The same demand as windows that a person would write."""
    start = scenario.spec.start
    weeks = int(scenario.spec.duration / (7 * DAY))
    monday = (start - start.weekday() * DAY).replace(hour=7)
    windows: list[dict[str, Any]] = []
    for week in range(weeks):
        first = max(start, start + week * 7 * DAY)
        windows.append(_window(f"service-{week}", first, start + (week + 1) * 7 * DAY, 2))
        windows.append(
            _window(f"training-{week}", monday + week * 7 * DAY, monday + (week * 7 + 4) * DAY + 12 * HOUR, 6)
        )
    document = {"pool": spec.plans[PLAN].spec.pool, "demand": windows, "proposeBefore": "7d"}
    plan = CapacityPlan.model_validate({"metadata": {"name": PLAN}, "spec": document})
    return replace(spec, plans={PLAN: plan})


def _window(name: str, start: datetime, end: datetime, instances: int) -> dict[str, Any]:
    return {
        "name": name, "from": start, "to": end, "instanceType": "p5.48xlarge", "instances": instances,
    }  # fmt: skip


def without_solver(spec: Spec, scenario: Scenario, seed: int) -> Played:
    solver = sys.modules.get("highspy")
    sys.modules["highspy"] = None  # type: ignore[assignment]
    try:
        return play(spec, scenario, seed, spec)
    finally:
        del sys.modules["highspy"]
        if solver is not None:
            sys.modules["highspy"] = solver


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    loaded = load([EXAMPLE])
    spec, scenario = loaded.checked_spec(), loaded.checked_scenario()
    written = by_windows(spec, scenario)
    mark = "| " if arguments.markdown else ""
    print(f"{mark}seed | planned $ | uncovered GPU-h | weekly rule $ | windows $ | saved | saved | s")
    if arguments.markdown:
        print("|---|---|---|---|---|---|---|---|")
    good = True
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        ours = play(spec, scenario, seed, spec)
        weekly, windows = without_solver(spec, scenario, seed), play(written, scenario, seed, spec)
        saved = [1 - ours.total_usd / other.total_usd for other in (weekly, windows)]
        good = good and min(saved) > 0 and bool(ours.served)
        cells = (
            f"{seed}", f"{ours.total_usd:,.0f}", f"{ours.uncovered_gpu_h:,.0f}",
            f"{weekly.total_usd:,.0f}", f"{windows.total_usd:,.0f}",
            f"{100 * saved[0]:.1f} %", f"{100 * saved[1]:.1f} %", f"{ours.took_s:.0f}",
        )  # fmt: skip
        print(f"{mark}{' | '.join(cells)}{' |' if mark else ''}", flush=True)
        if not arguments.markdown:
            for name, played in (("planned", ours), ("weekly", weekly), ("windows", windows)):
                fees, short = f"{played.fees_usd:>9,.0f}", f"{played.uncovered_gpu_h:>6,.0f}"
                print(
                    f"    {name:8} fees {fees} uncovered {short} GPU-h in {played.purchases} blocks,"
                    f" {'served' if played.served else 'not served'}, {played.took_s:.0f} s",
                    flush=True,
                )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
