"""The last day of a block: GPU-hours that count out of those paid, by our rule and by Karpenter's.

    python -m benchmarks.dying_day [--seeds 5] [--json]

Two blocks of eight p5.48xlarge run side by side, one of which ends; more work comes than there is room for. The day is
the 24 hours before EC2 takes the dying block's nodes, 30 minutes before its end. An hour counts if its work did
not have to be done again: what is lost in the drain is not useful, nor is loading. Same work, same seeds, same
simulator for both; only the decision differs (karpenter_rule.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemill.model.ec2_facts import TERMINATES_BEFORE_END

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.karpenter_rule import karpenter
from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Scenario

NODES, GPUS = 8, 8
START = datetime(2026, 11, 2, 11, 30, tzinfo=UTC)
DIES = START + timedelta(days=2)  # the dying block's end
KILL = DIES - TERMINATES_BEFORE_END
DAY = timedelta(hours=24)
RULES: dict[str, Decide] = {"tidemill": decide, "karpenter": karpenter}
Json = dict[str, Any]


def job(name: str, per_hour: float, duration: Json, **more: Any) -> Json:
    asked = {"gpus": 8, "cpu": "90", "memory": "800Gi", "grace": "2m", "nodeSelector": {"tier": "train"}}
    return {"name": name, "arrivals": {"perHour": per_hour}, "duration": duration, **asked, **more}


def small(name: str, per_hour: float, duration: Json, **more: Any) -> Json:
    return job(name, per_hour, duration, **{"gpus": 2, "cpu": "20", "memory": "200Gi", **more})


SAVES = {"checkpointEvery": "1h", "checkpointTime": "3m", "load": "5m"}
# Arrivals ask for 107 % (long, resumable) to 124 % (short jobs) of the 128 GPUs of both blocks.
WORK: dict[str, list[Json]] = {
    "short jobs": [
        small("eval", 45, {"uniform": ["15m", "1h30m"]}),
        job("tune", 8, {"uniform": ["30m", "2h"]}),
    ],
    "mixed": [
        small("eval", 30, {"lognormal": {"median": "45m", "sigma": 0.6, "max": "6h"}}),
        job("tune", 1.2, {"lognormal": {"median": "4h", "sigma": 0.6, "max": "20h"}}),
        job("train", 0.3, {"uniform": ["12h", "30h"]}, **SAVES),
    ],
    "long, starts over": [job("train", 2.7, {"uniform": ["3h", "10h"]})],
    "long, resumable": [job("train", 0.9, {"uniform": ["8h", "30h"]}, **SAVES)],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Day:
    scenario: str
    rule: str
    seed: int
    paid_gpu_h: float
    useful_gpu_h: float
    lost_gpu_h: float  # work done and done again, of all jobs, until the block was gone
    finished: int  # jobs, until the dying block was gone
    restarts: int

    @property
    def share(self) -> float:
        return self.useful_gpu_h / self.paid_gpu_h


def documents() -> Spec:
    platform = {
        "region": "us-east-1", "deployment": "bench", "cluster": {"name": "bench"},
        "subnets": {"us-east-1a": ["subnet-a"]},
    }  # fmt: skip
    pool = {
        "nodeClassName": "gpu", "sources": [{"type": "block"}], "labels": {"tier": "train"},
        "requirements": {"instanceTypes": ["p5.48xlarge"]}, "limits": {"nodes": 2 * NODES},
        "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
    }  # fmt: skip
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "bench"}, "spec": platform}),
        catalog=load(),
        pools={"train": ComputePool.model_validate({"metadata": {"name": "train"}, "spec": pool})},
    )


def scenario(jobs: list[Json]) -> Scenario:
    block = {"instanceType": "p5.48xlarge", "count": NODES, "zone": "us-east-1a"}
    body = {
        "start": START,
        "duration": DIES - START + timedelta(hours=1),
        "reservations": [
            {"name": "dying", "duration": "2d", **block},
            {"name": "lasting", "duration": "7d", **block},
        ],
        "jobs": jobs,
    }
    return Scenario.model_validate({"metadata": {"name": "dying-day"}, "spec": body})


def play(name: str, rule: str, seed: int) -> Day:
    rehearsal = Rehearsal(documents(), scenario(WORK[name]), seed, decide=RULES[rule])
    rehearsal.run_until(DIES)
    dying, jobs = rehearsal.cloud.names["dying"], rehearsal.cluster.jobs.values()
    return Day(
        name, rule, seed,
        paid_gpu_h=NODES * GPUS * DAY.total_seconds() / 3600,
        useful_gpu_h=sum(one.useful_gpu_hours(dying, KILL - DAY, KILL) for one in jobs),
        lost_gpu_h=sum(one.gpus * one.lost_work.total_seconds() / 3600 for one in jobs),
        finished=sum(one.state == "finished" for one in jobs),
        restarts=sum(one.restarts for one in jobs),
    )  # fmt: skip


def table(days: list[Day]) -> str:
    lines = [
        "| scenario | rule | useful / paid | seed by seed | useful GPU-h | lost GPU-h | jobs finished | restarts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in WORK:
        for rule in RULES:
            mine = [day for day in days if (day.scenario, day.rule) == (name, rule)]
            mean = [sum(values) / len(mine) for values in zip(*(_figures(day) for day in mine), strict=True)]
            share, useful, lost, finished, restarts = mean
            spread = f"{min(day.share for day in mine):.1%} to {max(day.share for day in mine):.1%}"
            lines.append(
                f"| {name} | {rule} | {share:.1%} | {spread} | {useful:,.0f} | {lost:,.0f} | {finished:,.0f} |"
                f" {restarts:.0f} |"
            )
    return "\n".join(lines)


def _figures(day: Day) -> tuple[float, ...]:
    return day.share, day.useful_gpu_h, day.lost_gpu_h, day.finished, day.restarts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    days = [play(name, rule, seed) for name in WORK for rule in RULES for seed in range(1, asked.seeds + 1)]
    if asked.json:
        json.dump([{**asdict(day), "share": round(day.share, 4)} for day in days], sys.stdout, indent=2)
        print()
    else:
        print(table(days))
    ours = {(day.scenario, day.seed): day.share for day in days if day.rule == "tidemill"}
    behind = [day for day in days if day.rule == "karpenter" and day.share >= ours[day.scenario, day.seed]]
    for day in behind:
        print(f"not higher: {day.scenario}, seed {day.seed}", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
