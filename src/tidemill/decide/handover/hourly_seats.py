"""How many replicas nodes paid by the hour could take, by the very rules of a launch: limits, caps, money that lasts.

What one service takes the next does not get. Whether EC2 has the nodes shows when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import NO_END, End
from tidemill.decide.handover.destinations import how_many, limits_left, one_per_host, outlives
from tidemill.decide.overflow import hourly_rate, money_left_usd
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import (
    CandidateGroup,
    coming_group,
    daemon_overhead,
    ready_group,
)
from tidemill.decide.placement.eligibility import refusal
from tidemill.decide.placement.launch_options import LaunchOption, hourly_options
from tidemill.decide.queue_item import QueueItem
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Pod, PodPhase, Workload
from tidemill.model.resources import Resources


@dataclass(slots=True, eq=False)
class HourlyNode:
    """One that is up or on its way, or that would be launched. `apart`: workloads on it with anti-affinity to
    themselves."""

    group: CandidateGroup
    free: Resources
    is_new: bool = False
    apart: set[str] = field(default_factory=set)

    def fits(self, workload: Workload) -> bool:
        if workload.name in self.apart or not how_many(workload.shape, self.free):
            return False
        return self.group.accepts(workload.shape, workload.namespace, overflow=workload.terms.overflow)


def may_launch(context: DecisionContext, workload: Workload) -> bool:
    """A node paid by the hour may be launched for it now: as overflow if it opts in, or because its pool has nothing
    else."""
    return HourlySeats(context).launch(workload) is not None


class HourlySeats:
    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._options: list[LaunchOption] | None = None
        self._nodes: list[HourlyNode] | None = None

    def take(self, workload: Workload, leave_by: datetime) -> HourlyNode | None:
        """One more replica of it: on a node that is there, or on one more. `leave_by`: what ends before takes nobody
        over."""
        if self._nodes is None:
            self._nodes = list(_there(self._context))
        for node in self._nodes:
            if outlives(node.group.end.drain_from, leave_by) and node.fits(workload):
                return _seat(node, workload)
        launched = self.launch(workload)
        if launched is None:
            return None
        self._nodes.append(launched)
        return _seat(launched, workload)

    def launch(self, workload: Workload) -> HourlyNode | None:
        item = _item(self._context, workload)
        tried: set[tuple[object, ...]] = set()
        for option in self._all():
            key = (option.till, option.kind.name)
            if key in tried or not admits(item.shape, option.labels, option.template.taints):
                continue
            tried.add(key)  # zones differ in nothing that is not admitted above
            if refusal(self._context, item, option) is None:
                option.open()
                group = coming_group(option.template, option.source, option.kind, option.zone, NO_END)
                return HourlyNode(group, Resources(option.free), is_new=True)
        return None

    def _all(self) -> list[LaunchOption]:
        """In the order in which placement prefers them."""
        if self._options is None:
            self._options = sorted(
                self._find(), key=lambda one: (one.order, one.usd_h, one.kind.name, one.zone)
            )
        return self._options

    def _find(self) -> Iterator[LaunchOption]:
        context, daemons = self._context, daemon_overhead(self._context)
        for name, template in context.templates.items():
            left = limits_left(context, template)
            for wanted in template.pool.spec.sources:
                if wanted.type not in PREPAID:
                    yield from hourly_options(context, template, wanted, left, daemons[name])


def _there(context: DecisionContext) -> Iterator[HourlyNode]:
    for view in context.views:
        facts, kube, instance = view.facts, view.node.kube, view.node.instance
        if view.source.kind in PREPAID or facts.template is None or facts.kind is None or instance is None:
            continue
        if view.ending or facts.cordoned or view.phase is Phase.DRAINING:
            continue
        if view.phase is Phase.READY and kube is not None:
            group, free = ready_group(view, facts.labels), Resources(facts.free)
        else:
            end = End(view.deadline, view.drain_from)
            group = coming_group(facts.template, view.source, facts.kind, instance.zone, end)
            free = facts.kind.free_beside(facts.daemons)
        yield HourlyNode(group, free, apart={pod.workload for pod in facts.movers if pod.shape.anti_affinity})


def _seat(node: HourlyNode, workload: Workload) -> HourlyNode:
    node.free.subtract_pod(workload.shape.requests)
    if one_per_host(workload.shape):
        node.apart.add(workload.name)
    return node


def _item(context: DecisionContext, workload: Workload) -> QueueItem:
    """One replica of it, as it would wait."""
    pod = Pod(
        uid="", namespace=workload.namespace, name="", shape=workload.shape, terms=workload.terms,
        phase=PodPhase.PENDING, created_at=context.now, workload=workload.name,
    )  # fmt: skip
    return QueueItem((pod,), None, gated=False)


def money_read(context: DecisionContext) -> tuple[object, ...]:
    """What of the hourly money decides how many seats there are; empty where no service may use it."""
    if not any(workload.terms.overflow for workload in context.workloads.values()):
        return ()
    spec, world = context.spec, context.world
    found: list[object] = [hourly_rate(spec, world, None, None)]
    for name, template in context.templates.items():
        for kind, source in template.limited.items():
            if source is not None:
                found.append(hourly_rate(spec, world, name, kind))
                found.append(money_left_usd(spec, world, source, name, kind))
    return tuple(found)
