"""Admitted Jobs that make no pods: a quota forbids them, or an admission webhook, or a ServiceAccount is missing.

Their room is claimed from the admission on (`held_jobs`). Without a bound it would stay claimed for ever, so after a
while what was not made is shown as held by others: nobody's demand, with the reason. When the pods are made after all
they are seen as pods. A gang that runs in part is shown as one that lost pods, so that the engine stops it; then it
rests. After a restart the wait counts from when the Job was resumed; that a gang rests is not known any more.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.engine.clock import MappedClock
from tidemill.kube.held_jobs import HeldJob
from tidemill.kube.pods import at
from tidemill.model.pods import Pod

log = logging.getLogger("tidemill.kube.unmade")

# A Job controller waits up to ten minutes before it makes another pod in place of one that failed.
LIMIT = timedelta(minutes=15)
REST = timedelta(hours=1)  # before a gang that was stopped for want of pods is admitted again
_Lack = tuple[int, int]  # how many pods failed so far, how many are missing


class UnmadePods:
    """Not thread-safe."""

    def __init__(self, clock: MappedClock) -> None:
        self._clock = clock
        self._seen: set[str] = set()  # Jobs, by uid: what follows is by uid, too
        self._since: dict[str, tuple[_Lack, datetime]] = {}
        self._overdue: set[str] = set()
        self._rests: dict[str, datetime] = {}  # until then

    def forget(self, job: str) -> None:
        self._since.pop(job, None)
        self._rests.pop(job, None)
        self._overdue.discard(job)
        self._seen.discard(job)

    def due(self) -> list[str]:
        """Jobs whose pods are to be shown anew because time has passed."""
        if not (self._since or self._rests):
            return []
        now = self._clock.now()
        late = [
            uid
            for uid, (_, since) in self._since.items()
            if now - since >= LIMIT and uid not in self._overdue
        ]
        return late + [uid for uid, until in self._rests.items() if now >= until]

    def give_up(self, job: HeldJob) -> None:
        """It is due."""
        if job.meta.uid in self._since:
            self._overdue.add(job.meta.uid)
            log.warning("%s: %s; its room is given to others", job.workload, _reason(job))

    def shown(
        self, job: HeldJob, pods: dict[str, Pod], *, part_runs: bool, in_turn: bool = False
    ) -> dict[str, Pod]:
        """Its pods that are not there, as they are to be shown. `part_runs`: others of it have started. `in_turn`: it
        makes them when others that are there have run, which may take hours."""
        uid, now = job.meta.uid, self._clock.now()
        first_seen = uid not in self._seen
        self._seen.add(uid)
        if job.suspended:
            self._since.pop(uid, None)
            if uid in self._overdue:
                self._overdue.discard(uid)
                self._rests[uid] = now + REST
            if now < self._rests.get(uid, now):
                return {key: _held(pod, job) for key, pod in pods.items()}
            self._rests.pop(uid, None)
            return pods
        if in_turn or not pods:
            self.forget(uid)
            self._seen.add(uid)
            return pods
        lack = (job.failed, len(pods))
        known = self._since.get(uid)
        if known is None or known[0][0] != lack[0] or known[0][1] > lack[1]:  # one failed, or one was made
            resumed = at(job.resumed_at, self._clock) if first_seen and not job.failed else None
            self._since[uid] = lack, resumed or now
            self._overdue.discard(uid)
        else:
            self._since[uid] = lack, known[1]
        if uid not in self._overdue:
            return pods
        if job.whole and part_runs:
            return {key: replace(pod, gated=True, pinned_to="") for key, pod in pods.items()}
        return {key: _held(pod, job) for key, pod in pods.items()}


def _held(pod: Pod, job: HeldJob) -> Pod:
    return replace(pod, held_by_others=True, message=_reason(job))


def _reason(job: HeldJob) -> str:
    minutes = int(LIMIT.total_seconds() // 60)
    return (
        f"it was admitted, and its controller made no pods for {minutes}m: "
        f"see the events of {job.kind} {job.meta.name}"
    )
