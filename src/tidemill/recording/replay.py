"""Decides again what was decided, from a recording: by the same documents, to prove and explain it, or by others.

With other documents the worlds stay those that were recorded: what the others would have done does not happen in them.
So each tick answers "what would they decide here", and no sum of ticks answers "how would it have gone".
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tidemill.decide import Memory, decide
from tidemill.model.plan import Plan
from tidemill.model.pods import Pod
from tidemill.recording.plan_digest import PlanDigests
from tidemill.recording.reader import RecordedTick
from tidemill.spec import Spec
from tidemill.wording import sentence

_MOST_DIFFERENCES = 20


@dataclass(frozen=True, slots=True)
class ReplayedTick:
    recorded: RecordedTick
    plan: Plan | None  # None: deciding raises
    actions: bytes  # of the plan, as msgpack
    same: bool  # as the plan that was made then
    error: str = ""  # the traceback of deciding again


def replay(ticks: Iterable[RecordedTick], spec: Spec | None = None) -> Iterator[ReplayedTick]:
    """`spec`: other documents than those recorded; then `same` says whether they decide alike."""
    memory, last, digests = Memory(), None, PlanDigests()
    for tick in ticks:
        used = spec or tick.spec
        if used is not last:
            memory, last = Memory(), used
        try:
            plan = decide(used, tick.world, memory)
        except Exception:
            memory = Memory()
            yield ReplayedTick(tick, None, b"\x90", same=not tick.plan, error=traceback.format_exc())
            continue
        digest, actions = digests.of(plan)
        # A tick that failed before it had a plan, and has one now, is not the same.
        yield ReplayedTick(tick, plan, actions, same=digest == tick.plan)


def actions_of(message: bytes) -> list[Any]:
    """Actions as plain data, each with everything it says: what two plans are compared by."""
    decoded: list[Any] = msgspec.msgpack.decode(message)
    return decoded


@dataclass(slots=True)
class Agreement:
    """How a replay went."""

    ticks: int = 0
    differ: int = 0
    first_difference: ReplayedTick | None = None
    failed: list[ReplayedTick] = field(default_factory=list)  # ticks that failed then
    first: datetime | None = None
    last: datetime | None = None

    def note(self, tick: ReplayedTick) -> None:
        now = tick.recorded.world.now
        self.ticks += 1
        self.first, self.last = self.first or now, now
        if tick.recorded.error and len(self.failed) < _MOST_DIFFERENCES:
            self.failed.append(tick)
        if not tick.same:
            self.differ += 1
            self.first_difference = self.first_difference or tick


# --- one pod ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodChapter:
    """What was true of a pod from this tick on."""

    at: datetime
    pod: str
    sentence: str


def pod_history(ticks: Iterable[ReplayedTick], named: str) -> Iterator[PodChapter]:
    """Every change of what is said of pods with this name, namespace/name, or of this workload."""
    said: dict[str, str] = {}
    for tick in ticks:
        world, told = tick.recorded.world, {one.pod: one for one in (tick.plan.unmet if tick.plan else ())}
        present: set[str] = set()
        for pod in world.pods:
            if not _is_meant(pod, named):
                continue
            present.add(pod.full_name)
            unmet = told.get(pod.uid)
            text = _of_pod(pod) if unmet is None else f"waits: {sentence(unmet.reason)}"
            if said.get(pod.full_name) != text:
                said[pod.full_name] = text
                yield PodChapter(world.now, pod.full_name, text)
        for gone in [name for name in said if name not in present]:
            del said[gone]
            yield PodChapter(world.now, gone, "is gone")


def _is_meant(pod: Pod, named: str) -> bool:
    """A workload is named in full, by its name, Kind/name or namespace/name."""
    kind, workload = pod.workload.partition("/")[0], pod.workload.rpartition("/")[2]
    of_workload = (pod.workload, workload, f"{kind}/{workload}", f"{pod.namespace}/{workload}")
    return named in (pod.name, pod.full_name) or (bool(workload) and named in of_workload)


def _of_pod(pod: Pod) -> str:
    if pod.deleting_until is not None:
        return f"is stopping on {pod.node}" if pod.node else "is being deleted"
    if pod.node:
        return f"{pod.phase.value} on {pod.node}"
    if pod.held_by_others:
        return "another controller holds it"
    return "was admitted and is being scheduled" if not pod.gated else "is admitted now"


# --- other documents ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """What one set of documents decides over the recorded worlds."""

    actions: Counter[str] = field(default_factory=Counter)  # by kind, each tick's
    pods_waiting: timedelta = timedelta(0)  # pod-time that its plans leave waiting
    warnings: int = 0

    def note(self, plan: Plan | None, lasted: timedelta, seen: set[bytes]) -> None:
        if plan is None:
            return
        for action in plan.actions:
            # The same wish tick after tick is one: the recorded world may never fulfil it.
            key = msgspec.msgpack.encode((type(action).__name__, _about(action)))
            if key not in seen:
                seen.add(key)
                self.actions[type(action).__name__] += 1
        self.pods_waiting += lasted * len(plan.unmet)
        self.warnings += len(plan.warnings)


@dataclass(frozen=True, slots=True)
class Difference:
    at: datetime
    only_then: tuple[str, ...]  # actions by sentence
    only_with: tuple[str, ...]


@dataclass(slots=True)
class Comparison:
    """The recorded documents beside others, tick by tick on the same worlds. The world reacts to neither."""

    then: Side = field(default_factory=Side)
    other: Side = field(default_factory=Side)
    ticks: int = 0
    differ: int = 0
    differences: list[Difference] = field(default_factory=list)  # the first ones
    _seen: tuple[set[bytes], set[bytes]] = field(default_factory=lambda: (set(), set()))

    def note(self, then: ReplayedTick, other: ReplayedTick, lasted: timedelta) -> None:
        self.ticks += 1
        self.then.note(then.plan, lasted, self._seen[0])
        self.other.note(other.plan, lasted, self._seen[1])
        if then.actions == other.actions:
            return
        self.differ += 1
        if len(self.differences) < _MOST_DIFFERENCES:
            now = then.recorded.world.now
            mine, theirs = _told(then.plan), _told(other.plan)
            only = tuple(one for one in mine if one not in theirs)
            new = tuple(one for one in theirs if one not in mine)
            self.differences.append(Difference(now, only, new))


def compare(ticks: list[RecordedTick] | Iterator[RecordedTick], spec: Spec) -> Comparison:
    """One pass: each tick is decided by the documents that were recorded, and by `spec`."""
    found = Comparison()
    before: tuple[ReplayedTick, ReplayedTick] | None = None
    for pair in _both(ticks, spec):
        if before is not None:
            lasted = pair[0].recorded.world.now - before[0].recorded.world.now
            found.note(*before, lasted)
        before = pair
    if before is not None:
        found.note(*before, timedelta(0))
    return found


def _both(ticks: Iterable[RecordedTick], spec: Spec) -> Iterator[tuple[ReplayedTick, ReplayedTick]]:
    from itertools import tee

    mine, theirs = tee(ticks)
    return zip(replay(mine), replay(theirs, spec), strict=True)


def _about(action: object) -> tuple[str, ...]:
    names = ("pod", "pods", "node", "instance_id", "workload", "intent_id", "source_label")
    said = tuple(str(getattr(action, name)) for name in names if hasattr(action, name))
    intent = getattr(action, "intent", None)
    return said if intent is None else (*said, intent.id)


def _told(plan: Plan | None) -> tuple[str, ...]:
    if plan is None:
        return ("deciding fails",)
    return tuple(f"{type(one).__name__}: {sentence(one.reason)}" for one in plan.actions)


def at_instant(ticks: Iterable[RecordedTick], at: datetime) -> RecordedTick | None:
    """The last tick at or before an instant."""
    found = None
    for tick in ticks:
        if tick.world.now > at:
            break
        found = tick
    return found
