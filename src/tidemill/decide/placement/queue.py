"""Which pods wait, in which order they are served, and gangs that must stay whole.

A pin cannot be taken back once the gate is off, so a pod is admitted only onto Ready nodes that last long enough for
it; everything here errs on the side of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import is_

from tidemill.decide.context import DecisionContext
from tidemill.decide.queue_item import QueueItem
from tidemill.model.plan import Recreate
from tidemill.model.pods import Gang, Pod, PodPhase
from tidemill.model.reasons import HoldKind, HoldReason, RecreateKind, RecreateReason
from tidemill.model.warning_reasons import WarningKind, WarningReason

# Among equals in priority, an item that has waited longer than one of these goes before one that has not. Within such
# an age class large items go before small ones, which packs well. Ages change at the same instants for all.
AGES = (timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8))
BIRTHDAY = timedelta(minutes=30)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class _QueueCache:
    """Items of pods and gangs that did not change since the last tick."""

    def __init__(self) -> None:
        self.items: dict[str, QueueItem] = {}  # by pod uid: pods that wait by themselves
        self.gangs: dict[tuple[str, str], tuple[tuple[Pod, ...], QueueItem]] = {}


def waiting(context: DecisionContext) -> list[QueueItem]:
    """Everything that waits for a node, in the order of the queue: priority, then age."""
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
    """Cached by pod: in a long queue most pods did not change since the last tick."""
    cache = context.memory.of(_QueueCache)
    known = cache.items
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
        cache.items = {item.pods[0].uid: item for item in items}
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
                context.hold(pod, "gang", HoldReason(HoldKind.GANG_STOPS, name=gang.name))
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
                reason = HoldReason(
                    HoldKind.GANG_INCOMPLETE, name=gang.name, count=len(members), of=gang.size
                )
                context.hold(pod, "gang", reason)
        return
    admitted = [pod for pod in members if not pod.gated]
    if not admitted:
        yield _whole_gang(context, members, gang)
        return
    if any(pod.started_at is not None for pod in admitted):
        lost = RecreateReason(RecreateKind.GANG_LOST_PODS, gang.name, len(gated), gang.size)
        stop_gang(context, admitted, lost)
        for pod in gated:
            context.hold(pod, "gang", HoldReason(HoldKind.GANG_LOST_POD, name=gang.name))
        return
    # Half admitted and nobody runs yet: the rest follows onto the same source, or all of it is rolled back.
    # The admitted half comes first, because its room is promised.
    unbound = [pod for pod in admitted if _waits(pod)]
    for half in (unbound, gated):
        if half:
            pods = tuple(sorted(half, key=lambda pod: pod.name))
            yield QueueItem(pods, gang, half is gated, admitted[0].pinned_to)


def _whole_gang(context: DecisionContext, members: list[Pod], gang: Gang) -> QueueItem:
    """Cached while its pods do not change."""
    key = (members[0].namespace, gang.name)
    gangs = context.memory.of(_QueueCache).gangs
    known = gangs.get(key)
    if known is not None and len(known[0]) == len(members) and all(map(is_, known[0], members)):
        return known[1]
    if len(gangs) > 10_000:  # mostly gangs that are gone; the others are computed again
        gangs.clear()
    item = QueueItem(tuple(sorted(members, key=lambda pod: pod.name)), gang, True)
    gangs[key] = (tuple(members), item)
    return item


def stop_gang(context: DecisionContext, pods: Iterable[Pod], reason: RecreateReason) -> None:
    """Delete only pods that a controller creates again; warn about the others."""
    for pod in pods:
        if not pod.workload:
            stays = WarningReason(WarningKind.GANG_POD_NOT_RECREATED, recreate=reason)
            context.warn(pod.full_name, stays)
        elif pod.deleting_until is None:
            context.do(Recreate(pod.uid, reason))


# --- order ------------------------------------------------------------------------------------------


def last_birthday(now: datetime) -> datetime:
    return now - (now - _EPOCH) % BIRTHDAY


def birthday_from(due: datetime) -> datetime:
    """The first such instant at or after `due`."""
    birthday = last_birthday(due)
    return birthday if birthday == due else birthday + BIRTHDAY


def levels(context: DecisionContext, items: Sequence[QueueItem]) -> list[int]:
    """Admitted items first, then priority, then age class."""
    keys = []
    birthday = last_birthday(context.now)
    old, older, oldest = (birthday - age for age in AGES)
    first: list[datetime | None] = [None] * (len(AGES) + 1)  # the oldest item of each class
    for item in items:
        came = item.pods[0].created_at
        waited = (came <= old) + (came <= older) + (came <= oldest)
        known = first[waited]
        if known is None or came < known:
            first[waited] = came
        promised, rest_of_gang, priority = item.turn[:3]
        keys.append((promised, rest_of_gang, priority, -waited))
    if len(items) > 1:  # a single item needs no order
        for eldest, age in zip(first, AGES, strict=False):
            context.wake(birthday_from(eldest + age) if eldest is not None else None)
    order = {key: -number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]
