"""9: a service that was promised zero downtime keeps its minimum, where it had somewhere to go in time.

Somewhere to go: nodes that were open early enough and stay, and prepaid slots that an engine could have filled and did
not try to. What other services use of a node is theirs; what jobs use is not: room is kept for services in time. On
nodes by the hour none is kept: there only jobs that kube-scheduler would preempt for the service make room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.model.capacity import PREPAID, Reservation, ReservationState
from tidemill.model.labels import Taint
from tidemill.model.resources import Resources
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cluster.scheduler_filters import matches_node_affinity, reaches_volumes, untolerated_taint
from tidemill.sim.cluster.workloads import ServiceTruth, SetTruth
from tidemill.sim.invariants.capacity import nodes_left
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec import names
from tidemill.spec.compute_pool import SourceSpec
from tidemill.spec.units import format_instant

# Scheduling and start of a replica, beside its load; and the engine's own reaction, over a whole move.
MOVE_STARTS = timedelta(minutes=1)
MOVE_SLACK = timedelta(minutes=5)
# A slot that got its instance before this was tried in earnest: how long a node boots is not the engine's doing.
SLOT_TRIED = timedelta(minutes=5)


def check_services(truth: Truth) -> Findings:
    now = truth.now()
    for service in truth.cluster.services.values():
        since = service.short_since
        if since is None or service.stopped is not None or not service.promised:
            continue
        if not any(_had_somewhere_to_go(truth, service, way, since) for way in _ways(service)):
            continue  # nobody could have kept the promise: reported as downtime, no violation
        if not _lost_to_hardware(truth, service) and not truth.was_absent(since - timedelta(minutes=30), now):
            yield 9, (service.name, f"{service.ready} ready since {format_instant(since)}")


def check_replicas(truth: Truth) -> Findings:
    """A hand-over adds at most as many replicas as there are, and takes them back."""
    for service in truth.cluster.services.values():
        asked = sum(one.replicas for one in service.sets)
        if service.stopped is None and asked > 2 * service.replicas:
            yield 9, (service.name, f"{asked} replicas where {service.replicas} are asked for")


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to move all replicas: onto nodes of which of its sets, and how long it takes."""

    sets: list[SetTruth]
    takes: timedelta


def _ways(service: ServiceTruth) -> Iterator[_Way]:
    """By the method it asks for, and within its disruption budget. None where the minimum is all its replicas and it
    has no method that starts new ones first. A pair makes its replicas first on the nodes of its other half only."""
    first_set, how = service.sets[0], service.service.handover
    # Without leave to scale them a pair stays without replicas: its nodes are no place to go.
    sets = service.sets if how.may_scale else service.sets[:1]
    if how.method == "rollout" and first_set.max_surge > 0 and first_set.max_unavailable == 0:
        yield _Way(sets, _takes_so_long(service, first_set.max_surge))
        return
    if how.method == "scale" and how.may_scale and how.kind == "Deployment":
        yield _Way(sets, _takes_so_long(service, service.replicas))
        return
    if how.method == "paired" and how.may_scale and first_set.pair:
        serving = [one for one in sets if one.members]
        other_half = [one for one in sets if not one.members] if len(serving) == 1 else sets
        yield _Way(other_half, _takes_so_long(service, service.replicas))
        sets = serving
    if service.min_available < service.replicas:
        yield _Way(sets, _takes_so_long(service, service.replicas - service.min_available))


def _takes_so_long(service: ServiceTruth, at_once: int) -> timedelta:
    waves = -(-service.replicas // at_once)
    return waves * (service.service.load + service.terms.grace + MOVE_STARTS) + MOVE_SLACK


def _had_somewhere_to_go(truth: Truth, service: ServiceTruth, way: _Way, short_since: datetime) -> bool:
    """Whether nodes that were open early enough for it and stay up could hold its minimum beside other services, taken
    by jobs or not; or prepaid slots that nobody launched into."""
    since = short_since - way.takes
    seats = _open_seats(truth, service, way.sets, since) + _slots(truth, service, way.sets, since)
    return seats >= service.minimum


def _open_seats(truth: Truth, service: ServiceTruth, sets: list[SetTruth], since: datetime) -> float:
    seats = 0.0
    own = {one.workload for one in service.sets}
    on_each = _most_on_a_node(truth, service, own)
    for node in truth.cluster.view().nodes:
        opened = node.opened_at is not None and node.opened_at <= since
        if not (opened and node.ready and node.draining_since is None):
            continue
        history = truth.history_of_node(node.name)
        pool = truth.spec.pools.get(history.now.pool) if history is not None else None
        if pool is not None and not pool.spec.serves(service.namespace):
            continue
        if history is not None and truth.soon_over(history.now.id, truth.now()):
            continue  # what ends so soon takes nobody over
        labels = dict(node.labels)
        if any(_admits(one, labels, node.taints) for one in sets):
            free = Resources(node.allocatable)
            hourly = history is not None and history.now.source.kind not in PREPAID
            for pod in truth.cluster.pods_on(node.name):
                stays = hourly and pod.terms.priority >= service.terms.priority if pod.of_job else True
                if pod.daemon or (stays and pod.workload not in own):
                    free.subtract_pod(pod.shape.requests)
            for pod in truth.cluster.nominated_to(node.name):
                # A replica of higher priority preempts: that is kube-scheduler's to do, and budgets do not stop it.
                if not pod.of_job and pod.workload not in own:
                    free.subtract_pod(pod.shape.requests)
            seats += min(on_each, _seats(service, free))
    return seats


def _most_on_a_node(truth: Truth, service: ServiceTruth, own: set[str]) -> float:
    """A hard spread over hosts counts nodes that are being drained, too. While one stays up for the pods of others and
    has none of its own, kube-scheduler puts no more than the skew on any node."""
    spreads = [one for one in service.shape.spread if one.hard and one.topology_key == names.LABEL_HOSTNAME]
    at = service.short_since or truth.now()
    if not spreads:
        return inf
    there: dict[str, set[str]] = {}
    for run in truth.cluster.pod_runs(truth.now()):
        if run.since <= at <= run.until:
            there.setdefault(run.node, set()).add(run.workload)
    for node in truth.cluster.nodes.values():
        drained = node.draining_since is not None and node.draining_since <= at
        pool = truth.spec.pools.get(node.pool)
        if not drained or pool is None or not there.get(node.name) or own & there[node.name]:
            continue
        zone = truth.cloud.instance_histories[node.instance_id].now.zone
        labels = {**pool.spec.labels, names.LABEL_POOL: pool.name, names.LABEL_ZONE: zone}
        if matches_node_affinity(service.shape, labels):
            return min(one.max_skew for one in spreads)
    return inf


def _slots(truth: Truth, service: ServiceTruth, sets: list[SetTruth], since: datetime) -> int:
    """On prepaid capacity that was there all the time, and that nobody tried to launch on."""
    if truth.faults_since(since - SLOT_TRIED):
        return 0
    seats, now = 0, truth.now()
    tried_before = (service.short_since or now) - SLOT_TRIED
    used = Counter(
        one.now.source.id
        for one in truth.cloud.instance_histories.values()
        if one.now.launched_at <= tried_before
        and (one.shutting_down_at is None or one.shutting_down_at > tried_before)
    )
    for held in truth.cloud.all_reservations():
        pool = truth.spec.pools.get(held.pool)
        if pool is None or held.kind not in PREPAID or held.owner != truth.owner:
            continue
        deadline = block_deadline(held, [pool.spec.provisioner.value])
        lasts = deadline is None or deadline - now > timedelta(hours=2) + service.terms.grace
        if held.state is not ReservationState.ACTIVE or held.start > since - SLOT_TRIED or not lasts:
            continue
        if not pool.spec.serves(service.namespace) or not any(takes(one, held) for one in pool.spec.sources):
            continue
        kind = truth.spec.catalog.types[held.instance_type]
        labels = {
            **pool.spec.labels,
            names.LABEL_POOL: pool.name,
            names.LABEL_TYPE: kind.name,
            names.LABEL_ZONE: held.zone,
        }
        taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.spec.taints)
        if any(_admits(one, labels, taints) for one in sets):
            free = min(held.count - used[held.id], nodes_left(truth, pool, kind, tried_before))
            seats += max(0, free) * _seats(service, kind.free_beside(Resources(USUAL_DAEMONS)))
    return seats


def takes(source: SourceSpec, held: Reservation) -> bool:
    return (
        source.type == held.kind.value
        and (not source.zones or held.zone in source.zones)
        and (not source.ids or held.id in source.ids)
        and set(source.tags.items()) <= set(held.tags)
    )


def _admits(one: SetTruth, labels: dict[str, str], taints: tuple[Taint, ...]) -> bool:
    return (
        matches_node_affinity(one.shape, labels)
        and untolerated_taint(one.shape.tolerations, taints) is None
        and reaches_volumes(one.shape, labels)
    )


def _seats(service: ServiceTruth, free: Mapping[str, int]) -> int:
    asked = [(free.get(name, 0), count) for name, count in service.shape.requests if count]
    seats = max(0, min((has // count for has, count in asked), default=service.minimum))
    return min(seats, 1) if service.shape.anti_affinity or service.shape.host_ports else seats


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
