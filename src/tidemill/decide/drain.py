"""What must end, ends well: announce, taint, checkpoint, evict, and only at the last safe moment force.

A drain is complete by the node's deadline. Drains for other reasons (a failed check, drift, an empty node)
take the same steps without the force.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.decide.context import Draft, Life
from tidemill.decide.disruption.budgets import finishes_first, is_protected
from tidemill.decide.nodes import MARGIN, NODE_FAILED, SIGNAL_LAG, Phase, pod_lead
from tidemill.decide.overflow import PREPAID
from tidemill.model.plan import (
    AnnounceEnd,
    AnnounceNodeEnd,
    CancelDrain,
    Evict,
    ForceDelete,
    RequestCheckpoint,
    StartDrain,
    Terminate,
)
from tidemill.model.world import Pod
from tidemill.spec.units import format_instant, parse_instant

MUST_BE_EMPTY = "must be empty by"  # in the reason of every drain that a source's end is the cause of
# An end that moved by less is not worth a patch on every pod.
END_MOVED = timedelta(minutes=2)
# Between the forced delete and the deadline, beyond the pod's grace: one slow call and one lost tick.
FORCE_MARGIN = timedelta(minutes=1)
# One in so many nodes of a pool is emptied at a time because it failed, as Karpenter's node repair has it (20 %).
FAILED_AT_ONCE = 5


def drain(draft: Draft) -> None:
    allowed = {budget.workload: budget.allowed for budget in draft.world.budgets}
    emptying: list[Life] = []
    for life in draft.lives:
        if life.ending:
            continue
        if (
            life.pods
            and life.deadline is not None
            and not (life.facts.all_told and life.facts.told == life.deadline)
        ):
            _announce(draft, life, life.deadline)
        if (kube := life.node.kube) is not None and kube.ends_at is not None:
            _tell_the_node(draft, life, kube.name, kube.ends_at)
        if life.phase is Phase.DRAINING:
            if _end_moved(draft, life):
                life.ending = True
                draft.do(CancelDrain(life.node.name, f"{life.source.label} was extended and paid for"))
            else:
                emptying.append(life)
                draft.wake(life.drain_from)  # a drain that began early is not over when its time comes
        elif life.drain_from is not None and draft.now >= life.drain_from:
            _start(draft, life)
        else:
            draft.wake(life.drain_from)
    emptying.sort(key=lambda life: life.node.name)  # they share budgets: whoever listed them, in one order
    waiting = _not_yet(draft, emptying)
    for life in emptying:
        if id(life) in waiting:
            life.ending = True
            draft.warn(
                life.node.name, f"{_why(life)}; others of its pool go first, and nobody new is sent there"
            )
        else:
            _empty(draft, life, allowed)


def _not_yet(draft: Draft, emptying: list[Life]) -> set[int]:
    """Failed nodes with pods whose turn has not come: a fifth of a pool at a time, at least one.

    A check that is wrong must not empty a pool at once. Whoever has no pods, or ends anyway, waits for nobody.
    """
    failed: dict[str, list[Life]] = {}
    for life in emptying:
        if life.pods and _why(life).startswith(NODE_FAILED) and not _is_due(draft, life):
            failed.setdefault(life.facts.pool_name, []).append(life)
    waiting: set[int] = set()
    for name, lives in failed.items():
        size = sum(life.facts.pool_name == name for life in draft.lives)
        at_once = max(1, -(-size // FAILED_AT_ONCE))
        lives.sort(key=lambda life: (_since(draft, life), life.node.name))
        waiting |= {id(life) for life in lives[at_once:]}
    return waiting


def _since(draft: Draft, life: Life) -> datetime:
    kube = life.node.kube
    return (kube.draining_since if kube is not None else None) or draft.now


def _is_due(draft: Draft, life: Life) -> bool:
    """Its source ends: from here on nothing is waited for but what each pod needs."""
    return life.drain_from is not None and draft.now >= life.drain_from


def _end_moved(draft: Draft, life: Life) -> bool:
    """The drain began for an end that has moved since. Only a reservation's end moves for good."""
    if life.deadline is None or life.drain_from is None or draft.now >= life.drain_from:
        return False
    if life.source.kind not in PREPAID or MUST_BE_EMPTY not in _why(life):
        return False
    began_for = parse_instant(_why(life).rpartition(" ")[2])
    return life.deadline - began_for > END_MOVED


def _announce(draft: Draft, life: Life, deadline: datetime) -> None:
    for pod in life.pods:
        known = pod.ends_at
        if pod.deleting_until is None and (known is None or abs(known - deadline) > END_MOVED):
            moved = "its end moved" if known else "its source ends"
            draft.do(AnnounceEnd(pod.uid, deadline, f"{moved}: {format_instant(deadline)}"))


def _tell_the_node(draft: Draft, life: Life, node: str, known: datetime) -> None:
    """A node that ends by itself goes by the end it was launched with, until it hears of another.

    Money that runs out is our own end and moves all the time: of that no node is told.
    """
    deadline = life.deadline
    if deadline is not None and life.source.kind in PREPAID and abs(known - deadline) > END_MOVED:
        draft.do(AnnounceNodeEnd(node, deadline, f"its end moved: {format_instant(deadline)}"))


def _start(draft: Draft, life: Life) -> None:
    life.ending = True
    assert life.deadline is not None
    until = format_instant(life.deadline)
    if life.node.kube is None:
        draft.do(
            Terminate(life.node.key, f"it has not joined and {life.source.label} must be empty by {until}")
        )
        return
    instance = life.node.instance
    alone = instance is not None and instance.ends_at == life.deadline
    what = f"{instance.ends_why}: the node" if alone and instance is not None else life.source.label
    draft.do(StartDrain(life.node.kube.name, f"{what} {MUST_BE_EMPTY} {until}"))
    for pod in life.pods:
        if pod.terms.do_not_disrupt:
            draft.warn(
                pod.full_name, f"do-not-disrupt cannot hold back the end of {life.source.label} at {until}"
            )


def _empty(draft: Draft, life: Life, allowed: dict[str, int]) -> None:
    life.ending = True
    if not life.pods:
        draft.do(Terminate(life.node.key, f"{life.node.name} is drained ({_why(life)})"))
        return
    for pod in sorted(life.pods, key=lambda pod: pod.full_name):
        _let_go(draft, life, pod, allowed)


def _let_go(draft: Draft, life: Life, pod: Pod, allowed: dict[str, int]) -> None:
    """One step of one pod on its way out; the steps are in the order in which they become due."""
    deadline = life.deadline
    ends = _is_due(draft, life)
    if ends and deadline is not None:
        if _force_if_due(draft, life, pod, deadline):
            return
        turn = deadline - pod_lead(pod, checkpoint=_checkpoints(life))
        if draft.now < turn and _worth_waiting(pod, turn):
            draft.wake(turn)
            return
    if pod.deleting_until is not None or pod.uid in draft.kept:
        return
    if not ends and not _why(life).startswith(NODE_FAILED) and _keeps_the_node(draft, life, pod):
        return
    if _checkpoints(life) and not _why(life).startswith(NODE_FAILED) and _await_checkpoint(draft, pod):
        return
    if pod.workload in allowed:
        # Its budget, counted down within this plan; when it is used up the next ready replica wakes us.
        if allowed[pod.workload] <= 0:
            if ends and deadline is not None:
                _held_by_budget(draft, pod, deadline, allowed)
            return
        allowed[pod.workload] -= 1
    draft.do(Evict(pod.uid, _why(life) + _unanswered(life, pod)))


def _held_by_budget(draft: Draft, pod: Pod, deadline: datetime, allowed: dict[str, int]) -> None:
    if _never_allows(draft, pod.workload):
        allowed[pod.workload] = -1
        reason = f"its budget never allows an eviction; one at a time until {format_instant(deadline)}"
        draft.do(ForceDelete(pod.uid, int(pod.terms.grace.total_seconds()), reason))
        return
    last_moment = format_instant(_last_moment(pod, deadline))
    sentence = (
        f"its disruption budget allows no eviction now; who is still there at {last_moment} is made to go"
    )
    draft.warn(pod.workload, sentence)


def _unanswered(life: Life, pod: Pod) -> str:
    asked = pod.checkpoint_requested_at is not None and pod.checkpoint_done_at is None
    return "; its checkpoint was not acknowledged in time" if asked and _checkpoints(life) else ""


def _keeps_the_node(draft: Draft, life: Life, pod: Pod) -> bool:
    """Nobody takes the node by force: it waits for whoever may not be disturbed, or would lose what it did."""
    return is_protected(draft, pod) or finishes_first(draft, pod, life.pool)


def _never_allows(draft: Draft, workload: str) -> bool:
    """As many must be available as there are, all are, and no other was told to go just now.

    Waiting for such a budget would end with all of them deleted in the same second.
    """
    budget = next((one for one in draft.world.budgets if one.workload == workload), None)
    mine = [pod for pod in draft.world.pods if pod.workload == workload and pod.deleting_until is None]
    asked = any(
        isinstance(one, ForceDelete) and any(one.pod == pod.uid for pod in mine) for one in draft.actions
    )
    impossible = budget is not None and len(mine) > 1 and budget.min_available >= len(mine)
    return impossible and all(pod.ready for pod in mine) and not asked


def _force_if_due(draft: Draft, life: Life, pod: Pod, deadline: datetime) -> bool:
    last_moment = _last_moment(pod, deadline)
    if pod.deleting_until is not None:
        due = pod.deleting_until > deadline and _is_hard(life)
    else:
        due = draft.now >= last_moment
        draft.wake(last_moment)
    if due:
        grace_s = int(pod.terms.grace.total_seconds())
        if _is_hard(life):
            grace_s = min(grace_s, max(0, int((deadline - draft.now).total_seconds()) - 5))
        draft.do(ForceDelete(pod.uid, grace_s, f"the last safe moment before {format_instant(deadline)}"))
    return due


def _last_moment(pod: Pod, deadline: datetime) -> datetime:
    """When its whole grace still fits, with a minute to spare."""
    return deadline - pod.terms.grace - FORCE_MARGIN


def _is_hard(life: Life) -> bool:
    """Somebody else ends the node then. Money that runs out is our own deadline: it never costs a pod its grace."""
    instance = life.node.instance
    return life.source.kind in PREPAID or (instance is not None and instance.ends_at is not None)


def _worth_waiting(pod: Pod, turn: datetime) -> bool:
    """Until its own turn comes, a resumable job still makes progress and one that will finish should."""
    if pod.deleting_until is not None or pod.started_at is None:
        return False
    if pod.terms.checkpoint_every is not None:
        return True
    expected = pod.terms.expected
    return expected is not None and pod.started_at + pod.terms.load + expected <= turn


def _await_checkpoint(draft: Draft, pod: Pod) -> bool:
    """True while a checkpoint is being asked for or written; the answer, or time, ends it."""
    if pod.terms.checkpoint_every is None or pod.checkpoint_done_at is not None or pod.started_at is None:
        return False
    if pod.checkpoint_requested_at is None:
        draft.do(RequestCheckpoint(pod.uid, "its node is going away"))
        return True
    patience = pod.checkpoint_requested_at + pod.terms.checkpoint_time + SIGNAL_LAG + MARGIN / 4
    draft.wake(patience)
    return draft.now < patience


def _checkpoints(life: Life) -> bool:
    return life.pool.spec.drain.checkpoint if life.pool is not None else True


def _why(life: Life) -> str:
    return (life.node.kube.drain_reason if life.node.kube else "") or "the node is going away"
