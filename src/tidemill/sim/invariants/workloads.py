"""7, 8 and 9, within their bounds: no orphan instance, gangs whole or absent, promised services up."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.model.resources import amount
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.workloads import JobTruth, ServiceTruth
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.units import format_instant

# 7: a node may take 15 minutes to join, 20 more to become ready; ten for the call and the termination.
JOIN_BOUND = timedelta(minutes=25)
READY_BOUND = timedelta(minutes=30)
# An emptied node is terminated in the next tick; ten minutes are a resync, the rest a throttled API.
EMPTY_BOUND = timedelta(minutes=15)
# 8: a member that leaves has its grace, and only its replacement proves the loss; then the survivors have theirs, and
# their replacements take a tick.
GANG_BOUND = timedelta(minutes=10)
# 9: scheduling and start of a replica, beside its load; and the engine's own reaction, over a whole move.
MOVE_STARTS = timedelta(minutes=1)
MOVE_SLACK = timedelta(minutes=5)


class Orphans:
    """Nothing of ours runs and costs without being, or becoming, a working node."""

    def __init__(self) -> None:
        self._all_useful: object = None  # as of which state of the world: nobody becomes useless by waiting

    def check(self, truth: Truth) -> Findings:
        state, now = (truth.cloud.changes, truth.cluster.changes), truth.now()
        if state == self._all_useful:
            return
        useless = 0
        for history in truth.ours():
            why, since, bound = _useless(truth, history)
            useless += since is not None
            if since is not None and truth.able_for(since, now) > bound:
                yield 7, (history.now.id, f"{why} since {format_instant(since)}")
        self._all_useful = None if useless else state


def _useless(truth: Truth, history: InstanceHistory) -> tuple[str, datetime | None, timedelta]:
    node = truth.cluster.nodes.get(history.now.id)
    if node is None or node.joined_at is None:
        return "not joined", history.now.launched_at, JOIN_BOUND
    if node.gone_at is not None:
        return "without a node object", node.gone_at, JOIN_BOUND
    if node.draining_since is not None:
        kube = next((kube for kube in truth.cluster.view().nodes if kube.name == node.name), None)
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
    """Since when each gang is neither whole nor absent."""

    def __init__(self) -> None:
        self._broken: dict[str, datetime] = {}

    def check(self, truth: Truth) -> Findings:
        now = truth.now()
        for job in truth.cluster.open_gangs():
            admitted, started = _members(truth, job)
            whole = started in (0, job.pods) or _is_karpenters(truth, job)
            if admitted in (0, job.pods) and whole:
                self._broken.pop(job.name, None)
                continue
            since = self._broken.setdefault(job.name, now)
            if truth.able_for(since, now) > GANG_BOUND + 2 * job.terms.grace:
                sizes = f"{admitted} admitted and {started} started of {job.pods}"
                yield 8, (job.name, f"{sizes} since {format_instant(since)}")


def _members(truth: Truth, job: JobTruth) -> tuple[int, int]:
    pods = truth.cluster.pods
    members = [pods[uid] for uid in job.members.values() if uid in pods]
    started = sum(pod.started_at is not None and pod.deleting_until is None for pod in members)
    return sum(not pod.gated for pod in members), started


def _is_karpenters(truth: Truth, job: JobTruth) -> bool:
    """Karpenter launches for pods that are admitted, one by one, and knows no gangs: a warning says so."""
    pods = truth.cluster.pods
    on = (
        truth.history_of_node(pods[uid].node)
        for uid in job.members.values()
        if uid in pods and pods[uid].node
    )
    return any(history is not None and history.now.provisioner == "karpenter" for history in on)


def check_services(truth: Truth) -> Findings:
    now = truth.now()
    for service in truth.cluster.services.values():
        since = service.short_since
        if since is None or service.stopped is not None or not service.promised:
            continue
        moves = _time_to_move(service)
        if moves is None or not _had_somewhere_to_go(truth, service, since - moves):
            continue  # nobody could have kept the promise: reported as downtime, no violation
        if not _lost_to_hardware(truth, service) and not truth.was_absent(since - timedelta(minutes=30), now):
            yield 9, (service.name, f"{service.ready} ready since {format_instant(since)}")


def _time_to_move(service: ServiceTruth) -> timedelta | None:
    """How long all its replicas need to move by the method it asks for, or else within its disruption budget; None: the
    minimum is all its replicas, and it has no method that starts new ones first."""
    first_set, how = service.sets[0], service.service.handover
    makes_first = {
        "rollout": first_set.max_surge > 0 and first_set.max_unavailable == 0,
        "scale": how.may_scale and how.kind == "Deployment",
        "paired": how.may_scale and bool(first_set.pair),
    }.get(how.method, False)
    if not makes_first and service.min_available >= service.replicas:
        return None
    at_once = first_set.max_surge if how.method == "rollout" else service.replicas
    at_once = at_once if makes_first else service.replicas - service.min_available
    waves = -(-service.replicas // at_once)
    return waves * (service.service.load + service.terms.grace + MOVE_STARTS) + MOVE_SLACK


def _had_somewhere_to_go(truth: Truth, service: ServiceTruth, since: datetime) -> bool:
    """Whether nodes that were open by then and stay up could hold its minimum, taken or not."""
    seats = 0
    for node in truth.cluster.view().nodes:
        opened = node.opened_at is not None and node.opened_at <= since
        if not (opened and node.ready and node.draining_since is None):
            continue
        selectors = (set(replica_set.shape.node_selector) for replica_set in service.sets)
        if any(selector <= set(node.labels) for selector in selectors):
            asked = [
                (amount(node.allocatable, name), count) for name, count in service.shape.requests if count
            ]
            seats += min((has // count for has, count in asked), default=service.minimum)
    return seats >= service.minimum


def _lost_to_hardware(truth: Truth, service: ServiceTruth) -> bool:
    """Hardware took a replica since the service was last complete: the engine could not prevent that."""
    complete = max((at for at, ready in service.series if ready == service.replicas), default=service.started)
    for kill in truth.cluster.kills:
        if kill.workload == service.workload and kill.at >= complete:
            history = truth.history_of_node(kill.node)
            if history is not None and history.ended_by == "hardware":
                return True
    failed = ("node-check-failed", "instance-ending")
    return any(line.kind in failed and line.at >= complete for line in truth.journal.lines)
