"""Which pod goes to which node: kube-scheduler's filter rules, most-allocated scoring, its own messages.

The rules are pure functions over one pod's shape and one node; `Scheduler` runs a pass one second after
anything changed that could let a waiting pod in. It knows no job, no service and no deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tidemill.sim.objects import Objects
from tidemill.sim.room import Room, needs
from tidemill.spec import names
from tidemill.world import Amounts, KubeNode, Pod, PodShape, Taint, Toleration

_PASS_DELAY = timedelta(seconds=1)
_SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_NOT_READY = "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
_UNSCHEDULABLE = "node(s) were unschedulable"


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.operator == "Exists":
            if not toleration.key or toleration.key == taint.key:
                return True
        elif toleration.key == taint.key and toleration.value == taint.value:
            return True
    return False


def obstacle(shape: PodShape, pinned_to: str, node: KubeNode) -> str:
    """Why this node is out of the question whatever is free on it, in kube-scheduler's words; else empty."""
    if not node.ready:
        return _NOT_READY
    if node.unschedulable:
        return _UNSCHEDULABLE
    labels = dict(node.labels)
    if pinned_to and labels.get(names.LABEL_SOURCE) != pinned_to:
        return _SELECTOR_MISMATCH
    if any(labels.get(key) != value for key, value in shape.node_selector):
        return _SELECTOR_MISMATCH
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return ""


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
    """Pods of one shape and pin are one question with one answer."""

    layout: int = -1  # of the cluster when `rooms` and `obstacles` were worked out
    rooms: list[Room] = field(default_factory=list)
    obstacles: Counter[str] = field(default_factory=Counter)
    full_at: int = -1  # `openings` when nothing fitted: until that moves, nothing will
    message: str = ""


class Scheduler:
    """Runs one pass per instant, and none when nothing waits or nothing could have changed."""

    def __init__(self, objects: Objects, bind: Callable[[Pod, str], None]) -> None:
        self._objects = objects
        self._bind = bind
        self._classes: dict[tuple[PodShape, str], _Class] = {}
        self._due = False
        self.passes = 0

    def stir(self) -> None:
        """Something changed: have a look, a second from now."""
        if not self._due and self._objects.waiting:
            self._due = True
            self._objects.timeline.after(_PASS_DELAY, self._pass)

    def _pass(self) -> None:
        self._due = False
        self.passes += 1
        waiting = [self._objects.pods[uid] for uid in self._objects.waiting]
        waiting.sort(key=lambda pod: (-pod.terms.priority, pod.created_at, pod.name))
        for pod in waiting:
            if pod.uid in self._objects.waiting:  # binding another may have failed a gang and let this one go
                self._place(pod)

    def _place(self, pod: Pod) -> None:
        alike = self._class_of(pod)
        if alike.full_at != self._objects.openings:
            requests = needs(pod.shape)
            room = choose(requests, alike.rooms)
            if room is not None:
                self._bind(pod, room.node.name)
                return
            alike.full_at = self._objects.openings
            alike.message = explain(requests, alike.rooms, alike.obstacles)
        if pod.message != alike.message:
            self._objects.put_pod(replace(pod, message=alike.message))

    def _class_of(self, pod: Pod) -> _Class:
        key = (pod.shape, pod.pinned_to)
        alike = self._classes.get(key)
        if alike is None:
            alike = self._classes[key] = _Class()
        if alike.layout != self._objects.layout:
            alike.layout, alike.full_at = self._objects.layout, -1
            alike.rooms, alike.obstacles = [], Counter()
            for name in self._objects.nodes:
                room = self._objects.rooms[name]
                reason = obstacle(pod.shape, pod.pinned_to, room.node)
                if reason:
                    alike.obstacles[reason] += 1
                else:
                    alike.rooms.append(room)
        return alike
