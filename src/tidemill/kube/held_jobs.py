"""Jobs, JobSets and PyTorchJobs: whether they are held, what gang their pods are, and the pods they will make.

A suspended Job has no pods. It is shown as those it will make, `<job uid>.<index>`: gated where the suspension is ours
(our mark is on it), held by others where it is not. One that was admitted is shown as those that are not there yet, so
that their room stays claimed. designs/0006-kubernetes.md has the two kinds, whole and other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from tidemill.engine.clock import MappedClock
from tidemill.kube.objects import (
    Condition,
    JobObject,
    JobSetObject,
    KubeObject,
    Meta,
    PodTemplate,
    PyTorchJobObject,
)
from tidemill.kube.pods import GangRule, at, gang_of, noted_instant, workload_name
from tidemill.kube.templates import Said, Template, said_by
from tidemill.model.pods import MAX_GANG_PODS, Gang, Pod, PodPhase
from tidemill.spec import names

# A Job that would make more is shown as this many: nobody admits more at a time. A gang is shown whole, up to the limit
# for gangs; of one above it the engine says why it waits.
MAX_SHOWN = 2000
_DONE = frozenset({"Complete", "Completed", "Failed", "Succeeded", "SuccessCriteriaMet", "FailureTarget"})
_JOBSET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
_PYTORCH_PART = "training.kubeflow.org/replica-type"
_COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/{}",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs/{}",
}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pods of one template within a Job."""

    name: str  # of a replicated job or a replica type; "" in a Job
    where: tuple[str | int, ...]  # path of the pod template in the object
    template: PodTemplate
    at_once: int
    total: int | None  # how many must succeed; None: whoever succeeds first ends it
    succeeded: int = 0  # as its status says: pods of it may be gone, with their node for instance
    given_up: int = 0  # indexes that have failed for good, each with its own back-off limit

    def to_run(self, seen_succeeded: int = 0) -> int:
        """How many pods it makes at a time, from here on. A status may lag behind the pods that were seen."""
        succeeded = max(self.succeeded, seen_succeeded)
        if self.total is None:
            return 0 if succeeded else self.at_once
        return min(self.at_once, max(0, self.total - succeeded - self.given_up))


@dataclass(slots=True)
class Members:
    """The pods of one part that are there."""

    active: set[str] = field(default_factory=set)  # unfinished
    leaving: set[str] = field(default_factory=set)  # of those: being deleted
    succeeded: set[str] = field(default_factory=set)


Present = Mapping[str, Members]  # by part
_NOBODY = Members()


@dataclass(frozen=True, slots=True)
class WorkloadCheck:
    """Kueue's Workload of a Job, where a check of ours decides when it starts."""

    workload: str  # in the namespace of the Job
    uid: str
    name: str  # of the check
    pending: bool  # quota is reserved, and Kueue waits for us
    pinned_to: str  # the source that we answered; empty: we have not
    message: str = ""  # what it was told last


@dataclass(frozen=True, slots=True, eq=False)
class HeldJob:
    """What the adapter knows of a Job that is not finished, suspended or not."""

    kind: str  # Job, JobSet or PyTorchJob
    meta: Meta
    parts: tuple[Part, ...]
    suspended: bool
    held_by_us: bool  # suspended by our admission
    whole: bool  # admitted by one patch: one pod, or a gang
    gang_name: str  # "": it is none
    gang_size: int  # as written; 0: all of it
    said: Said  # of its own annotations, for its pods
    failed: int = 0  # how many of its pods did, as its status says
    staged: bool = False  # some of its pods are made when others have run
    resumed_at: datetime | None = None  # wall time: when its controller saw that it is not suspended any more
    check: WorkloadCheck | None = None  # set: Kueue starts it, once we say when and where

    @property
    def path(self) -> str:
        return _COLLECTIONS[self.kind].format(self.meta.namespace, self.meta.name)

    @property
    def suspend_path(self) -> tuple[str, ...]:
        return ("spec", "runPolicy", "suspend") if self.kind == "PyTorchJob" else ("spec", "suspend")

    @property
    def workload(self) -> str:
        return workload_name(self.kind, self.meta.namespace, self.meta.name)


def job_of_object(one: KubeObject) -> HeldJob | None:
    """None: it is finished, being deleted, or a part of something bigger that is read itself."""
    meta = one.metadata
    if meta.deletion_timestamp is not None:
        return None
    if isinstance(one, JobObject):
        return _job(one)
    if isinstance(one, JobSetObject):
        return _job_set(one)
    assert isinstance(one, PyTorchJobObject)
    return _pytorch_job(one)


def _job(one: JobObject) -> HeldJob | None:
    meta, spec = one.metadata, one.spec
    owner = meta.controller
    if _finished(one.status.conditions) or (owner is not None and owner.kind == "JobSet"):
        return None
    name, size = _gang_label(meta, spec.template.metadata)
    parallelism = _count(spec.parallelism)
    # One pod at a time is not one pod: five completions one after another are judged one by one.
    whole = bool(name) or (parallelism <= 1 and (spec.completions or 1) == 1)
    part = Part(
        "", ("spec", "template"), spec.template, parallelism, spec.completions, one.status.succeeded,
        _count_indexes(one.status.failed_indexes or ""),
    )  # fmt: skip
    held = _held("Job", meta, (part,), spec.suspend, whole, (name, size), spec.active_deadline_seconds)
    return replace(held, failed=one.status.failed, resumed_at=_resumed_at(one.status.conditions))


def _job_set(one: JobSetObject) -> HeldJob | None:
    if _finished(one.status.conditions):
        return None
    parts = []
    done = {part.name: part.succeeded for part in one.status.replicated_jobs_status or ()}
    for index, job in enumerate(one.spec.replicated_jobs or ()):
        spec, replicas = job.template.spec, _count(job.replicas)
        total = _count(spec.parallelism) if spec.completions is None else spec.completions
        at_once = min(_count(spec.parallelism), total)
        where = ("spec", "replicatedJobs", index, "template", "spec", "template")
        succeeded = total * max(0, done.get(job.name, 0))
        parts.append(Part(job.name, where, spec.template, replicas * at_once, replicas * total, succeeded))
    gang = gang_of(one.metadata)[0] or one.metadata.name, 0
    held = _held("JobSet", one.metadata, tuple(parts), one.spec.suspend, True, gang, None)
    in_order = (
        one.spec.startup_policy is not None and one.spec.startup_policy.startup_policy_order == "InOrder"
    )
    return replace(held, staged=in_order or any(job.depends_on for job in one.spec.replicated_jobs or ()))


def _pytorch_job(one: PyTorchJobObject) -> HeldJob | None:
    if _finished(one.status.conditions):
        return None
    policy = one.spec.run_policy
    parts = []
    done = {role.lower(): part.succeeded for role, part in (one.status.replica_statuses or {}).items()}
    for role, replica in sorted((one.spec.replica_specs or {}).items()):
        where, count = ("spec", "pytorchReplicaSpecs", role, "template"), _count(replica.replicas)
        succeeded = max(0, done.get(role.lower(), 0))
        parts.append(Part(role.lower(), where, replica.template, count, count, succeeded))
    gang = gang_of(one.metadata)[0] or one.metadata.name, 0
    return _held(
        "PyTorchJob", one.metadata, tuple(parts), policy.suspend, True, gang, policy.active_deadline_seconds
    )


def _held(
    kind: str, meta: Meta, parts: tuple[Part, ...], suspended: bool, whole: bool, gang: tuple[str, int],
    deadline_s: int | None,
) -> HeldJob:  # fmt: skip
    said = dict(said_by(meta))
    if deadline_s is not None and deadline_s > 0:
        said.setdefault(names.EXPECTED_DURATION, f"{min(deadline_s, 10**9)}s")
    labels = meta.labels or {}
    # Kueue may have put it into a queue after we suspended it: then its start is Kueue's.
    ours = labels.get(names.HELD_BY) == names.HELD_BY_US and names.KUEUE_QUEUE not in labels
    if suspended:  # what an earlier admission pinned it to and announced does not hold
        for part in parts:
            (part.template.metadata.annotations or {}).pop(names.ENDS_AT, None)
            for key in (meta.annotations or {}).get(names.PINS, "").split(","):
                (part.template.spec.node_selector or {}).pop(key, None)
    return HeldJob(kind, meta, parts, suspended, suspended and ours, whole, *gang, said)


def _gang_label(meta: Meta, of_template: Meta) -> tuple[str, int]:
    """On the Job or on its template; the size of either."""
    name, size = gang_of(meta)
    template_name, template_size = gang_of(of_template)
    return name or template_name, size or template_size


def _count(written: int | None) -> int:
    """Kubernetes' default is one."""
    return 1 if written is None else max(0, written)


def _count_indexes(written: str) -> int:
    """`1,3-5` is four."""
    count = 0
    for piece in filter(None, written.split(",")):
        first, dash, last = piece.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            count += int(last or first) - int(first) + 1
    return max(0, count)


def _finished(conditions: list[Condition] | None) -> bool:
    return any(one.type in _DONE and one.status == "True" for one in conditions or ())


def _resumed_at(conditions: list[Condition] | None) -> datetime | None:
    found = (one for one in conditions or () if one.type == "Suspended" and one.status == "False")
    return next((one.last_transition_time for one in found), None)


def part_of(labels: Mapping[str, str]) -> str:
    """Which part of its Job a pod is of."""
    return labels.get(_JOBSET_PART) or labels.get(_PYTORCH_PART) or ""


def gang_rule(job: HeldJob, present: Present) -> GangRule | None:
    """Those that are still to run: whoever has succeeded is not waited for."""
    if not job.gang_name:
        return None
    done = {part.name: len(present.get(part.name, _NOBODY).succeeded) for part in job.parts}
    size = sum(part.to_run(done[part.name]) for part in job.parts)
    if job.gang_size:
        size = job.gang_size - sum(max(part.succeeded, done[part.name]) + part.given_up for part in job.parts)
    return GangRule(job.gang_name, size) if size > 1 else None


def pods_it_will_make(
    job: HeldJob, present: Present, template_of: Callable[[PodTemplate, Said], Template], clock: MappedClock
) -> Iterator[Pod]:
    """Those that are not there yet. Of a Job that is none of ours and not suspended: none."""
    first = 0
    rule = gang_rule(job, present)
    gang = Gang(rule.name, rule.size) if rule is not None else None
    most = MAX_GANG_PODS if gang is not None and gang.size <= MAX_GANG_PODS else MAX_SHOWN
    created_at = at(job.meta.creation_timestamp, clock) or clock.now()
    for part in job.parts:
        there = present.get(part.name, _NOBODY)
        to_run = part.to_run(len(there.succeeded))
        here = len(there.active - there.leaving) if job.suspended else len(there.active)
        pod_template = _unpinned(job, part.template) if job.suspended else part.template
        source = (pod_template.spec.node_selector or {}).get(names.LABEL_SOURCE, "")
        missing = range(min(here, to_run), min(to_run, most))
        if not (job.suspended or (source and job.whole) or (gates_its_pods(job) and not job.whole)):
            missing = range(0)
        template = template_of(pod_template, job.said) if missing else None
        for number in missing:
            assert template is not None
            yield Pod(
                uid=f"{job.meta.uid}.{first + number}",
                namespace=job.meta.namespace,
                name="-".join(piece for piece in (job.meta.name, part.name, str(number)) if piece),
                shape=template.shape,
                terms=template.terms,
                phase=PodPhase.PENDING,
                created_at=created_at,
                workload=job.workload,
                gang=gang,
                gated=job.held_by_us or (not job.suspended and not job.whole),
                held_by_others=(job.suspended and not job.held_by_us) or bool(template.unreadable),
                pinned_to=source if job.whole and not job.suspended else "",
                ends_at=None
                if job.suspended
                else noted_instant(pod_template.metadata.annotations or {}, names.ENDS_AT, clock),
                message=template.unreadable,
            )
        first += part.at_once


def _unpinned(job: HeldJob, template: PodTemplate) -> PodTemplate:
    """Without the pins of an earlier admission: a Job that is held again may go anywhere."""
    pins = (job.meta.annotations or {}).get(names.PINS, "").split(",")
    selector = template.spec.node_selector or {}
    if not any(key in selector for key in pins):
        return template
    left = {key: value for key, value in selector.items() if key not in pins}
    spec = msgspec.structs.replace(template.spec, node_selector=left or None)
    return msgspec.structs.replace(template, spec=spec)


def gates_its_pods(job: HeldJob) -> bool:
    """Every pod of it is gated when it is made."""
    return any((part.template.metadata.labels or {}).get(names.MANAGED) == "true" for part in job.parts)
