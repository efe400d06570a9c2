"""Jobs with their progress and services with their readiness, as the simulator knows them.

The arithmetic of work done, saved and lost, and of downtime, is here and pure; the controllers that act on it are in
`jobs` and `services`. Nothing here knows a node, a source or the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from tidemill.model.labels import Toleration
from tidemill.model.pods import PodShape, Terms
from tidemill.spec import names, pod_placement
from tidemill.spec.scenario import JobStream, PodTemplate, Service

_NOTHING = timedelta(0)
# A node of an accelerated type boots in about ten minutes and a large model loads in about as long: a service
# that is not there half an hour after it was asked for is missed. Errs on the late side, for downtime.
EXPECTED_AFTER = timedelta(minutes=30)


def resolve_share(written: int | str, replicas: int, *, up: bool) -> int:
    """A number, or a share of the replicas: Kubernetes rounds a surge up and what may be missing down."""
    if isinstance(written, int):
        return written
    share = replicas * int(written[:-1])
    return -(-share // 100) if up else share // 100


def shape_of(template: PodTemplate) -> PodShape:
    requests = {
        names.CPU: template.cpu,
        names.MEMORY: template.memory,
        names.NVIDIA_GPU: template.gpus,
        names.NEURON: template.neuron,
        names.EFA: template.efa,
    }
    written = pod_placement.pod_shape(
        template, tuple(sorted((name, count) for name, count in requests.items() if count))
    )
    named = tuple(Toleration(key=key, operator="Exists") for key in template.tolerate)
    return replace(written, tolerations=(*named, *written.tolerations))


TOLERATES_HELD = Toleration(key=names.TAINT_HELD, operator="Exists")


def held_tolerated(shape: PodShape) -> PodShape:
    """May run on nodes for admitted pods: what admission adds, and what services of ours are created with."""
    if TOLERATES_HELD in shape.tolerations:
        return shape
    return replace(shape, tolerations=(*shape.tolerations, TOLERATES_HELD))


TOLERATES_ENDING = Toleration(key=names.TAINT_ENDING, operator="Exists")


def ending_tolerated(shape: PodShape) -> PodShape:
    """May run on nodes that services leave: what admission adds to a job."""
    if TOLERATES_ENDING in shape.tolerations:
        return shape
    return replace(shape, tolerations=(*shape.tolerations, TOLERATES_ENDING))


def terms_of(template: PodTemplate, duration: timedelta | None = None) -> Terms:
    """`duration` is the true one; a job may declare another, or none."""
    expected: timedelta | None = None
    checkpoint_time, checkpoint_every = _NOTHING, None
    load = template.load
    if isinstance(template, Service) and template.declared_load is not None:
        load = template.declared_load
    if isinstance(template, JobStream):
        expected = None if template.says_nothing else template.expected or duration
        checkpoint_time, checkpoint_every = template.checkpoint_time, template.resumes_every
    return Terms(
        grace=template.grace,
        expected=expected,
        checkpoint_time=checkpoint_time,
        checkpoint_every=checkpoint_every,
        load=load,
        overflow=template.overflow,
        do_not_disrupt=template.do_not_disrupt,
        priority=template.priority,
        team=template.team,
    )


@dataclass(slots=True)
class Progress:
    """Work towards `total`. It advances from `since` on, and only what was saved survives an interruption.

    Periodic checkpoints cost no time of their own (they are written beside the work); `saved` moves to the
    last full interval. Without `every` nothing is ever saved.
    """

    total: timedelta
    every: timedelta | None = None
    saved: timedelta = _NOTHING
    since: datetime | None = None  # work goes on from here, with `saved` done at that instant
    lost: timedelta = _NOTHING  # work done and done again, over all interruptions

    def begin(self, since: datetime) -> datetime:
        """All members run and have loaded from `since` on; when it would be finished."""
        self.since = since
        return since + self.total - self.saved

    def done(self, now: datetime) -> timedelta:
        return self.saved if self.since is None else self.saved + max(_NOTHING, now - self.since)

    def save(self, as_of: datetime, now: datetime) -> None:
        """An asked-for checkpoint was written: it holds the work done when writing began."""
        if self.since is None or self.every is None:
            return
        asked = self.done(as_of)
        self._keep_whole_intervals(now)
        if asked > self.saved:
            self.saved, self.since = asked, max(as_of, self.since)

    def interrupt(self, now: datetime) -> timedelta:
        """Work stops; what was not saved is lost. Returns how much that is."""
        done = self.done(now)
        self._keep_whole_intervals(now)
        self.since = None
        lost = done - self.saved
        self.lost += lost
        return lost

    def _keep_whole_intervals(self, now: datetime) -> None:
        if self.since is not None and self.every and now > self.since:
            kept = (now - self.since) // self.every * self.every
            self.saved += kept
            self.since += kept


@dataclass(slots=True)
class Stint:
    """One span of work on one source. Its first part counts: the last part may have been lost."""

    source: str
    since: datetime
    saved_before: timedelta
    kept: timedelta | None = None  # None: it goes on

    def kept_within(self, begin: datetime, end: datetime) -> timedelta:
        until = end if self.kept is None else min(end, self.since + self.kept)
        return max(_NOTHING, until - max(begin, self.since))


@dataclass(frozen=True, slots=True)
class Pin:
    """What admission wrote into a Job's template."""

    source: str
    ends_at: datetime | None
    shape: PodShape


@dataclass(slots=True)
class JobTruth:
    """One job from submission to its end. `members` maps a pod's index to the uid of its present pod."""

    name: str
    stream: JobStream
    duration: timedelta
    submitted: datetime
    shape: PodShape
    terms: Terms
    progress: Progress
    started: datetime | None = None
    finished: datetime | None = None  # when it succeeded or failed
    state: Literal["pending", "running", "finished", "failed"] = "pending"
    reason: str = ""  # why it failed
    restarts: int = 0
    failures: int = 0  # those that count against the back-off limit
    sources: set[str] = field(default_factory=set)
    members: dict[int, str] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=list)
    stints: list[Stint] = field(default_factory=list)
    pin: Pin | None = None  # of a Job that is held by suspension, once it is admitted

    def begin(self, since: datetime, source: str) -> datetime:
        """All members run, and have loaded at `since`; when it would be finished."""
        self.stints.append(Stint(source, since, self.progress.saved))
        return self.progress.begin(since)

    def interrupt(self, now: datetime) -> timedelta:
        """Returns the work that is lost."""
        lost = self.progress.interrupt(now)
        self.stints[-1].kept = self.progress.saved - self.stints[-1].saved_before
        return lost

    def finish(self, now: datetime) -> None:
        self.state, self.finished = "finished", now
        self.stints[-1].kept = self.duration - self.stints[-1].saved_before

    def useful_gpu_hours(self, source: str, begin: datetime, end: datetime) -> float:
        """Of work on a source within a span that did not have to be done again."""
        kept = sum(
            (stint.kept_within(begin, end) for stint in self.stints if stint.source == source), _NOTHING
        )
        return self.gpus * kept.total_seconds() / 3600

    @property
    def namespace(self) -> str:
        return self.stream.team or "training"

    @property
    def workload(self) -> str:
        return f"Job/{self.name}"

    @property
    def team(self) -> str:
        return self.stream.team

    @property
    def pods(self) -> int:
        return self.stream.nodes

    @property
    def uids(self) -> tuple[str, ...]:
        """Of its present pods."""
        return tuple(self.members.values())

    @property
    def gpus(self) -> int:
        """Accelerators over all its pods."""
        return (self.stream.gpus + self.stream.neuron) * self.stream.nodes

    @property
    def lost_work(self) -> timedelta:
        return self.progress.lost

    @property
    def over(self) -> bool:
        return self.state in ("finished", "failed")

    def late(self, now: datetime) -> bool:
        """Not finished by its deadline."""
        if self.stream.deadline is None:
            return False
        end = self.finished if self.state == "finished" and self.finished is not None else now
        return end > self.submitted + self.stream.deadline


@dataclass(slots=True)
class SetTruth:
    """One Deployment or StatefulSet. `members` are its live pods and the revision of the template each is of;
    terminating ones are no longer its own."""

    workload: str
    prefix: str  # of its pods' names
    shape: PodShape
    terms: Terms
    replicas: int
    max_surge: int = 0
    max_unavailable: int = 1
    pair: str = ""
    members: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    restarted_for: str = ""
    added: int = 0
    going: frozenset[str] = frozenset()  # they go first when there are too many
    made: int = 0  # pods ever created
    refused: int = 0  # in a row, by kubelets
    backing_off: int = 0  # refused ones that are made again in a while

    @property
    def old(self) -> list[str]:
        return [uid for uid, revision in self.members.items() if revision < self.revision]


@dataclass(slots=True)
class ServiceTruth:
    """One service: the set that serves it, and in a pair the one that takes over."""

    service: Service
    shape: PodShape
    terms: Terms
    started: datetime
    stopped: datetime | None = None
    ready: int = 0
    series: list[tuple[datetime, int]] = field(default_factory=list)  # ready replicas at each change
    sets: list[SetTruth] = field(default_factory=list)
    full_once: bool = False
    short_since: datetime | None = None  # below the minimum, once it had been reached
    reached: bool = False

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def namespace(self) -> str:
        return self.service.team or "serving"

    @property
    def workload(self) -> str:
        return f"{self.service.handover.kind}/{self.service.name}"

    @property
    def members(self) -> tuple[str, ...]:
        """Of all its sets."""
        return tuple(uid for replica_set in self.sets for uid in replica_set.members)

    @property
    def replicas(self) -> int:
        return self.service.replicas

    @property
    def min_available(self) -> int:
        """Of its disruption budget, or else of its annotation."""
        return self.service.min_available or self.service.handover.min_available or 0

    @property
    def promised(self) -> bool:
        """zeroDowntime without a minimum promises nothing, as `validate` says: all replicas may leave together."""
        return self.service.zero_downtime and self.min_available > 0

    @property
    def minimum(self) -> int:
        """Below this the service is down; without a budget, one replica is what people expect."""
        return max(1, self.min_available)

    def record(self, now: datetime, ready: int) -> None:
        """Of several counts within one instant only the last is kept."""
        self.ready = ready
        if self.series and self.series[-1][0] == now:
            self.series.pop()
        self.series.append((now, ready))

    def lowest_ready(self) -> int:
        """The fewest ready replicas after the minimum was first reached; 0 if it never was."""
        counts = [ready for _, ready in self.series]
        first = next((i for i, ready in enumerate(counts) if ready >= self.minimum), None)
        return 0 if first is None else min(counts[first:])

    def down(self, until: datetime) -> tuple[tuple[datetime, datetime], ...]:
        """When it was below its minimum although it was expected to be there, up to `until` or its own end.

        It is expected from the first time the minimum was reached, or half an hour after its start if that is
        sooner: a service that never comes up is down, not forgotten.
        """
        end = until if self.stopped is None else min(until, self.stopped)
        reached = (at for at, ready in self.series if ready >= self.minimum)
        expected = min(next(reached, end), self.started + EXPECTED_AFTER)
        spans: list[tuple[datetime, datetime]] = []
        for index, (at, ready) in enumerate(self.series):
            following = self.series[index + 1][0] if index + 1 < len(self.series) else end
            begin, over = max(at, expected), min(following, end)
            if ready >= self.minimum or begin >= over:
                continue
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, over))
        return tuple(spans)

    def downtime_s(self, until: datetime) -> int:
        return int(sum(((over - begin) for begin, over in self.down(until)), _NOTHING).total_seconds())
