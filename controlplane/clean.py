"""Make a control plane as empty as a new one: faster than starting another.

Everything that somebody created goes, pods without their grace and finalizers without their controllers. What
Kubernetes makes for itself stays.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controlplane.api import Api, ApiError

SYSTEM_NAMESPACES = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))

_PATIENCE_S = 2.0  # for controllers to take back their finalizers; then they are stripped
_GIVE_UP_S = 30.0

# Kept wherever they are: Kubernetes makes them, and makes them again.
_KEPT = frozenset(
    ("namespaces", "componentstatuses", "flowschemas", "prioritylevelconfigurations", "apiservices", "servicecidrs",
     "ipaddresses", "endpoints", "endpointslices", "clustertrustbundles")
)  # fmt: skip
_KEPT_IN_SYSTEM_NAMESPACES = frozenset(("serviceaccounts", "configmaps"))
# Deleted first: they may forbid or mend what comes after, or make again what was deleted.
_FIRST = (
    "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingadmissionpolicies",
    "jobsets", "cronjobs", "deployments", "daemonsets", "statefulsets", "replicasets", "jobs",
)  # fmt: skip
_LAST = ("pods", "events", "nodes", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class _Kind:
    prefix: str  # /api/v1, /apis/batch/v1
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.prefix}{middle}/{self.plural}" + (f"/{name}" if name else "")


def clean(api: Api) -> None:
    """Delete all that is not the control plane's own; raises TimeoutError when something will not go."""
    added = [name for name in _namespaces(api) if name not in SYSTEM_NAMESPACES]
    kinds = sorted(_kinds(api), key=_order)
    for kind in kinds:
        if kind.plural in _FIRST:
            _delete(api, kind)
    for name in added:
        api.delete(f"/api/v1/namespaces/{name}")
    began = time.monotonic()
    while left := [
        path for kind in kinds for path in _delete(api, kind, strip=time.monotonic() > began + _PATIENCE_S)
    ]:
        if time.monotonic() > began + _GIVE_UP_S:
            raise TimeoutError(f"{len(left)} objects do not go away, such as {left[0]}")
        time.sleep(0.02)
    for name in added:
        with contextlib.suppress(ApiError):  # gone meanwhile
            emptied = {"metadata": {"name": name}, "spec": {"finalizers": []}}
            api.call("PUT", f"/api/v1/namespaces/{name}/finalize", emptied)


def _order(kind: _Kind) -> int:
    if kind.plural in _FIRST:
        return _FIRST.index(kind.plural)
    return 100 + (_LAST.index(kind.plural) + 1 if kind.plural in _LAST else 0)


def _namespaces(api: Api) -> list[str]:
    return [one["metadata"]["name"] for one in api.items("/api/v1/namespaces")]


def _kinds(api: Api) -> Iterator[_Kind]:
    groups = [
        one for one in api.get("/apis")["groups"] if one["name"] != "events.k8s.io"
    ]  # events are in v1 too
    for prefix in ("/api/v1", *(f"/apis/{one['preferredVersion']['groupVersion']}" for one in groups)):
        for found in api.get(prefix)["resources"]:
            if {"list", "delete"} <= set(found["verbs"]) and found["name"] not in _KEPT:
                yield _Kind(prefix, found["name"], found["namespaced"])


def _delete(api: Api, kind: _Kind, *, strip: bool = False) -> list[str]:
    """Ask for the deletion of each that is not kept; the paths of all there were."""
    try:
        found = [one for one in api.items(kind.path()) if not _kept(kind, one["metadata"])]
    except ApiError as error:
        if error.status == 404:  # a custom resource whose definition just went
            return []
        if error.status == 429:  # or just changed: asked again in the next round
            return [kind.path()]
        raise
    paths = []
    for one in found:
        metadata = one["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        paths.append(path)
        with contextlib.suppress(ApiError):  # whoever refuses is asked again in the next round
            if strip and metadata.get("finalizers"):
                api.patch(path, {"metadata": {"finalizers": None}})
            api.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")
    return paths


def _kept(kind: _Kind, metadata: dict[str, Any]) -> bool:
    labels = metadata.get("labels") or {}
    if kind.plural == "priorityclasses":
        return str(metadata["name"]).startswith("system-")
    if kind.plural == "services":
        return metadata.get("namespace") == "default" and metadata["name"] == "kubernetes"
    if "rbac.authorization" in kind.prefix:
        return labels.get("kubernetes.io/bootstrapping") == "rbac-defaults"
    if kind.plural == "leases" and "apiserver.kubernetes.io/identity" in labels:
        return True
    system = not kind.namespaced or metadata.get("namespace") in SYSTEM_NAMESPACES
    return system and kind.plural in _KEPT_IN_SYSTEM_NAMESPACES
