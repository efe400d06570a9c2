"""7 and 8, within their bounds: no orphan instance, gangs whole or absent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.model.purchases import LaunchState
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.workloads import JobTruth
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.units import format_instant

# 7: a node may take 15 minutes to join, 20 more to become ready; ten for the call and the termination.
JOIN_BOUND = timedelta(minutes=25)
READY_BOUND = timedelta(minutes=30)
# An emptied node is terminated in the next tick; ten minutes are a resync, the rest a throttled API.
EMPTY_BOUND = timedelta(minutes=15)
# Lists show an instance within minutes; an intent whose instances never show expires.
SETTLE_BOUND = timedelta(hours=1)
# 8: a member that leaves has its grace, and only its replacement proves the loss. Then the survivors are told to stop
# at once; those that are going are neither admitted nor started.
GANG_BOUND = timedelta(minutes=10)


class Orphans:
    """Nothing of ours runs and costs without being, or becoming, a working node.

    A node that works goes on working until the account or a node changes: pods, and waiting, change nothing about it.
    So only the others are looked at in between.
    """

    def __init__(self) -> None:
        self._as_of: object = None
        self._others: list[InstanceHistory] = []
        self._left: list[tuple[str, datetime]] = []  # node objects whose instance is gone, and since when

    def check(self, truth: Truth) -> Findings:
        now, state = truth.now(), (truth.cloud.changes, truth.cluster.layout)
        if state != self._as_of:
            self._as_of = state
            self._others = [history for history in truth.ours() if not _works(truth, history)]
            self._left = list(_left_over(truth))
        for history in self._others:
            why, since, bound = _useless(truth, history)
            if since is not None and truth.able_for(since, now) > bound:
                yield 7, (history.now.id, f"{why} since {format_instant(since)}")
        for name, ended in self._left:
            if truth.able_for(ended, now) > JOIN_BOUND:
                yield 7, (name, f"a node without an instance since {format_instant(ended)}")
        # Launches that count as under way although their instances are there.
        for intent in truth.ledger.launches():
            if intent.state is LaunchState.LAUNCHED and truth.able_for(intent.written_at, now) > SETTLE_BOUND:
                yield 7, (intent.id, f"a launch under way since {format_instant(intent.written_at)}")


def _left_over(truth: Truth) -> Iterator[tuple[str, datetime]]:
    owner = truth.owner
    for kube in truth.cluster.view().nodes:
        history = truth.cloud.instance_histories.get(kube.instance_id)
        if history is not None and history.terminated_at is not None and history.now.owner == owner:
            yield kube.name, history.terminated_at


def _works(truth: Truth, history: InstanceHistory) -> bool:
    """It is an open node that nobody drains."""
    node = truth.cluster.nodes.get(history.now.id)
    if node is None or node.joined_at is None or node.ready_at is None:
        return False
    return node.gone_at is None and node.draining_since is None


def _useless(truth: Truth, history: InstanceHistory) -> tuple[str, datetime | None, timedelta]:
    node = truth.cluster.nodes.get(history.now.id)
    if node is None or node.joined_at is None:
        return "not joined", history.now.launched_at, JOIN_BOUND
    if node.gone_at is not None:
        return "without a node object", node.gone_at, JOIN_BOUND
    if node.draining_since is not None:
        kube = truth.cluster.kube_node(node.name)
        if kube is None or any(not pod.daemon for pod in truth.cluster.pods_on(history.now.id)):
            return "", None, EMPTY_BOUND
        return (
            "drained and empty",
            max(node.draining_since, kube.last_pod_event_at or kube.joined_at),
            EMPTY_BOUND,
        )
    if node.ready_at is None:
        return "not ready", node.joined_at, READY_BOUND
    return "", None, JOIN_BOUND


class Gangs:
    """Since when each gang is neither whole nor absent.

    One that was whole or absent at the last look, and of which no pod has changed since, is so still.
    """

    def __init__(self) -> None:
        self._broken: dict[str, datetime] = {}
        self._seen = 0  # so many changes of gangs

    def check(self, truth: Truth) -> Findings:
        now, changes = truth.now(), truth.cluster.gang_changes
        names, self._seen = dict.fromkeys((*self._broken, *changes[self._seen :])), len(changes)
        for job in [truth.cluster.jobs[name] for name in names]:
            if job.over:
                self._broken.pop(job.name, None)
                continue
            admitted, started = _members(truth, job)
            whole = started in (0, job.pods) or _is_karpenters(truth, job)
            if admitted in (0, job.pods) and whole:
                self._broken.pop(job.name, None)
                continue
            since = self._broken.setdefault(job.name, now)
            if truth.able_for(since, now) > GANG_BOUND + job.terms.grace:
                sizes = f"{admitted} admitted and {started} started of {job.pods}"
                yield 8, (job.name, f"{sizes} since {format_instant(since)}")


def _members(truth: Truth, job: JobTruth) -> tuple[int, int]:
    pods = truth.cluster.pods
    staying = [pods[uid] for uid in job.members.values() if uid in pods and pods[uid].deleting_until is None]
    started = sum(pod.started_at is not None for pod in staying)
    return sum(not pod.gated for pod in staying), started


def _is_karpenters(truth: Truth, job: JobTruth) -> bool:
    """Karpenter launches for pods that are admitted, one by one, and knows no gangs: a warning says so."""
    pods = truth.cluster.pods
    on = (
        truth.history_of_node(pods[uid].node)
        for uid in job.members.values()
        if uid in pods and pods[uid].node
    )
    return any(history is not None and history.now.provisioner == "karpenter" for history in on)
