"""Which Kubernetes Events a tick is worth: what was done to pods and nodes, and why pods wait, in one sentence each.

An event is due when the *kind* of what is said about an object changes, or when its start moved by long; not whenever
an instant in the sentence does. The earliest start of what waits is an annotation of the Event too, for programs.
`kube.events` sends them beside the ticks, merges repetitions and bounds their number.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.controller.loop import TickReport
from tidemill.kube.events import REPEAT_S, WAITING, Subject
from tidemill.model.nodes import Node
from tidemill.model.plan import (
    Action,
    Admit,
    CancelDrain,
    Evict,
    ForceDelete,
    KeepForJobs,
    MarkReady,
    Outcome,
    Recreate,
    RequestCheckpoint,
    RestartWorkload,
    ScaleWorkload,
    StartDrain,
    Terminate,
    Unmet,
)
from tidemill.model.pods import Pod
from tidemill.model.world import World
from tidemill.spec import names
from tidemill.spec.units import format_instant
from tidemill.wording import sentence

# Kubernetes drops events after an hour: what still holds is said again, so that `kubectl describe` shows it.
AGAIN_AFTER_S = 1800.0
# Why a pod waits may change back and forth; it is not said more often than this.
CALM_S = 60.0
# A queue of ten thousand pods must not take the room of a drain's events.
MOST_WAITING_IN_A_TICK = 20
# A start that moves by less is the same start: estimates count from now, and creep.
MOVED = timedelta(minutes=10)
ADMITTED = "Admitted"
_MOST_KNOWN = 50_000
_API_VERSIONS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "PyTorchJob": "kubeflow.org/v1"}


class Recorder(Protocol):
    """`kube.events.EventRecorder`: neither waits nor raises."""

    def tell(
        self, subject: Subject, reason: str, note: str, *, action: str, warning: bool = False,
        facts: Mapping[str, str] | None = None,
    ) -> None: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    subject: Subject
    reason: str  # for programs, in CamelCase
    note: str
    action: str
    warning: bool = False
    earliest: datetime | None = None  # of what waits: when it could run

    @property
    def facts(self) -> dict[str, str]:
        if self.earliest is None:
            return {}
        return {names.EARLIEST_START: format_instant(self.earliest.replace(microsecond=0))}


_OF_PODS: dict[type, str] = {
    Evict: "Evicting",
    ForceDelete: "ForceDeleting",
    Recreate: "Recreating",
    RequestCheckpoint: "CheckpointRequested",
}
_OF_NODES: dict[type, str] = {
    MarkReady: "Opened",
    StartDrain: "Draining",
    CancelDrain: "DrainCancelled",
    KeepForJobs: "KeptForJobs",
}


# What did not work is named for what was tried, not for what would have been done.
_FAILED = {
    ADMITTED: "AdmissionFailed",
    "Opened": "OpeningFailed",
    "CheckpointRequested": "CheckpointRequestFailed",
    "DrainCancelled": "DrainCancelFailed",
}


def events_of_actions(world: World, outcomes: tuple[Outcome, ...]) -> Iterator[ObjectEvent]:
    """What was done to a pod or a node, or failed to be."""
    if not outcomes:
        return
    pods = {pod.uid: pod for pod in world.pods}
    nodes = {node.key: node for node in world.nodes}
    for outcome in outcomes:
        if outcome.error and not outcome.failed:
            continue
        action = outcome.action
        for subject, reason in _told(action, pods, nodes):
            note = sentence(action.reason)
            if outcome.error:
                reason, note = _FAILED.get(reason, f"{reason}Failed"), f"{note}; it failed: {outcome.detail}"
            serious = bool(outcome.error) or isinstance(action, ForceDelete)
            yield ObjectEvent(subject, reason, _one_sentence(note), type(action).__name__, serious)


def _told(action: Action, pods: dict[str, Pod], nodes: dict[str, Node]) -> Iterator[tuple[Subject, str]]:
    """Whom an action concerns, and the word for it."""
    match action:
        case Admit(uids):
            yield from ((_pod(pods[uid]), ADMITTED) for uid in uids if uid in pods)
        case Evict(uid) | ForceDelete(uid) | Recreate(uid) | RequestCheckpoint(uid):
            if uid in pods:
                yield _pod(pods[uid]), _OF_PODS[type(action)]
        case MarkReady(name) | StartDrain(name) | CancelDrain(name) | KeepForJobs(name):
            yield _node(name), _OF_NODES[type(action)]
        case Terminate(instance_id):
            node = nodes.get(instance_id)
            if node is not None and node.kube is not None:
                yield _node(node.name), "Terminating"
        case RestartWorkload(workload) | ScaleWorkload(workload):
            yield _service(workload), "HandingOver"
        case _:  # about no object that is there
            return


def events_of_waiting(world: World, unmet: tuple[Unmet, ...]) -> Iterator[ObjectEvent]:
    pods = {pod.uid: pod for pod in world.pods} if unmet else {}
    for waiting in unmet:
        if (pod := pods.get(waiting.pod)) is not None:
            reason = f"{WAITING}{_camel(waiting.code)}"
            note = _one_sentence(sentence(waiting.reason))
            serious = waiting.code == "impossible"
            yield ObjectEvent(_pod(pod), reason, note, "Place", serious, waiting.earliest)


def _pod(pod: Pod) -> Subject:
    """A pod that a suspended Job has yet to make is shown as `<uid of the Job>.<index>`: its Job is told."""
    owner, dot, _ = pod.uid.partition(".")
    if dot and pod.workload:
        kind, _, named = pod.workload.partition("/")
        name = named.rpartition("/")[2]
        return Subject(kind, name, pod.namespace, owner, _API_VERSIONS.get(kind, "batch/v1"))
    return Subject("Pod", pod.name, pod.namespace, pod.uid)


def _service(workload: str) -> Subject:
    kind, _, named = workload.partition("/")
    namespace, _, name = named.rpartition("/")
    return Subject(kind, name, namespace, api_version="apps/v1")


def _node(name: str) -> Subject:
    # The uid of events on nodes is the node's name, as the kubelet and kube-controller-manager write it.
    return Subject("Node", name, uid=name)


def _one_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _camel(code: str) -> str:
    return "".join(part.capitalize() for part in code.split("-"))


@dataclass(frozen=True, slots=True)
class _Said:
    """Why it waits, and when that was said."""

    reason: str
    earliest: datetime | None
    at_s: float

    def again_after_s(self, event: ObjectEvent) -> float:
        if self.reason != event.reason:
            return CALM_S
        if self.earliest is None or event.earliest is None:
            return AGAIN_AFTER_S
        return REPEAT_S if abs(event.earliest - self.earliest) >= MOVED else AGAIN_AFTER_S


class EventReporter:
    def __init__(self, recorder: Recorder, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._recorder, self._now_s = recorder, now_s
        self._said: OrderedDict[Subject, _Said] = OrderedDict()

    def report(self, report: TickReport) -> None:
        tick = report.tick
        if tick is None:
            return
        for event in events_of_actions(tick.world, tick.outcomes):
            if event.reason == ADMITTED:
                self._said.pop(event.subject, None)  # if it waits again, that is news
            self._tell(event)
        said = 0
        for event in events_of_waiting(tick.world, tick.plan.unmet):
            if said >= MOST_WAITING_IN_A_TICK:
                return  # the others are due at the next tick
            if self._is_due(event):
                self._note(event)
                self._tell(event)
                said += 1

    def _tell(self, event: ObjectEvent) -> None:
        self._recorder.tell(
            event.subject, event.reason, event.note, action=event.action, warning=event.warning, facts=event.facts
        )  # fmt: skip

    def _is_due(self, event: ObjectEvent) -> bool:
        said = self._said.get(event.subject)
        return said is None or self._now_s() - said.at_s >= said.again_after_s(event)

    def _note(self, event: ObjectEvent) -> None:
        self._said[event.subject] = _Said(event.reason, event.earliest, self._now_s())
        self._said.move_to_end(event.subject)
        if len(self._said) > _MOST_KNOWN:
            self._said.popitem(last=False)
