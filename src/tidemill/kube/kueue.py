"""Kueue decides who, Tidemill when and where: our admission check on Kueue's Workloads.

A Job in a queue of Kueue is suspended by Kueue, and nobody's demand. Once Kueue has reserved quota for its Workload and
waits for a check of ours (`spec.controllerName`), it is demand like any other: shown gated, admitted by setting the
check to Ready with the pin as podSetUpdates, which Kueue writes into the pods as it starts them. What leaves its node
gives the check back (Retry): Kueue stops it, queues it again and asks anew. Pure: objects in, what is known of them and
merge patches of their status out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from tidemill.kube.admit import TOLERATED, Pin
from tidemill.kube.held_jobs import HeldJob, WorkloadCheck
from tidemill.kube.objects import Condition, KubeObject, PodTemplate
from tidemill.kube.writes import Object, Patch
from tidemill.spec import names
from tidemill.spec.units import format_instant

CONTROLLER: Final = f"{names.GROUP}/admission-check"
API: Final = "/apis/kueue.x-k8s.io/v1beta2"  # Kueue 0.15 and later
ACTIVE: Final = "Active"
_MAX_MESSAGE = 1_000


class CheckSpec(Struct, rename="camel", gc=False):
    controller_name: str = ""


class CheckStatus(Struct, gc=False):
    conditions: list[Condition] | None = None


class AdmissionCheckObject(KubeObject, gc=False):
    spec: CheckSpec = field(default_factory=CheckSpec)
    status: CheckStatus = field(default_factory=CheckStatus)

    @property
    def is_ours(self) -> bool:
        return self.spec.controller_name == CONTROLLER

    @property
    def is_active(self) -> bool:
        return _holds(self.status.conditions, ACTIVE)


class FlavorSpec(Struct, rename="camel", gc=False):
    node_labels: dict[str, str] | None = None


class ResourceFlavorObject(KubeObject, gc=False):
    spec: FlavorSpec = field(default_factory=FlavorSpec)


class PodSetUpdate(Struct, rename="camel", gc=False):
    node_selector: dict[str, str] | None = None


class CheckState(Struct, rename="camel", gc=False):
    name: str = ""
    state: str = ""
    message: str = ""
    pod_set_updates: list[PodSetUpdate] | None = None


class Assignment(Struct, gc=False):
    flavors: dict[str, str] | None = None  # by resource


class Admission(Struct, rename="camel", gc=False):
    pod_set_assignments: list[Assignment] | None = None


class WorkloadStatus(Struct, rename="camel", gc=False):
    conditions: list[Condition] | None = None
    admission: Admission | None = None
    admission_checks: list[CheckState] | None = None


class WorkloadObject(KubeObject, gc=False):
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class KueueState:
    """Workloads, checks and flavours as they were last seen. Not thread-safe."""

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheckObject] = {}  # by uid
        self._flavors: dict[str, ResourceFlavorObject] = {}  # by uid
        self._workloads: dict[str, WorkloadObject] = {}  # by uid
        self._by_owner: dict[str, str] = {}  # uid of the Job -> uid of its Workload
        self.jobs: dict[str, HeldJob] = {}  # by uid: those in a queue of Kueue, as they are without it

    def put(self, uid: str, one: KubeObject | None) -> Iterator[str]:
        """An object that came, changed or went (None); the Jobs to be shown anew."""
        if isinstance(one, WorkloadObject):
            self._workloads[uid] = one
            owner = one.metadata.controller
            if owner is not None:
                self._by_owner[owner.uid] = uid
                yield from (owner.uid,) if owner.uid in self.jobs else ()
            return
        if one is None and uid in self._workloads:
            gone = self._workloads.pop(uid).metadata.controller
            if gone is not None and self._by_owner.get(gone.uid) == uid:
                del self._by_owner[gone.uid]
                yield from (gone.uid,) if gone.uid in self.jobs else ()
            return
        kept: dict[str, Any] = self.checks if isinstance(one, AdmissionCheckObject) else self._flavors
        if one is None:
            self.checks.pop(uid, None)
            self._flavors.pop(uid, None)
        else:
            kept[uid] = one
        yield from tuple(self.jobs)

    def job(self, uid: str, plain: HeldJob | None) -> HeldJob | None:
        """A Job as it is with its Workload's check. What is not in a queue of Kueue stays as it is."""
        if plain is None or names.KUEUE_QUEUE not in (plain.meta.labels or {}):
            self.jobs.pop(uid, None)
            return plain
        self.jobs[uid] = plain
        return self.again(uid)

    def again(self, uid: str) -> HeldJob:
        plain, workload = self.jobs[uid], self._workloads.get(self._by_owner.get(uid, ""))
        check = self._check(workload) if workload is not None else None
        return plain if check is None or workload is None else _under(plain, check, self._labels(workload))

    def _check(self, workload: WorkloadObject) -> WorkloadCheck | None:
        ours = {one.metadata.name for one in self.checks.values() if one.is_ours}
        status, meta = workload.status, workload.metadata
        state = next((one for one in status.admission_checks or () if one.name in ours), None)
        if state is None or not _holds(status.conditions, "QuotaReserved"):
            return None
        selectors = (update.node_selector or {} for update in state.pod_set_updates or ())
        pinned = next((found for one in selectors if (found := one.get(names.LABEL_SOURCE, ""))), "")
        return WorkloadCheck(
            meta.name, meta.uid, state.name, state.state == "Pending", pinned * (state.state == "Ready"), state.message
        )  # fmt: skip

    def _labels(self, workload: WorkloadObject) -> dict[str, str]:
        """Of the flavours that Kueue chose: it adds them to the node selector as it starts the pods."""
        by_name = {one.metadata.name: one.spec.node_labels or {} for one in self._flavors.values()}
        admission = workload.status.admission
        chosen = {
            flavor
            for assignment in (admission.pod_set_assignments if admission is not None else None) or ()
            for flavor in (assignment.flavors or {}).values()
        }
        return {key: value for flavor in sorted(chosen) for key, value in by_name.get(flavor, {}).items()}


def _under(plain: HeldJob, check: WorkloadCheck, labels: Mapping[str, str]) -> HeldJob:
    """Kueue starts a Workload whole, so its pods are placed together."""
    if not plain.suspended:
        return replace(plain, check=check, whole=True)
    added = {**labels, **({names.LABEL_SOURCE: check.pinned_to} if check.pinned_to else {})}
    parts = tuple(replace(part, template=_with(part.template, added)) for part in plain.parts)
    job = replace(plain, check=check, parts=parts, whole=True, gang_name=plain.gang_name or plain.meta.name)
    # Between our answer and Kueue's start it is as good as started: its room stays claimed.
    return replace(job, suspended=not check.pinned_to, held_by_us=check.pending)


def _with(template: PodTemplate, labels: Mapping[str, str]) -> PodTemplate:
    if not labels:
        return template
    selector = {**(template.spec.node_selector or {}), **labels}
    return msgspec.structs.replace(
        template, spec=msgspec.structs.replace(template.spec, node_selector=selector)
    )


def _holds(conditions: list[Condition] | None, kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in conditions or ())


# --- patches of the status ------------------------------------------------------------------------------


def admitted(workload: Object, check: str, pin: Pin, at: datetime) -> Patch | None:
    """The check is Ready: Kueue starts the pods on the nodes that are held for them."""
    notes = {names.ADMITTED: "true", **({names.ENDS_AT: pin.ends_at} if pin.ends_at else {})}
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in TOLERATED]
    updates = [
        {"name": one["name"], "nodeSelector": pin.selector, "tolerations": tolerations, "annotations": notes}
        for one in workload["spec"]["podSets"]
    ]
    message = f"nodes of {pin.source_label} are ready and held for it"
    return _set(workload, check, at, {"state": "Ready", "message": message, "podSetUpdates": updates})


def waiting(workload: Object, check: str, message: str, at: datetime) -> Patch | None:
    return _set(workload, check, at, {"state": "Pending", "message": message[:_MAX_MESSAGE]})


def given_back(workload: Object, check: str, message: str, at: datetime, after_s: int = 0) -> Patch | None:
    """Kueue stops it, gives its quota to others, and asks again after so long."""
    later = {"requeueAfterSeconds": after_s} if after_s else {}
    return _set(workload, check, at, {"state": "Retry", "message": message[:_MAX_MESSAGE], **later})


def activated(check: Object, at: datetime) -> Patch | None:
    """Kueue lets nobody through a ClusterQueue with a check that no controller answers for."""
    conditions = (check.get("status") or {}).get("conditions") or []
    if any(one["type"] == ACTIVE and one["status"] == "True" for one in conditions):
        return None
    told = {
        "type": ACTIVE, "status": "True", "reason": "Active", "message": "Tidemill answers for this check",
        "lastTransitionTime": format_instant(at), "observedGeneration": check["metadata"].get("generation", 1),
    }  # fmt: skip
    return {"status": {"conditions": [*(one for one in conditions if one["type"] != ACTIVE), told]}}


def _set(workload: Object, check: str, at: datetime, state: Mapping[str, Any]) -> Patch | None:
    """Only what waits for us is answered, and only what was let through is given back. None: nothing changes."""
    states = (workload.get("status") or {}).get("admissionChecks") or []
    mine = next((one for one in states if one["name"] == check), None)
    if mine is None or mine["state"] not in ("Pending", "Ready"):
        return None
    if mine["state"] == "Ready" and state["state"] != "Retry":
        return None
    if mine["state"] == state["state"] and mine.get("message") == state["message"]:
        return None
    moved = mine["state"] != state["state"]
    since = format_instant(at) if moved else mine["lastTransitionTime"]
    after = {"name": check, "lastTransitionTime": since, **state}
    if "retryCount" in mine:
        after["retryCount"] = mine["retryCount"]
    return {"status": {"admissionChecks": [after if one["name"] == check else one for one in states]}}
