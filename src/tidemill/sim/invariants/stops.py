"""18: work is stopped for a cause, and asked to save first: no pod that must not be disrupted, no resumable pod that
was not asked for a checkpoint, and no job again and again before anything of it is kept.

Judged at each deletion of the engine's, on a node that was sound and had time left. The ends of nodes, failed checks
and lost members of gangs are causes; what kube-scheduler preempts is not the engine's.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.kubelet import Stop
from tidemill.sim.invariants.deadlines import noticed_at
from tidemill.sim.invariants.money import HOURLY
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.units import format_instant

# In a row. Once may be a node that is emptied for money; work that would start over is left to finish before drift.
FRUITLESS_BOUND = 3
# Within so long of the end of its node, its own lead beside, a stop is for that end.
SOON = timedelta(hours=2)
# A service of many waves leaves hours before.
SOON_FOR_SERVICES = timedelta(days=1)
# The signal to a pod and the engine's margin, as the docs state the lead, and a tick.
ASKS_BEFORE = timedelta(minutes=5)
_NOTHING = timedelta(0)


class Stops:
    def __init__(self) -> None:
        self._seen = 0
        self._fruitless: defaultdict[str, int] = defaultdict(int)  # by job, in a row
        self._stints: dict[str, int] = {}  # by job, how many were over when it was last looked at

    def check(self, truth: Truth) -> Findings:
        stops = truth.cluster.stops
        if len(stops) == self._seen:
            return
        new, self._seen = stops[self._seen :], len(stops)
        for stop in new:
            history = truth.history_of_node(stop.pod.node)
            if history is None or stop.by_agent or stop.pod.started_at is None:
                continue
            pool = truth.spec.pools.get(history.now.pool)
            sound = _is_sound(truth, stop, history)
            yield from _protected(truth, stop, history, sound=sound)
            yield from _unasked(truth, stop, history, pool)
            if sound and stop.pod.of_job and stop.pod.deleting_until is None:
                yield from _causeless(truth, stop, history)
            yield from self._again(truth, stop, history, pool, sound=sound)

    def _again(
        self, truth: Truth, stop: Stop, history: InstanceHistory, pool: ComputePool | None, *, sound: bool
    ) -> Findings:
        job = truth.cluster.jobs.get(stop.pod.workload.partition("/")[2]) if stop.pod.of_job else None
        over = [stint for stint in job.stints if stint.kept is not None] if job is not None else []
        if job is None or len(over) == self._stints.get(job.name, 0):
            return  # it had not begun to work, or this stop of its gang was counted
        self._stints[job.name] = len(over)
        lead = (pool.spec.drain.lead if pool is not None else None) or _NOTHING
        ends = _ends_within(truth, stop, history, SOON + lead + job.terms.grace + job.terms.checkpoint_time)
        if over[-1].kept or not sound or ends or _lost_a_member(truth, stop):
            self._fruitless[job.name] = 0
            return
        self._fruitless[job.name] += 1
        if self._fruitless[job.name] >= FRUITLESS_BOUND:
            yield 18, (job.name, f"stopped {self._fruitless[job.name]} times in a row with nothing kept")


def _protected(truth: Truth, stop: Stop, history: InstanceHistory, *, sound: bool) -> Findings:
    mark, pod = stop.pod.terms.do_not_disrupt, stop.pod
    if isinstance(mark, timedelta):
        assert pod.started_at is not None
        mark = stop.eviction.at < pod.started_at + mark
    if not mark or not sound or pod.gang is not None or history.now.source.kind in HOURLY:
        return  # money that runs out is an end
    if not _ends_within(truth, stop, history, SOON_FOR_SERVICES):
        yield 18, (pod.full_name, pod.node, "it must not be disrupted")


def _causeless(truth: Truth, stop: Stop, history: InstanceHistory) -> Findings:
    """A job's pod on a node that nobody empties stops for its gang, or, if it resumes, for a higher priority that
    waits. One on a node that is emptied for its end does not stop for an end that has moved since."""
    pod, at, node = stop.pod, stop.eviction.at, truth.cluster.node_truth(stop.pod.node)
    if node is None or _lost_a_member(truth, stop):
        return
    if node.draining_since is None:
        above = any(other.terms.priority > pod.terms.priority for other in truth.cluster.unbound)
        if pod.terms.checkpoint_every is None or not above:
            yield 18, (pod.full_name, pod.node, "nobody empties its node")
        return
    reason, deadline = node.drain_reason, truth.deadline_of(history)
    if reason is None or not reason.is_end or reason.at is None or deadline is None:
        return
    known = [
        extension.settled_at
        for extension in truth.cloud.bought_extensions
        if extension.reservation_id == history.now.source.id and extension.paid and extension.settled_at
    ]
    moved = deadline - reason.at > SOON and deadline - at > SOON_FOR_SERVICES / 2
    if moved and known and truth.able_for(max(known), at) > ASKS_BEFORE * 3:
        yield 18, (pod.full_name, pod.node, f"its end moved to {format_instant(deadline)}")


def _unasked(truth: Truth, stop: Stop, history: InstanceHistory, pool: ComputePool | None) -> Findings:
    """On a node that is drained. Of a gang whose other nodes go, only those pods are asked."""
    pod, at = stop.pod, stop.eviction.at
    node = truth.cluster.node_truth(pod.node)
    if pod.terms.checkpoint_every is None or pod.checkpoint_requested_at is not None:
        return
    if pool is None or not pool.spec.drain.checkpoint or node is None or node.draining_since is None:
        return
    if pod.deleting_until is not None or _lost_a_member(truth, stop) or _failed(truth, stop, history):
        return
    lead = pod.terms.grace + pod.terms.checkpoint_time + ASKS_BEFORE
    assert pod.started_at is not None
    known = max(pod.started_at, noticed_at(truth, history) or pod.started_at)
    if known <= at - lead and not truth.was_absent(at - lead - timedelta(hours=1), at):
        yield 18, (pod.full_name, pod.node, "nobody had asked it for a checkpoint")


def _is_sound(truth: Truth, stop: Stop, history: InstanceHistory) -> bool:
    lasts = history.ended_by != "hardware" and not truth.keeps_old_end(history)
    return lasts and not _failed(truth, stop, history)


def _failed(truth: Truth, stop: Stop, history: InstanceHistory) -> bool:
    """Its check failed, or AWS gave notice."""
    if history.now.ends_at is not None:
        return True
    kube = truth.cluster.kube_node(stop.pod.node)
    return kube is None or kube.check == "failed" or not kube.ready


def _ends_within(truth: Truth, stop: Stop, history: InstanceHistory, span: timedelta) -> bool:
    deadline: datetime | None = truth.deadline_of(history)
    return deadline is not None and deadline - stop.eviction.at < span


def _lost_a_member(truth: Truth, stop: Stop) -> bool:
    """Its gang is not whole: the others stop and start again together."""
    if stop.pod.gang is None:
        return False
    job = truth.cluster.jobs.get(stop.pod.workload.partition("/")[2])
    return job is not None and any(
        uid not in truth.cluster.pods or truth.cluster.pods[uid].started_at is None for uid in job.uids
    )
