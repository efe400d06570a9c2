"""A pod of an API server -> `model.Pod`: pure, once per changed object.

Every instant is wall time and is mapped to the engine's; durations are the engine's already. Finished pods are None.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemill.engine.clock import MappedClock
from tidemill.kube.codec import Unreadable
from tidemill.kube.objects import Condition, Meta, Owner, PodObject, PodSpec
from tidemill.kube.templates import Template
from tidemill.model.pods import Gang, Pod, PodPhase, PodShape, Terms
from tidemill.spec import names
from tidemill.spec.units import parse_instant

log = logging.getLogger("tidemill.kube.pods")

FINISHED = ("Succeeded", "Failed")
_MIRROR = "kubernetes.io/config.mirror"
_TEMPLATE_HASH = "pod-template-hash"
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a container says while all is well.
_STARTING = ("ContainerCreating", "PodInitializing", "")
_MAX_TEXT = 500
_MAX_VALUE = 1024


@dataclass(frozen=True, slots=True)
class GangRule:
    """What the Job of a pod says about its gang: one with nothing of its own may still be of one."""

    name: str
    size: int


def keep_own_annotations(meta: Meta) -> None:
    """Of megabytes of others' annotations only ours stay; a pod that is kept must not keep them."""
    if meta.annotations:
        meta.annotations = {
            key: value[:_MAX_VALUE]
            for key, value in meta.annotations.items()
            if key.startswith(names.GROUP) or key in (names.DO_NOT_DISRUPT, _MIRROR)
        } or None


def works(one: PodObject) -> bool:
    """Neither a daemon nor over: ending its node would cost it its grace."""
    return one.status.phase not in FINISHED and not is_daemon(one.metadata)


def is_daemon(meta: Meta) -> bool:
    """Of a DaemonSet, or static: its node brings it."""
    owner = meta.controller
    if owner is not None:
        return owner.kind in ("DaemonSet", "Node")
    return _MIRROR in (meta.annotations or {})


def workload_name(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def workload_of(meta: Meta) -> str:
    """The controller that would create it again. A Deployment is traced through its ReplicaSet's name."""
    owner = meta.controller
    if owner is None or owner.kind == "Node":
        return ""
    labels = meta.labels or {}
    if owner.kind == "ReplicaSet" and (suffix := labels.get(_TEMPLATE_HASH)):
        name = owner.name.removesuffix(f"-{suffix}")
        if name != owner.name:
            return workload_name("Deployment", meta.namespace, name)
    if owner.kind == "Job" and (jobset := labels.get(_JOBSET_NAME)):
        return workload_name("JobSet", meta.namespace, jobset)
    return workload_name(owner.kind, meta.namespace, owner.name)


def job_owner(meta: Meta) -> Owner | None:
    """The controller, where it is one that `held_jobs` knows."""
    owner = meta.controller
    return owner if owner is not None and owner.kind in ("Job", "PyTorchJob") else None


def pod_of(
    one: PodObject, template: Template, clock: MappedClock, gang_rule: GangRule | None = None
) -> Pod | None:
    meta, spec, status = one.metadata, one.spec, one.status
    if status.phase in FINISHED:
        return None
    notes = meta.annotations or {}
    gates = {gate.name for gate in spec.scheduling_gates or ()}
    scheduled, ready = condition(status.conditions, "PodScheduled"), condition(status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    bound_at = None
    if spec.node_name and scheduled is not None and scheduled.status == "True":
        bound_at = at(scheduled.last_transition_time, clock)
    running = status.phase == "Running" or (status.phase == "Unknown" and bool(spec.node_name))
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        shape=template.shape,
        terms=template.terms,
        phase=PodPhase.RUNNING if running else PodPhase.PENDING,
        created_at=at(meta.creation_timestamp, clock) or _EPOCH,
        workload=workload_of(meta),
        daemon=is_daemon(meta),
        gang=_gang(meta, gang_rule),
        gated=names.GATE in gates,
        held_by_others=bool(gates - {names.GATE}) or (bool(template.unreadable) and not spec.node_name),
        pinned_to="" if names.GATE in gates else _pinned_to(spec, template),
        node=spec.node_name,
        bound_at=bound_at,
        started_at=_started_at(one, clock) if running else None,
        ready=is_ready,
        ready_at=at(ready.last_transition_time, clock) if ready is not None and is_ready else None,
        deleting_until=_deleting_until(meta, template.terms, clock),
        ends_at=noted_instant(notes, names.ENDS_AT, clock),
        checkpoint_requested_at=noted_instant(notes, names.CHECKPOINT_REQUESTED, clock),
        checkpoint_done_at=noted_instant(notes, names.CHECKPOINT_DONE, clock),
        message=_message(one, scheduled, template),
    )


def _pinned_to(spec: PodSpec, template: Template) -> str:
    """Where it was admitted to. Whoever selects a source by hand, and lacks the toleration that admission adds, was
    not admitted: nobody takes its pin back."""
    if all(toleration.key != names.TAINT_HELD for toleration in template.shape.tolerations):
        return ""
    return (spec.node_selector or {}).get(names.LABEL_SOURCE, "")


def unreadable_pod(one: Unreadable, first_seen: datetime) -> Pod:
    """It is there: its node is not empty and not to be emptied for thrift; without a node it is nobody's demand."""
    meta = one.metadata
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        shape=PodShape(),
        terms=Terms(do_not_disrupt=True),
        phase=PodPhase.RUNNING if one.node_name else PodPhase.PENDING,
        created_at=first_seen,
        held_by_others=not one.node_name,
        node=one.node_name,
        message=f"it cannot be read: {one.error}"[:_MAX_TEXT],
    )


# --- parts ----------------------------------------------------------------------------------------------


def condition(conditions: list[Condition] | None, kind: str) -> Condition | None:
    for one in conditions or ():
        if one.type == kind:
            return one
    return None


def at(instant: datetime | None, clock: MappedClock) -> datetime | None:
    return None if instant is None else clock.from_wall(instant)


def noted_instant(notes: dict[str, str], key: str, clock: MappedClock) -> datetime | None:
    """An annotation that cannot be read is as if it were not there: the engine writes it again."""
    written = notes.get(key)
    if not written:
        return None
    try:
        return clock.from_wall(parse_instant(written))
    except (ValueError, OverflowError):
        return None


def _deleting_until(meta: Meta, terms: Terms, clock: MappedClock) -> datetime | None:
    """deletionTimestamp is the request plus the grace, both in wall time; the request is mapped, the grace is not."""
    if meta.deletion_timestamp is None:
        return None
    grace_s = meta.deletion_grace_period_seconds
    grace = terms.grace if grace_s is None else timedelta(seconds=min(max(grace_s, 0), 10**9))
    try:
        return clock.from_wall(meta.deletion_timestamp - grace) + grace
    except OverflowError:
        return clock.from_wall(meta.deletion_timestamp)


def _started_at(one: PodObject, clock: MappedClock) -> datetime | None:
    """When its first container started; pulling images is no work."""
    starts = [
        container.state.running.started_at
        for container in one.status.container_statuses or ()
        if container.state is not None and container.state.running is not None
    ]
    return at(min((start for start in starts if start is not None), default=one.status.start_time), clock)


def gang_of(meta: Meta) -> tuple[str, int]:
    """The gang's name and size as written: label or annotation; size 0: none is written, or none that can be read."""
    both = {**(meta.annotations or {}), **(meta.labels or {})}
    size = both.get(names.GANG_SIZE, "")
    return both.get(names.GANG, ""), int(size) if size.isdecimal() and len(size) < 7 else 0


def _gang(meta: Meta, rule: GangRule | None) -> Gang | None:
    name, size = gang_of(meta)
    if rule is not None:
        return Gang(rule.name, rule.size)
    return Gang(name, size) if name and size > 1 else None


def _message(one: PodObject, scheduled: Condition | None, template: Template) -> str:
    """The last thing that was said of it: by the kubelet, else by the scheduler, else by ourselves."""
    status = one.status
    if status.reason or status.message:
        said = ": ".join(part for part in (status.reason, status.message) if part)
    elif template.unreadable:
        said = template.unreadable
    elif scheduled is not None and scheduled.status == "False" and scheduled.reason != "SchedulingGated":
        said = scheduled.message or scheduled.reason or ""
    else:
        said = next(
            (
                ": ".join(part for part in (waiting.reason, waiting.message) if part)
                for container in status.container_statuses or ()
                if container.state is not None and (waiting := container.state.waiting) is not None
                if waiting.reason not in _STARTING
            ),
            "",
        )
    return said[:_MAX_TEXT]
