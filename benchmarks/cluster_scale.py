"""What does a controller cost beside a large cluster: time to full sync, memory, CPU while pods come and go?

    python -m benchmarks.cluster_scale --nodes 2000 --pods 20000

A real control plane holds nodes and pods that were made directly. The adapter's reading half runs in a process of its
own, then `tidemill run`, then Karpenter's controller (kwok provider) if asked for, on the same cluster and under the
same churn: its nodes are nobody's. Last `tidemill run` on a cluster of the same size whose nodes are all its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.cluster import karpenter_kwok
from benchmarks.cluster.large_cluster import LargeCluster
from benchmarks.cluster.measured import CpuShare, cpu_s, memory_mib
from benchmarks.cluster.tidemill_run import TidemillRun
from controlplane.api import eventually
from controlplane.build import MODULES, build
from controlplane.components import Options
from controlplane.processes import Processes
from controlplane.start import ControlPlane

# No kubelet renews a lease here: the controller that evicts pods of silent nodes stays out, and what would remake pods.
CONTROLLERS = "serviceaccount-controller,namespace-controller,root-ca-certificate-publisher-controller"
QUIET_S = 10.0
READY_S = 300.0
KARPENTER = "karpenter (kwok)"
PENDING = 5  # pods, one after the other
POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized")


@dataclass(slots=True)
class Cost:
    controller: str
    sync_s: float
    sync_cpu_s: float
    memory_mib: float
    peak_mib: float
    idle_cpu: float  # percent of a core
    churn_cpu: float
    pods_per_s: float  # that the churn managed
    more: dict[str, Any]


@contextlib.contextmanager
def large_control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(options=Options(controllers=CONTROLLERS)) as plane:
        yield plane


def measure_reader(plane: ControlPlane, cluster: LargeCluster, pods_per_s: float, for_s: float) -> Cost:
    process = subprocess.Popen(
        (sys.executable, "-m", "benchmarks.cluster.reader", str(plane.kubeconfig)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        synced = json.loads(process.stdout.readline())
        idle = _idle(process.pid)
        share = CpuShare(process.pid)
        rate = cluster.churn(pods_per_s, for_s)
        busy = share.percent()
        memory, peak = memory_mib(process.pid), memory_mib(process.pid, "VmHWM")
        process.stdin.close()
        last = json.loads(process.stdout.readline())
        process.wait(30)
    finally:
        process.kill()
    more = {"view_ms": last["view_ms"], "worst_view_ms": last["worst_view_ms"], "pods": last["pods"]}
    return Cost("tidemill reader", synced["sync_s"], synced["cpu_s"], memory, peak, idle, busy, rate, more)


def measure_run(
    plane: ControlPlane, cluster: LargeCluster, pods_per_s: float, for_s: float, pending: int
) -> Cost:
    """Beside nodes that are nobody's."""
    folder = plane.folder / "run"
    folder.mkdir()
    with contextlib.closing(Processes(folder / "log")) as processes:
        run = TidemillRun(plane, processes, folder)
        return _measured("tidemill run", run, cluster, pods_per_s, for_s, pending)


def measure_own(policy: str, nodes: int, pods: int, pods_per_s: float, for_s: float, pending: int) -> Cost:
    """On a control plane of its own, with nodes of its own."""
    with large_control_plane() as plane:
        folder = plane.folder / "run"
        folder.mkdir()
        with contextlib.closing(Processes(folder / "log")) as processes:
            run = TidemillRun(plane, processes, folder, own=nodes, policy=policy)
            cluster = LargeCluster(plane)
            cluster.make(nodes, pods, run.own_node)
            return _measured(f"its own nodes, {policy}", run, cluster, pods_per_s, for_s, pending)


def _measured(
    name: str, run: TidemillRun, cluster: LargeCluster, pods_per_s: float, for_s: float, pending: int
) -> Cost:
    began = time.monotonic()
    pid = run.start()
    run.wait_ready(READY_S)
    sync_s, sync_cpu_s = time.monotonic() - began, cpu_s(pid)
    first = run.ticks()
    run.check_own()
    rested = time.time()
    idle = _idle(pid)
    at_rest = run.ticks(rested)
    share, stirred = CpuShare(pid), time.time()
    rate = cluster.churn(pods_per_s, for_s)
    busy, under_churn = share.percent(), run.ticks(stirred)
    memory, peak = memory_mib(pid), memory_mib(pid, "VmHWM")
    launched = run.pending_to_launch_s(pending)
    more = {
        "pending_to_launch_s": [round(one, 2) for one in launched],
        "ticks": {"first": asdict(first), "at rest": asdict(at_rest), "under churn": asdict(under_churn)},
    }
    return Cost(name, sync_s, sync_cpu_s, memory, peak, idle, busy, rate, more)


def measure_karpenter(
    binary: Path, plane: ControlPlane, cluster: LargeCluster, pods_per_s: float, for_s: float, pending: int
) -> Cost:
    api = plane.admin()
    karpenter_kwok.install(api)
    with karpenter_kwok.running(binary, plane) as (pid, metrics):
        began = time.monotonic()
        eventually(
            lambda: karpenter_kwok.is_synced(metrics),
            timeout_s=karpenter_kwok.SYNCED_S,
            what="Karpenter is synced",
        )
        sync_s, sync_cpu_s = time.monotonic() - began, cpu_s(pid)
        idle = _idle(pid)
        share = CpuShare(pid)
        rate = cluster.churn(pods_per_s, for_s)
        busy = share.percent()
        memory, peak = memory_mib(pid), memory_mib(pid, "VmHWM")
        launched = karpenter_kwok.pending_to_launch_s(api, pending)
    more = {"pending_to_launch_s": [round(one, 2) for one in launched]}
    return Cost(KARPENTER, sync_s, sync_cpu_s, memory, peak, idle, busy, rate, more)


def _idle(pid: int) -> float:
    share = CpuShare(pid)
    time.sleep(QUIET_S)
    return share.percent()


def rows(costs: list[Cost]) -> list[str]:
    lines = [
        "| controller | full sync | CPU for it | memory | peak | CPU at rest | CPU under churn | churn |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.controller} | {one.sync_s:.1f} s | {one.sync_cpu_s:.1f} s | {one.memory_mib:.0f} MiB | "
        f"{one.peak_mib:.0f} MiB | {one.idle_cpu:.1f} % | {one.churn_cpu:.1f} % | {one.pods_per_s:.1f} pods/s |"
        for one in costs
    ]
    return lines


def ratios(costs: list[Cost]) -> str:
    """Ours against Karpenter's: below 1 ours takes less."""
    named = {one.controller: one for one in costs}
    ours, theirs = named["tidemill run"], named[KARPENTER]
    parts = {
        "CPU to sync": ours.sync_cpu_s / theirs.sync_cpu_s,
        "peak memory": ours.peak_mib / theirs.peak_mib,
        "CPU under churn": ours.churn_cpu / theirs.churn_cpu,
    }
    return "tidemill run / Karpenter: " + ", ".join(f"{name} {value:.2f}" for name, value in parts.items())


def _beside_strangers(
    nodes: int, pods: int, pods_per_s: float, for_s: float, karpenter: Path | None
) -> list[Cost]:
    with large_control_plane() as plane:
        cluster = LargeCluster(plane)
        made = cluster.make(nodes, pods)
        click.echo(f"made {made.nodes} nodes and {made.pods} pods in {made.seconds:.0f} s", err=True)
        costs = [measure_reader(plane, cluster, pods_per_s, for_s)]
        costs.append(measure_run(plane, cluster, pods_per_s, for_s, PENDING))
        if karpenter is not None:
            costs.append(measure_karpenter(karpenter, plane, cluster, pods_per_s, for_s, PENDING))
    return costs


@click.command()
@click.option("--nodes", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--pods", type=click.IntRange(1), default=20_000, show_default=True)
@click.option(
    "--churn", "pods_per_s", type=float, default=20.0, show_default=True, help="Pods replaced a second."
)
@click.option("--for", "for_s", type=float, default=30.0, show_default=True, help="Seconds of churn.")
@click.option(
    "--karpenter",
    is_flag=True,
    help="Karpenter's controller beside it: built with Go, for minutes the first time.",
)
@click.option("--own", is_flag=True, help="Only `tidemill run` with nodes of its own.")
@click.option("--json", "as_json", is_flag=True)
def main(
    nodes: int, pods: int, pods_per_s: float, for_s: float, karpenter: bool, own: bool, as_json: bool
) -> None:
    binary = build(MODULES["karpenter-kwok"]) / "karpenter-kwok" if karpenter else None
    costs = [] if own else _beside_strangers(nodes, pods, pods_per_s, for_s, binary)
    costs += [measure_own(policy, nodes, pods, pods_per_s, for_s, PENDING) for policy in POLICIES]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in costs], indent=2))
        return
    click.echo("\n".join(rows(costs)))
    for one in costs:
        click.echo(f"{one.controller}: {one.more}")
    if binary is not None and not own:
        click.echo(ratios(costs))


if __name__ == "__main__":
    main()
