"""Drain nodes in time: announce the end, taint, request checkpoints, evict, and force only at the last safe moment.

A drain is complete by the node's deadline. Drains for other reasons (a failed check, drift, an empty node)
take the same steps without the force.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import END_MOVED, pod_lead
from tidemill.decide.disruption.budgets import await_checkpoint, finishes_first, is_protected
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.model.capacity import PREPAID
from tidemill.model.plan import (
    AnnounceEnd,
    AnnounceNodeEnd,
    CancelDrain,
    Evict,
    ForceDelete,
    KeepForJobs,
    StartDrain,
    Terminate,
)
from tidemill.model.pods import Pod
from tidemill.model.reasons import (
    DrainKind,
    DrainReason,
    EndKind,
    EndReason,
    EvictReason,
    StepKind,
    StepReason,
    TerminateKind,
    TerminateReason,
)
from tidemill.model.warning_reasons import WarningKind, WarningReason
from tidemill.spec import names
from tidemill.spec.units import read_instant_in_taint

# Between the forced delete and the deadline, beyond the pod's grace: one slow call and one lost tick.
FORCE_MARGIN = timedelta(minutes=1)
# Whoever was told that the money ends sooner than it does learns of it so long before.
MONEY_IS_NEAR = timedelta(days=1)
# One in so many nodes of a pool is emptied at a time because it failed, as Karpenter's node repair has it (20 %).
FAILED_AT_ONCE = 5


def drain(context: DecisionContext) -> None:
    allowed = {budget.workload: budget.allowed for budget in context.world.budgets}
    emptying: list[NodeView] = []
    for view in _concerned(context):
        if view.ending:
            continue
        _close_to_services(context, view)
        if (
            view.pods
            and view.deadline is not None
            and not (view.facts.all_told and view.facts.told == view.deadline)
        ):
            _announce(context, view, view.deadline)
        if (kube := view.node.kube) is not None and (kube.ends_at is not None or kube.deadline_agent):
            _tell_the_node(context, view, kube.name, kube.ends_at)
        if view.phase is Phase.DRAINING:
            if _end_moved(context, view):
                view.ending = True
                extended = StepReason(StepKind.SOURCE_EXTENDED, view.source.label)
                context.do(CancelDrain(view.node.name, extended))
            else:
                emptying.append(view)
                context.wake(view.drain_from)  # a drain that began early goes on when the regular one starts
        elif view.drain_from is not None and context.now >= view.drain_from:
            _start(context, view)
        else:
            context.wake(view.drain_from)
    emptying.sort(
        key=lambda view: view.node.name
    )  # they share budgets, so the order must not depend on the list
    waiting = _not_yet(context, emptying)
    for view in emptying:
        if id(view) in waiting:
            view.ending = True
            waits = WarningReason(WarningKind.FAILED_NODE_WAITS, drain=_reason(view))
            context.warn(view.node.name, waits)
        else:
            _empty(context, view, allowed)


def _close_to_services(context: DecisionContext, view: NodeView) -> None:
    """Else a replica that leaves another node of the source would land here, and move again."""
    kube, deadline = view.node.kube, view.deadline
    if kube is None or view.phase is not Phase.READY:
        return
    closed = next((taint.value for taint in kube.taints if taint.key == names.TAINT_ENDING), None)
    if closed is not None:
        until = read_instant_in_taint(closed)
        if until is not None and (deadline is None or deadline - until > END_MOVED):
            extended = StepReason(StepKind.SOURCE_EXTENDED, view.source.label)
            context.do(CancelDrain(view.node.name, extended))
    elif view.closes_from is not None and deadline is not None:
        if context.now >= view.closes_from:
            leave = StepReason(StepKind.SERVICES_LEAVE, view.source.label)
            context.do(KeepForJobs(view.node.name, deadline, leave))
        else:
            context.wake(view.closes_from)


def _concerned(context: DecisionContext) -> list[NodeView]:
    """Without calm nodes whose drain is still to come: they only need a tick when it begins."""
    due = False
    for group in context.table.groups.values():
        drain_from = group.end.drain_from if group.end is not None else None
        if drain_from is not None and context.now >= drain_from:
            due = True  # of some of its nodes: others may only be closed to services
        elif any(view.calm for view in group.views):
            context.wake(drain_from)
    if not due:
        return context.attention
    now = context.now
    return [
        view
        for view in context.views
        if not view.calm
        or (view.drain_from is not None and now >= view.drain_from)
        or (view.closes_from is not None and now >= view.closes_from)
    ]


def _not_yet(context: DecisionContext, emptying: list[NodeView]) -> set[int]:
    """Failed nodes whose pods need not leave yet: a fifth of a pool at a time, at least one.

    A check that is wrong must not empty a pool at once. Whoever has no pods, or ends anyway, waits for nobody.
    """
    failed: dict[str, list[NodeView]] = {}
    for view in emptying:
        if view.pods and _has_failed(view) and not _is_due(context, view):
            failed.setdefault(view.facts.pool_name, []).append(view)
    waiting: set[int] = set()
    for name, views in failed.items():
        size = sum(view.facts.pool_name == name for view in context.views)
        at_once = max(1, -(-size // FAILED_AT_ONCE))
        views.sort(key=lambda view: (_since(context, view), view.node.name))
        waiting |= {id(view) for view in views[at_once:]}
    return waiting


def _since(context: DecisionContext, view: NodeView) -> datetime:
    kube = view.node.kube
    return (kube.draining_since if kube is not None else None) or context.now


def _is_due(context: DecisionContext, view: NodeView) -> bool:
    """Its source ends: from here on only the time each pod needs is waited for."""
    return view.drain_from is not None and context.now >= view.drain_from


def _end_moved(context: DecisionContext, view: NodeView) -> bool:
    """The drain began for an end that has moved since. Only the end of a reservation can move later for good."""
    if view.deadline is None or view.drain_from is None or context.now >= view.drain_from:
        return False
    reason = _reason(view)
    if view.source.kind not in PREPAID or reason is None or not reason.is_end or reason.at is None:
        return False
    return view.deadline - reason.at > END_MOVED


def _announce(context: DecisionContext, view: NodeView, deadline: datetime) -> None:
    for pod in view.pods:
        known = pod.ends_at
        if pod.deleting_until is None and (known is None or _is_news(context, view, known, deadline)):
            kind = EndKind.END_MOVED if known else EndKind.SOURCE_ENDS
            context.do(AnnounceEnd(pod.uid, deadline, EndReason(kind, deadline)))


def _is_news(context: DecisionContext, view: NodeView, known: datetime, deadline: datetime) -> bool:
    """Money runs out sooner or later with every node that comes or goes. So of such an end pods are told again when it
    came nearer, by a tenth of the time that is left; and that it moved away, only when it would be near."""
    if _is_hard(view):
        return abs(known - deadline) > END_MOVED
    near = known - MONEY_IS_NEAR
    if deadline > known and context.now < near:
        context.wake(near)
        return False
    return abs(known - deadline) > max(END_MOVED, (min(known, deadline) - context.now) / 10)


def _tell_the_node(context: DecisionContext, view: NodeView, node: str, known: datetime | None) -> None:
    """A node with a deadline agent uses the end it was launched with, until it is told another.

    Money that runs out is our own end and moves all the time: of that no node is told.
    """
    deadline = view.deadline
    if deadline is None or view.source.kind not in PREPAID:
        return
    if known is None or abs(known - deadline) > END_MOVED:
        kind = EndKind.END_MOVED if known is not None else EndKind.SOURCE_ENDS
        context.do(AnnounceNodeEnd(node, deadline, EndReason(kind, deadline)))


def _start(context: DecisionContext, view: NodeView) -> None:
    view.ending = True
    deadline, source = view.deadline, view.source.label
    assert deadline is not None
    if view.node.kube is None:
        never_joined = TerminateReason(TerminateKind.SOURCE_ENDS, name=source, at=deadline)
        context.do(Terminate(view.node.key, never_joined))
        return
    instance = view.node.instance
    if instance is not None and instance.ends_at == deadline:
        reason = DrainReason(
            DrainKind.INSTANCE_ENDS, at=deadline, name=source, instance_end=instance.ends_why
        )
    else:
        kind = DrainKind.SOURCE_ENDS if view.source.kind in PREPAID else DrainKind.MONEY_ENDS
        reason = DrainReason(kind, at=deadline, name=source, pool=view.facts.pool_name)
    context.do(StartDrain(view.node.kube.name, reason))
    for pod in view.pods:
        if pod.terms.do_not_disrupt:
            ends = WarningReason(WarningKind.DO_NOT_DISRUPT_ENDS, name=source, at=deadline)
            context.warn(pod.full_name, ends)


def _empty(context: DecisionContext, view: NodeView, allowed: dict[str, int]) -> None:
    view.ending = True
    if not view.pods:
        context.do(Terminate(view.node.key, TerminateReason(TerminateKind.DRAINED, drain=_reason(view))))
        return
    for pod in sorted(view.pods, key=lambda pod: pod.full_name):
        _let_go(context, view, pod, allowed)


def _let_go(context: DecisionContext, view: NodeView, pod: Pod, allowed: dict[str, int]) -> None:
    """One step of one pod's drain; the steps are in the order in which they become due."""
    deadline = view.deadline
    ends = _is_due(context, view)
    if ends and deadline is not None:
        if _force_if_due(context, view, pod, deadline):
            return
        turn = deadline - pod_lead(pod, checkpoint=_checkpoints(view))
        if context.now < turn and _worth_waiting(pod, turn):
            context.wake(turn)
            return
    if pod.deleting_until is not None or pod.uid in context.kept:
        return
    if not ends and not _has_failed(view) and _keeps_the_node(context, view, pod):
        return
    if (
        _checkpoints(view)
        and not _has_failed(view)
        and await_checkpoint(context, pod, StepReason(StepKind.NODE_DRAINS))
    ):
        return
    if pod.workload in allowed:
        # Its budget, counted down within this plan; when it is used up, the next Ready replica wakes the engine.
        if allowed[pod.workload] <= 0:
            if ends and deadline is not None:
                _held_by_budget(context, pod, deadline, allowed)
            return
        allowed[pod.workload] -= 1
    context.do(Evict(pod.uid, EvictReason(_reason(view), _is_unanswered(view, pod))))


def _held_by_budget(context: DecisionContext, pod: Pod, deadline: datetime, allowed: dict[str, int]) -> None:
    if _never_allows(context, pod.workload):
        allowed[pod.workload] = -1
        reason = EndReason(EndKind.BUDGET_NEVER_ALLOWS, deadline)
        context.do(ForceDelete(pod.uid, int(pod.terms.grace.total_seconds()), reason))
        return
    blocked = WarningReason(WarningKind.BUDGET_BLOCKS_EVICTION, at=_last_moment(pod, deadline))
    context.warn(pod.workload, blocked)


def _is_unanswered(view: NodeView, pod: Pod) -> bool:
    """Its checkpoint was not acknowledged in time."""
    return pod.checkpoint_requested_at is not None and pod.checkpoint_done_at is None and _checkpoints(view)


def _keeps_the_node(context: DecisionContext, view: NodeView, pod: Pod) -> bool:
    """Nothing ends this node by force: it waits for pods that must not be disrupted or would lose their work."""
    return is_protected(context, pod) or finishes_first(context, pod, view.pool)


def _never_allows(context: DecisionContext, workload: str) -> bool:
    """The budget allows no disruption at all, every replica is Ready, and no other was deleted just now.

    Waiting for such a budget would end with all of them deleted in the same second.
    """
    budget = next((budget for budget in context.world.budgets if budget.workload == workload), None)
    mine = [pod for pod in context.world.pods if pod.workload == workload and pod.deleting_until is None]
    asked = any(
        isinstance(action, ForceDelete) and any(action.pod == pod.uid for pod in mine)
        for action in context.actions
    )
    impossible = budget is not None and len(mine) > 1 and budget.min_available >= len(mine)
    return impossible and all(pod.ready for pod in mine) and not asked


def _force_if_due(context: DecisionContext, view: NodeView, pod: Pod, deadline: datetime) -> bool:
    last_moment = _last_moment(pod, deadline)
    if pod.deleting_until is not None:
        # Shortened once more; one whose grace is over already goes when its kubelet, or its node, does.
        due = pod.deleting_until > max(deadline, context.now) and _is_hard(view)
    else:
        due = context.now >= last_moment
        context.wake(last_moment)
    if due:
        grace_s = int(pod.terms.grace.total_seconds())
        if _is_hard(view):
            grace_s = min(grace_s, max(0, int((deadline - context.now).total_seconds()) - 5))
        context.do(ForceDelete(pod.uid, grace_s, EndReason(EndKind.LAST_SAFE_MOMENT, deadline)))
    return due


def _last_moment(pod: Pod, deadline: datetime) -> datetime:
    """When its whole grace still fits, with a minute to spare."""
    return deadline - pod.terms.grace - FORCE_MARGIN


def _is_hard(view: NodeView) -> bool:
    """AWS ends the node then. A budget that runs out is our own deadline: it never costs a pod its grace."""
    instance = view.node.instance
    return view.source.kind in PREPAID or (instance is not None and instance.ends_at is not None)


def _worth_waiting(pod: Pod, turn: datetime) -> bool:
    """Until it must leave, a resumable job still makes progress, and a job that will finish may finish."""
    if pod.deleting_until is not None or pod.started_at is None:
        return False
    if pod.terms.checkpoint_every is not None:
        return True
    expected = pod.terms.expected
    return expected is not None and pod.started_at + pod.terms.load + expected <= turn


def _checkpoints(view: NodeView) -> bool:
    return view.pool.spec.drain.checkpoint if view.pool is not None else True


def _reason(view: NodeView) -> DrainReason | None:
    return view.node.kube.drain_reason if view.node.kube is not None else None


def _has_failed(view: NodeView) -> bool:
    reason = _reason(view)
    return reason is not None and reason.kind is DrainKind.NODE_CHECK_FAILED
