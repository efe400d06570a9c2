"""Which pods may start: what waits as one, whether there is time enough, and gangs that must stay whole.

A pin cannot be taken back once the gate is off, so a pod is admitted only onto Ready room that lasts long
enough for it; everything here errs on the side of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import is_

from tidemill.decide.context import DecisionContext, End
from tidemill.decide.deadlines import pod_lead
from tidemill.model.plan import Recreate
from tidemill.model.pods import Gang, Pod, PodPhase, PodShape, Terms
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool

# From the gate's removal to useful work: scheduling and image pull, before the pod's own load time.
POD_START = timedelta(minutes=1)
# Who says an hour may need a little more; who is later than this has no known end.
OVERRUN = timedelta(minutes=30)


class QueueItem:
    """What waits as one: a pod, or all the pods of a gang. What follows from it is worked out once.

    `kind`: items of one kind ask for the same room and differ only in how long they need it. `need`: how long that
    is, as far as it says; the longer of two of one kind is the harder to place. `standing`: all that decides which
    sources it may use, but for that need. `turn`: when it is served; what is
    admitted already first (its room was promised, and a pin cannot be taken back), of a half-admitted gang the
    admitted half before the rest, then priority, then age.
    """

    __slots__ = (
        "alike",
        "gang",
        "gated",
        "kind",
        "need",
        "pinned_to",
        "pods",
        "shape",
        "standing",
        "terms",
        "turn",
        "wants_accelerator",
    )

    def __init__(self, pods: tuple[Pod, ...], gang: Gang | None, gated: bool, pinned_to: str = "") -> None:
        first = pods[0]
        self.pods = pods
        self.gang = gang
        self.gated = gated
        self.pinned_to = pinned_to  # admitted, but not bound yet: only this source will do
        self.shape: PodShape = first.shape
        self.alike = all(pod.shape is first.shape or pod.shape == first.shape for pod in pods)
        self.terms: Terms = first.terms
        self.wants_accelerator = any(name in names.ACCELERATORS for name, _ in first.shape.requests)
        self.kind: tuple[object, ...] = (
            id(first.shape), first.namespace, gated, pinned_to, len(pods), first.terms.overflow, first.terms.grace,
            first.terms.checkpoint_time, first.terms.expected is None, first.terms.checkpoint_every is not None,
        )  # fmt: skip
        self.standing: tuple[object, ...] = (
            first.namespace, gated, pinned_to, gang is not None, first.terms.overflow, first.terms.grace,
            first.terms.checkpoint_time, first.terms.checkpoint_every is not None,
        )  # fmt: skip
        self.need = time_needed(first.terms, None)
        rest_of_gang = bool(pinned_to) and gated
        self.turn = (not pinned_to, rest_of_gang, -first.terms.priority, first.created_at, first.name)


def waiting(context: DecisionContext) -> list[QueueItem]:
    """Everything that waits for a place, in the order it is served: priority, then age."""
    unbound = [pod for pod in context.world.pods if not pod.node]
    items = _single_items(context, unbound)
    gangs: dict[tuple[str, str], list[Pod]] = {
        (pod.namespace, pod.gang.name): [] for pod in unbound if pod.gang is not None
    }
    if gangs:
        for pod in context.world.pods:
            if pod.gang is not None and (key := (pod.namespace, pod.gang.name)) in gangs:
                gangs[key].append(pod)
        for members in gangs.values():
            items.extend(_gang_item(context, members))
    items.sort(key=lambda item: item.turn)
    return items


def _single_items(context: DecisionContext, unbound: list[Pod]) -> list[QueueItem]:
    """Remembered by the pod itself: in a long queue most pods are the very same ones as a tick ago."""
    known = context.memory.items
    items = []
    for pod in unbound:
        if pod.gang is not None:
            continue
        item = known.get(pod.uid)
        if item is None or item.pods[0] is not pod:
            if not _waits(pod):
                continue
            item = known[pod.uid] = QueueItem((pod,), None, pod.gated, pod.pinned_to)
        items.append(item)
    if len(known) > 2 * len(items) + 1000:
        context.memory.items = {item.pods[0].uid: item for item in items}
    return items


def _waits(pod: Pod) -> bool:
    return (
        pod.phase is PodPhase.PENDING
        and not pod.node
        and pod.deleting_until is None
        and not pod.held_by_others
        and not pod.daemon
    )


def _gang_item(context: DecisionContext, members: list[Pod]) -> Iterable[QueueItem]:
    """A gang that waits whole is one item; one that is broken is stopped, so that it can wait whole again.

    A member that is merely missing may have finished; only a fresh gated replacement proves a loss.
    """
    gang = members[0].gang
    assert gang is not None
    if any(pod.deleting_until is not None or pod.held_by_others for pod in members):
        for pod in members:
            if _waits(pod):
                context.hold(pod, "gang", f"gang {gang.name} is being stopped, to start again whole")
        return
    gated = [pod for pod in members if pod.gated]
    if not gated:
        unbound = [pod for pod in members if _waits(pod)]
        if unbound:
            yield QueueItem(tuple(unbound), gang, False, unbound[0].pinned_to)
        return
    if len(members) < gang.size:
        for pod in members:
            if _waits(pod):
                context.hold(pod, "gang", f"gang {gang.name} has {len(members)} of its {gang.size} pods")
        return
    admitted = [pod for pod in members if not pod.gated]
    if not admitted:
        yield _whole_gang(context, members, gang)
        return
    if any(pod.started_at is not None for pod in admitted):
        stop_gang(context, admitted, f"gang {gang.name} lost {len(gated)} of its {gang.size} pods")
        for pod in gated:
            context.hold(pod, "gang", f"gang {gang.name} lost a member; the others are being stopped")
        return
    # Half admitted and nobody runs yet: the rest follows onto the same source, or all of it is rolled back.
    # The admitted half comes first, because its room is promised.
    unbound = [pod for pod in admitted if _waits(pod)]
    for half in (unbound, gated):
        if half:
            pods = tuple(sorted(half, key=lambda pod: pod.name))
            yield QueueItem(pods, gang, half is gated, admitted[0].pinned_to)


def _whole_gang(context: DecisionContext, members: list[Pod], gang: Gang) -> QueueItem:
    """Remembered while its pods are the very same ones."""
    key = (members[0].namespace, gang.name)
    known = context.memory.gangs.get(key)
    if known is not None and len(known[0]) == len(members) and all(map(is_, known[0], members)):
        return known[1]
    if len(context.memory.gangs) > 10_000:  # those that are gone; the waiting come back at once
        context.memory.gangs.clear()
    item = QueueItem(tuple(sorted(members, key=lambda pod: pod.name)), gang, True)
    context.memory.gangs[key] = (tuple(members), item)
    return item


def stop_gang(context: DecisionContext, pods: Iterable[Pod], reason: str) -> None:
    """Only pods that somebody will create again are deleted; the others are left, and said so."""
    for pod in pods:
        if not pod.workload:
            context.warn(pod.full_name, f"{reason}, but nothing would create this pod again")
        elif pod.deleting_until is None:
            context.do(Recreate(pod.uid, reason))


# --- time ---------------------------------------------------------------------------------------------


def expected_run(terms: Terms, pool: ComputePool | None) -> timedelta | None:
    """What the pod says, else the pool's default, but never more than the pool believes; None: no end is known."""
    if pool is None:
        return terms.expected
    said = terms.expected if terms.expected is not None else pool.spec.default_duration
    return None if said is None else min(said, pool.spec.max_expected_duration)


def done_at(pod: Pod, pool: ComputePool | None, now: datetime) -> datetime | None:
    """When a running pod is done by its own word. One that is late is given a little more; then its word is spent.

    None: nobody can say. A word says when to look again; it never holds back the end of a source.
    """
    if pod.deleting_until is not None:
        return pod.deleting_until if pod.deleting_until > now else None
    run = expected_run(pod.terms, pool)
    if run is None or pod.started_at is None:
        return None
    end = pod.started_at + pod.terms.load + run
    return next((estimate for estimate in (end, end + OVERRUN) if estimate > now), None)


def time_needed(terms: Terms, pool: ComputePool | None) -> timedelta:
    """From a Ready node to the end of the work, or to the first checkpoint of a job that can resume."""
    run = expected_run(terms, pool)
    if terms.checkpoint_every is not None:
        to_checkpoint = terms.checkpoint_every + terms.checkpoint_time
        run = to_checkpoint if run is None else min(run, to_checkpoint)
    return POD_START + terms.load + (run or timedelta(0))


def useful_until(item: QueueItem, end: End, pool: ComputePool) -> datetime | None:
    """When a source with this end would start to drain if this item ran there too."""
    if end.deadline is None:
        return None
    own = end.deadline - pod_lead(item.pods[0], checkpoint=pool.spec.drain.checkpoint)
    return min(own, end.drain_from) if end.drain_from is not None else own


def lasts(item: QueueItem, end: End, pool: ComputePool, from_: datetime) -> bool:
    """Is there time enough for this item, starting on a Ready node at `from_`?"""
    until = useful_until(item, end, pool)
    return until is None or from_ + time_needed(item.terms, pool) <= until
