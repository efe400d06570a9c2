"""Which pod goes to which node: kube-scheduler's filters, wishes, most-allocated packing, its own messages.

The rules of one pod and one node are pure functions here; those about other pods are in `neighbours`, wishes in
`wishes`, preemption in `preempt`. `Scheduler` runs a pass one second after anything changed that could let a
waiting pod in. It knows no job, no service and no deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tidemill.decide.scheduler_rules import reaches_volumes, tolerates, wanted
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.free_resources import Room, needs
from tidemill.sim.cluster.objects import Objects
from tidemill.sim.cluster.pod_filters import Field, Neighbours, fields
from tidemill.sim.cluster.preemption import least_sacrifice
from tidemill.sim.cluster.scoring import scores, soft_taints
from tidemill.spec import names

_PASS_DELAY = timedelta(seconds=1)
_SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_NOT_READY = "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
_UNSCHEDULABLE = "node(s) were unschedulable"
_ALL_OF_IT = nullcontext()  # no room is promised to anybody
_VOLUME_ELSEWHERE = "node(s) had volume node affinity conflict"


def obstacle(shape: PodShape, pinned_to: str, node: KubeNode) -> str:
    """Why this node is out of the question whatever is free on it, in kube-scheduler's words; else empty."""
    if not node.ready:
        return _NOT_READY
    if node.unschedulable:
        return _UNSCHEDULABLE
    labels = dict(node.labels)
    if pinned_to and labels.get(names.LABEL_SOURCE) != pinned_to:
        return _SELECTOR_MISMATCH
    if not wanted(shape, labels):
        return _SELECTOR_MISMATCH
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if reaches_volumes(shape, labels) else _VOLUME_ELSEWHERE


def choose(requests: Amounts, rooms: Iterable[Room]) -> Room | None:
    """The fullest room it still fits into. `rooms` come by name, so that among equals the first name wins."""
    best, least_left = None, float("inf")
    for room in rooms:
        left = room.left_after(requests)
        if left is not None and left < least_left:
            best, least_left = room, left
            if not left:
                break
    return best


def explain(requests: Amounts, rooms: Sequence[Room], obstacles: Counter[str]) -> str:
    """The message kube-scheduler would leave on a pod that fits nowhere."""
    total = len(rooms) + obstacles.total()
    if not total:
        return "no nodes available to schedule pods"
    counts = Counter(f"Insufficient {name}" for room in rooms for name in room.lacks(requests)) + obstacles
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"0/{total} nodes are available: {reasons}."


@dataclass(slots=True)
class _Class:
    """Pods of one shape, pin, namespace and priority are one question with one answer."""

    layout: int = -1  # of the cluster when all but the last two were worked out
    rooms: list[Room] = field(default_factory=list)
    obstacles: Counter[str] = field(default_factory=Counter)
    choosy: bool = False  # it likes some of the rooms better, by what the nodes are
    spread_over: tuple[Field, ...] = ()
    rather_over: tuple[Field, ...] = ()  # the same for ScheduleAnyway
    full_at: int = -1  # `openings` when nothing fitted: until that moves, nothing will
    message: str = ""


class Scheduler:
    """Runs one pass per instant, and none when nothing waits or nothing could have changed."""

    def __init__(
        self,
        objects: Objects,
        bind: Callable[[Pod, str], None],
        preempt: Callable[[Pod, Pod], None],
        allowances: Callable[[], Mapping[str, int]],
    ) -> None:
        """`preempt` sends the first pod away for the second; `allowances` are the disruption budgets'."""
        self._objects = objects
        self._bind = bind
        self._preempt = preempt
        self._allowances = allowances
        self._classes: dict[tuple[PodShape, str, str, int], _Class] = {}
        self._nominated: dict[str, str] = {}  # a pod whose victims are leaving -> the node they leave
        self._due = False
        self.passes = 0
        self.left_waiting: list[Callable[[], None]] = []  # called after a pass that left pods without a node

    def stir(self) -> None:
        """Something changed: have a look, a second from now."""
        if not self._due and self._objects.waiting:
            self._due = True
            self._objects.timeline.after(_PASS_DELAY, self._pass)

    def _pass(self) -> None:
        self._due = False
        self.passes += 1
        if self._nominated:
            self._forget_nominees()
        waiting = [self._objects.pods[uid] for uid in self._objects.waiting]
        waiting.sort(key=lambda pod: (-pod.terms.priority, pod.created_at, pod.name))
        for pod in waiting:
            if pod.uid in self._objects.waiting:  # binding another may have failed a gang and let this one go
                self._place(pod)
        if self._objects.waiting:
            for listener in self.left_waiting:
                listener()

    def _place(self, pod: Pod) -> None:
        alike = self._class_of(pod)
        if alike.full_at != self._objects.openings:
            with self._holding_back(pod) if self._nominated else _ALL_OF_IT:
                room = self._room_for(pod, alike)
                if room is None:
                    alike.message = self._explanation(pod, alike)
            if room is not None:
                self._nominated.pop(pod.uid, None)
                self._bind(pod, room.node.name)
                return
            alike.full_at = self._objects.openings
            if pod.terms.priority > self._objects.lowest_priority:
                self._make_room(pod, alike)
        if pod.message != alike.message:
            self._objects.put_pod(replace(pod, message=alike.message))

    def _class_of(self, pod: Pod) -> _Class:
        shape = pod.shape
        key = (shape, pod.pinned_to, pod.namespace, pod.terms.priority)
        alike = self._classes.get(key)
        if alike is None:
            alike = self._classes[key] = _Class()
        if alike.layout != self._objects.layout:
            alike.layout, alike.full_at = self._objects.layout, -1
            alike.rooms, alike.obstacles = [], Counter()
            rooms = [self._objects.rooms[name] for name in self._objects.nodes]
            for room in rooms:
                reason = obstacle(shape, pod.pinned_to, room.node)
                if reason:
                    alike.obstacles[reason] += 1
                else:
                    alike.rooms.append(room)
            alike.choosy = bool(shape.preferred_nodes) or any(soft_taints(shape, one) for one in alike.rooms)
            if shape.spread:
                alike.spread_over = fields(shape, pod.pinned_to, rooms, hard=True)
                alike.rather_over = fields(shape, pod.pinned_to, rooms, hard=False)
        return alike

    # --- one pod and all nodes ----------------------------------------------------------------------

    def _room_for(self, pod: Pod, alike: _Class) -> Room | None:
        requests, company = needs(pod.shape), self._objects.company
        if company is None and not alike.choosy:
            return choose(requests, alike.rooms)
        neighbours = self._neighbours(pod, alike)
        fitting = [
            (room, left)
            for room in alike.rooms
            if (left := room.left_after(requests)) is not None
            and (neighbours is None or not neighbours.objection(room))
        ]
        rooms = [room for room, _ in fitting]
        if len(rooms) < 2:
            return rooms[0] if rooms else None
        liked = scores(pod.shape, pod.namespace, rooms, company, alike.rather_over)
        order = range(len(fitting))  # of equals the first name, as `choose` does
        return rooms[min(order, key=lambda index: (-liked[index], fitting[index][1], index))]

    def _neighbours(self, pod: Pod, alike: _Class) -> Neighbours | None:
        company = self._objects.company
        if company is None:
            return None
        return Neighbours(pod.shape, pod.namespace, company, alike.spread_over)

    def _explanation(self, pod: Pod, alike: _Class) -> str:
        requests, neighbours = needs(pod.shape), self._neighbours(pod, alike)
        if neighbours is None:
            return explain(requests, alike.rooms, alike.obstacles)
        small = [room for room in alike.rooms if room.lacks(requests)]
        minded = Counter(
            reason
            for room in alike.rooms
            if not room.lacks(requests) and (reason := neighbours.objection(room))
        )
        return explain(requests, small, alike.obstacles + minded)

    # --- preemption ---------------------------------------------------------------------------------

    def _make_room(self, pod: Pod, alike: _Class) -> None:
        """A pod for which others are leaving already sends nobody else away until they have left."""
        objects, nominated = self._objects, self._nominated.get(pod.uid)
        if nominated is not None and any(other.deleting_until is not None for other in objects.on(nominated)):
            return
        requests = needs(pod.shape)

        def fits(room: Room) -> bool:
            if room.left_after(requests) is None:
                return False
            neighbours = self._neighbours(pod, alike)
            return neighbours is None or not neighbours.objection(room)

        with self._holding_back(pod):
            chosen = least_sacrifice(pod, alike.rooms, objects, fits, self._allowances())
        self._nominated.pop(pod.uid, None)
        if chosen is not None:
            self._nominated[pod.uid] = chosen.room.node.name
            for victim in chosen.victims:
                if victim.uid in objects.pods:  # the end of one can end its whole job
                    self._preempt(objects.pods[victim.uid], pod)
            objects.openings += 1  # the next of its kind has another question: what else could be freed?

    @contextmanager
    def _holding_back(self, pod: Pod) -> Iterator[None]:
        """Room that is being freed for others of no lower priority counts as taken; their rules do not yet."""
        held = []
        for uid, node in self._nominated.items():
            other = self._objects.pods.get(uid)
            if other is not None and uid != pod.uid and other.terms.priority >= pod.terms.priority:
                held.append((self._objects.rooms[node], needs(other.shape)))
        for room, requests in held:
            room.take(requests)
        try:
            yield
        finally:
            for room, requests in held:
                room.give_back(requests)

    def _forget_nominees(self) -> None:
        """Those that do not wait any more, and those whose node has gone."""
        over = [
            uid
            for uid, node in self._nominated.items()
            if uid not in self._objects.waiting or node not in self._objects.nodes
        ]
        for uid in over:
            del self._nominated[uid]
        self._objects.openings += bool(over)
