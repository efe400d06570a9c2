"""How pods and nodes leave: eviction, deletion with the condition that spares a Job's back-off limit, and removal.

A whole Job's template is pinned to its source, so a pod that is removed from it would come back there. In the same
step the Job is suspended: its controller stops the others with their own grace, and it is held until admitted anew.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Any

import msgspec

from tidemill.engine.clock import wall_now
from tidemill.kube import kueue
from tidemill.kube.admit import held_again
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_view import ClusterReader
from tidemill.kube.errors import DISRUPTION_BUDGET, NOT_SERVED
from tidemill.kube.held_jobs import HeldJob
from tidemill.kube.objects import PodObject
from tidemill.kube.pods import works
from tidemill.kube.workload_checks import ref_of
from tidemill.kube.writes import Object, Ref, Writer, decoded
from tidemill.model.errors import Gone, Refused, Retryable, TidemillError

_LOG = logging.getLogger(__name__)
_JOBSET = "jobset.sigs.k8s.io/jobset-name"


class _Pods(msgspec.Struct):
    items: list[PodObject] = []


class Removal:
    def __init__(self, api: KubeApi, writer: Writer, reader: ClusterReader) -> None:
        self._api, self._writer, self._reader = api, writer, reader

    def evict(self, ref: Ref, *, asked: bool) -> bool:
        """False: a disruption budget forbids it now. `asked`: it is leaving already."""
        found = self._writer.read(ref)
        if asked:
            self._hold_owner(ref, found)  # what may have failed the first time
            return True
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": {"preconditions": {"uid": ref.uid}},
        }
        try:
            self._api.send("POST", f"{ref.path}/eviction", msgspec.json.encode(eviction))
        except Refused as refused:
            if refused.code == DISRUPTION_BUDGET:
                return False
            raise
        self._hold_owner(ref, found)
        with contextlib.suppress(Gone):
            self._writer.read(ref)
        return True

    def delete(self, ref: Ref, grace_s: int | None, *, disruption: bool) -> None:
        found = self._writer.read(ref)
        if disruption:
            try:
                self._mark_disrupted(ref)
            except Refused as refused:  # its grace is worth more than its Job's back-off limit
                _LOG.warning("%s is deleted without the condition DisruptionTarget: %s", ref, refused)
        self._delete(ref, grace_s)
        self._hold_owner(ref, found)

    def remove_node(self, node: Ref) -> None:
        """The node object, then the pods that were bound to it, as the pod garbage collector would a minute later:
        their machine is gone, and nobody else says that they failed."""
        bound = self._reader.view().pods_by_node.get(node.name, ())
        self._delete(node, None)
        for pod in bound:
            lost = Ref("Pod", pod.namespace, pod.name, pod.uid)
            try:
                self._mark_disrupted(lost, phase="Failed")
                self._delete(lost, 0)
            except Gone:
                continue
            except TidemillError as error:  # the pod garbage collector comes in a minute
                _LOG.warning("%s of the removed node %s was not deleted: %s", lost, node.name, error)

    def has_work(self, node: str) -> bool:
        """Whether a pod that is neither a daemon nor over is bound to it, as the API server knows it now."""
        answer = self._api.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        try:
            pods = msgspec.json.decode(answer, type=_Pods).items
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Retryable(
                f"the answer about the pods of {node} cannot be read: {error}", code="answer"
            ) from None
        return any(works(pod) for pod in pods)

    def _mark_disrupted(self, ref: Ref, **status: str) -> None:
        said = {"reason": "DeletionByTidemill", "message": "Tidemill: its node is taken away"}
        self._writer.set_condition(ref, "DisruptionTarget", status=status, **said)

    def _delete(self, ref: Ref, grace_s: int | None) -> None:
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": ref.uid},
            "propagationPolicy": "Background",
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = max(0, grace_s)
        try:
            answer = self._api.send("DELETE", ref.path, msgspec.json.encode(options))
        except Gone as gone:
            if gone.code != NOT_SERVED:
                self._reader.forget(ref.kind, ref.uid)
            raise
        left = decoded(answer, ref)
        if left.get("kind") == ref.kind and left["metadata"].get("deletionGracePeriodSeconds"):
            self._reader.learn(ref.kind, answer)
            return
        with contextlib.suppress(Gone):  # of which the reader is told
            self._writer.read(ref)  # a finalizer may keep it

    # --- whole Jobs ---------------------------------------------------------------------------------

    def hold_job_again(self, job: HeldJob) -> None:
        """A Job that Kueue starts is given back to Kueue, which stops it and queues it again."""
        if job.check is None:
            self.hold_again(Ref(job.kind, job.meta.namespace, job.meta.name, job.meta.uid))
            return
        at, check = wall_now().replace(microsecond=0), job.check.name
        leaves = partial(kueue.given_back, check=check, message="its node is taken away", at=at)
        with contextlib.suppress(Gone):
            self._writer.change(ref_of(job), leaves, "/status")

    def hold_again(self, job: Ref) -> None:
        self._writer.change(job, lambda found: held_again(job.kind, found))

    def _hold_owner(self, ref: Ref, pod: Object) -> None:
        """Suspend the Job, JobSet or PyTorchJob the pod belongs to, where its template is pinned."""
        meta = pod["metadata"]
        owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
        if owner is None or owner["kind"] not in ("Job", "PyTorchJob"):
            return
        held = self._reader.job_of(owner["uid"]) or self._reader.job_of(
            ref.uid
        )  # the pod may be forgotten by now
        if held is not None and held.check is not None:
            self.hold_job_again(held)
            return
        job = Ref(owner["kind"], ref.namespace, owner["name"], owner["uid"])
        if (name := (meta.get("labels") or {}).get(_JOBSET, "")) and job.kind == "Job":
            job = Ref("JobSet", ref.namespace, name)
        with contextlib.suppress(Gone):
            self.hold_again(job)
