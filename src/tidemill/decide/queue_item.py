"""What waits as one, a pod or a gang, and how much time it needs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter

from tidemill.decide.deadlines import End, checkpoint_patience, pod_lead
from tidemill.model.plan import Unmet
from tidemill.model.pods import Gang, Pod, PodShape, Terms
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool

# From the gate's removal to useful work: scheduling and image pull, before the pod's own load time.
POD_START = timedelta(minutes=1)
# A pod may run a little longer than it said; after this much its end is unknown.
OVERRUN = timedelta(minutes=30)


class QueueItem:
    """What waits as one: a pod, or all the pods of a gang. What follows from it is computed once.

    `kind`: items of one kind ask for the same room and differ only in how long they need it. `sociable`: one of its
    pods has rules about other pods. `need`: how long that
    is, as far as it says; the longer of two of one kind is the harder to place. `standing`: all that decides which
    sources it may use, but for that need. `turn`: when it is served; what is
    admitted already first (its room was promised, and a pin cannot be taken back), of a half-admitted gang the
    admitted half before the rest, then priority, then age; the name and the uid make the order total, so that it does
    not depend on the order in which pods were listed.
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
        "shapes",
        "sociable",
        "standing",
        "terms",
        "turn",
        "wants_accelerator",
    )

    def __init__(
        self,
        pods: tuple[Pod, ...],
        gang: Gang | None,
        gated: bool,
        pinned_to: str = "",
        shapes: tuple[PodShape, ...] = (),
    ) -> None:
        """`shapes`: those that its pods will have once they are admitted; not given: those they have."""
        first = pods[0]
        self.pods = pods
        self.shapes = shapes or tuple(pod.shape for pod in pods)
        self.gang = gang
        self.gated = gated
        self.pinned_to = pinned_to  # admitted, but not bound yet: only this source will do
        shape = self.shape = self.shapes[0]
        self.alike = all(other is shape or other == shape for other in self.shapes)
        self.sociable = any(pod.shape.sociable for pod in pods)
        self.terms: Terms = first.terms
        self.wants_accelerator = any(name in names.ACCELERATORS for name, _ in first.shape.requests)
        self.kind: tuple[object, ...] = (
            id(shape), first.namespace, gated, pinned_to, len(pods), first.terms.overflow, first.terms.grace,
            first.terms.checkpoint_time, first.terms.expected is None, first.terms.checkpoint_every is not None,
        )  # fmt: skip
        self.standing: tuple[object, ...] = (
            first.namespace, gated, pinned_to, gang is not None, first.terms.overflow, first.terms.grace,
            first.terms.checkpoint_time, first.terms.checkpoint_every is not None,
        )  # fmt: skip
        self.need = time_needed(first.terms, None)
        rest_of_gang = bool(pinned_to) and gated
        priority = -first.terms.priority
        self.turn = (not pinned_to, rest_of_gang, priority, first.created_at, first.name, first.uid)


class Lane:
    """Items in the order of the queue that differ in nothing but their turn and how long they need a node.

    What is true of the one that needs it for the shortest time bounds what is true of the others. `told`: what its
    items were last told, and `answer` what that follows from.
    """

    __slots__ = ("_by_need", "_runs", "answer", "items", "told")

    def __init__(self) -> None:
        self.items: list[QueueItem] = []
        self._by_need: list[tuple[timedelta, int, QueueItem]] = []  # sorted
        self._runs: list[timedelta] = []  # sorted
        self.answer: object = None
        self.told: dict[QueueItem, tuple[Unmet, ...]] = {}

    @property
    def shortest(self) -> QueueItem:
        """The one that needs a node for the shortest time."""
        return self._by_need[0][2]

    @property
    def longest(self) -> QueueItem:
        return self._by_need[-1][2]

    def count_up_to(self, need: timedelta) -> int:
        """How many of them need a node no longer than that."""
        return bisect_right(self._by_need, need, key=_need)

    def item_at(self, place: int) -> QueueItem:
        """By how long they need a node, the shortest first."""
        return self._by_need[place][2]

    @property
    def first_done(self) -> timedelta:
        """How long the first of them to finish would run, its load included, as far as they say."""
        return self._runs[0]

    def add(self, item: QueueItem) -> None:
        insort(self.items, item, key=_turn)
        insort(self._by_need, (item.need, id(item), item))
        insort(self._runs, _run(item))

    def remove(self, item: QueueItem) -> None:
        remove_item(self.items, item)
        del self._by_need[bisect_left(self._by_need, (item.need, id(item), item))]
        del self._runs[bisect_left(self._runs, _run(item))]
        self.told.pop(item, None)


_turn, _need = attrgetter("turn"), itemgetter(0)


def remove_item(items: list[QueueItem], item: QueueItem) -> None:
    """From a list in the order of the queue; several may have one turn."""
    place = bisect_left(items, item.turn, key=_turn)
    while items[place] is not item:
        place += 1
    del items[place]


def _run(item: QueueItem) -> timedelta:
    return item.terms.load + (item.terms.expected or timedelta(0))


def expected_run(terms: Terms, pool: ComputePool | None) -> timedelta | None:
    """What the pod says, else the pool's default, capped by the pool's maxExpectedDuration; None: unknown."""
    if pool is None:
        return terms.expected
    said = terms.expected if terms.expected is not None else pool.spec.default_duration
    return None if said is None else min(said, pool.spec.max_expected_duration)


def done_at(pod: Pod, pool: ComputePool | None, now: datetime) -> datetime | None:
    """When a running pod should be done by its expected duration. A late one gets a little more, then it is unknown.

    None: unknown. The estimate says when to look again; it never delays the end of a source.
    """
    if pod.deleting_until is not None:
        return pod.deleting_until if pod.deleting_until > now else None
    if pod.checkpoint_requested_at is not None:
        leaves = checkpoint_patience(pod, pod.checkpoint_requested_at) + pod.terms.grace
        if leaves > now:
            return leaves  # it was asked to save its work because it leaves
    return finished_at(pod, pool, now)


def finished_at(pod: Pod, pool: ComputePool | None, now: datetime) -> datetime | None:
    """The same if nobody asks it to leave."""
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
    """Whether there is time enough for this item, starting on a Ready node at `from_`."""
    until = useful_until(item, end, pool)
    return until is None or from_ + time_needed(item.terms, pool) <= until
