"""Priority is honoured on full nodes: resumable work of a lower priority saves its work and leaves, as in a drain.

Left to kube-scheduler nothing would happen: it never sees a pod that is gated. Who leaves is not remembered. Pods that
were asked for their checkpoint are the first to be chosen again, and once they are gone the pod that waits is the first
in the queue; until then its nodes are kept like those of anybody who is next (`placement.backfill`). Nobody leaves who
would lose more than what it does between two checkpoints, and nobody for a pod that can start in time without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End, pod_lead
from tidemill.decide.disruption.budgets import await_checkpoint, is_protected
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.queue_item import QueueItem, finished_at, lasts
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import Source
from tidemill.model.plan import Evict
from tidemill.model.pods import Pod
from tidemill.model.reasons import EvictReason, HoldKind, HoldReason, StepKind, StepReason
from tidemill.model.resources import Resources

Where = tuple[Source, str]  # a source in a zone: a gang is on one


@dataclass(slots=True)
class _Victims:
    """Those who leave for one item, and from which nodes."""

    where: Where
    views: list[NodeView] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)  # by uid

    @property
    def cost(self) -> tuple[int, int, int]:
        """The highest priority that must yield, how many were not asked yet, and what they use."""
        pods = self.pods.values()
        return (
            max((pod.terms.priority for pod in pods), default=0),
            sum(pod.checkpoint_requested_at is None and pod.deleting_until is None for pod in pods),
            sum(sum(amount for name, amount in pod.shape.requests if "/" in name) for pod in pods),
        )


def preempt(context: DecisionContext) -> None:
    """For each item that found no place, in the order of the queue."""
    lowest: int | None = None
    taken: set[int] = set()  # identities of views that are vacated for an item
    for item in context.waiting:
        if item.pinned_to or item in context.placed_items:
            continue
        if lowest is None:
            lowest = min((pod.terms.priority for view in context.views for pod in view.pods), default=0)
        if item.terms.priority <= lowest:
            break  # the others have no higher one
        if not item.gated or not item.alike or item.sociable:
            continue
        victims = _victims(context, item, taken)
        if victims is not None:
            taken |= {id(view) for view in victims.views}
            _ask(context, item, victims)


def _victims(context: DecisionContext, item: QueueItem, taken: set[int]) -> _Victims | None:
    found: dict[Where, list[tuple[NodeView, int, list[Pod]]]] = {}
    soonest: dict[Where, list[tuple[datetime, int]]] = {}
    for view in context.views:
        instance = view.node.instance
        if id(view) in taken or instance is None or not _may_run(context, item, view):
            continue
        where = (view.source, instance.zone)
        count, leaving = _leaving(context, item, view)
        if count:
            found.setdefault(where, []).append((view, count, leaving))
        soonest.setdefault(where, []).extend(_comes_free(context, item, view))
    if not found or _starts_in_time(context, item, soonest):
        return None
    choices = (_choose(context, item, where, nodes) for where, nodes in found.items())
    return min(
        (one for one in choices if one is not None), key=lambda one: (one.cost, one.where[1]), default=None
    )


def _may_run(context: DecisionContext, item: QueueItem, view: NodeView) -> bool:
    facts, kube = view.facts, view.node.kube
    if (
        view.phase is not Phase.READY
        or view.ending
        or facts.cordoned
        or facts.template is None
        or kube is None
    ):
        return False
    pool = facts.template.pool
    return (
        pool.spec.preempt_after is not None
        and facts.template.accepts(facts.source.kind, item.pods[0].namespace, overflow=item.terms.overflow)
        and admits(item.shape, facts.labels, kube.taints)
        and lasts(item, End(view.deadline, view.drain_from), pool, context.now + _time_to_leave(view, item))
    )


def _time_to_leave(view: NodeView, item: QueueItem) -> timedelta:
    checkpoint = view.pool is None or view.pool.spec.drain.checkpoint
    leads = (
        pod_lead(pod, checkpoint=checkpoint) for pod in view.pods if pod.terms.priority < item.terms.priority
    )
    return max(leads, default=timedelta(0))


def _leaving(context: DecisionContext, item: QueueItem, view: NodeView) -> tuple[int, list[Pod]]:
    """How many pods of the item fit once so many have left. As few as make room for one."""
    room, leaving = Resources(view.facts.free), []
    for pod in sorted(_may_leave(context, item, view), key=_order):
        if room.fits(item.shape.requests):
            break
        room.add_pod(pod.shape.requests)
        leaving.append(pod)
    return room.count_fitting(item.shape.requests), leaving


def _order(pod: Pod) -> tuple[object, ...]:
    """Who leaves anyway, who was asked, then the lowest priority and the youngest."""
    asked = pod.checkpoint_requested_at is not None
    return (pod.deleting_until is None, not asked, pod.terms.priority, -pod.created_at.timestamp(), pod.name)


def _may_leave(context: DecisionContext, item: QueueItem, view: NodeView) -> Iterator[Pod]:
    for pod in view.pods:
        if pod.deleting_until is not None or (
            pod.terms.priority < item.terms.priority
            and pod.of_job
            and pod.terms.checkpoint_every is not None
            and pod.started_at is not None
            and not is_protected(context, pod)
        ):
            yield pod


def _comes_free(context: DecisionContext, item: QueueItem, view: NodeView) -> list[tuple[datetime, int]]:
    """When it could take pods of the item if nobody is asked to leave, and how many; empty: nobody knows."""
    room, requests = Resources(view.facts.free), item.shape.requests
    if room.fits(requests):
        return [(context.now, room.count_fitting(requests))]
    ends = ((_ends(context, view, pod), pod) for pod in view.pods)
    for end, pod in sorted(
        ((end, pod) for end, pod in ends if end is not None), key=lambda one: (one[0], one[1].name)
    ):
        room.add_pod(pod.shape.requests)
        if room.fits(requests):
            return [(end, room.count_fitting(requests))]
    return []


def _ends(context: DecisionContext, view: NodeView, pod: Pod) -> datetime | None:
    return pod.deleting_until or finished_at(pod, view.pool, context.now)


def _starts_in_time(
    context: DecisionContext, item: QueueItem, soonest: dict[Where, list[tuple[datetime, int]]]
) -> bool:
    """Whether it need not wait longer than its pools say. Where no end is known it waits that long first."""
    patience = min(
        template.pool.spec.preempt_after
        for template in context.templates.values()
        if template.pool.spec.preempt_after is not None
    )
    latest, known = item.pods[0].created_at + patience, False
    for free in soonest.values():
        missing = len(item.pods)
        for at, count in sorted(free):
            missing -= count
            if missing <= 0:
                known = True
                if at <= latest:
                    return True
                break
    if not known and context.now < latest:
        context.wake(latest)
        return True
    return False


def _choose(
    context: DecisionContext, item: QueueItem, where: Where, nodes: list[tuple[NodeView, int, list[Pod]]]
) -> _Victims | None:
    """The nodes whose pods cost least to stop, until the whole item fits. A gang stops as a whole."""
    chosen, missing = _Victims(where), len(item.pods)
    cheapest = sorted(
        nodes, key=lambda one: (_Victims(where, [], {p.uid: p for p in one[2]}).cost, one[0].node.name)
    )
    for view, count, leaving in cheapest:
        if missing <= 0:
            break
        together = [other for pod in leaving for other in _whole(context, pod)]
        if any(not _can_stop(context, item, pod) for pod in together):
            continue
        missing -= count
        chosen.views.append(view)
        chosen.pods |= {pod.uid: pod for pod in together}
    return chosen if missing <= 0 and chosen.pods else None


def _can_stop(context: DecisionContext, item: QueueItem, pod: Pod) -> bool:
    if pod.deleting_until is not None:
        return True
    return pod.terms.priority < item.terms.priority and not is_protected(context, pod)


def _whole(context: DecisionContext, pod: Pod) -> list[Pod]:
    if pod.gang is None:
        return [pod]
    return [
        other
        for other in context.world.pods
        if other.gang is not None
        and (other.namespace, other.gang.name) == (pod.namespace, pod.gang.name)
        and other.node
    ]


def _ask(context: DecisionContext, item: QueueItem, victims: _Victims) -> None:
    name = item.pods[0].full_name
    allowed = {budget.workload: budget.allowed for budget in context.world.budgets}
    for pod in sorted(victims.pods.values(), key=lambda pod: pod.full_name):
        if pod.deleting_until is not None:
            continue
        asks = victims.views[0].pool is None or victims.views[0].pool.spec.drain.checkpoint
        if asks and await_checkpoint(context, pod, StepReason(StepKind.PREEMPTED, name)):
            continue
        if pod.workload in allowed:
            if allowed[pod.workload] <= 0:
                continue
            allowed[pod.workload] -= 1
        unanswered = pod.checkpoint_requested_at is not None and pod.checkpoint_done_at is None
        context.do(Evict(pod.uid, EvictReason(None, unanswered, preempted_by=name)))
    _tell(context, item, victims)


def _tell(context: DecisionContext, item: QueueItem, victims: _Victims) -> None:
    leave = max(_gone_at(context, pod) for pod in victims.pods.values())
    reason = HoldReason(HoldKind.PREEMPTING, name=victims.where[0].label, count=len(victims.pods), at=leave)
    for pod in item.pods:
        context.told_instead[pod.uid] = context.unmet_of(pod, "held", reason, leave)


def _gone_at(context: DecisionContext, pod: Pod) -> datetime:
    """As late as its lead allows: from when it was asked."""
    if pod.deleting_until is not None:
        return pod.deleting_until
    return (pod.checkpoint_requested_at or context.now) + pod_lead(pod, checkpoint=True)
