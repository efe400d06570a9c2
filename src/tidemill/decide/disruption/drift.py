"""Drift: nodes that their pool would not launch any more (another image, type or label), replaced one at a time.

A full block has no slot to put the new node into first: the old one goes, EC2 cleans the slot for minutes, and only
then the new one boots. So its pods must allow it, the one before must be up again, and enough of the block must be
left for the new node to be of use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.budgets import Disruptions, finishes_first, is_protected
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT
from tidemill.decide.queue_item import done_at
from tidemill.model.capacity import PREPAID, Source
from tidemill.model.plan import Launch, StartDrain
from tidemill.model.pods import Pod
from tidemill.model.reasons import DrainReason
from tidemill.model.warning_reasons import WarningKind, WarningReason

# From the terminate call to a slot that can be launched into: 1-2 minutes to stop, 3-8 to clean. Errs on the long side.
SLOT_RETURNS = timedelta(minutes=11)
# Replacing a node takes a quarter of an hour: it must be of use for longer than this afterwards.
LEAST_USE = timedelta(hours=1)
# A node is closed to new work this long before its last job is done: without that there is always another job.
CLOSED_AHEAD = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A node that could go, from when on, and how many pods that disrupts."""

    view: NodeView
    drift: DrainReason
    free_at: datetime

    @property
    def rank(self) -> tuple[object, ...]:
        return (self.free_at, len(self.view.pods), self.view.node.name)


def replace_drifted(context: DecisionContext, in_flight: InFlight, disruptions: Disruptions) -> None:
    """Of each pool the node that is free soonest, if no node of the pool is leaving or being replaced."""
    by_pool: dict[str, list[NodeView]] = {}
    for view in context.attention:
        template = view.facts.template
        if template is None or template.by_karpenter:
            continue  # Karpenter handles drift itself; on prepaid nodes its NodePool forbids it
        if view.facts.drift is not None and view.phase is Phase.READY and not view.ending:
            by_pool.setdefault(view.facts.pool_name, []).append(view)
    for name, views in by_pool.items():
        if any(
            view.ending or view.phase is Phase.DRAINING
            for view in context.views
            if view.facts.pool_name == name
        ):
            continue
        pool = views[0].pool
        if pool is None or disruptions.left(pool, "Drifted") < 1:
            continue
        first = min(_could_go(context, in_flight, views), key=lambda one: one.rank, default=None)
        if first is None:
            continue
        closes = first.free_at - CLOSED_AHEAD
        if context.now < closes:
            context.wake(closes)
            continue
        first.view.ending = True
        context.do(StartDrain(first.view.node.name, first.drift))


def _could_go(context: DecisionContext, in_flight: InFlight, views: list[NodeView]) -> Iterator[Leaving]:
    gaps: dict[Source, bool] = {}
    for view in views:
        drift = view.facts.drift
        assert drift is not None
        if view.source not in gaps:
            gaps[view.source] = _has_gap(context, in_flight, view.source)
        if gaps[view.source]:
            continue  # the previous replacement is not Ready yet
        free_at = _free_at(context, view, drift)
        if free_at is not None and _worth_it(context, view, free_at):
            yield Leaving(view, drift, free_at)


def _has_gap(context: DecisionContext, in_flight: InFlight, source: Source) -> bool:
    """A slot of this reservation has no Ready node although one was there, or is coming."""
    if source.kind not in PREPAID:
        return False
    there = [view for view in context.views if view.source == source]
    coming = any(view.phase not in (Phase.READY, Phase.DRAINING) for view in there) or in_flight.on(source)
    asked = any(isinstance(action, Launch) and action.intent.source == source for action in context.actions)
    reservation = context.reservations.get(source.id)
    if coming or asked or reservation is None:
        return True
    strangers = sum(
        node.instance is not None and node.instance.source == source for node in context.strangers
    )
    return reservation.count - reservation.available > len(there) + strangers


def _worth_it(context: DecisionContext, view: NodeView, free_at: datetime) -> bool:
    """In a reservation that ends, the replacement must still be of use."""
    if view.source.kind not in PREPAID or view.drain_from is None:
        return True
    return max(free_at, context.now) + SLOT_RETURNS + BOOT + LEAST_USE <= view.drain_from


def _free_at(context: DecisionContext, view: NodeView, drift: DrainReason) -> datetime | None:
    """When all its pods may be evicted; None: one of them must not be, which is a warning.

    A disruption budget that is used up passes: its next ready replica wakes us.
    """
    free_at = context.now
    used_up = {budget.workload for budget in context.world.budgets if budget.allowed < 1}
    if any(pod.workload in used_up for pod in view.pods):
        return None
    for pod in sorted(view.pods, key=lambda pod: pod.full_name):
        stays = _stays(context, view, pod)
        if stays is not None:
            gang = pod.gang.name if pod.gang is not None else ""
            context.warn(view.node.name, WarningReason(stays, pod.full_name, gang, drain=drift))
            return None
        if finishes_first(context, pod, view.pool):
            done = done_at(pod, view.pool, context.now)
            assert done is not None
            free_at = max(free_at, done)
    return free_at


def _stays(context: DecisionContext, view: NodeView, pod: Pod) -> WarningKind | None:
    """Why it cannot be evicted, now or at its expected end; None: it can."""
    if is_protected(context, pod):
        return WarningKind.DRIFT_DO_NOT_DISRUPT
    if not pod.workload:
        return WarningKind.DRIFT_NOT_RECREATED
    if pod.gang is not None and done_at(pod, view.pool, context.now) is None:
        return WarningKind.DRIFT_GANG_OPEN_END
    return None
