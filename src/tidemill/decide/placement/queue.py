"""Which pods wait, in which order they are served, and gangs that must stay whole.

A pin cannot be taken back once the gate is off, so a pod is admitted only onto Ready nodes that last long enough for
it; everything here errs on the side of waiting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter, is_

from tidemill.decide.context import DecisionContext
from tidemill.decide.pool_templates import ENDING, HELD, TOLERATES_ENDING, TOLERATES_HELD
from tidemill.decide.queue_item import Lane, QueueItem, remove_item
from tidemill.decide.scheduler_rules import tolerates
from tidemill.model.changes import changed
from tidemill.model.plan import Recreate
from tidemill.model.pods import MAX_GANG_PODS, Gang, Pod, PodPhase, PodShape
from tidemill.model.reasons import HoldKind, HoldReason, RecreateKind, RecreateReason
from tidemill.model.warning_reasons import WarningKind, WarningReason

# Among equals in priority, an item that has waited longer than one of these goes before one that has not. Within such
# an age class large items go before small ones, which packs well. Ages change at the same instants for all.
AGES = (timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8))
BIRTHDAY = timedelta(minutes=30)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Queue:
    """Everything that waits for a node, in the order of the queue, and in lanes of items that ask for the same."""

    def __init__(self, accepted_duration: timedelta = timedelta.max) -> None:
        """`accepted_duration`: the longest that every pool accepts as it is."""
        self._accepted_duration = accepted_duration
        self.items: list[QueueItem] = []
        self.lanes: dict[tuple[object, ...], Lane] = {}
        self._created: list[datetime] = []  # sorted

    def add(self, item: QueueItem) -> None:
        insort(self.items, item, key=attrgetter("turn"))
        insort(self._created, item.pods[0].created_at)
        self.lanes.setdefault(self._lane_of(item), Lane()).add(item)

    def remove(self, item: QueueItem) -> None:
        remove_item(self.items, item)
        del self._created[bisect_left(self._created, item.pods[0].created_at)]
        key = self._lane_of(item)
        self.lanes[key].remove(item)
        if not self.lanes[key].items:
            del self.lanes[key]

    def without(self, items: Container[QueueItem]) -> Queue:
        """Another queue of those that are not among them. Lanes of which nothing is left out are shared."""
        other = Queue(self._accepted_duration)
        other.items = [item for item in self.items if item not in items]
        other._created = sorted([item.pods[0].created_at for item in other.items])
        for key, lane in self.lanes.items():
            left = [item for item in lane.items if item not in items]
            if len(left) == len(lane.items):
                other.lanes[key] = lane
            elif left:
                other.lanes[key] = shorter = Lane()
                for item in left:
                    shorter.add(item)
        return other

    @property
    def gangs(self) -> list[QueueItem]:
        """In the order of the queue."""
        lanes = (lane.items for lane in self.lanes.values() if lane.items[0].gang is not None)
        return sorted((item for items in lanes for item in items), key=attrgetter("turn"))

    def oldest_after(self, instant: datetime) -> datetime | None:
        """When the oldest of the items was created that are younger than this."""
        place = bisect_right(self._created, instant)
        return self._created[place] if place < len(self._created) else None

    def _lane_of(self, item: QueueItem) -> tuple[object, ...]:
        """Pools decide how long one is assumed to run that says nothing, or too much: then its terms count too."""
        expected = item.terms.expected
        says_so = expected is not None and expected <= self._accepted_duration
        return (item.kind, item.gang is not None, item.alike, None if says_so else item.terms)


def queue_of(context: DecisionContext, items: Iterable[QueueItem]) -> Queue:
    longest = (template.pool.spec.max_expected_duration for template in context.templates.values())
    queue = Queue(min(longest, default=timedelta.max))
    for item in items:
        queue.add(item)
    return queue


class _QueueCache:
    """The queue of the last decision. Pods and gangs that did not change keep their item and its place."""

    def __init__(self) -> None:
        self.queue: Queue | None = None
        self.served: Queue | None = None  # the same without those that a limit of their namespace holds back
        self.pods: Sequence[Pod] = ()  # all pods of the world that it follows from
        self.items: dict[str, QueueItem] = {}  # by pod uid: pods that wait by themselves
        self.whole: list[QueueItem] = []  # gangs in the queue
        self.gangs_wait = False  # and nothing had to be said or done about any gang
        self.gangs: dict[tuple[str, str], tuple[tuple[Pod, ...], QueueItem]] = {}
        # By identity of a shape (kept alive with it): the same with the toleration that admission adds.
        self.admitted: dict[int, tuple[PodShape, PodShape]] = {}


def waiting(context: DecisionContext) -> Queue:
    """Everything that waits for a node, in the order of the queue: priority, then age."""
    cache = context.memory.of(_QueueCache)
    queue = cache.queue
    if queue is None:
        queue = cache.queue = queue_of(context, ())
    gone, new = changed(cache.pods, context.world.pods)
    cache.pods = context.world.pods
    for pod in gone:
        if (item := cache.items.pop(pod.uid, None)) is not None:
            queue.remove(item)
    for pod in new:
        if pod.gang is None and _waits(pod):
            shapes = _shapes(context, (pod,)) if pod.gated else ()
            item = cache.items[pod.uid] = QueueItem((pod,), None, pod.gated, pod.pinned_to, shapes)
            queue.add(item)
    if not cache.gangs_wait or any(pod.gang is not None for pod in (*gone, *new)):
        _renew_gangs(context, cache, queue)
    cache.served = queue
    return queue


def within_limits(context: DecisionContext, queue: Queue) -> tuple[Queue, list[QueueItem]]:
    """Those whose namespace has GPUs left for them; and the others, also those for whom it would if not for equal ones
    in front of them. Smaller ones behind them stay in the queue: they pass, as in a queue of Kueue."""
    caps, over = context.namespace_caps, list[QueueItem]()
    ahead: dict[tuple[object, ...], int] = {}
    for item in queue.items if caps else ():
        if item.pinned_to:  # the rest of a half-admitted gang has its share already
            caps.take(pod for pod in item.pods if not pod.pinned_to)
            continue
        most = caps.most(item.pods)
        if most is None:
            continue
        equal = (item.kind, item.gang is not None, item.need)
        ahead[equal] = ahead.get(equal, 0) + 1
        if ahead[equal] > most:
            over.append(item)
    if not over:
        return queue, over
    served = context.memory.of(_QueueCache).served = queue.without(frozenset(over))
    return served, over


def found_waiting(context: DecisionContext) -> Queue:
    """What `waiting` returned in this decision, without those that a limit of their namespace holds back."""
    return context.memory.of(_QueueCache).served or queue_of(context, ())


def _renew_gangs(context: DecisionContext, cache: _QueueCache, queue: Queue) -> None:
    said = (len(context.unmet), len(context.actions), len(context.warnings))
    gangs = _gangs(context)
    cache.gangs_wait = said == (len(context.unmet), len(context.actions), len(context.warnings))
    left, came = changed(cache.whole, gangs)
    for item in left:
        queue.remove(item)
    for item in came:
        queue.add(item)
    cache.whole = gangs


def _gangs(context: DecisionContext) -> list[QueueItem]:
    """Of every gang with a pod that is not bound: what waits of it. Says why the others do not."""
    members = [(pod, pod.gang.name) for pod in context.world.pods if pod.gang is not None]
    gangs: dict[tuple[str, str], list[Pod]] = {
        (pod.namespace, name): [] for pod, name in members if not pod.node
    }
    for pod, name in members if gangs else ():
        if (key := (pod.namespace, name)) in gangs:
            gangs[key].append(pod)
    return [item for together in gangs.values() for item in _gang_item(context, together)]


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
    # Of a gang that is too large not all pods are shown: the limit goes first.
    most, kind = MAX_GANG_PODS, HoldKind.GANG_TOO_LARGE
    if gang.size <= MAX_GANG_PODS:
        most, kind = len(members), HoldKind.GANG_INCOMPLETE
    if most < gang.size:
        for pod in members:
            if _waits(pod):
                context.hold(pod, "gang", HoldReason(kind, name=gang.name, count=most, of=gang.size))
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
            shapes = _shapes(context, pods) if half is gated else ()
            yield QueueItem(pods, gang, half is gated, admitted[0].pinned_to, shapes)


def _whole_gang(context: DecisionContext, members: list[Pod], gang: Gang) -> QueueItem:
    """Cached while its pods do not change."""
    key = (members[0].namespace, gang.name)
    gangs = context.memory.of(_QueueCache).gangs
    known = gangs.get(key)
    if known is not None and len(known[0]) == len(members) and all(map(is_, known[0], members)):
        return known[1]
    if len(gangs) > 10_000:  # mostly gangs that are gone; the others are computed again
        gangs.clear()
    pods = tuple(sorted(members, key=lambda pod: pod.name))
    item = QueueItem(pods, gang, True, shapes=_shapes(context, pods))
    gangs[key] = (tuple(members), item)
    return item


def _shapes(context: DecisionContext, pods: tuple[Pod, ...]) -> tuple[PodShape, ...]:
    """The shapes of gated pods once they are admitted."""
    known = context.memory.of(_QueueCache).admitted
    if len(known) > 10_000:
        known.clear()
    return tuple(_admitted(known, pod.shape) for pod in pods)


def _admitted(known: dict[int, tuple[PodShape, PodShape]], shape: PodShape) -> PodShape:
    found = known.get(id(shape))
    if found is None:
        missing = (
            toleration
            for taint, toleration in ((HELD, TOLERATES_HELD), (ENDING, TOLERATES_ENDING))
            if not tolerates(shape.tolerations, taint)
        )
        found = known[id(shape)] = (shape, replace(shape, tolerations=(*shape.tolerations, *missing)))
    return found[1]


def members_of(context: DecisionContext, item: QueueItem) -> list[Pod]:
    """Every pod of its gang, bound ones too."""
    assert item.gang is not None
    key = (item.pods[0].namespace, item.gang.name)
    return [
        pod for pod in context.world.pods if pod.gang is not None and (pod.namespace, pod.gang.name) == key
    ]


def stop_gang(context: DecisionContext, pods: Iterable[Pod], reason: RecreateReason) -> None:
    """Delete only pods that a controller creates again; warn about the others."""
    for pod in pods:
        if not pod.workload:
            stays = WarningReason(WarningKind.GANG_POD_NOT_RECREATED, recreate=reason)
            context.warn(pod.full_name, stays)
        elif pod.deleting_until is None:
            context.do(Recreate(pod.uid, reason, pod.workload))


# --- order ------------------------------------------------------------------------------------------


def last_birthday(now: datetime) -> datetime:
    return now - (now - _EPOCH) % BIRTHDAY


def birthday_from(due: datetime) -> datetime:
    """The first such instant at or after `due`."""
    birthday = last_birthday(due)
    return birthday if birthday == due else birthday + BIRTHDAY


def wake_at_birthdays(context: DecisionContext, queue: Queue) -> None:
    """When the next item comes into another age class. A single item needs no order."""
    if len(queue.items) < 2:
        return
    birthday = last_birthday(context.now)
    for youngest, oldest, age in zip((None, *AGES), AGES, AGES, strict=False):
        eldest = queue.oldest_after(birthday - oldest)
        if eldest is not None and (youngest is None or eldest <= birthday - youngest):
            context.wake(birthday_from(eldest + age))


def levels(context: DecisionContext, items: Sequence[QueueItem]) -> list[int]:
    """Admitted items first, then priority, then age class."""
    birthday = last_birthday(context.now)
    old, older, oldest = (birthday - age for age in AGES)
    keys = []
    for item in items:
        came = item.pods[0].created_at
        waited = (came <= old) + (came <= older) + (came <= oldest)
        promised, rest_of_gang, priority = item.turn[:3]
        keys.append((promised, rest_of_gang, priority, -waited))
    order = {key: -number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]
