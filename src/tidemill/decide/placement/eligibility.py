"""Whether a queue item may use a node or a launch option by our own rules: time, money, pins, namespaces, opt-ins.

What Kubernetes itself would say (labels, taints, resources, other pods) is in `rules` and the solver. `barred` and
`refusal` give the solver its groups to leave out and `why` its words, so that a reason is never made up.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateGroup, Stage
from tidemill.decide.placement.launch_options import LaunchOption, end_of_option, money_allows
from tidemill.decide.queue_item import QueueItem, lasts
from tidemill.decide.scheduler_rules import admits, wants_host

# A node that would be drained sooner than this after booting is not worth launching.
SHORTEST_USE = timedelta(minutes=15)


class Refusal(StrEnum):
    """Why a launch option will not do for an item."""

    NAMESPACE = "namespace"  # its pool does not serve the namespace
    PINNED = "pinned"  # the item was admitted to another source
    SELECTOR = "selector"
    SIZE = "size"
    NOT_OPTED_IN = "not-opted-in"  # to capacity that is paid by the hour
    MONEY = "money"
    TIME = "time"
    FULL = "full"
    LIMIT = "limit"
    RESTING = "resting"  # EC2 had no capacity a moment ago
    NEVER_READY = "never-ready"  # its last nodes never became Ready: one is tried, and not now


def may_use(context: DecisionContext, item: QueueItem, group: CandidateGroup) -> bool:
    """Everything but resources and other pods."""
    return not barred(context, item, group) and admits(item.shape, group.labels, group.taints)


def barred(context: DecisionContext, item: QueueItem, group: CandidateGroup) -> bool:
    """Ungated pods go where kube-scheduler sends them; here they only take room."""
    if item.pinned_to and item.pinned_to != group.source.label:
        return True
    if group.returning and item.gang is None:
        return True  # only a broken gang waits for a slot that EC2 cleans up
    if not item.gated:
        return False
    if group.template is None:
        return True  # a gated pod is pinned to a source, and a node of others has none
    if not group.template.accepts(group.source.kind, item.pods[0].namespace, overflow=item.terms.overflow):
        return True
    from_ = context.now if group.stage is Stage.READY else context.now + BOOT
    return not lasts(item, group.end, group.template.pool, from_)


def refusal(context: DecisionContext, item: QueueItem, option: LaunchOption) -> Refusal | None:
    """Why this opening will not do, as a word `why` understands; None: it will."""
    unfit = pool_refusal(item, option)
    if unfit is not None:
        return unfit
    if not admits(item.shape, option.labels, option.template.taints) or wants_host(item.shape):
        return Refusal.SELECTOR
    if not option.free.fits(item.shape.requests):
        return Refusal.SIZE
    if option.overflow and not item.terms.overflow:
        return Refusal.NOT_OPTED_IN
    if not money_allows(context, option):
        return Refusal.MONEY
    if not outlasts(context, item, end_of_option(context, option), option):
        return Refusal.TIME
    if option.trial is not None and (option.trial.left < 1 or option.rests(context.now)):
        return Refusal.NEVER_READY
    if option.left < 1:
        return Refusal.FULL  # before limits: raising them would not help
    if not option.allowance.allows(option.kind):
        return Refusal.LIMIT
    return Refusal.RESTING if option.rests(context.now) or rests_for_gangs(context, item, option) else None


def rests_for_gangs(context: DecisionContext, item: QueueItem, option: LaunchOption) -> bool:
    until = option.gangs_rest_until
    return item.gang is not None and until is not None and context.now < until


def pool_refusal(item: QueueItem, option: LaunchOption) -> Refusal | None:
    """The pool does not serve its namespace, or it is pinned to another source."""
    if not option.pool.spec.serves(item.pods[0].namespace):
        return Refusal.NAMESPACE
    if item.pinned_to and item.pinned_to != option.source.label:
        return Refusal.PINNED
    return None


def outlasts(context: DecisionContext, item: QueueItem, end: End, option: LaunchOption) -> bool:
    return worth_launching(context, end) and lasts(item, end, option.pool, context.now + BOOT)


def worth_launching(context: DecisionContext, end: End) -> bool:
    return end.drain_from is None or context.now + BOOT + SHORTEST_USE <= end.drain_from
