"""Prepaid capacity is never kept out by a limit that nodes by the hour fill: they make way.

Nodes by the hour are drained, as many as the limits keep out of a reservation that is there and paid for, and its nodes
are launched as they go. Resumable work saves what it has and moves; work that would start over finishes first, and
nothing new starts beside it. Nodes with replicas of a service stay: until the others are up these would have nowhere
to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.budgets import Disruptions, finishes_first, is_protected
from tidemill.decide.disruption.consolidation_moves import is_replica, last_end
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT
from tidemill.decide.placement.eligibility import worth_launching
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.model.capacity import PREPAID, Reservation, ReservationState
from tidemill.model.plan import Launch, StartDrain
from tidemill.model.purchases import LaunchIntent
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.spec.compute_pool import Allowance

# What is done so soon is not worth a move: a boot, and as long again.
_SOON = 2 * BOOT


def make_way(context: DecisionContext, in_flight: InFlight, disruptions: Disruptions) -> None:
    for name, template in context.templates.items():
        if not any(template.overflow.values()) or template.by_karpenter:
            continue
        hourly = [
            view for view in context.views if view.facts.pool_name == name and view.source.kind not in PREPAID
        ]
        if not hourly:
            continue
        kept_out, reservation = _kept_out(context, in_flight, template)
        going = sum(view.ending or view.phase is Phase.DRAINING for view in hourly)
        staying = [
            view for view in hourly if view.phase is Phase.READY and not view.ending and not view.reserved
        ]
        for view in sorted(staying, key=lambda view: _disturbance(context, view)):
            if going >= kept_out or disruptions.left(template.pool, "Underutilized") < 1:
                break
            if reservation is not None and _may_go(context, view):
                going += 1
                view.ending = True
                why = DrainReason(DrainKind.MAKES_WAY, name=reservation.id, pool=name)
                context.do(StartDrain(view.node.name, why))


def _kept_out(
    context: DecisionContext, in_flight: InFlight, template: PoolTemplate
) -> tuple[int, Reservation | None]:
    """How many nodes of prepaid capacity the limits of the pool keep out, and the first reservation with such."""
    if not (context.world.ledger_ok and context.world.cloud_ok):
        return 0, None
    asked = under_way(context, in_flight)
    allowance = _left(context, asked, template)
    count, first = 0, None
    for source in template.pool.spec.sources:
        for one in (
            usable_reservations(context, template.pool, source) if source.type in ("block", "odcr") else ()
        ):
            kind = template.kinds.get(one.instance_type)
            end = context.end_of(one.source, template.pool.name, template.pool.spec.provisioner)
            if kind is None or one.state is not ReservationState.ACTIVE or not worth_launching(context, end):
                continue
            launching = sum(count for intent, count in asked if intent.source == one.source)
            for _ in range(one.available - launching):
                if not allowance.allows(kind):
                    count, first = count + 1, first or one
                allowance.take(kind)
    return count, first


def under_way(context: DecisionContext, in_flight: InFlight) -> list[tuple[LaunchIntent, int]]:
    """Nodes that were asked for and are not seen yet, and those that this plan asks for."""
    known = {intent.id for intent, _ in in_flight.unseen}
    new = (action.intent for action in context.actions if isinstance(action, Launch))
    return [*in_flight.unseen, *((intent, intent.count) for intent in new if intent.id not in known)]


def _left(
    context: DecisionContext, asked: Iterable[tuple[LaunchIntent, int]], template: PoolTemplate
) -> Allowance:
    pool, types = template.pool, context.spec.catalog.types
    allowance = Allowance.of(pool.spec.limits)
    for (name, kind), count in context.table.counts.items():
        if name == pool.name:
            allowance.take(types[kind], count)
    for intent, count in asked:
        if intent.pool == pool.name:
            allowance.take(types[intent.instance_type], count)
    return allowance


def _may_go(context: DecisionContext, view: NodeView) -> bool:
    if any(is_replica(pod) or is_protected(context, pod) for pod in view.pods):
        return False
    ends = last_end(context, view.pods)
    return ends is None or ends > context.now + _SOON or not view.pods


def _disturbance(context: DecisionContext, view: NodeView) -> tuple[bool, int, datetime, str]:
    """Those whose work can move at once, the fewest pods first; then those that are done first."""
    waits = any(finishes_first(context, pod, view.pool) for pod in view.pods)
    ends = last_end(context, view.pods) or context.now + timedelta(days=3650)
    return (waits, len(view.pods), ends, view.node.name)
