"""How the adapter changes objects: a patch that tests what it was computed from, or server-side apply.

Atomic lists (taints, tolerations, gates) are read, computed anew and written with the resourceVersion that was read, a
few times if others write too. Maps of our own go by server-side apply, one field manager for each concern: what one
concern applies does not take away another's. Nothing is forced against another manager. What the API server answers is
given to the reader at once, so that the next view shows it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tidemill.engine.clock import wall_now
from tidemill.kube.api import APPLY_PATCH, MERGE_PATCH, KubeApi
from tidemill.kube.errors import CONFLICT, FIELD_CONFLICT, NOT_SERVED
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.spec.units import format_instant

_STRATEGIC = "application/strategic-merge-patch+json"  # conditions merge by type
Object = Mapping[str, Any]
Patch = dict[str, Any]
_TRIES = 8  # while others write to the same object


class Learns(Protocol):
    """The reader, as far as writes tell it what came of them."""

    def learn(self, kind: str, body: bytes) -> None:
        """An object as the API server has just answered it."""
        ...

    def forget(self, kind: str, uid: str) -> None:
        """An object that is certainly gone."""
        ...


# Where objects of a kind are, by the name of the kind: with and without a namespace.
_PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods/{}",
    "Node": "/api/v1/nodes/{1}",
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/{}",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs/{}",
    "Workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads/{}",
    "AdmissionCheck": "/apis/kueue.x-k8s.io/v1beta2/admissionchecks/{1}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets/{}",
}


class Ref(msgspec.Struct, frozen=True):
    """One object. With a uid it is that very object: another one under its name is not meant."""

    kind: str
    namespace: str
    name: str
    uid: str = ""

    @property
    def path(self) -> str:
        return _PATHS[self.kind].format(self.namespace, self.name)

    @property
    def api_version(self) -> str:
        path = self.path
        return "v1" if path.startswith("/api/") else "/".join(path.split("/")[2:4])

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Writer:
    def __init__(self, api: KubeApi, reader: Learns, field_manager: str) -> None:
        self._api, self._reader, self._manager = api, reader, field_manager

    def read(self, ref: Ref) -> Object:
        """The object as it is now. Gone: it is not there, or another is under its name."""
        try:
            body = self._api.get(ref.path)
        except Gone as gone:
            # A 404 that names no object may be of a proxy in between: it says nothing about the object.
            if ref.uid and gone.code != NOT_SERVED:
                self._reader.forget(ref.kind, ref.uid)
            raise
        found = decoded(body, ref)
        if ref.uid and found["metadata"]["uid"] != ref.uid:
            self._reader.forget(ref.kind, ref.uid)
            raise Gone(f"{ref} is another one now", code="other-uid")
        self._reader.learn(ref.kind, body)
        return found

    def change(self, ref: Ref, patch_for: Callable[[Object], Patch | None], subresource: str = "") -> Object:
        """Read, compute, write if nobody wrote in between. None: it is as it should be."""
        for tries in range(_TRIES):
            time.sleep(random.uniform(0, 0.02 * tries))
            found = self.read(ref)
            try:
                patch = patch_for(found)
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                # One object of an unknown form, a custom resource without a template for instance, is its own fault.
                why = f"{type(error).__name__}: {error}"
                raise Refused(f"{ref} is not understood ({why})", code="not-understood") from error
            if patch is None:
                return found
            meta = found["metadata"]
            tested = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            patch = {**patch, "metadata": {**patch.get("metadata", {}), **tested}}
            try:
                return self._patch(ref, patch, subresource)
            except Retryable as error:
                if error.code != CONFLICT:
                    raise
                conflict = error
        raise conflict

    def _patch(self, ref: Ref, patch: Patch, subresource: str = "") -> Object:
        body = self._api.send(
            "PATCH", ref.path + subresource, msgspec.json.encode(patch),
            content_type=MERGE_PATCH, params={"fieldManager": self._manager},
        )  # fmt: skip
        return self._learned(ref, body)

    def apply(
        self,
        ref: Ref,
        fields: Patch,
        *,
        concern: str,
        may_take: Callable[[Object], bool] = lambda owner: False,
    ) -> Object:
        """Server-side apply as the manager of this concern. Refused, field-conflict: another manager owns a field.

        What we wrote ourselves by another way (an end announced when the pod was admitted) is ours to move, and so is
        what `may_take` says of an entry of managedFields.
        """
        manager = f"{self._manager}-{concern}"
        meta = {"name": ref.name, "uid": ref.uid, **fields.get("metadata", {})}
        whole = {"apiVersion": ref.api_version, "kind": ref.kind, **fields, "metadata": meta}
        for _ in range(_TRIES):
            try:
                return self._apply(ref, whole, {"fieldManager": manager})
            except (Refused, Retryable) as error:
                if error.code not in (FIELD_CONFLICT, CONFLICT):
                    raise
                conflict = error
            found = self.read(ref)  # Gone, if that is why
            if conflict.code == CONFLICT:
                continue
            if not all(
                self._is_ours(owner) or may_take(owner) for owner in owners_of(found, fields, manager)
            ):
                raise conflict
            tested = {**meta, "resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                taken = {**whole, "metadata": tested}
                return self._apply(ref, taken, {"fieldManager": manager, "force": "true"})
            except Retryable as error:
                if error.code != CONFLICT:
                    raise
                conflict = error
        raise conflict

    def _apply(self, ref: Ref, whole: Patch, params: Mapping[str, str | int]) -> Object:
        body = msgspec.json.encode(whole)
        answer = self._api.send("PATCH", ref.path, body, content_type=APPLY_PATCH, params=params)
        return self._learned(ref, answer)

    def set_condition(
        self, ref: Ref, kind: str, *, reason: str, message: str, status: Mapping[str, str] | None = None
    ) -> None:
        """A condition that is True, through the status subresource; those of others stay."""
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_instant(wall_now().replace(microsecond=0)),
        }
        body = {"metadata": {"uid": ref.uid}, "status": {"conditions": [condition], **(status or {})}}
        answer = self._api.send(
            "PATCH", f"{ref.path}/status", msgspec.json.encode(body), content_type=_STRATEGIC,
            params={"fieldManager": self._manager},
        )  # fmt: skip
        self._reader.learn(ref.kind, answer)

    def _is_ours(self, owner: Object) -> bool:
        manager = str(owner.get("manager", ""))
        return manager == self._manager or manager.startswith(f"{self._manager}-")

    def _learned(self, ref: Ref, body: bytes) -> Object:
        self._reader.learn(ref.kind, body)
        return decoded(body, ref)


def decoded(body: bytes, ref: Ref) -> Object:
    """Retryable: a proxy in between answered something else."""
    try:
        found: Object = msgspec.json.decode(body, type=dict)
        whole = found.get("kind") == "Status" or {"uid", "resourceVersion"} <= found["metadata"].keys()
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise Retryable(f"the answer about {ref} is no object", code="answer")
    return found


def owners_of(found: Object, fields: Patch, except_for: str) -> list[Object]:
    """The entries of managedFields that own a field which we want to be something else."""
    paths = [path for path, value in _leaves(fields) if _at(found, path) != value]
    return [
        entry
        for entry in found["metadata"].get("managedFields") or ()
        if entry.get("manager") != except_for
        and any(
            _at(entry.get("fieldsV1", {}), tuple(f"f:{key}" for key in path)) is not None for path in paths
        )
    ]


def _leaves(fields: Object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in fields.items():
        deeper = (*path, key)
        found += _leaves(value, deeper) if isinstance(value, Mapping) else [(deeper, value)]
    return found


def _at(within: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(within, Mapping) or key not in within:
            return None
        within = within[key]
    return within
