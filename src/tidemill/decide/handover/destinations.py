"""Where replicas of a service could go when their source ends: existing nodes, and blocks that start in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.decide.context import DecisionContext
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.scheduler_rules import admits
from tidemill.decide.service_moves import Span, boots, high
from tidemill.model.capacity import (
    PREPAID,
    SECURED_STATES,
    Reservation,
    ReservationState,
    Source,
)
from tidemill.model.pods import PodShape, Workload
from tidemill.model.resources import Resources
from tidemill.spec import names
from tidemill.spec.compute_pool import Allowance

# Paid for. One whose payment is pending may still fail: nothing is kept waiting for it.


def boot_of(context: DecisionContext, template: PoolTemplate) -> Span:
    """How long nodes of a pool take from launch to Ready. Nine of ten are quicker."""
    taken = boots_of(context, template)
    return Span(high(taken), "measured", len(taken)) if taken else Span(BOOT, "default")


def boots_of(context: DecisionContext, template: PoolTemplate) -> list[timedelta]:
    """Measured on its own nodes, or else on nodes of the same types elsewhere."""
    own = boots(view.node for view in context.views if view.facts.template is template)
    kinds = template.kinds
    return own or boots(
        view.node for view in context.views if view.facts.kind and view.facts.kind.name in kinds
    )


def outlives(until: datetime | None, leave_by: datetime) -> bool:
    return until is None or until > leave_by


def ready_room(
    context: DecisionContext, workload: Workload, leave_by: datetime, avoid: Collection[Source]
) -> int:
    """How many replicas the nodes that are Ready and stay could take now."""
    count = 0
    for view in context.views:
        facts, kube = view.facts, view.node.kube
        if view.phase is not Phase.READY or view.ending or facts.cordoned or view.source in avoid:
            continue
        if kube is None or facts.template is None or not outlives(view.drain_from, leave_by):
            continue
        if not facts.template.accepts(view.source.kind, workload.namespace, overflow=workload.terms.overflow):
            continue
        if admits(workload.shape, facts.labels, kube.taints):
            count += how_many(workload.shape, _free_for(view, workload))
    return count


def _free_for(view: NodeView, workload: Workload) -> Resources:
    """On nodes by the hour no room is kept for services. Pending, a replica of higher priority has that of jobs: it is
    kube-scheduler that preempts them."""
    below = [
        pod
        for pod in view.pods
        if pod.terms.priority < workload.terms.priority and pod not in view.facts.movers
    ]
    if view.source.kind in PREPAID or not below:
        return view.facts.free
    free = Resources(view.facts.free)
    for pod in below:
        free.add_pod(pod.shape.requests)
    return free


def how_many(shape: PodShape, free: Resources) -> int:
    """How many replicas fit on one node; with anti-affinity to each other, one."""
    if not free.fits(shape.requests):
        return 0
    return 1 if one_per_host(shape) else free.count_fitting(shape.requests)


def one_per_host(shape: PodShape) -> bool:
    return any(term.topology_key == names.LABEL_HOSTNAME for term in shape.anti_affinity)


def limits_left(context: DecisionContext, template: PoolTemplate) -> Allowance:
    """What its limits still allow, nodes that are on their way counted."""
    left = Allowance.of(template.pool.spec.limits)
    for (pool, type_), nodes in context.table.counts.items():
        if pool == template.pool.name:
            left.take(context.spec.catalog.types[type_], nodes)
    for intent in context.world.launches:
        kind = context.spec.catalog.types.get(intent.instance_type)
        if intent.pool == template.pool.name and intent.in_flight and kind is not None:
            seen = sum(
                node.instance is not None and node.instance.intent_id == intent.id
                for node in context.world.nodes
            )
            left.take(kind, max(0, intent.in_flight - seen))
    return left


def room_when_asked(
    context: DecisionContext, workload: Workload, leave_by: datetime, avoid: Collection[Source]
) -> int:
    """How many replicas would find room on prepaid nodes that are launched only for pending pods, within the limits of
    their pools. What fails to launch shows when it is asked for."""
    count, left = 0, dict[str, Allowance]()
    for template, one in successors(context, workload, leave_by, avoid):
        if one.state is not ReservationState.ACTIVE or not context.comes_when_asked(template, one):
            continue
        name, kind = template.pool.name, template.kinds[one.instance_type]
        if name not in left:
            left[name] = limits_left(context, template)
        nodes = int(min(one.available, left[name].most(kind)))
        left[name].take(kind, nodes)
        count += nodes * _on_a_new_node(context, template, kind, workload)
    return count


def room_coming(
    context: DecisionContext, workload: Workload, leave_by: datetime, avoid: Collection[Source], by: datetime
) -> int:
    """How many replicas will find room on prepaid nodes that come by themselves by then, and are not Ready yet."""
    ready = Counter(view.source for view in context.views if view.phase is Phase.READY)
    count = 0
    for template, one in successors(context, workload, leave_by, avoid):
        if one.state is ReservationState.ACTIVE and context.comes_when_asked(template, one):
            continue
        boot = boot_of(context, template).length
        if max(one.start, context.now - boot) + boot <= by:
            nodes = max(0, one.count - ready[one.source])
            count += nodes * _on_a_new_node(context, template, template.kinds[one.instance_type], workload)
    return count


def _on_a_new_node(
    context: DecisionContext, template: PoolTemplate, kind: InstanceType, workload: Workload
) -> int:
    daemons = context.table.daemons.get(template.pool.name) or Resources(USUAL_DAEMONS)
    return how_many(workload.shape, kind.free_beside(daemons))


def successors(
    context: DecisionContext, workload: Workload, leave_by: datetime, avoid: Collection[Source]
) -> Iterator[tuple[PoolTemplate, Reservation]]:
    """Prepaid capacity, active or scheduled, that outlives the source and that the service may use."""
    for name, template in context.templates.items():
        for wanted in template.pool.spec.sources:
            if wanted.type not in ("block", "odcr") or not template.pool.spec.serves(workload.namespace):
                continue
            for reservation in usable_reservations(context, template.pool, wanted):
                kind = template.kinds.get(reservation.instance_type)
                if kind is None or reservation.state not in SECURED_STATES or reservation.source in avoid:
                    continue
                end = context.end_of(reservation.source, name, template.pool.spec.provisioner)
                if not outlives(end.drain_from, leave_by):
                    continue
                labels = template.labels(reservation.source, kind, reservation.zone)
                if admits(workload.shape, labels, template.taints):
                    yield template, reservation
