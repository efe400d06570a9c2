"""Manage nodes: open verified ones, replace late and failed ones, remove Node objects of instances that are gone."""

from __future__ import annotations

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.phases import PHASE_RULES, Phase, not_ready_since
from tidemill.model.nodes import InstanceState
from tidemill.model.plan import MarkReady, RemoveNode, StartDrain, Terminate
from tidemill.model.reasons import (
    DrainKind,
    DrainReason,
    StepKind,
    StepReason,
    TerminateKind,
    TerminateReason,
)


def manage_nodes(context: DecisionContext) -> None:
    """Open verified nodes, replace those that miss a limit or fail, remove those whose instance is gone."""
    for view in context.gone:
        _clean_up(context, view)
    for view in context.views:
        if view.phase is Phase.READY or view.phase is Phase.DRAINING:
            kube = view.node.kube
            if kube is not None and (not kube.ready or kube.check == "failed"):
                _follow_health(context, view)
        else:
            _follow_start(context, view)


def _follow_start(context: DecisionContext, view: NodeView) -> None:
    node, kube = view.node, view.node.kube
    if view.phase is Phase.VERIFYING and kube is not None and kube.check:
        if kube.check == "passed":
            context.do(MarkReady(kube.name, StepReason(StepKind.NODE_CHECK_PASSED)))
        else:
            failed = TerminateReason(TerminateKind.NODE_CHECK_FAILED, detail=kube.check_message)
            _give_up(context, view, failed)
        return
    rule = PHASE_RULES[view.phase]
    due = rule.since(node) + rule.limit
    if context.now >= due:
        _give_up(context, view, TerminateReason(rule.late, limit=rule.limit))
    else:
        context.wake(due)


def _give_up(context: DecisionContext, view: NodeView, reason: TerminateReason) -> None:
    """No work of ours runs on a node that never became ready (or that lost its kubelet), so it ends at once.

    That is terminate-first, which a full block needs anyway; whatever wanted the node asks for another.
    """
    view.ending = True
    context.do(Terminate(view.node.key, reason))


def _follow_health(context: DecisionContext, view: NodeView) -> None:
    kube = view.node.kube
    assert kube is not None
    if not kube.ready and view.phase is Phase.DRAINING:
        # A draining node without a kubelet cannot give its pods their grace.
        due = not_ready_since(view.node) + PHASE_RULES[Phase.JOINED].limit
        if context.now >= due:
            _give_up(context, view, TerminateReason(TerminateKind.KUBELET_LOST))
        else:
            context.wake(due)
    elif kube.check == "failed" and view.phase is Phase.READY:
        view.ending = True
        failed = DrainReason(DrainKind.NODE_CHECK_FAILED, detail=kube.check_message)
        context.do(StartDrain(kube.name, failed))


def _clean_up(context: DecisionContext, view: NodeView) -> None:
    instance, kube = view.node.instance, view.node.kube
    if instance is not None and instance.state is InstanceState.TERMINATED and kube is not None:
        context.do(RemoveNode(kube.name, StepReason(StepKind.INSTANCE_GONE, instance.id)))
