"""Training jobs as their user sees them: waiting and why, starting, running, done. Pure: objects of an API server in.

It reads what the engine writes for everybody (the Job, its Events), so that no ledger and no AWS account is needed.
Reasons come as the code and the sentence of an Event, and the earliest start as one of its annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from tidemill.spec import names
from tidemill.spec.units import parse_duration, parse_instant

Object = Mapping[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"


class JobState(StrEnum):
    WAITING = "waiting"  # held by Tidemill
    QUEUED = "queued"  # held by Kueue
    SUSPENDED = "suspended"  # by somebody else
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class JobRow:
    name: str
    namespace: str
    kind: str  # Job or JobSet
    uid: str
    state: JobState
    nodes: int
    gpus: int  # all of them
    pool: str
    ready: int  # pods that run
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expected: timedelta | None
    grace: timedelta
    ours: bool  # made by `tidemill job run`, or with its label
    code: str = ""  # why it waits or failed, for programs: WaitingHeld, BackoffLimitExceeded
    reason: str = ""  # the same in one sentence
    earliest: datetime | None = None  # when it could start

    def elapsed(self, now: datetime) -> timedelta | None:
        if self.started_at is None:
            return None
        return max(timedelta(0), (self.ended_at or now) - self.started_at)


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod of a job. `rank` is that of its node."""

    name: str
    uid: str
    rank: int
    phase: str
    created_at: datetime


def is_training_job(thing: Object) -> bool:
    """Made by `tidemill job run`, or held or admitted by Tidemill; not a part of something bigger."""
    meta = thing["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    if any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
        return False
    return names.JOB in labels or names.GANG in labels or names.HELD_BY in labels or names.PINS in notes


def job_row(thing: Object, events: Iterable[Object] = (), pods: Sequence[Object] = ()) -> JobRow:
    """`events`: those of the engine about the job and its pods, in any order. `pods`: where they are at hand."""
    meta, spec, status = thing["metadata"], thing["spec"], thing.get("status") or {}
    parts = _parts(thing)
    template = parts[0][1] if parts else {}
    state, code, reason = _state(thing, parts)
    started_at = None if spec.get("suspend") else _instant(status.get("startTime")) or _resumed_at(status)
    earliest = None
    if state in (JobState.WAITING, JobState.STARTING):
        uids = {meta["uid"], *(pod["metadata"]["uid"] for pod in pods)}
        if (word := _last_word(uids, events, since=started_at)) is not None:
            code, reason, earliest = word.code, word.sentence, word.earliest
    deadline_s = spec.get("activeDeadlineSeconds")
    said = {**(meta.get("annotations") or {}), **((template.get("metadata") or {}).get("annotations") or {})}
    return JobRow(
        name=meta["name"],
        namespace=meta["namespace"],
        kind=thing["kind"],
        uid=meta["uid"],
        state=state,
        nodes=sum(count for count, _ in parts),
        gpus=sum(count * _gpus(each) for count, each in parts),
        pool=((template.get("spec") or {}).get("nodeSelector") or {}).get(names.LABEL_POOL, ""),
        ready=_ready(thing),
        created_at=parse_instant(meta["creationTimestamp"]),
        started_at=started_at,
        ended_at=_ended_at(status),
        expected=_duration(said.get(names.EXPECTED_DURATION))
        or (timedelta(seconds=deadline_s) if deadline_s else None),
        grace=timedelta(seconds=(template.get("spec") or {}).get("terminationGracePeriodSeconds", 30)),
        ours=names.JOB in (meta.get("labels") or {}),
        code=code,
        reason=reason,
        earliest=earliest,
    )


def pod_rows(pods: Iterable[Object]) -> list[PodRow]:
    """By rank, the newest of each rank last."""
    rows = [
        PodRow(
            meta["name"],
            meta["uid"],
            int((meta.get("annotations") or {}).get(INDEX, 0)),
            (pod.get("status") or {}).get("phase", ""),
            parse_instant(meta["creationTimestamp"]),
        )
        for pod in pods
        for meta in (pod["metadata"],)
    ]
    return sorted(rows, key=lambda row: (row.rank, row.created_at))


# --- what the engine said -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Word:
    at: datetime
    code: str
    sentence: str
    earliest: datetime | None


def _last_word(uids: set[str], events: Iterable[Object], since: datetime | None) -> _Word | None:
    """The newest Event about one of these objects, if it says that it waits. `since`: what was said before it started
    is over."""
    words = [_word(event) for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    last = max(words, key=lambda word: word.at, default=None)
    if last is None or not last.code.startswith("Waiting") or (since is not None and last.at < since):
        return None
    return last


def _word(event: Object) -> _Word:
    meta = event["metadata"]
    seen = (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    at = _instant(seen) or _instant(event.get("lastTimestamp")) or parse_instant(meta["creationTimestamp"])
    earliest = _instant((meta.get("annotations") or {}).get(names.EARLIEST_START))
    return _Word(at, str(event.get("reason", "")), str(event.get("message", "")), earliest)


# --- what the object says -----------------------------------------------------------------------------


def _parts(thing: Object) -> list[tuple[int, Object]]:
    """How many pods, and of which template."""
    if thing["kind"] == "Job":
        return [(_at_once(thing["spec"]), thing["spec"]["template"])]
    return [
        (job.get("replicas", 1) * _at_once(job["template"]["spec"]), job["template"]["spec"]["template"])
        for job in thing["spec"].get("replicatedJobs") or ()
    ]


def _at_once(spec: Object) -> int:
    parallelism = int(spec.get("parallelism", 1))
    return min(parallelism, int(spec.get("completions") or parallelism))


def _gpus(template: Object) -> int:
    total = 0
    for container in template["spec"].get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        total += sum(int(limits.get(device, 0)) for device in names.ACCELERATORS)
    return total


def _ready(thing: Object) -> int:
    status = thing.get("status") or {}
    if thing["kind"] == "Job":
        return int(status.get("ready") or 0)
    # A JobSet counts jobs that are ready, and a job is ready when all its pods are.
    sizes = {
        job["name"]: _at_once(job["template"]["spec"]) for job in thing["spec"].get("replicatedJobs") or ()
    }
    jobs = status.get("replicatedJobsStatus") or ()
    return sum(int(each.get("ready") or 0) * sizes.get(each.get("name"), 0) for each in jobs)


def _state(thing: Object, parts: Sequence[tuple[int, Object]]) -> tuple[JobState, str, str]:
    """With why, where the object itself says it."""
    meta, spec, status = thing["metadata"], thing["spec"], thing.get("status") or {}
    labels = meta.get("labels") or {}
    for kind in ("Complete", "Completed", "SuccessCriteriaMet"):
        if _condition(status, kind):
            return JobState.DONE, "", ""
    for kind in ("Failed", "FailureTarget"):
        if failed := _condition(status, kind):
            return JobState.FAILED, str(failed.get("reason", "")), str(failed.get("message", ""))
    if meta.get("deletionTimestamp"):
        return JobState.STOPPING, "", ""
    if spec.get("suspend"):
        if names.KUEUE_QUEUE in labels:
            return JobState.QUEUED, "", f"Kueue holds it in queue {labels[names.KUEUE_QUEUE]}"
        if labels.get(names.HELD_BY) == names.HELD_BY_US:
            return JobState.WAITING, "", ""
        return JobState.SUSPENDED, "", "Somebody suspended it, and has to start it again"
    left = sum(count for count, _ in parts) - int(status.get("succeeded") or 0)
    running = 0 < left <= _ready(thing)
    return (JobState.RUNNING if running else JobState.STARTING), "", ""


def _condition(status: Object, kind: str) -> Object | None:
    found = (one for one in status.get("conditions") or () if one["type"] == kind and one["status"] == "True")
    return next(found, None)


def _resumed_at(status: Object) -> datetime | None:
    """A JobSet has no start time; it says when it was suspended no more."""
    for one in status.get("conditions") or ():
        if one["type"] == "Suspended" and one["status"] == "False":
            return _instant(one.get("lastTransitionTime"))
    return None


def _ended_at(status: Object) -> datetime | None:
    for kind in ("Complete", "Completed", "Failed"):
        if ended := _condition(status, kind):
            return _instant(ended.get("lastTransitionTime"))
    return None


def _instant(written: Any) -> datetime | None:
    with suppress(ValueError):
        return parse_instant(written) if written else None
    return None


def _duration(written: Any) -> timedelta | None:
    with suppress(ValueError):
        return parse_duration(written) if written else None
    return None
