"""`ports.Cluster` over an API server: the reader's view, and every write as its docstring in the port promises.

Instants are written in wall time: the clock maps them here and where objects are decoded, nowhere else. Whoever is
written to is known by uid: a pod that was made again under its name is another pod, and the one that was meant is Gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from tidemill.engine.clock import MappedClock, wall_now
from tidemill.kube import kueue
from tidemill.kube.admit import Pin, admitted_pod, admitted_workload, reopened, started
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_view import ClusterReader
from tidemill.kube.errors import OTHER_UID
from tidemill.kube.held_jobs import HeldJob
from tidemill.kube.nodes import instance_id_in
from tidemill.kube.removal import Removal
from tidemill.kube.workload_checks import ref_of
from tidemill.kube.writes import Object, Patch, Ref, Writer
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.model.reasons import DrainReason
from tidemill.ports import ClusterView
from tidemill.spec import names
from tidemill.spec.units import format_instant, instant_in_taint

# How far behind kube-scheduler may be: until then it may bind pods to a node that was tainted.
SCHEDULER_SEES_IT = timedelta(seconds=5)
# The ReplicaSet controller removes the cheapest pods first, among those that are Ready alike.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_GOES_FIRST = "-1000000"


class KubeCluster:
    def __init__(
        self,
        api: KubeApi,
        clock: MappedClock,
        *,
        field_manager: str = "tidemill",
        wake: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._api, self._clock = api, clock
        self.reader = ClusterReader(api, clock, wake=wake)
        self._writer = Writer(api, self.reader, field_manager)
        self._removal = Removal(api, self._writer, self.reader)
        self._given = ClusterView(
            (), (), (), {}
        )  # what is decided on: nodes are named, and a name may be used again
        self._marked: frozenset[str] = frozenset()  # pods that were to go first at the last scale-down

    # --- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self.reader.start()

    def stop(self) -> None:
        self.reader.stop()

    @property
    def synced(self) -> bool:
        return self.reader.synced

    @property
    def lag_s(self) -> float:
        return self.reader.lag_s

    def view(self) -> ClusterView:
        self._given = self.reader.view()
        return self._given

    # --- pods ---------------------------------------------------------------------------------------

    def admit(self, pods: Sequence[str], source_label: str, ends_at: datetime | None, pool: str = "") -> None:
        pin = Pin(source_label, pool, self._written(ends_at) if ends_at is not None else "")
        targets: dict[Ref, Callable[[Object], Patch | None]] = {}  # a Job once for all its pods
        for uid in pods:
            job = self._unmade(uid)
            if job is None:
                targets[self._pod(uid)] = partial(admitted_pod, pin=pin)
            elif job.check is not None:
                at, check = wall_now().replace(microsecond=0), job.check.name
                targets[ref_of(job)] = partial(kueue.admitted, check=check, pin=pin, at=at)
            else:
                targets[_ref(job)] = partial(admitted_workload, job.kind, pin=pin, whole=job.whole)
        for ref, patch_for in targets.items():
            try:
                self._writer.change(ref, patch_for, "/status" if ref.kind == "Workload" else "")
            except Refused as refused:
                # The template of a Job that has run opens when its controller has seen the last pod go.
                if refused.code != "invalid" or ref.kind in ("Pod", "Workload"):
                    raise
                if ref.kind != "Job" or started(self._writer.change(ref, reopened, "/status")):
                    raise Retryable(str(refused), code="not-suspended-yet") from refused
                self._writer.change(ref, patch_for)

    def announce_end(self, pod: str, ends_at: datetime) -> None:
        ref = self._made_pod(pod)
        fields = _annotated(names.ENDS_AT, self._written(ends_at))
        # A Job controller wrote the end that its template announced.
        self._writer.apply(ref, fields, concern="ends-at", may_take=_wrote_it_once)

    def request_checkpoint(self, pod: str) -> None:
        def asked(found: Object) -> Patch | None:
            notes = found["metadata"].get("annotations") or {}
            if notes.get(names.CHECKPOINT_REQUESTED) and not notes.get(names.CHECKPOINT_DONE):
                return None  # a request that is open keeps its instant
            now = self._written(self._clock.now())
            return {
                "metadata": {"annotations": {names.CHECKPOINT_REQUESTED: now, names.CHECKPOINT_DONE: None}}
            }

        self._writer.change(self._made_pod(pod), asked)

    def evict(self, pod: str) -> bool:
        job = self._unmade(pod)
        if job is not None:
            self._removal.hold_job_again(job)
            return True
        known = self.reader.model_pod(pod)
        return self._removal.evict(self._pod(pod), asked=known.deleting_until is not None)

    def delete(self, pod: str, grace_s: int | None, *, disruption: bool) -> None:
        job = self._unmade(pod)
        if job is not None:
            self._removal.hold_job_again(job)
            return
        known = self.reader.model_pod(pod)
        if known.deleting_until is not None:
            grace = known.terms.grace if grace_s is None else timedelta(seconds=grace_s)
            if self._clock.now() + grace >= known.deleting_until:
                return  # a grace is never extended
        self._removal.delete(self._pod(pod), grace_s, disruption=disruption)

    def _unmade(self, uid: str) -> HeldJob | None:
        """The Job of a pod that is shown and not made yet. Gone: no such pod is shown."""
        shown = self.reader.model_pod(uid)
        return self.reader.job_of(shown.uid) if "." in shown.uid else None

    def _pod(self, uid: str) -> Ref:
        meta = self.reader.pod(uid).metadata
        return Ref("Pod", meta.namespace, meta.name, uid)

    def _made_pod(self, uid: str) -> Ref:
        if self._unmade(uid) is not None:
            raise Retryable(f"the Job of {uid} has not made this pod yet", code="not-made-yet")
        return self._pod(uid)

    # --- nodes --------------------------------------------------------------------------------------

    def mark_ready(self, node: str) -> None:
        def opened(found: Object) -> Patch | None:
            taints = found["spec"].get("taints") or []
            left = [taint for taint in taints if taint["key"] != names.TAINT_STARTUP]
            if len(left) == len(taints):
                return None
            return {**_annotated(names.OPENED_AT, self._written(self._clock.now())), "spec": {"taints": left}}

        self._change_node(node, opened)

    def start_drain(self, node: str, reason: DrainReason) -> None:
        def drained(found: Object) -> Patch | None:
            taints = found["spec"].get("taints") or []
            if any(taint["key"] == names.TAINT_DRAINING for taint in taints):
                return None  # the first instant and reason stay
            at = self._clock.to_wall(reason.at) if reason.at is not None else None
            notes: dict[str, str | None] = _old_drain(found)
            for key, value in replace(reason, at=at).to_annotations().items():
                notes[names.DRAIN_REASON + key] = value
            notes[names.DRAINING_SINCE] = self._written(self._clock.now())
            taint = {"key": names.TAINT_DRAINING, "value": reason.kind.value, "effect": "NoSchedule"}
            return {"metadata": {"annotations": notes}, "spec": {"taints": [*taints, taint]}}

        self._change_node(node, drained)

    def keep_for_jobs(self, node: str, ends_at: datetime) -> None:
        def closed(found: Object) -> Patch | None:
            taints = found["spec"].get("taints") or []
            value = instant_in_taint(ends_at)
            ours = {"key": names.TAINT_ENDING, "value": value, "effect": "NoSchedule"}
            if any(taint["key"] == ours["key"] and taint.get("value") == value for taint in taints):
                return None
            others = [taint for taint in taints if taint["key"] != names.TAINT_ENDING]
            return {"spec": {"taints": [*others, ours]}}

        self._change_node(node, closed)

    def cancel_drain(self, node: str) -> None:
        def kept(found: Object) -> Patch | None:
            taints = found["spec"].get("taints") or []
            ours = (names.TAINT_DRAINING, names.TAINT_ENDING)
            left = [taint for taint in taints if taint["key"] not in ours]
            notes = _old_drain(found)
            if len(left) == len(taints) and not notes:
                return None
            return {"metadata": {"annotations": notes}, "spec": {"taints": left}}

        self._change_node(node, kept)

    def announce_node_end(self, node: str, ends_at: datetime) -> None:
        found = self._writer.read(_node(node))
        self._check_same(node, found)
        written = self._written(ends_at)
        if (found["metadata"].get("annotations") or {}).get(names.ENDS_AT) != written:
            ref = Ref("Node", "", node, found["metadata"]["uid"])
            self._writer.apply(ref, _annotated(names.ENDS_AT, written), concern="ends-at")

    def is_empty(self, instance_id: str) -> bool:
        node = next((one.name for one in self._given.nodes if one.instance_id == instance_id), "")
        if not node:
            return True
        drained = self._writer.read(_node(node))["metadata"].get("annotations") or {}
        since = drained.get(names.DRAINING_SINCE, "")
        if since and wall_now() - datetime.fromisoformat(since) < SCHEDULER_SEES_IT:
            return False
        return not self._removal.has_work(node)

    def remove_node(self, node: str) -> None:
        found = self._writer.read(_node(node))
        self._check_same(node, found)
        self._removal.remove_node(Ref("Node", "", node, found["metadata"]["uid"]))

    def _change_node(self, node: str, patch_for: Callable[[Object], Patch | None]) -> None:
        def checked(found: Object) -> Patch | None:
            self._check_same(node, found)
            return patch_for(found)

        self._writer.change(_node(node), checked)

    def _check_same(self, node: str, found: Object) -> None:
        """A name follows from an address, which the next instance may get: what was decided of one is not done to
        another."""
        decided = next((one.instance_id for one in self._given.nodes if one.name == node), "")
        now = instance_id_in(found["spec"].get("providerID") or "")
        if decided and now != decided:
            raise Gone(
                f"node {node} is of {now or 'no known instance'} now, not of {decided}", code=OTHER_UID
            )

    # --- workloads ----------------------------------------------------------------------------------

    def restart(self, workload: str, token: str) -> None:
        ref, found = self._workload(workload)
        notes = found["spec"]["template"].get("metadata", {}).get("annotations") or {}
        if notes.get(names.RESTARTED_FOR) != token:
            template = {"template": _annotated(names.RESTARTED_FOR, token)}
            self._writer.apply(ref, {"spec": template}, concern="restart")

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        ref, found = self._workload(workload)
        self._mark(workload, frozenset(going))
        notes = found["metadata"].get("annotations") or {}
        if (found["spec"].get("replicas"), notes.get(names.ADDED_REPLICAS)) != (replicas, str(added)):
            fields = {**_annotated(names.ADDED_REPLICAS, str(added)), "spec": {"replicas": replicas}}
            self._writer.apply(ref, fields, concern="scale", may_take=_wrote_it_once)

    def _mark(self, workload: str, going: frozenset[str]) -> None:
        """Pods that are gone need no mark; those that were marked for an earlier scale-down lose theirs."""
        there = {pod.uid for pod in self.reader.view().pods if pod.workload == workload}
        wrong = (self._marked ^ going) & there
        for uid in sorted(wrong):
            patch = _annotated(DELETION_COST, _GOES_FIRST if uid in going else None)
            with contextlib.suppress(Gone):
                self._writer.change(self._pod(uid), partial(_same, patch))
        self._marked = (self._marked - there) | (going & there)

    def _workload(self, workload: str) -> tuple[Ref, Object]:
        """`Deployment/<namespace>/<name>`, as the reader names them."""
        kind, _, rest = workload.partition("/")
        namespace, _, name = rest.partition("/")
        if kind not in ("Deployment", "StatefulSet") or not name:
            raise Gone(f"there is no {workload}")
        found = self._writer.read(Ref(kind, namespace, name))
        return Ref(kind, namespace, name, found["metadata"]["uid"]), found

    def _written(self, instant: datetime) -> str:
        return format_instant(self._clock.to_wall(instant))


def _ref(job: HeldJob) -> Ref:
    return Ref(job.kind, job.meta.namespace, job.meta.name, job.meta.uid)


def _same(patch: Patch, found: Object) -> Patch:
    return patch


def _node(name: str) -> Ref:
    return Ref("Node", "", name)


def _annotated(key: str, value: str | None) -> Patch:
    return {"metadata": {"annotations": {key: value}}}


def _old_drain(found: Object) -> dict[str, str | None]:
    """Takes away what is written of an earlier drain."""
    notes = found["metadata"].get("annotations") or {}
    return dict.fromkeys(
        key for key in notes if key == names.DRAINING_SINCE or key.startswith(names.DRAIN_REASON)
    )


def _wrote_it_once(owner: Object) -> bool:
    """Whoever wrote a field when the object was made, and will not come again.

    So are the replicas of a service that says that nobody else minds them. Not whoever applies a field from the
    server's side (a GitOps controller comes again), nor a scaler.
    """
    return owner.get("operation") == "Update" and not owner.get("subresource")
