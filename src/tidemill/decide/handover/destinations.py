"""Where replicas of a service could go when their source ends: existing nodes, and blocks that start in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateNode, coming_group, ready_group
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.scheduler_rules import admits
from tidemill.decide.service_moves import Span, boots, high, nth_of
from tidemill.model.capacity import (
    PREPAID,
    SECURED_STATES,
    Reservation,
    ReservationState,
    Source,
    SourceKind,
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
            count += how_many(workload.shape, facts.free)
    return count


def how_many(shape: PodShape, free: Resources) -> int:
    """How many replicas fit on one node; with anti-affinity to each other, one."""
    if not free.fits(shape.requests):
        return 0
    return 1 if _one_per_host(shape) else free.count_fitting(shape.requests)


def _one_per_host(shape: PodShape) -> bool:
    return any(term.topology_key == names.LABEL_HOSTNAME for term in shape.anti_affinity)


def may_launch(context: DecisionContext, workload: Workload) -> bool:
    """Nodes paid by the hour may be launched for it: as overflow if it opts in, or because its pool has nothing else.

    Within the limits of its pool. Whether EC2 has them, and the caps leave money for them, shows when they are asked
    for.
    """
    for template in context.templates.values():
        left = _limits_left(context, template)
        kinds = [
            one
            for one in template.kinds.values()
            if left.allows(one) and _on_a_new_node(context, template, one, workload)
        ]
        for kind in (SourceKind.ON_DEMAND, SourceKind.SPOT) if kinds else ():
            if not any(source.type == kind.value for source in template.pool.spec.sources):
                continue
            if not template.accepts(kind, workload.namespace, overflow=workload.terms.overflow):
                continue
            source, zones = Source(kind), sorted(context.spec.platform.spec.subnets)
            for node in kinds:
                for zone in zones:
                    if admits(workload.shape, template.labels(source, node, zone), template.taints):
                        return True
    return False


def _limits_left(context: DecisionContext, template: PoolTemplate) -> Allowance:
    left = Allowance.of(template.pool.spec.limits)
    for (pool, type_), nodes in context.table.counts.items():
        if pool == template.pool.name:
            left.take(context.spec.catalog.types[type_], nodes)
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
            left[name] = _limits_left(context, template)
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


# --- nodes for replicas, existing or to come--------------------------------------------------------

# Nodes of a block are launched within seconds of its start. Missing nodes are estimated anew this often, so that a
# forecast does not change with every second.
LOOK_AGAIN = timedelta(minutes=15)
_PREPAID = tuple(kind.value for kind in PREPAID)


class ReplicaSlots:
    """Nodes on prepaid capacity that outlives a source, the earliest ready first, and what replicas take of them.

    What jobs use of a node counts as free: room is kept for services from the start of the drain on. What other
    services use does not.
    """

    def __init__(
        self,
        context: DecisionContext,
        leaving: Source,
        asked_at: datetime,
        leave_by: datetime,
        onto: Collection[str],
    ) -> None:
        """`asked_at`: when the move begins, and nodes are asked for that nobody keeps up; `onto`: only nodes of these
        reservations; empty: any."""
        self._apart: dict[
            int, set[str]
        ] = {}  # by node: workloads with anti-affinity to themselves that are there
        boots = {name: boots_of(context, one) or [BOOT] for name, one in context.templates.items()}
        nodes: list[CandidateNode] = []
        held: dict[str, int] = {}
        for view in context.views:
            held[view.source.id] = held.get(view.source.id, 0) + 1
            if view.source != leaving and (not onto or view.source.id in onto):
                node = self._of_view(view, leave_by, boots)
                nodes += [node] if node is not None else []
        for template in context.templates.values():
            for wanted in template.pool.spec.sources:
                for reservation in (
                    usable_reservations(context, template.pool, wanted) if wanted.type in _PREPAID else ()
                ):
                    kind = template.kinds.get(reservation.instance_type)
                    if (
                        kind is None
                        or reservation.state not in SECURED_STATES
                        or reservation.source == leaving
                    ):
                        continue
                    end = context.end_of(
                        reservation.source, template.pool.name, template.pool.spec.provisioner
                    )
                    if (onto and reservation.id not in onto) or not outlives(end.drain_from, leave_by):
                        continue
                    group = coming_group(template, reservation.source, kind, reservation.zone, end)
                    launched, boot = launched_at(context, reservation), boots[template.pool.name]
                    if context.comes_when_asked(template, reservation):
                        launched = max(launched, asked_at)
                    count = reservation.count - held.get(reservation.id, 0)
                    held[reservation.id] = reservation.count
                    nodes += [
                        CandidateNode(
                            group,
                            reservation.id,
                            Resources(kind.allocatable),
                            ready_at=launched + nth_of(boot, nth, count),
                        )
                        for nth in range(count)
                    ]
        self._context = context
        self._nodes = sorted(nodes, key=lambda node: (node.ready_at, node.group.source))

    def _of_view(
        self, view: NodeView, leave_by: datetime, boots: Mapping[str, list[timedelta]]
    ) -> CandidateNode | None:
        facts, kube, instance = view.facts, view.node.kube, view.node.instance
        if (
            facts.template is None
            or facts.kind is None
            or instance is None
            or view.source.kind not in PREPAID
        ):
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
        if view.phase is Phase.READY and kube is not None:
            group, ready_at = ready_group(view, facts.labels), kube.opened_at or kube.joined_at
        else:
            end = End(view.deadline, view.drain_from)
            group = coming_group(facts.template, view.source, facts.kind, instance.zone, end)
            ready_at = instance.launched_at + high(boots[facts.template.pool.name])
        node = CandidateNode(group, view.node.name, free, view, ready_at)
        self._apart[id(node)] = {pod.workload for pod in facts.movers if pod.shape.anti_affinity}
        return node

    def comes_when_asked(self, node: CandidateNode) -> bool:
        """Nobody launches it before a replica is pending."""
        one, template = self._context.reservations.get(node.group.source.id), node.group.template
        if node.view is not None or one is None or template is None:
            return False
        return self._context.comes_when_asked(template, one)

    def take(self, workload: Workload) -> CandidateNode | None:
        """The first node that one more replica fits on; its resources are taken from then on."""
        for node in self._nodes:
            apart = self._apart.setdefault(id(node), set())
            if workload.name in apart or not how_many(workload.shape, node.free):
                continue
            if node.group.accepts(workload.shape, workload.namespace, overflow=workload.terms.overflow):
                node.free.subtract_pod(workload.shape.requests)
                if _one_per_host(workload.shape):
                    apart.add(workload.name)
                return node
        return None


def launched_at(context: DecisionContext, one: Reservation) -> datetime:
    """When a slot without a node gets one. Where EC2 still cleans up after the last instance, within minutes. Whoever
    asks has an estimate that is good for so long, and the context knows of which reservations there is one."""
    if one.available:
        context.estimated[one.id] = one
    if one.start >= context.now or not one.available:
        return one.start
    return one.start + (context.now - one.start) // LOOK_AGAIN * LOOK_AGAIN
