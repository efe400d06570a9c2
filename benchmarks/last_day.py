"""The last day of a block: how many of the paid GPU-hours are useful, with our decisions and with Karpenter's?

    python -m benchmarks.last_day [--seeds 5] [--json]

There are two blocks of eight p5.48xlarge, of which one ends, and more jobs than they hold. The last day is the 24 hours
before EC2 terminates the nodes of the ending block, 30 minutes before its end. An hour is useful if its work is not
done again: work that is lost in the drain does not count, nor does loading. Jobs, seeds and simulator are the same for
both; only the decision differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.unjudged import UnjudgedRehearsal
from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import KARPENTER_DRAINS_BEFORE_END, TERMINATES_BEFORE_END
from tidemill.model.plan import Action, Evict, Plan, RequestCheckpoint
from tidemill.model.reasons import EvictReason
from tidemill.model.world import World
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Scenario

NODES, GPUS = 8, 8
START = datetime(2026, 11, 2, 11, 30, tzinfo=UTC)
END = START + timedelta(days=2)  # of the ending block
TERMINATED = END - TERMINATES_BEFORE_END
DAY = timedelta(hours=24)
Json = dict[str, Any]


# --- Karpenter's decisions ----------------------------------------------------------------------------


def karpenter(spec: Spec, world: World) -> Plan:
    """How Karpenter uses a Capacity Block: `decide` in a world whose blocks have no end until forty minutes before it.

    It places a pod on the first node that fits, whatever time is left there. Forty minutes before the end it deletes
    the nodes of the block and evicts every pod on them at once, with its grace and without a checkpoint. This is kinder
    than the real Karpenter in two ways: our packer places the pods, and each pod gets its whole grace.
    """
    hidden = tuple(_without_end(reservation, world) for reservation in world.reservations)
    plan = decide(spec, replace(world, reservations=hidden))
    deletes_at = [
        reservation.end - KARPENTER_DRAINS_BEFORE_END
        for reservation in world.reservations
        if reservation.kind is SourceKind.BLOCK and reservation.end is not None
    ]
    instants = (at for at in (*deletes_at, plan.wake_at) if at is not None and at > world.now)
    return replace(plan, actions=tuple(_evicting(world, plan)), wake_at=min(instants, default=None))


def _without_end(reservation: Reservation, world: World) -> Reservation:
    if reservation.kind is not SourceKind.BLOCK or reservation.end is None:
        return reservation
    known = world.now >= reservation.end - KARPENTER_DRAINS_BEFORE_END
    return reservation if known else replace(reservation, end=None)


def _evicting(world: World, plan: Plan) -> list[Action]:
    """Draining nodes are emptied at once: no pod is asked for a checkpoint or left to finish."""
    actions: list[Action] = [action for action in plan.actions if not isinstance(action, RequestCheckpoint)]
    evicted = {action.pod for action in actions if isinstance(action, Evict)}
    for node in world.nodes:
        if node.kube is None or node.kube.draining_since is None:
            continue
        staying = [pod for pod in world.pods_by_node.get(node.kube.name, ()) if pod.deleting_until is None]
        actions += [
            Evict(pod.uid, EvictReason(node.kube.drain_reason))
            for pod in staying
            if not pod.daemon and pod.uid not in evicted
        ]
    return actions


RULES: dict[str, Decide] = {"tidemill": decide, "karpenter": karpenter}


# --- the scenario -------------------------------------------------------------------------------------


def job(name: str, per_hour: float, duration: Json, **more: Any) -> Json:
    requests = {"gpus": 8, "cpu": "90", "memory": "800Gi", "grace": "2m", "nodeSelector": {"tier": "train"}}
    return {"name": name, "arrivals": {"perHour": per_hour}, "duration": duration, **requests, **more}


def small(name: str, per_hour: float, duration: Json, **more: Any) -> Json:
    return job(name, per_hour, duration, **{"gpus": 2, "cpu": "20", "memory": "200Gi", **more})


SAVES = {"checkpointEvery": "1h", "checkpointTime": "3m", "load": "5m"}
# Jobs request 107 % (long, resumable) to 124 % (short jobs) of the 128 GPUs of both blocks.
JOBS: dict[str, list[Json]] = {
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
    lost_gpu_h: float  # of all jobs until the end: work that was done twice
    finished: int  # jobs, until the end
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
    # The simulator seeds its random numbers with these names: other names give other figures.
    body = {
        "start": START,
        "duration": END - START + timedelta(hours=1),
        "reservations": [
            {"name": "dying", "duration": "2d", **block},
            {"name": "lasting", "duration": "7d", **block},
        ],
        "jobs": jobs,
    }
    return Scenario.model_validate({"metadata": {"name": "dying-day"}, "spec": body})


def play(name: str, rule: str, seed: int) -> Day:
    judged = Rehearsal if rule == "tidemill" else UnjudgedRehearsal
    rehearsal = judged(documents(), scenario(JOBS[name]), seed, decide=RULES[rule])
    rehearsal.run_until(END)
    ending, jobs = rehearsal.cloud.names["dying"], rehearsal.cluster.jobs.values()
    return Day(
        name, rule, seed,
        paid_gpu_h=NODES * GPUS * DAY.total_seconds() / 3600,
        useful_gpu_h=sum(job.useful_gpu_hours(ending, TERMINATED - DAY, TERMINATED) for job in jobs),
        lost_gpu_h=sum(job.gpus * job.lost_work.total_seconds() / 3600 for job in jobs),
        finished=sum(job.state == "finished" for job in jobs),
        restarts=sum(job.restarts for job in jobs),
    )  # fmt: skip


def table(days: list[Day]) -> str:
    lines = [
        "| scenario | rule | useful / paid | seed by seed | useful GPU-h | lost GPU-h | jobs finished | restarts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in JOBS:
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
    arguments = parser.parse_args()
    days = [
        play(name, rule, seed) for name in JOBS for rule in RULES for seed in range(1, arguments.seeds + 1)
    ]
    if arguments.json:
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
