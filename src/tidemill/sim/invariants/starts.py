"""17: a job starts only where it may run: in a pool that serves its namespace, on capacity by the hour only if it opted
in, with time to finish or to save something, and as a gang in one zone and on one source.

Judged when its pods start, by where kube-scheduler put them. Only of what was held and admitted: a pod that nobody
holds goes where kube-scheduler sends it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.model.pods import Pod
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.invariants.money import HOURLY
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.units import format_duration, format_instant

_NOTHING = timedelta(0)


class Starts:
    def __init__(self) -> None:
        self._seen = 0

    def check(self, truth: Truth) -> Findings:
        starts = truth.cluster.starts
        if len(starts) == self._seen:
            return
        new, self._seen = starts[self._seen :], len(starts)
        for pod in new:
            if pod.of_job and pod.pinned_to:
                yield from _judge(truth, pod)


def _judge(truth: Truth, pod: Pod) -> Findings:
    history = truth.history_of_node(pod.node)
    pool = truth.spec.pools.get(history.now.pool) if history is not None else None
    if history is None or pool is None or history.now.owner != truth.owner:
        return
    place = (pod.full_name, pod.node)
    if not pool.spec.serves(pod.namespace):
        yield 17, (*place, f"{pool.name} does not serve the namespace {pod.namespace}")
    prepaid = any(source.type in ("block", "odcr") for source in pool.spec.sources)
    if history.now.source.kind in HOURLY and prepaid and not pod.terms.overflow:
        yield 17, (*place, f"it did not opt in to {history.now.source.label}")
    if why := _too_long(truth, pod, history, pool):
        yield 17, (*place, why)
    if pod.gang is not None and history.now.provisioner != "karpenter":
        yield from _together(truth, pod, history)


def _too_long(truth: Truth, pod: Pod, history: InstanceHistory, pool: ComputePool) -> str:
    """By the end of its block: a notice of AWS about one instance may come after the pod was sent there. Without the
    lead, which is more than the minute between admission and start."""
    block = truth.cloud.reservation(history.now.source.id) if history.now.source.id else None
    deadline = None if block is None else block_deadline(block, [history.now.provisioner])
    needs = _needs(pod, pool)
    if deadline is None or needs is None or _start(pod) + needs <= deadline:
        return ""
    return f"it needs {format_duration(needs)}, and its node ends {format_instant(deadline)}"


def _start(pod: Pod) -> datetime:
    assert pod.started_at is not None
    return pod.started_at


def _needs(pod: Pod, pool: ComputePool) -> timedelta | None:
    """To be done, or to have saved something; None: it says neither."""
    terms, rules = pod.terms, pool.spec
    said = terms.expected if terms.expected is not None else rules.default_duration
    run = None if said is None else min(said, rules.max_expected_duration)
    if terms.checkpoint_every is not None:
        first = terms.checkpoint_every + terms.checkpoint_time
        run = first if run is None else min(run, first)
    return None if run is None else terms.load + run


def _together(truth: Truth, pod: Pod, history: InstanceHistory) -> Findings:
    job = truth.cluster.jobs.get(pod.workload.partition("/")[2])
    for uid in job.uids if job is not None else ():
        other = truth.cluster.pods.get(uid)
        if other is None or other.uid == pod.uid or other.started_at is None or not other.node:
            continue
        there = truth.history_of_node(other.node)
        if there is None or there.now.provisioner == "karpenter" or other.deleting_until is not None:
            continue
        here = (history.now.zone, history.now.source.label)
        if (there.now.zone, there.now.source.label) != here:
            where = f"{' on '.join(here)}, and {other.name} in {there.now.zone} on {there.now.source.label}"
            yield 17, (pod.full_name, pod.node, f"its gang is in two places: {where}")
            return
