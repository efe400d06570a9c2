"""Manage nodes: open verified ones, replace late and failed ones, remove Node objects of instances that are gone."""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.failed_starts import failed_start
from tidemill.decide.node_table import NodeView
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
from tidemill.model.warning_reasons import WarningKind, WarningReason
from tidemill.spec import names


def manage_nodes(context: DecisionContext) -> None:
    """Open verified nodes, replace those that miss a limit or fail, remove those whose instance is gone."""
    for view in context.gone:
        _clean_up(context, view)
    for view in context.attention:
        if view.phase is Phase.READY or view.phase is Phase.DRAINING:
            kube = view.node.kube
            if kube is not None and (not kube.ready or kube.check == "failed"):
                _follow_health(context, view)
        else:
            _follow_start(context, view)
    _report_doubles(context)


def _follow_start(context: DecisionContext, view: NodeView) -> None:
    node, kube = view.node, view.node.kube
    if view.phase is Phase.VERIFYING and kube is not None:
        if kube.check == "failed":
            failed = TerminateReason(TerminateKind.NODE_CHECK_FAILED, detail=kube.check_message)
            _give_up(context, view, failed)
            return
        if kube.check == "passed":
            context.do(MarkReady(kube.name, StepReason(StepKind.NODE_CHECK_PASSED)))
            return
        if not kube.check and (view.pool is None or view.pool.spec.node_check == "none"):
            context.do(MarkReady(kube.name, StepReason(StepKind.NODE_REGISTERED)))
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
    failed = failed_start(view, view.facts.template, reason, context.now)
    context.do(Terminate(view.node.key, reason, failed))


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
    if instance is None or instance.state is not InstanceState.TERMINATED or kube is None:
        return
    if any(key == names.LABEL_POOL for key, _ in kube.labels):  # else somebody else made the Node object
        context.do(RemoveNode(kube.name, StepReason(StepKind.INSTANCE_GONE, instance.id)))


def _report_doubles(context: DecisionContext) -> None:
    """An older Node object that names an instance which has another one: it is left alone, and people are told."""
    older = [
        node.kube
        for node in context.strangers
        if node.instance is None and node.kube and node.kube.instance_id
    ]
    if not older:
        return
    newest = {
        view.node.instance.id: view.node.kube.name
        for view in (*context.views, *context.gone)
        if view.node.instance is not None and view.node.kube is not None
    }
    for kube in older:
        if kube.instance_id in newest:
            double = WarningReason(WarningKind.DOUBLE_NODE, newest[kube.instance_id])
            context.warn(kube.name, double)
