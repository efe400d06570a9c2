"""Places that replicas could take when their source ends, each with the instant from which it can.

What jobs use of a node counts as free: room is kept for services from the start of the drain on. What other services
use does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.handover.destinations import boots_of, how_many, outlives
from tidemill.decide.handover.durations import high, nth_of
from tidemill.decide.overflow import PREPAID
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidates import BOOT
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import SECURED_STATES, Reservation, Source
from tidemill.model.labels import Taint
from tidemill.model.pods import Workload
from tidemill.model.resources import Resources
from tidemill.spec import names

# Blocks are launched into within seconds of their start; what is not there yet is looked at anew this often, so
# that what is said about it does not change with every second.
LOOK_AGAIN = timedelta(minutes=15)


@dataclass(slots=True, eq=False)
class ReplicaSlot:
    """A node, there or to come."""

    at: datetime
    source: Source
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    template: PoolTemplate
    free: Resources
    apart: set[str]  # workloads that keep apart from their like, and are here


def replica_slots(
    context: DecisionContext, leaving: Source, leave_by: datetime, onto: Collection[str]
) -> list[ReplicaSlot]:
    """On prepaid capacity that outlives the source, the earliest first. `onto`: only these reservations; empty: any."""
    found: list[ReplicaSlot] = []
    held: dict[str, int] = {}
    boots = {name: boots_of(context, one) or [BOOT] for name, one in context.templates.items()}
    for view in context.views:
        held[view.source.id] = held.get(view.source.id, 0) + 1
        if view.source != leaving and (not onto or view.source.id in onto):
            seat = _of_life(context, view, leave_by, boots)
            found += [seat] if seat is not None else []
    for template in context.templates.values():
        for wanted in template.pool.spec.sources:
            for one in usable_reservations(context, template.pool, wanted) if wanted.type in _PREPAID else ():
                kind = template.kinds.get(one.instance_type)
                if (
                    kind is None
                    or one.state not in SECURED_STATES
                    or one.source == leaving
                    or (onto and one.id not in onto)
                ):
                    continue
                end = context.end_of(one.source, template.pool.name, template.pool.spec.provisioner)
                if outlives(end.drain_from, leave_by):
                    at, taken = launched_at(context, one), boots[template.pool.name]
                    count = one.count - held.get(one.id, 0)
                    held[one.id] = one.count
                    found += [
                        _to_come(template, kind, one, at + nth_of(taken, n, count)) for n in range(count)
                    ]
    return sorted(found, key=lambda seat: (seat.at, seat.source))


_PREPAID = tuple(kind.value for kind in PREPAID)


def take(seats: list[ReplicaSlot], workload: Workload) -> ReplicaSlot | None:
    """The first seat that one replica could have; it is taken from then on."""
    for seat in seats:
        if not seat.template.pool.spec.serves(workload.namespace) or workload.name in seat.apart:
            continue
        if how_many(workload.shape, seat.free) and admits(workload.shape, seat.labels, seat.taints):
            seat.free.subtract_pod(workload.shape.requests)
            if any(term.topology_key == names.LABEL_HOSTNAME for term in workload.shape.anti_affinity):
                seat.apart.add(workload.name)
            return seat
    return None


def launched_at(context: DecisionContext, one: Reservation) -> datetime:
    """When a slot of it that holds no node yet gets one. Where EC2 still cleans up after the last, within minutes."""
    if one.start >= context.now or not one.available:
        return one.start
    return one.start + (context.now - one.start) // LOOK_AGAIN * LOOK_AGAIN


def _of_life(
    context: DecisionContext, view: NodeView, leave_by: datetime, boots: Mapping[str, list[timedelta]]
) -> ReplicaSlot | None:
    facts, kube, instance = view.facts, view.node.kube, view.node.instance
    if facts.template is None or facts.kind is None or instance is None or view.source.kind not in PREPAID:
        return None
    if (
        view.ending
        or facts.cordoned
        or view.phase is Phase.DRAINING
        or not outlives(view.drain_from, leave_by)
    ):
        return None
    free = facts.kind.free_beside(facts.daemons)
    for pod in facts.movers:
        free.subtract_pod(pod.shape.requests)
    apart = {pod.workload for pod in facts.movers if pod.shape.anti_affinity}
    if view.phase is Phase.READY and kube is not None:
        at = kube.opened_at or kube.joined_at
        return ReplicaSlot(at, view.source, facts.labels, kube.taints, facts.template, free, apart)
    labels = facts.template.labels(view.source, facts.kind, instance.zone)
    at = instance.launched_at + high(boots[facts.template.pool.name])
    return ReplicaSlot(at, view.source, labels, facts.template.taints, facts.template, free, apart)


def _to_come(template: PoolTemplate, kind: InstanceType, one: Reservation, at: datetime) -> ReplicaSlot:
    labels = template.labels(one.source, kind, one.zone)
    return ReplicaSlot(at, one.source, labels, template.taints, template, Resources(kind.allocatable), set())
