"""The patches that let workloads run, and the one that holds them again. Pure: an object in, a merge patch out.

A pod loses its gate. A whole Job (one completion, or a gang), a JobSet and a PyTorchJob get the pin into their template
and lose their suspension in the same patch. Any other Job gets our label into its template: the API server gates its
pods as they are made (kube/admission), and they are admitted one by one. In words: designs/0006-kubernetes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.kube.writes import Object, Patch
from tidemill.model.errors import Refused
from tidemill.spec import names

# Of nodes for admitted pods, and of nodes that services leave for the end of their source.
TOLERATED = (names.TAINT_HELD, names.TAINT_ENDING)


@dataclass(frozen=True, slots=True)
class Pin:
    """Where admitted pods go, and what they are told."""

    source_label: str
    pool: str = ""
    ends_at: str = ""  # as it is written into the annotation

    @property
    def selector(self) -> dict[str, str]:
        pool = {names.LABEL_POOL: self.pool} if self.pool else {}
        return {names.LABEL_SOURCE: self.source_label, **pool}


def admitted_pod(pod: Object, pin: Pin) -> Patch | None:
    """None: it carries no gate of ours (any more), and stays as it is."""
    spec = pod["spec"]
    gates = spec.get("schedulingGates") or ()
    others = [gate for gate in gates if gate["name"] != names.GATE]
    if len(others) == len(gates):
        return None
    told: Patch = {"metadata": {"annotations": {names.ENDS_AT: pin.ends_at}}} if pin.ends_at else {}
    return {**told, "spec": {"schedulingGates": others, **_pinned(spec, pin.selector)}}


def admitted_workload(kind: str, workload: Object, pin: Pin, *, whole: bool) -> Patch | None:
    """None: it is not suspended (any more), and stays as it is."""
    if not _suspended(kind, workload):
        return None
    meta, spec = workload["metadata"], workload["spec"]
    labels = meta.get("labels") or {}
    if labels.get(names.HELD_BY) != names.HELD_BY_US or names.KUEUE_QUEUE in labels:
        raise Refused(f"{kind} {meta['name']} is suspended by somebody else", code="held-by-others")
    freed: Patch = {"labels": {names.HELD_BY: None}}
    if not whole:
        # Not the gate: a running Job's template cannot be changed, so nobody could ever take it out again.
        ours = {"metadata": {"labels": {names.MANAGED: "true"}, "annotations": {names.ADMITTED: None}}}
        return {"metadata": freed, "spec": {"suspend": False, "template": ours}}
    old = [key for key in (meta.get("annotations") or {}).get(names.PINS, "").split(",") if key]
    added = [*old, *(key for key in pin.selector if key not in old and not _selects(kind, spec, key))]
    freed["annotations"] = {names.PINS: ",".join(sorted(added))}
    # A pin of an earlier admission that this one does not need goes.
    selector: dict[str, str | None] = {**dict.fromkeys(old), **pin.selector}
    return {"metadata": freed, "spec": _released(kind, spec, pin, selector)}


def _released(kind: str, spec: Object, pin: Pin, selector: Mapping[str, str | None]) -> Patch:
    def template(of: Object) -> Patch:
        notes = {names.ENDS_AT: pin.ends_at or None, names.ADMITTED: "true"}
        return {"metadata": {"annotations": notes}, "spec": _pinned(of["spec"], selector)}

    match kind:
        case "Job":
            return {"suspend": False, "template": template(spec["template"])}
        case "JobSet":
            jobs = [
                merged(
                    job, {"template": {"spec": {"template": template(job["template"]["spec"]["template"])}}}
                )
                for job in spec["replicatedJobs"]
            ]
            return {"suspend": False, "replicatedJobs": jobs}
    replicas = {
        role: {"template": template(replica["template"])}
        for role, replica in spec["pytorchReplicaSpecs"].items()
    }
    return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": replicas}


def held_again(kind: str, workload: Object) -> Patch | None:
    """None: it is suspended already, or its pods are admitted one by one and come back gated."""
    admitted_whole = names.PINS in (workload["metadata"].get("annotations") or {})
    if _suspended(kind, workload) or not admitted_whole:
        return None
    suspend: Patch = {"suspend": True}
    return {
        "metadata": {"labels": {names.HELD_BY: names.HELD_BY_US}},
        "spec": {"runPolicy": suspend} if kind == "PyTorchJob" else suspend,
    }


def reopened(job: Object) -> Patch | None:
    """A patch of the status: before Kubernetes 1.36 the template of a stopped Job opens when its start is forgotten.

    The controller sets a new one when it starts again. None: it has not stopped, or has not started.
    """
    status = job.get("status") or {}
    stopped = any(
        each["type"] == "Suspended" and each["status"] == "True" for each in status.get("conditions") or ()
    )
    return {"status": {"startTime": None}} if stopped and not status.get("active") and started(job) else None


def started(job: Object) -> bool:
    return bool((job.get("status") or {}).get("startTime"))


def _suspended(kind: str, workload: Object) -> bool:
    spec = workload["spec"]
    holder = spec.get("runPolicy") or {} if kind == "PyTorchJob" else spec
    return bool(holder.get("suspend"))


def _selects(kind: str, spec: Object, key: str) -> bool:
    """Whether a template selects by this key itself."""
    match kind:
        case "Job":
            templates = [spec["template"]]
        case "JobSet":
            templates = [job["template"]["spec"]["template"] for job in spec["replicatedJobs"]]
        case _:
            templates = [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]
    return any(key in (template["spec"].get("nodeSelector") or {}) for template in templates)


def _pinned(spec: Object, selector: Mapping[str, str | None]) -> Patch:
    tolerations: Sequence[Any] = spec.get("tolerations") or ()
    more = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in TOLERATED
        if not any(_tolerates(one, key) for one in tolerations)
    ]
    return {"nodeSelector": dict(selector), "tolerations": [*tolerations, *more]}


def _tolerates(toleration: Object, key: str) -> bool:
    anything = toleration.get("operator") == "Exists" and toleration.get("key", "") in ("", key)
    return anything and toleration.get("effect", "") in ("", "NoSchedule")


def merged(value: Object, patch: Object) -> dict[str, Any]:
    """The value after a merge patch (RFC 7386)."""
    after = dict(value)
    for key, change in patch.items():
        if change is None:
            after.pop(key, None)
        elif isinstance(change, Mapping):
            before = after.get(key)
            after[key] = merged(before if isinstance(before, Mapping) else {}, change)
        else:
            after[key] = change
    return after
