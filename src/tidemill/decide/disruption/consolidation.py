"""Consolidation: delete nodes whose pods fit elsewhere, or replace them by one that is cheaper.

A replacement is launched first, and the old nodes are drained once it is Ready. Nothing is remembered in between: as
long as the replacement is the best place for those pods, the same question has the same answer. Work that
would start from the beginning is never moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.budgets import Disruptions, is_protected
from tidemill.decide.disruption.consolidation_moves import (
    Candidate,
    ConsolidationMove,
    ConsolidationMoves,
    is_replica,
    last_end,
    usd_h,
)
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import Stage
from tidemill.decide.placement.launch_options import plan_launch
from tidemill.decide.queue_item import QueueItem
from tidemill.model.capacity import PREPAID
from tidemill.model.plan import Launch, StartDrain
from tidemill.model.pods import Pod
from tidemill.model.purchases import LaunchState
from tidemill.model.reasons import DrainKind, DrainReason, LaunchKind, LaunchReason

# How many nodes are considered in one decision: the others are when these have changed.
_MOST_NODES = 100
_LAST = datetime.max.replace(tzinfo=UTC)


class _Settled:
    """By pool: what was considered and left as it is."""

    def __init__(self) -> None:
        self.pools: dict[str, tuple[object, ...]] = {}


def consolidate(context: DecisionContext, in_flight: InFlight, disruptions: Disruptions) -> None:
    """Pool by pool; a pool in which nodes or pods come and go is left alone until it is settled."""
    settled = context.memory.of(_Settled).pools
    for name, template in context.templates.items():
        policy = template.pool.spec.disruption.consolidation_policy
        # What is prepaid is used first whatever the policy: work by the hour moves to nodes of it that are free.
        to_prepaid = policy == "WhenEmpty" and any(template.overflow.values())
        if not (to_prepaid or policy == "WhenEmptyOrUnderutilized") or template.by_karpenter:
            continue
        allowed = disruptions.left(template.pool, "Underutilized")
        if allowed < 1 or not _is_settled(context, in_flight, name):
            continue
        for until in in_flight.resting.values():
            context.wake(until)
        candidates = sorted(_candidates(context, name), key=_disturbance)[:_MOST_NODES]
        key = _fingerprint(context, in_flight, candidates, allowed)
        if not candidates or settled.get(name) == key:
            continue
        wake_at = context.wake_at
        moves = ConsolidationMoves(context, in_flight, to_prepaid=to_prepaid)
        move = moves.best(candidates, int(min(allowed, len(candidates))))
        context.wake_at = wake_at  # a move that was only considered needs no wake-up
        if move is None:
            settled[name] = key
        else:
            _carry_out(context, move)


def _is_settled(context: DecisionContext, in_flight: InFlight, pool: str) -> bool:
    """No pod was just placed, no launch is unseen, no node is leaving."""
    if pool in context.placed or any(intent.pool == pool for intent, _ in in_flight.unseen):
        return False
    if any(isinstance(action, Launch) and action.intent.pool == pool for action in context.actions):
        return False
    return not any(
        view.facts.pool_name == pool and (view.ending or view.phase is Phase.DRAINING)
        for view in context.views
    )


def _fingerprint(
    context: DecisionContext, in_flight: InFlight, candidates: Sequence[Candidate], allowed: float
) -> tuple[object, ...]:
    """While this is the same, "nothing to save" stays true: as time passes there is only less to save, and less budget,
    until a month begins or a fee is given back."""
    return (
        allowed,
        tuple(candidate.view.facts for candidate in candidates),
        tuple(view.facts for view in context.views),
        tuple(sorted(in_flight.resting)),
        context.world.reservations,
        context.world.budgets,
        (context.now.year, context.now.month, context.world.spending.fees_usd),
        tuple(item.pods for item in context.waiting),
    )


# --- candidates ---------------------------------------------------------------------------------------


def _candidates(context: DecisionContext, pool: str) -> Iterator[Candidate]:
    for view in context.views:
        if view.facts.pool_name != pool or view.phase is not Phase.READY or view.reserved or not view.pods:
            continue
        if view.source.kind in PREPAID or view.facts.kind is None or view.facts.drift is not None:
            continue  # prepaid: leaving saves nothing
        assert view.pool is not None
        due = view.idle_since + view.pool.spec.disruption.consolidate_after
        if context.now < due:
            context.wake(due)
            continue
        if all(_may_move(context, pod) for pod in view.pods):
            yield _candidate(context, view)


def _may_move(context: DecisionContext, pod: Pod) -> bool:
    if (
        not pod.workload
        or pod.gang is not None
        or pod.deleting_until is not None
        or is_protected(context, pod)
    ):
        return False
    return pod.terms.checkpoint_every is not None or is_replica(pod)


def _candidate(context: DecisionContext, view: NodeView) -> Candidate:
    redone = max((pod.terms.checkpoint_every or timedelta(0)) + pod.terms.load for pod in view.pods)
    items = tuple(_again(pod) for pod in sorted(view.pods, key=lambda pod: pod.full_name))
    return Candidate(view, items, usd_h(context, view), redone, last_end(context, view.pods))


def _again(pod: Pod) -> QueueItem:
    """The pod as it would wait after the move: the last of its priority class."""
    item = QueueItem((pod,), None, True)
    item.turn = (True, False, -pod.terms.priority, _LAST, pod.name, pod.uid)
    return item


def _disturbance(candidate: Candidate) -> tuple[object, ...]:
    """The fewest and least important pods first, then the most expensive node."""
    weight = sum(1 + max(0, item.terms.priority) for item in candidate.items)
    return (weight, candidate.redone, -candidate.usd_h, candidate.view.node.name)


# --- doing it -----------------------------------------------------------------------------------------


def _carry_out(context: DecisionContext, move: ConsolidationMove) -> None:
    for placement in move.packing.placements:
        for target in placement.nodes:
            if target.view is not None:
                target.view.reserved = True
    if move.new is not None and move.new.option is not None:
        if _is_unsettling(context, move.leaving[0].view.facts.pool_name):
            return
        nodes = tuple(candidate.view.node.name for candidate in move.leaving)
        reason = LaunchReason(LaunchKind.CONSOLIDATION, nodes=nodes, saves_usd_h=move.saves_usd_h)
        plan_launch(context, move.new.option, 1, reason)
    elif all(placement.stage is Stage.READY for placement in move.packing.placements):
        for candidate in move.leaving:
            candidate.view.ending = True
            saving = DrainReason(DrainKind.UNDERUTILIZED, saves_usd_h=move.saves_usd_h)
            context.do(StartDrain(candidate.view.node.name, saving))


def _is_unsettling(context: DecisionContext, pool: str) -> bool:
    """A node of the pool is empty or on its way (it may be the last replacement), or EC2 had no capacity lately."""
    spare = any(view.facts.pool_name == pool and not view.pods and not view.ending for view in context.views)
    return spare or any(
        launch.pool == pool and launch.state is LaunchState.FAILED for launch in context.world.launches
    )
