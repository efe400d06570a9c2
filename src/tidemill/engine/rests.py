"""What is not done again at once: writes that were refused, and those that were done and had to be done again.

A plan follows from the world, so an action that changed nothing is in the next plan, too, a second later and for ever.
Each kind has a reason not to recur (docs/concepts/invariants.md); this is the net below them, for a cluster or an
account that answers yes and does nothing, or where somebody undoes what we do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.model.plan import (
    Action,
    Admit,
    AnnounceEnd,
    AnnounceNodeEnd,
    CancelDrain,
    KeepForJobs,
    MarkReady,
    Recreate,
    RemoveNode,
    RequestCheckpoint,
    RestartWorkload,
    ScaleWorkload,
    SearchExtensions,
    SearchOffers,
    StartDrain,
    Terminate,
)
from tidemill.ports import Clock

# Refused, it is tried again after this long, doubled each time: nothing changes before a person does something.
FIRST_REST = timedelta(seconds=5)
LONGEST_REST = timedelta(minutes=2)
# Done so often on one object: lists that lag behind, and two causes for one thing, are no loop yet. From then on it
# rests likewise, and longer: 12 times an hour are few for whoever gets the calls.
DONE_FREELY = 3
LONGEST_REST_DONE = timedelta(minutes=5)
FORGOTTEN = 2 * LONGEST_REST_DONE
_Write = tuple[object, ...]  # what is written to which object


@dataclass(slots=True)
class _Rest:
    until: datetime
    times: int  # refused, or done, in a row


class Rests:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[_Write, _Rest] = {}
        self._done: dict[_Write, _Rest] = {}
        self._wanted: frozenset[_Write] = frozenset()

    def follow(self, actions: Iterable[Action]) -> None:
        """The plan that is to be carried out. A refusal of what is no longer wanted is forgotten."""
        self._wanted = frozenset(filter(None, map(_write_of, actions)))
        self._refused = {write: rest for write, rest in self._refused.items() if write in self._wanted}
        if self._done:
            since = self._clock.now() - FORGOTTEN
            self._done = {write: rest for write, rest in self._done.items() if rest.until >= since}

    def rests(self, action: Action) -> bool:
        if not (self._refused or self._done):
            return False
        now, write = self._clock.now(), _write_of(action)
        rests = (self._refused.get(write), self._done.get(write))
        return any(rest is not None and now < rest.until for rest in rests)

    @property
    def next_try(self) -> datetime | None:
        """When what rests and is still wanted is tried again; None: there is none."""
        now = self._clock.now()
        untils = [rest.until for rest in self._refused.values()]
        untils += [
            rest.until for write, rest in self._done.items() if write in self._wanted and rest.until > now
        ]
        return min(untils, default=None)

    def was_refused(self, action: Action) -> None:
        self._note(self._refused, action, free=0, longest=LONGEST_REST)

    def was_done(self, action: Action) -> None:
        self._refused.pop(_write_of(action), None)
        self._note(self._done, action, free=DONE_FREELY - 1, longest=LONGEST_REST_DONE)

    def _note(self, rests: dict[_Write, _Rest], action: Action, *, free: int, longest: timedelta) -> None:
        write, now = _write_of(action), self._clock.now()
        if not write:
            return
        times = rests[write].times + 1 if write in rests else 1
        pause = min(FIRST_REST * 2.0 ** min(times - free - 1, 20), longest) if times > free else timedelta(0)
        rests[write] = _Rest(now + pause, times)


def _write_of(action: Action) -> _Write:
    """With all that makes it another one. Empty: of these no rest is worth its delay (evictions and forced deletes have
    a deadline), or what came of them is written down (launches, purchases)."""
    match action:
        case SearchOffers(query) | SearchExtensions(query):
            return type(action), query
        case Admit(pods, source_label):
            return Admit, pods, source_label
        case AnnounceEnd(pod, ends_at):
            return AnnounceEnd, pod, ends_at
        case AnnounceNodeEnd(node, ends_at):
            return AnnounceNodeEnd, node, ends_at
        case RestartWorkload(workload, token):
            return RestartWorkload, workload, token
        case ScaleWorkload(workload, replicas, added):
            return ScaleWorkload, workload, replicas, added
        case StartDrain(node, reason):
            return StartDrain, node, reason.kind
        case MarkReady(node) | CancelDrain(node) | KeepForJobs(node) | RemoveNode(node):
            return type(action), node
        case RequestCheckpoint(pod) | Recreate(pod):
            return type(action), pod
        case Terminate(instance_id):
            return Terminate, instance_id
    return ()
