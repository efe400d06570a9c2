"""Where replicas of a service could go when their source ends: nodes that are up, and blocks that will be there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.handover.durations import Span, boots, high
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidates import BOOT
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import SECURED_STATES, Reservation, Source, SourceKind
from tidemill.model.pods import PodShape, Workload
from tidemill.model.resources import Resources
from tidemill.spec import names

# Paid for. One whose payment is pending may still fail: nothing is kept waiting for it.


def boot_of(context: DecisionContext, template: PoolTemplate) -> Span:
    """How long nodes of a pool take from launch to work. Nine of ten are quicker."""
    taken = boots_of(context, template)
    return Span(high(taken), "measured", len(taken)) if taken else Span(BOOT, "default")


def boots_of(context: DecisionContext, template: PoolTemplate) -> list[timedelta]:
    """As its own nodes took, or else those of the same types elsewhere."""
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
    """How many replicas the nodes that are Ready, and stay, could take now."""
    count = 0
    for view in context.views:
        facts, kube = view.facts, view.node.kube
        if view.phase is not Phase.READY or view.ending or facts.cordoned or view.source in avoid:
            continue
        if kube is None or not outlives(view.drain_from, leave_by) or not may_use(view, workload):
            continue
        if admits(workload.shape, facts.labels, kube.taints):
            count += how_many(workload.shape, facts.free)
    return count


def may_use(view: NodeView, workload: Workload) -> bool:
    template = view.facts.template
    if template is None or not template.pool.spec.serves(workload.namespace):
        return False
    return template.overflow[view.source.kind] is None or workload.terms.overflow


def how_many(shape: PodShape, free: Resources) -> int:
    """Replicas beside each other on one node; of those that keep apart from their like, one."""
    if not free.fits(shape.requests):
        return 0
    if any(term.topology_key == names.LABEL_HOSTNAME for term in shape.anti_affinity):
        return 1
    return free.count_fitting(shape.requests)


def may_launch(context: DecisionContext, workload: Workload) -> bool:
    """Nodes paid by the hour may be launched for it: as overflow if it opts in, or because its pool has nothing else.

    Whether EC2 has them, and the caps leave money for them, shows when they are asked for.
    """
    for template in context.templates.values():
        for kind in (SourceKind.ON_DEMAND, SourceKind.SPOT):
            if not any(source.type == kind.value for source in template.pool.spec.sources):
                continue
            if template.overflow[kind] is not None and not workload.terms.overflow:
                continue
            source, zones = Source(kind), sorted(context.spec.platform.spec.subnets)
            for node in template.kinds.values():
                for zone in zones:
                    if admits(workload.shape, template.labels(source, node, zone), template.taints):
                        return True
    return False


def successors(
    context: DecisionContext, workload: Workload, leave_by: datetime, avoid: Collection[Source]
) -> Iterator[tuple[PoolTemplate, Reservation]]:
    """Prepaid capacity, there or to come, that outlives the source and whose nodes the service may use."""
    for name, template in context.templates.items():
        for wanted in template.pool.spec.sources:
            if wanted.type not in ("block", "odcr"):
                continue
            for one in usable_reservations(context, template.pool, wanted):
                kind = template.kinds.get(one.instance_type)
                if kind is None or one.state not in SECURED_STATES or one.source in avoid:
                    continue
                end = context.end_of(one.source, name, template.pool.spec.provisioner)
                if not outlives(end.drain_from, leave_by):
                    continue
                labels = template.labels(one.source, kind, one.zone)
                if admits(workload.shape, labels, template.taints):
                    yield template, one
