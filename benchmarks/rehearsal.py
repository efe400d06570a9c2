"""How fast is a rehearsal? 30 days, 200 nodes, 5,000 jobs; printed as simulated seconds per wall second.

    python -m benchmarks.rehearsal [--days 30] [--nodes 200] [--jobs 5000] [--seed 1] [--json]
    python -m benchmarks.rehearsal --from-scratch                 # every tick decides, and from nothing
    python -m benchmarks.rehearsal --compare                      # both, one after the other, and how many times dearer
    python -m benchmarks.rehearsal --compare ../before            # another checkout and this one, on all cases in turn
    python -m benchmarks.rehearsal --waiting 500 1500 5000        # how the time grows with the queue of two nodes
    python -m benchmarks.rehearsal --short-jobs 10000             # jobs of a minute, one after the other, on few nodes
    python -m benchmarks.rehearsal --blocks 40                    # so many blocks, and 70 jobs waiting for each of them

Four blocks of 28 days end one after the other, so that drains and hand-overs are part of it; a fifth of the
jobs are gangs. The time includes the invariants, which are checked at every tick. CPU time is printed beside wall time:
where others use the machine, only that can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Scenario


def spec(nodes: int) -> Spec:
    platform = {
        "region": "us-east-1",
        "deployment": "bench",
        "cluster": {"name": "bench"},
        "subnets": {"us-east-1a": ["subnet-a"], "us-east-1b": ["subnet-b"]},
    }
    pool = {
        "nodeClassName": "gpu",
        "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "labels": {"workload-type": "training"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
        "limits": {"nodes": nodes},
    }
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "bench"}, "spec": platform}),
        catalog=load(),
        node_classes={
            "gpu": NodeClass.model_validate(
                {"metadata": {"name": "gpu"}, "spec": {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]}}
            )
        },
        pools={"train": ComputePool.model_validate({"metadata": {"name": "train"}, "spec": pool})},
    )


def scenario(days: int, nodes: int, jobs: int) -> Scenario:
    def job(name: str, share: float, **more: Any) -> dict[str, Any]:
        count = round(jobs * share)
        per_hour = count / (days * 24 * 0.95)
        return {
            "name": name,
            "nodeSelector": {"workload-type": "training"},
            "arrivals": {"perHour": per_hour, "count": count},
            "grace": "2m",
            **more,
        }

    whole = {"gpus": 8, "cpu": "170", "memory": "1500Gi", "checkpointEvery": "30m", "checkpointTime": "3m"}
    quarter = {"gpus": 2, "cpu": "16", "memory": "128Gi"}
    reservations = [
        {
            "name": f"block-{index}",
            "instanceType": "p5.48xlarge",
            "count": nodes // 4,
            "zone": "us-east-1a" if index % 2 else "us-east-1b",
            "from": f"{index}d" if index else "0s",
            "duration": "28d",
        }
        for index in range(4)
    ]
    return Scenario.model_validate(
        {
            "metadata": {"name": "month"},
            "spec": {
                "start": datetime(2026, 11, 1, 11, 30, tzinfo=UTC),
                "duration": timedelta(days=days),
                "reservations": reservations,
                "jobs": [
                    job("small", 0.5, duration={"lognormal": {"median": "6h", "sigma": 0.8}}, **quarter),
                    job("node", 0.3, duration={"lognormal": {"median": "12h", "sigma": 0.8}}, **whole),
                    job("pair", 0.15, nodes=2, duration={"uniform": ["4h", "30h"]}, **whole),
                    job("gang", 0.05, nodes=8, duration={"uniform": ["6h", "48h"]}, **whole),
                ],
            },
        }
    )  # fmt: skip


def queue(jobs: int, days: int) -> Scenario:
    """Two nodes, and so many jobs within the first hours that most of them still wait at the end."""

    def job(name: str, share: float, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "nodeSelector": {"workload-type": "training"},
            "arrivals": {"perHour": jobs, "count": round(jobs * share)},
            "duration": {"uniform": ["1h", "3h"]},
            "grace": "2m",
            **more,
        }

    block = {
        "name": "block",
        "instanceType": "p5.48xlarge",
        "count": 2,
        "zone": "us-east-1a",
        "duration": "28d",
    }
    return Scenario.model_validate(
        {
            "metadata": {"name": "queue"},
            "spec": {
                "start": datetime(2026, 11, 1, 11, 30, tzinfo=UTC),
                "duration": timedelta(days=days),
                "reservations": [{**block, "from": "0s"}],
                "jobs": [
                    job("small", 0.75, gpus=2, cpu="16", memory="128Gi"),
                    job("node", 0.25, gpus=8, cpu="170", memory="1500Gi"),
                ],
            },
        }
    )


def short_jobs(jobs: int) -> Scenario:
    """Jobs of a minute that come as fast as eight nodes finish them: almost all of the time goes into ticks."""
    per_hour = 1200
    job = {
        "name": "short",
        "nodeSelector": {"workload-type": "training"},
        "arrivals": {"perHour": per_hour, "count": jobs},
        "duration": {"uniform": ["50s", "70s"]},
        "grace": "30s",
        "gpus": 2,
        "cpu": "16",
        "memory": "128Gi",
    }
    return _on_blocks("short-jobs", 1, 8, timedelta(hours=jobs / per_hour + 2), [job])


def many_blocks(blocks: int) -> Scenario:
    """Blocks of two nodes, all full, and 70 jobs waiting for each of them: every tick asks about all of both."""
    jobs = [
        {
            "name": name,
            "nodeSelector": {"workload-type": "training"},
            "arrivals": {"perHour": 100 * blocks, "count": round(70 * blocks * share)},
            "duration": {"uniform": ["2h", "9h"]},
            "grace": "2m",
            **more,
        }
        for name, share, more in (
            ("small", 0.5, {"gpus": 2, "cpu": "16", "memory": "128Gi"}),
            ("node", 0.4, {"gpus": 8, "cpu": "170", "memory": "1500Gi"}),
            ("pair", 0.1, {"gpus": 8, "cpu": "170", "memory": "1500Gi", "nodes": 2}),
        )
    ]
    return _on_blocks("many-blocks", blocks, 2, timedelta(days=1), jobs)


def _on_blocks(
    name: str, blocks: int, nodes: int, duration: timedelta, jobs: list[dict[str, Any]]
) -> Scenario:
    reservations = [
        {
            "name": f"block-{index}",
            "instanceType": "p5.48xlarge",
            "count": nodes,
            "zone": "us-east-1a" if index % 2 else "us-east-1b",
            "from": "0s",
            "duration": f"{7 + index % 14}d",
        }
        for index in range(blocks)
    ]
    return Scenario.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "start": datetime(2026, 11, 1, 11, 30, tzinfo=UTC),
                "duration": duration,
                "reservations": reservations,
                "jobs": jobs,
            },
        }
    )


def from_nothing(documents: Spec, world: World) -> Plan:
    return decide(documents, world)


def growth(sizes: list[int], days: int, seed: int, ways: dict[str, Decide]) -> list[dict[str, float]]:
    """A row for each size. `times`: what a job costs, compared with the first size; 1 is linear."""
    rows: list[dict[str, float]] = []
    for jobs in sizes:
        row: dict[str, float] = {"jobs": jobs}
        for way, deciding in ways.items():
            rehearsal = Rehearsal(spec(2), queue(jobs, days), seed, decide=deciding)
            began = time.process_time()
            rehearsal.run()
            cpu_s = time.process_time() - began
            first = rows[0] if rows else {"jobs": jobs, f"{way} cpu_s": cpu_s}
            row[f"{way} cpu_s"] = round(cpu_s, 2)
            row[f"{way} times"] = round((cpu_s / jobs) / (first[f"{way} cpu_s"] / first["jobs"]), 2)
            row["ticks"] = rehearsal.ticks
        rows.append(row)
    return rows


def month(days: int, nodes: int, jobs: int, seed: int, decide: Decide) -> dict[str, float]:
    return measure(scenario(days, nodes, jobs), nodes, seed, decide)


def measure(what: Scenario, nodes: int, seed: int, decide: Decide) -> dict[str, float]:
    rehearsal = Rehearsal(spec(nodes), what, seed, decide=decide)
    began, cpu_began = time.perf_counter(), time.process_time()
    rehearsal.run()
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    outcome = tally(rehearsal, scenario=what.metadata.name, wall_s=wall_s)
    most_nodes = max((point for point in outcome.series.ready), default=0) // 8
    return {
        "simulated_s_per_wall_s": round(outcome.simulated_hours * 3600 / wall_s),
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "ticks": outcome.ticks,
        "ms_per_tick": round(1000 * cpu_s / outcome.ticks, 3),
        "nodes_at_once": most_nodes,
        "jobs": len(outcome.jobs),
        "finished": sum(job.state == "finished" for job in outcome.jobs),
        "gpu_hours_used_percent": round(100 * outcome.gpu_hours["used"] / outcome.gpu_hours["paid"]),
    }


# What is compared, and how it is asked for.
CASES = {
    "30 days, 200 nodes, 5,000 jobs": [],
    "500 jobs wait for two nodes": ["--waiting", "500"],
    "1,500 jobs wait for two nodes": ["--waiting", "1500"],
    "5,000 jobs wait for two nodes": ["--waiting", "5000"],
    "10,000 jobs of a minute": ["--short-jobs", "10000"],
    "40 blocks, 2,800 jobs wait": ["--blocks", "40"],
}


def compare_checkouts(other: Path, seed: int) -> None:
    """CPU seconds of another checkout and of this one, case after case, each in a process of its own. The results that
    both name must be the same."""
    here = Path(__file__).parents[1]
    if not (other / "benchmarks" / "rehearsal.py").is_file():
        sys.exit(f"{other} is no checkout of Tidemill that has benchmarks/rehearsal.py")
    print(f"{'':>32} {'before cpu_s':>14} {'now cpu_s':>14} {'now/before':>12}")
    for name, asked in CASES.items():
        before, now = (_rehearsed(checkout, [*asked, "--seed", str(seed)]) for checkout in (other, here))
        same = all(before[key] == now[key] for key in ("ticks", "jobs", "finished") if key in before)
        ratio = f"{now['cpu_s'] / before['cpu_s']:>12.2f}"
        print(f"{name:>32} {before['cpu_s']:>14,.2f} {now['cpu_s']:>14,.2f} {ratio}", end="", flush=True)
        print("" if same else "  another result", flush=True)


def _rehearsed(checkout: Path, asked: list[str]) -> dict[str, float]:
    paths = [str((checkout / folder).resolve()) for folder in ("src", "")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rehearsal", *asked, "--json"], cwd=checkout, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        sys.exit(f"the rehearsal of {checkout} failed: {last[0]}")
    found = json.loads(done.stdout)
    row: dict[str, float] = found[0] if isinstance(found, list) else found
    return {key.removeprefix("as it is "): value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-scratch", action="store_true", help="remember nothing between decisions")
    parser.add_argument(
        "--compare", nargs="?", const="", metavar="CHECKOUT",
        help="from scratch and as it is, and the ratio; or the rehearsals of another checkout and of this one",
    )  # fmt: skip
    parser.add_argument("--waiting", type=int, nargs="+", metavar="JOBS", help="growth with the queue")
    parser.add_argument("--short-jobs", type=int, metavar="JOBS", help="jobs of a minute, on eight nodes")
    parser.add_argument("--blocks", type=int, metavar="BLOCKS", help="blocks of two nodes, 70 jobs for each")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.compare:
        compare_checkouts(Path(args.compare), args.seed)
        return
    ways: dict[str, Decide] = {}
    if args.from_scratch or args.compare is not None:
        ways["from scratch"] = from_nothing
    if not args.from_scratch:
        ways["as it is"] = decide
    if args.waiting:
        rows = growth(args.waiting, args.days or 3, args.seed, ways)
        if args.json:
            print(json.dumps(rows, indent=2))
            return
        print("  ".join(f"{name:>20}" for name in rows[0]))
        for row in rows:
            print("  ".join(f"{value:>20,}" for value in row.values()))
        return
    what, nodes = scenario(args.days or 30, args.nodes, args.jobs), args.nodes
    if args.short_jobs:
        what, nodes = short_jobs(args.short_jobs), 8
    elif args.blocks:
        what, nodes = many_blocks(args.blocks), 2 * args.blocks
    found = {way: measure(what, nodes, args.seed, one) for way, one in ways.items()}
    if args.json:
        json.dump(found if len(found) > 1 else next(iter(found.values())), sys.stdout, indent=2)
        print()
        return
    columns = list(found.values())
    if len(columns) > 1:
        print(" " * 24, *(f"{way:>14}" for way in found), f"{'times dearer':>14}")
    for name in columns[0]:
        ratio = [columns[0][name] / columns[1][name]] if len(columns) > 1 and name in _COMPARED else []
        print(
            f"{name:>24}",
            *(f"{column[name]:>14,}" for column in columns),
            *(f"{one:>14.2f}" for one in ratio),
        )


# Of these a ratio says something.
_COMPARED = ("wall_s", "cpu_s", "ms_per_tick")


if __name__ == "__main__":
    main()
