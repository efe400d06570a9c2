"""Nodes that are no longer needed: empty ones, drifted ones, and ones whose pods fit elsewhere.

Prepaid nodes stay while their reservation lives, unless the pool says otherwise: taking them down saves
nothing. Voluntary disruption never touches a pod marked do-not-disrupt, and keeps to the pool's budgets.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.budgets import Disruptions
from tidemill.decide.disruption.consolidation import consolidate
from tidemill.decide.disruption.drift import replace_drifted
from tidemill.decide.disruption.make_way import make_way
from tidemill.decide.disruption.shared_slots import SharedSlots
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.model.capacity import PREPAID
from tidemill.model.plan import StartDrain
from tidemill.model.reasons import DrainKind, DrainReason


def reclaim(context: DecisionContext, in_flight: InFlight) -> None:
    disruptions = Disruptions(context)
    make_way(context, in_flight, disruptions)
    replace_drifted(context, in_flight, disruptions)
    consolidate(context, in_flight, disruptions)
    slots = SharedSlots(context, in_flight)
    for view in sorted(_empty(context, slots), key=lambda view: (view.idle_since, view.node.name)):
        _drop_empty(context, view, disruptions, slots)


def _empty(context: DecisionContext, slots: SharedSlots) -> Iterator[NodeView]:
    """Ready nodes without work that nobody is about to use and that may go."""
    for group in context.table.groups.values():
        first = group.views[0]  # the nodes of one source in one pool have one answer
        template = first.facts.template
        if template is None or template.by_karpenter:  # Karpenter consolidates its own nodes
            continue
        if not _may_go(context, first, slots):
            continue
        for view in group.views:
            if view.pods or view.phase is not Phase.READY:
                continue
            if not (view.ending or view.reserved or view.facts.drift is not None):
                yield view


def _may_go(context: DecisionContext, view: NodeView, slots: SharedSlots) -> bool:
    assert view.pool is not None
    if view.pool.spec.disruption.consolidation_policy == "Never":
        return False
    if view.source.kind not in PREPAID or not isinstance(view.pool.spec.kept_warm, bool):
        return True  # how many are warm changes with each node that goes
    return _may_give_back(context, view, slots)


def _drop_empty(
    context: DecisionContext, view: NodeView, disruptions: Disruptions, slots: SharedSlots
) -> None:
    """The timer restarts whenever a pod comes or goes; daemon pods do not count."""
    assert view.pool is not None
    disruption = view.pool.spec.disruption
    if view.source.kind in PREPAID and not _may_give_back(context, view, slots):
        return
    since = view.idle_since
    due = since + disruption.consolidate_after
    if context.now < due:
        context.wake(due)
        return
    if disruptions.left(view.pool, "Empty") < 1:
        return
    view.ending = True
    context.do(StartDrain(view.node.name, DrainReason(DrainKind.EMPTY, idle=context.now - since)))


def _may_give_back(context: DecisionContext, view: NodeView, slots: SharedSlots) -> bool:
    """Prepaid nodes stay, unless the pool says otherwise or another pool needs the slot."""
    assert view.pool is not None
    reservation = context.reservations.get(view.source.id)
    if reservation is not None and context.shared(reservation) and slots.is_wanted(view, reservation):
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
