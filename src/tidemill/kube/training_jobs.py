"""Training jobs in a cluster: created, looked at, read from and stopped, with the rights of their user in a namespace.

Nothing here needs more than `edit` in that namespace. Reading pools and priority classes is tried, and their absence is
no error: a failure to look is told as None, not as "there are none".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.kube.api import KubeApi, LineStream
from tidemill.kube.custom_objects import all_pages
from tidemill.kube.errors import ALREADY_EXISTS
from tidemill.kube.events import CONTROLLER
from tidemill.model.errors import Gone, NotAllowed, OutcomeUnknown, Refused, Retryable, SpecError, Throttled
from tidemill.spec import names

Object = Mapping[str, Any]

_JOB_SET_API = "/apis/jobset.x-k8s.io/v1alpha2"
_COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "JobSet": f"{_JOB_SET_API}/namespaces/{{}}/jobsets",
    "Service": "/api/v1/namespaces/{}/services",
}
_STRICT = {"fieldValidation": "Strict"}
_SILENCE_S = 3600.0  # a log may be silent for long; the connection itself is kept alive


class TrainingJobs:
    """The jobs of one namespace; an empty one: of all, for listing only."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self.namespace = api, namespace

    # --- making -------------------------------------------------------------------------------------

    def try_out(self, manifest: Object) -> Object:
        """What the API server would make of it, all its rules and policies applied; nothing is kept."""
        return self._create(manifest, {"dryRun": "All"})

    def create(self, manifest: Object) -> Object:
        """SpecError: there is one of this name, its namespace is not there, or its kind is not installed."""
        return self._create(manifest, {})

    def _create(self, manifest: Object, more: Mapping[str, str]) -> Object:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "JobSet":
            self._check_job_sets()
        body = msgspec.json.encode(manifest)
        try:
            made = self._api.send("POST", self._path(kind), body, params={**_STRICT, **more})
        except Gone:
            if kind == "Service":
                raise
            raise SpecError(
                f"there is no namespace {self.namespace}; name another with --namespace, or create it"
            ) from None
        except Throttled:
            raise
        except Retryable as error:
            raise OutcomeUnknown(
                f"{error}; {kind} {name} may have been created: look with `tidemill job list -n {self.namespace}` "
                "before you try again",
                code=error.code,
            ) from None
        except Refused as refused:
            if refused.code == ALREADY_EXISTS:
                raise SpecError(
                    f"{self.namespace} has a {kind} {name} already; choose another --name, or stop it first: "
                    f"tidemill job stop {name} -n {self.namespace}"
                ) from None
            raise
        return _object(made, kind)

    def _check_job_sets(self) -> None:
        """Asked of discovery, which everybody may read: a kind that is not there is forbidden to most, not unknown."""
        try:
            self._api.get(_JOB_SET_API)
        except Gone:
            raise SpecError(
                "JobSet is not installed in this cluster; leave --jobset out (a Job and a Service do the same), or "
                "install it: https://jobset.sigs.k8s.io"
            ) from None

    # --- looking ------------------------------------------------------------------------------------

    def listed(self) -> list[Object]:
        """Jobs and JobSets, ours or not."""
        found: list[Object] = []
        for kind in ("Job", "JobSet"):
            path = self._path(kind)
            try:
                found += [{**thing, "kind": kind} for thing in all_pages(self._api, path, kind)]
            except NotAllowed:
                if kind == "Job":  # JobSets may be served and not be this user's business
                    raise
        return found

    def get(self, name: str) -> Object:
        """SpecError: there is none. A Job comes before a JobSet of the same name."""
        for kind in ("Job", "JobSet"):
            try:
                return _object(self._api.get(f"{self._path(kind)}/{name}"), kind)
            except Gone:
                continue
            except NotAllowed:
                if kind == "Job":
                    raise
        raise SpecError(f"{self.namespace} has no job {name}; `tidemill job list -A` shows where jobs are")

    def again(self, thing: Object) -> Object | None:
        """The same object now; None: it is gone, or another has its name."""
        try:
            now = _object(
                self._api.get(f"{self._path(thing['kind'])}/{thing['metadata']['name']}"), thing["kind"]
            )
        except Gone:
            return None
        return now if now["metadata"]["uid"] == thing["metadata"]["uid"] else None

    def events(self) -> list[Object]:
        """What the engine says about objects of the namespace. Of the core group: users may read those."""
        root = f"/api/v1/namespaces/{self.namespace}/events" if self.namespace else "/api/v1/events"
        return list(all_pages(self._api, root, "Event", field=f"reportingComponent={CONTROLLER}"))

    def pods(self, thing: Object) -> list[Object]:
        label = "batch.kubernetes.io/job-name" if thing["kind"] == "Job" else "jobset.sigs.k8s.io/jobset-name"
        path = f"/api/v1/namespaces/{thing['metadata']['namespace']}/pods"
        found = all_pages(self._api, path, "Pod", label=f"{label}={thing['metadata']['name']}")
        return [pod for pod in found if thing["kind"] != "Job" or _is_owned(pod, thing)]

    def pools(self) -> list[Object] | None:
        """The ComputePool objects; None: they are no objects of this cluster, or this user may not see them."""
        try:
            found = list(all_pages(self._api, f"/apis/{names.API_VERSION}/computepools", "ComputePool"))
        except NotAllowed:
            return None
        return found or None

    def priority_classes(self) -> list[str] | None:
        """None: this user may not see them."""
        try:
            found = all_pages(self._api, "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass")
            return sorted(one["metadata"]["name"] for one in found)
        except NotAllowed:
            return None

    def log(self, pod: Object, *, follow: bool, tail: int | None = None, since: str = "") -> LineStream:
        """Its lines, each with the instant it was written at in front."""
        meta, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
        params: dict[str, str | int] = {"container": container, "timestamps": "true"}
        if follow:
            params["follow"] = "true"
        if tail is not None:
            params["tailLines"] = tail
        if since:
            params["sinceTime"] = since
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
        return self._api.stream(path, params, _SILENCE_S)

    # --- ending -------------------------------------------------------------------------------------

    def delete(self, thing: Object) -> None:
        """The pods get their grace, and what is owned by the object goes with it. Done if it is gone already."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": thing["metadata"]["uid"]},
        }
        try:
            path = f"{self._path(thing['kind'])}/{thing['metadata']['name']}"
            self._api.send("DELETE", path, msgspec.json.encode(options))
        except Gone:
            return

    def create_all(self, workload: Object, beside: Callable[[Object], list[Object]]) -> Object:
        """The workload, then what it owns. If that fails the workload is deleted: all of it or nothing."""
        made = self.create(workload)
        try:
            for thing in beside(made):
                self.create(thing)
        except BaseException:
            self.delete(made)
            raise
        return made

    def _path(self, kind: str) -> str:
        path = _COLLECTIONS[kind]
        return path.format(self.namespace) if self.namespace else path.replace("/namespaces/{}", "")


def _object(body: bytes, kind: str) -> Object:
    made: dict[str, Any] = msgspec.json.decode(body)
    return {**made, "kind": kind}


def _is_owned(pod: Object, thing: Object) -> bool:
    """By this Job, not by an earlier one of its name."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == thing["metadata"]["uid"] for owner in owners)
