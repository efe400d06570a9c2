"""Prepaid nodes that replicas can have once their source ends: those that are up, on their way, or still to come.

Every service of a forecast takes from the same nodes, whichever source it leaves: the first to leave comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.handover.destinations import boots_of, how_many, limits_left, one_per_host, outlives
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import (
    BOOT,
    CandidateGroup,
    coming_group,
    daemon_overhead,
    ready_group,
)
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.service_moves import high, nth_of
from tidemill.model.capacity import PREPAID, SECURED_STATES, Reservation, Source
from tidemill.model.pods import Workload
from tidemill.model.resources import Resources
from tidemill.spec.compute_pool import Allowance

# Nodes of a block are launched within seconds of its start. Missing nodes are estimated anew this often, so that a
# forecast does not change with every second.
LOOK_AGAIN = timedelta(minutes=15)


@dataclass(slots=True, eq=False)
class ReplicaNode:
    """A node that replicas could go to. `kind` set: it is not launched yet; `boot`: how long it takes from then."""

    group: CandidateGroup
    free: Resources
    ready_at: datetime  # of one that is not launched yet: launched at
    kind: InstanceType | None = None
    boot: timedelta = timedelta(0)
    when_asked: bool = False  # nobody launches it before a replica is pending
    apart: set[str] = field(default_factory=set)  # workloads with anti-affinity to themselves that are there

    @property
    def source(self) -> Source:
        return self.group.source

    def fits(self, workload: Workload) -> bool:
        if workload.name in self.apart or not how_many(workload.shape, self.free):
            return False
        return self.group.accepts(workload.shape, workload.namespace, overflow=workload.terms.overflow)

    def seat(self, workload: Workload) -> None:
        self.free.subtract_pod(workload.shape.requests)
        if one_per_host(workload.shape):
            self.apart.add(workload.name)


class PrepaidNodes:
    """All of them, as things stand. What jobs use of a node counts as free: room is kept for services from the start of
    a drain on. What other services use does not."""

    def __init__(self, context: DecisionContext) -> None:
        self.context = context
        boots = {name: boots_of(context, one) or [BOOT] for name, one in context.templates.items()}
        held: dict[str, int] = {}
        self.nodes: list[ReplicaNode] = []
        for view in context.views:
            held[view.source.id] = held.get(view.source.id, 0) + 1
            if (node := _of_view(view, boots)) is not None:
                self.nodes.append(node)
        self.nodes += _to_come(context, held, boots)


def _to_come(
    context: DecisionContext, held: dict[str, int], boots: Mapping[str, list[timedelta]]
) -> Iterator[ReplicaNode]:
    daemons = daemon_overhead(context)
    for name, template in context.templates.items():
        for wanted in template.pool.spec.sources:
            for one in usable_reservations(context, template.pool, wanted) if wanted.type in PREPAID else ():
                kind = template.kinds.get(one.instance_type)
                if kind is None or one.state not in SECURED_STATES:
                    continue
                end = context.end_of(one.source, name, template.pool.spec.provisioner)
                group = coming_group(template, one.source, kind, one.zone, end)
                launched, when_asked = launched_at(context, one), context.comes_when_asked(template, one)
                count = one.count - held.get(one.id, 0)
                held[one.id] = one.count
                for nth in range(count):
                    boot, free = nth_of(boots[name], nth, count), kind.free_beside(daemons[name])
                    yield ReplicaNode(group, free, launched, kind, boot, when_asked)


def _of_view(view: NodeView, boots: Mapping[str, list[timedelta]]) -> ReplicaNode | None:
    facts, kube, instance = view.facts, view.node.kube, view.node.instance
    if facts.template is None or facts.kind is None or instance is None or view.source.kind not in PREPAID:
        return None
    if view.ending or facts.cordoned or view.phase is Phase.DRAINING:
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
    apart = {pod.workload for pod in facts.movers if pod.shape.anti_affinity}
    return ReplicaNode(group, free, ready_at, apart=apart)


class ReplicaSlots:
    """Those that outlive one source, the earliest ready first, and what replicas take of them.

    A pool at its limits launches the rest only when nodes that end by then are gone.
    """

    def __init__(
        self,
        prepaid: PrepaidNodes,
        leaving: Source,
        asked_at: datetime,
        leave_by: datetime,
        onto: Collection[str],
    ) -> None:
        """`asked_at`: when the move begins, and nodes are asked for that nobody keeps up; `onto`: only nodes of these
        reservations; empty: any."""
        self._asked_at, self._leave_by = asked_at, leave_by
        self._limits: dict[str, tuple[Allowance, Allowance]] = {}
        self._context = prepaid.context
        found: list[tuple[datetime, ReplicaNode]] = []
        for node in prepaid.nodes:
            if node.source == leaving or not outlives(node.group.end.drain_from, leave_by):
                continue
            ready_at = node.ready_at if node.kind is None else self._comes_at(node, node.kind)
            if ready_at is not None and (not onto or node.source.id in onto):
                found.append((ready_at, node))
        self._nodes = sorted(found, key=lambda one: (one[0], one[1].source))

    def _comes_at(self, node: ReplicaNode, kind: InstanceType) -> datetime | None:
        """When it is Ready; None: the limits of its pool do not allow it."""
        template = node.group.template
        assert template is not None
        name = template.pool.name
        if name not in self._limits:
            self._limits[name] = self._limits_of(template)
        now, later = self._limits[name]
        launched = max(node.ready_at, self._asked_at) if node.when_asked else node.ready_at
        if now.allows(kind):
            now.take(kind)
        elif later.allows(kind):
            launched = max(launched, self._leave_by)
        else:
            return None
        later.take(kind)
        return launched + node.boot

    def _limits_of(self, template: PoolTemplate) -> tuple[Allowance, Allowance]:
        """As it is now, and with the nodes given back that end no later than the source."""
        later = limits_left(self._context, template)
        for view in self._context.views:
            mine = view.facts.kind if view.facts.template is template else None
            if mine is not None and not outlives(view.drain_from, self._leave_by):
                later.take(mine, -1)
        return limits_left(self._context, template), later

    def take(self, workload: Workload) -> tuple[datetime, ReplicaNode] | None:
        """The first node that one more replica fits on, and when it is Ready; its resources are taken from then on."""
        for ready_at, node in self._nodes:
            if node.fits(workload):
                node.seat(workload)
                return ready_at, node
        return None


def launched_at(context: DecisionContext, one: Reservation) -> datetime:
    """When a slot without a node gets one. Where EC2 still cleans up after the last instance, within minutes. Whoever
    asks has an estimate that is good for so long, and the context knows of which reservations there is one."""
    if one.available:
        context.estimated[one.id] = one
    if one.start >= context.now or not one.available:
        return one.start
    return one.start + (context.now - one.start) // LOOK_AGAIN * LOOK_AGAIN
