"""Disruption budgets: how many nodes of a pool may be disrupted now, by reason; and which pods wait for what.

As in Karpenter: of the budgets that are in force the strictest counts, nodes that are going already are counted, and a
percentage is rounded up. Ends that nobody can hold back (a block's, an interruption's) are no disruption in
this sense and never ask.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Literal

from cronsim import CronSim

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import checkpoint_patience
from tidemill.decide.phases import Phase
from tidemill.decide.queue_item import done_at
from tidemill.model.plan import RequestCheckpoint
from tidemill.model.pods import Pod
from tidemill.model.reasons import StepReason
from tidemill.spec.compute_pool import ComputePool, DisruptionBudgetSpec

DisruptionKind = Literal["Empty", "Underutilized", "Drifted"]
_MINUTE = timedelta(minutes=1)


class Disruptions:
    """The budgets of one decision: nodes that this plan disrupts are marked as ending and counted."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context

    def left(self, pool: ComputePool, kind: DisruptionKind) -> float:
        """How many more may go. Budgets with a schedule wake the engine when they begin and end to hold."""
        if pool.name in self._context.refused_pools:
            return 0.0  # somebody else drains its nodes: two that count would each count alone
        if not pool.spec.disruption.budgets:
            return float("inf")
        views = [view for view in self._context.views if view.facts.pool_name == pool.name]
        going = sum(view.ending or view.phase is Phase.DRAINING for view in views)
        most = float("inf")
        for budget in pool.spec.disruption.budgets:
            if budget.reasons and kind not in budget.reasons:
                continue
            holds, until = in_force(budget, self._context.now)
            self._context.wake(until)
            if holds:
                most = min(most, most_at_once(budget.nodes, len(views)))
        return max(0.0, most - going)


def most_at_once(nodes: str, there: int) -> int:
    return ceil(there * int(nodes[:-1]) / 100) if nodes.endswith("%") else int(nodes)


def in_force(budget: DisruptionBudgetSpec, now: datetime) -> tuple[bool, datetime | None]:
    """Whether it holds now, and the instant at which that changes; None: never."""
    if budget.schedule is None or budget.duration is None:
        return True, None
    began, next_begins = _around(budget.schedule, now.replace(second=0, microsecond=0))
    ends = began + budget.duration
    return (True, ends) if now < ends else (False, next_begins)


@lru_cache(maxsize=256)
def _around(schedule: str, minute: datetime) -> tuple[datetime, datetime]:
    """The last instant up to this minute at which the schedule fires, and the next after it."""
    return next(CronSim(schedule, minute + _MINUTE, reverse=True)), next(CronSim(schedule, minute))


def is_protected(context: DecisionContext, pod: Pod) -> bool:
    """do-not-disrupt: true, or for a while after the pod started."""
    mark = pod.terms.do_not_disrupt
    if isinstance(mark, timedelta):
        until = (pod.started_at or pod.created_at) + mark
        context.wake(until)
        return context.now < until
    return mark


def await_checkpoint(context: DecisionContext, pod: Pod, reason: StepReason) -> bool:
    """True while a checkpoint is requested or written; the acknowledgement or a time-out ends it."""
    if pod.terms.checkpoint_every is None or pod.checkpoint_done_at is not None or pod.started_at is None:
        return False
    if pod.checkpoint_requested_at is None:
        context.do(RequestCheckpoint(pod.uid, reason))
        return True
    patience = checkpoint_patience(pod, pod.checkpoint_requested_at)
    context.wake(patience)
    return context.now < patience


def finishes_first(context: DecisionContext, pod: Pod, pool: ComputePool | None) -> bool:
    """Work that would be lost may finish: a gang, which would stop as a whole, and a job that would start over.

    A gang is waited for whatever it says; a single job only until its word is spent.
    """
    done = done_at(pod, pool, context.now)
    context.wake(done)
    if pod.gang is not None:
        return True
    job = pod.of_job and pod.terms.checkpoint_every is None
    return job and pod.started_at is not None and done is not None
