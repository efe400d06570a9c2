"""19: no pod waits for long where a node for it could be launched: on prepaid capacity with a free slot, or in a pool
that lives by the hour and whose limits leave room.

Number 13 is about nodes that are up; this is about those that nobody launches. It is silent wherever something may
rightly stand in the way: a gang that waits for more nodes, services whose source ends, a fault or a refusal of EC2 a
while ago, nodes of the pool that are starting or leaving, pods with rules about other pods or that Karpenter may launch
for, and node groups of EKS.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.model.capacity import PREPAID, Reservation, ReservationState, SourceKind
from tidemill.model.labels import Taint
from tidemill.model.pods import Pod
from tidemill.model.resources import Resources
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cluster.scheduler_filters import matches_node_affinity, reaches_volumes, untolerated_taint
from tidemill.sim.invariants.capacity import nodes_left
from tidemill.sim.invariants.idle_nodes import Item, replicas_by_source, time_to_use, waiting_items
from tidemill.sim.invariants.money import spent_usd
from tidemill.sim.invariants.services import takes
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool, Provisioner, SourceSpec, matches
from tidemill.spec.units import format_instant

# A pod waits up to fifteen minutes for room that is known to come, a launch rests up to ten after a failure, and a
# node boots; so long again for what is neither.
WAIT_BOUND = timedelta(minutes=45)
# Of money by the hour that lasts for less it is not asked who may have it: a day, and twice what the pod needs.
MONEY_LASTS = timedelta(days=1)
LOOK_EVERY = timedelta(minutes=15)
# After a fault, a refusal or a node that never became Ready launches rest, for an hour at most.
QUIET = timedelta(hours=2)


class LeftWaiting:
    """Since when a node could have been launched for the first of each kind of pods that wait."""

    def __init__(self) -> None:
        self._looked_at: datetime | None = None
        self._since: dict[tuple[str, str], datetime] = {}

    def check(self, truth: Truth) -> Findings:
        now = truth.now()
        if self._looked_at is not None and now < self._looked_at + LOOK_EVERY:
            return
        self._looked_at, before, self._since = now, self._since, {}
        if not truth.cluster.unbound:
            return
        kinds = waiting_items(truth)
        if not kinds or truth.faults_since(now - QUIET):
            return
        gangs = sum(len(items[0]) > 1 for items in kinds)
        pools = [pool for pool in truth.spec.pools.values() if _is_quiet(truth, pool)]
        for items in kinds:
            item = items[0]
            if item[0].shape.sociable or gangs > (len(item) > 1) or _is_karpenters(truth, item[0]):
                continue
            for pool in pools:
                if pool.spec.serves(item[0].namespace) and any(_rooms(truth, pool, item)):
                    key = (item[0].uid, pool.name)
                    since = self._since[key] = before.get(key, now)
                    if truth.able_for(since, now) > WAIT_BOUND:
                        waits = f"could have had a node since {format_instant(since)}"
                        yield 19, (item[0].full_name, pool.name, waits)


def _is_karpenters(truth: Truth, pod: Pod) -> bool:
    """Karpenter may launch for it, and is waited for."""
    return any(
        pool.spec.provisioner is Provisioner.KARPENTER
        and pool.spec.serves(pod.namespace)
        and any(
            _fits(truth, pool, kind, zone, pod)
            for kind in truth.spec.catalog.types.values()
            if matches(kind, pool.spec.requirements)
            for zone in truth.spec.platform.spec.subnets
        )
        for pool in truth.spec.pools.values()
    )


def _is_quiet(truth: Truth, pool: ComputePool) -> bool:
    """Nothing of it starts or leaves, and nothing was refused or failed a while ago."""
    since = truth.now() - QUIET
    # Karpenter launches by itself; an action of EKS that stayed behind may end what a node group launches.
    if pool.spec.provisioner in (Provisioner.KARPENTER, Provisioner.MANAGED):
        return False
    if any(one.at >= since and one.intent.pool == pool.name for one in truth.cloud.refused_launches):
        return False
    for node in truth.cluster.nodes.values():
        if node.pool != pool.name:
            continue
        alive = node.gone_at is None
        if alive and (node.ready_at is None or node.draining_since is not None):
            return False
        if node.ready_at is None and node.gone_at is not None and node.gone_at >= since:
            return False
    return all(
        history.now.id in truth.cluster.nodes for history in truth.ours() if history.now.pool == pool.name
    )


def _rooms(truth: Truth, pool: ComputePool, item: Item) -> Iterator[bool]:
    """Whether each source of a pool has room for all pods of an item, on a node each."""
    prepaid = any(source.type in ("block", "odcr") for source in pool.spec.sources)
    for source in pool.spec.sources:
        if source.type in ("block", "odcr"):
            for held in truth.cloud.all_reservations():
                yield _slots(truth, pool, source, held, item[0]) >= len(item)
        elif source.type == SourceKind.ON_DEMAND.value and not prepaid:
            yield _has_hourly_room(truth, pool, source, item)


def _slots(truth: Truth, pool: ComputePool, source: SourceSpec, held: Reservation, pod: Pod) -> int:
    """Free on a reservation of ours, less those that may be kept for services whose source ends."""
    if held.kind not in PREPAID or held.owner != truth.owner or held.state is not ReservationState.ACTIVE:
        return 0
    if held.pool not in ("", pool.name) or not takes(source, held) or held.unread or held.available < 1:
        return 0
    if pod.pinned_to not in ("", held.source.label):
        return 0
    kind = truth.spec.catalog.types[held.instance_type]
    if not matches(kind, pool.spec.requirements) or not _fits(truth, pool, kind, held.zone, pod):
        return 0
    replicas = replicas_by_source(truth)
    here = replicas.get(held.source.label, [])
    deadline = block_deadline(held, [pool.spec.provisioner.value])
    if deadline is not None and truth.now() + time_to_use(pod, pool, here) > deadline:
        return 0
    free = min(
        held.available, held.count - truth.cloud.used(held.id), nodes_left(truth, pool, kind, truth.now())
    )
    return free - sum(len(pods) for label, pods in replicas.items() if label != held.source.label)


def _has_hourly_room(truth: Truth, pool: ComputePool, source: SourceSpec, item: Item) -> bool:
    budget = truth.spec.platform.spec.budget.monthly_usd
    if item[0].pinned_to not in ("", SourceKind.ON_DEMAND.value) or (
        budget and 2 * spent_usd(truth, truth.now()) > budget
    ):
        return False  # half of the month's money is left: none of it is scarce
    wanted = pool.spec.requirements
    zones = [
        zone
        for zone in truth.spec.platform.spec.subnets
        if (not wanted.zones or zone in wanted.zones) and (not source.zones or zone in source.zones)
    ]
    kinds = [kind for kind in truth.spec.catalog.types.values() if matches(kind, wanted)]
    return any(
        _fits(truth, pool, kind, zone, item[0])
        and nodes_left(truth, pool, kind, truth.now()) >= len(item)
        and _month_pays(truth, pool, kind, item)
        for kind in kinds
        if kind.on_demand_usd_h is not None
        for zone in zones
    )


def _month_pays(truth: Truth, pool: ComputePool, kind: InstanceType, item: Item) -> bool:
    """Twice over, beside what runs: what the month's budget would end too early is rightly not launched, and nothing
    is that takes the money from work that runs."""
    budget, now = truth.spec.platform.spec.budget.monthly_usd, truth.now()
    if not budget:
        return True
    running = sum(history.usd_h for history in truth.ours() if history.shutting_down_at is None)
    rate = running + (kind.on_demand_usd_h or 0.0) * len(item)
    lasts = timedelta(hours=(budget - spent_usd(truth, now)) / rate)
    return lasts > 2 * max(time_to_use(item[0], pool, []), MONEY_LASTS)


def _fits(truth: Truth, pool: ComputePool, kind: InstanceType, zone: str, pod: Pod) -> bool:
    """On an empty node of this type, by the labels that every such node has."""
    labels = {
        **pool.spec.labels,
        names.LABEL_POOL: pool.name,
        names.LABEL_TYPE: kind.name,
        names.LABEL_ZONE: zone,
    }
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.spec.taints)
    free = kind.free_beside(Resources(truth.cluster.daemon_requests))
    return (
        matches_node_affinity(pod.shape, labels)
        and untolerated_taint(pod.shape.tolerations, taints) is None
        and reaches_volumes(pod.shape, labels)
        and all(free.get(name, 0) >= count for name, count in pod.shape.requests)
    )
