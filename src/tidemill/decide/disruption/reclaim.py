"""Nodes that are no longer needed: empty ones, drifted ones, and ones whose pods fit elsewhere.

Prepaid nodes stay while their reservation lives, unless the pool says otherwise: taking them down saves
nothing. Voluntary disruption never touches a pod marked do-not-disrupt, and keeps to the pool's budgets.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.disruption.budgets import Disruptions, idle_since
from tidemill.decide.disruption.consolidation import consolidate
from tidemill.decide.disruption.drift import replace_drifted
from tidemill.decide.launches import InFlight
from tidemill.decide.phases import Phase
from tidemill.model.capacity import PREPAID
from tidemill.model.plan import StartDrain
from tidemill.model.reasons import DrainKind, DrainReason


def reclaim(context: DecisionContext, in_flight: InFlight) -> None:
    disruptions = Disruptions(context)
    staying = [
        view
        for view in context.views
        if view.phase is Phase.READY
        and not view.ending
        and view.facts.template is not None
        and not view.facts.template.by_karpenter  # Karpenter consolidates its own nodes
    ]
    replace_drifted(context, in_flight, disruptions)
    consolidate(context, in_flight, disruptions)
    empty = [
        view
        for view in staying
        if not view.pods and not view.reserved and not view.ending and view.facts.drift is None
    ]
    for view in sorted(empty, key=lambda view: (idle_since(view), view.node.name)):
        _drop_empty(context, view, disruptions)


def _drop_empty(context: DecisionContext, view: NodeView, disruptions: Disruptions) -> None:
    """The timer restarts whenever a pod comes or goes; daemon pods do not count."""
    assert view.pool is not None
    disruption = view.pool.spec.disruption
    if disruption.consolidation_policy == "Never":
        return
    if view.source.kind in PREPAID and not _may_give_back(context, view):
        return
    since = idle_since(view)
    due = since + disruption.consolidate_after
    if context.now < due:
        context.wake(due)
        return
    if disruptions.left(view.pool, "Empty") < 1:
        return
    view.ending = True
    context.do(StartDrain(view.node.name, DrainReason(DrainKind.EMPTY, idle=context.now - since)))


def _may_give_back(context: DecisionContext, view: NodeView) -> bool:
    """Prepaid nodes stay, unless the pool says otherwise or another pool may use the slot."""
    assert view.pool is not None
    reservation = context.reservations.get(view.source.id)
    if reservation is not None and context.shared(reservation):
        return True
    return view.pool.spec.disruption.consolidate_blocks and _beyond_warm(context, view)


def _beyond_warm(context: DecisionContext, view: NodeView) -> bool:
    """More nodes than the pool keeps warm: terminating a warm node would only launch it again."""
    assert view.pool is not None
    warm = view.pool.spec.kept_warm
    if isinstance(warm, bool):
        return not warm
    staying = sum(
        other.facts.template is view.facts.template and other.source.kind in PREPAID and not other.ending
        for other in context.views
    )
    return staying > warm
