"""What we hold in a cluster, and the switch that lets go of all of it: for when Tidemill is removed or away.

Only what is marked as ours is touched: our gate, suspensions with our label, our taint. Everything can be repeated, and
one object that cannot be released does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.kube.api import JSON_PATCH, KubeApi
from tidemill.kube.errors import CONFLICT, NOT_SERVED
from tidemill.model.errors import Gone, TidemillError
from tidemill.spec.names import GATE, HELD_BY, HELD_BY_US, KUEUE_QUEUE, TAINT_HELD

PAGE = 500
ATTEMPTS = 5  # an object that somebody else keeps writing to


@dataclass(frozen=True, slots=True)
class HeldKind:
    """A kind of object that we hold, and where its suspension is."""

    kind: str
    group: str  # empty: the core group, whose version is v1
    resource: str
    suspend_at: tuple[str, ...] = ()


NODES = HeldKind("Node", "", "nodes")
PODS = HeldKind("Pod", "", "pods")
SUSPENDED = (
    HeldKind("Job", "batch", "jobs", ("spec", "suspend")),
    HeldKind("JobSet", "jobset.x-k8s.io", "jobsets", ("spec", "suspend")),
    HeldKind("PyTorchJob", "kubeflow.org", "pytorchjobs", ("spec", "runPolicy", "suspend")),
)


@dataclass(frozen=True, slots=True)
class Held:
    """One object that we hold; `path` is its address at the API server."""

    kind: HeldKind
    namespace: str  # empty: a node
    name: str
    uid: str
    path: str
    created: str
    found: Any  # as it was listed

    @property
    def full_name(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}" if self.namespace else f"Node {self.name}"


@dataclass(frozen=True, slots=True)
class Failed:
    held: Held
    error: TidemillError


def held_objects(api: KubeApi, namespace: str = "") -> list[Held]:
    """Nodes first (only without a namespace), so that what is released finds room. Gone: no such namespace is empty."""
    found = [] if namespace else list(_matching(api, NODES, "", {}, _is_tainted))
    marked = {"labelSelector": f"{HELD_BY}={HELD_BY_US}"}
    for kind in SUSPENDED:
        found += _matching(api, kind, namespace, marked, lambda each: True)
    # A gated pod has no node. There is no selector for gates.
    found += _matching(api, PODS, namespace, {"fieldSelector": "spec.nodeName="}, _is_gated)
    return found


def release_all(api: KubeApi, held: list[Held]) -> tuple[list[Held], list[Failed]]:
    """Let go of each. What is gone meanwhile counts as released."""
    released, failed = [], []
    for each in held:
        try:
            _release(api, each)
        except Gone:
            released.append(each)
        except TidemillError as error:
            failed.append(Failed(each, error))
        else:
            released.append(each)
    return released, failed


def patch_to_release(kind: HeldKind, found: Any) -> list[dict[str, Any]]:
    """The JSON patch for an object as it is now; empty: we hold nothing of it."""
    if kind is PODS or kind is NODES:
        field, key, value = (
            ("schedulingGates", "name", GATE) if kind is PODS else ("taints", "key", TAINT_HELD)
        )
        entries = found["spec"].get(field) or []
        return [
            step
            for index in reversed(range(len(entries)))  # from the end: a removal moves what follows it
            if entries[index].get(key) == value
            for step in _remove_entry(f"/spec/{field}/{index}", key, value)
        ]
    if (found["metadata"].get("labels") or {}).get(HELD_BY) != HELD_BY_US:
        return []
    patch: list[dict[str, Any]] = [{"op": "remove", "path": "/metadata/labels/" + HELD_BY.replace("/", "~1")}]
    inner: Any = found
    for key in kind.suspend_at[:-1]:
        inner = inner.get(key) or {}
    # Kueue may have put the Job into a queue after we suspended it: then its start is Kueue's.
    if inner.get("suspend") and KUEUE_QUEUE not in found["metadata"]["labels"]:
        patch.append({"op": "replace", "path": "/" + "/".join(kind.suspend_at), "value": False})
    return patch


def _remove_entry(path: str, key: str, value: str) -> list[dict[str, Any]]:
    return [{"op": "test", "path": f"{path}/{key}", "value": value}, {"op": "remove", "path": path}]


def _release(api: KubeApi, held: Held) -> None:
    found = held.found
    for attempt in range(ATTEMPTS):
        patch = patch_to_release(held.kind, found)
        if not patch:
            return
        version = found["metadata"]["resourceVersion"]
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            api.send("PATCH", held.path, json.dumps([guard, *patch]).encode(), content_type=JSON_PATCH)
            return
        except TidemillError as error:
            # A JSON patch whose test fails is 422; a write in between is 409.
            if error.code not in (CONFLICT, "invalid") or attempt == ATTEMPTS - 1:
                raise
        found = json.loads(api.get(held.path))
        if found["metadata"]["uid"] != held.uid:
            return  # another object of that name: it was created after we looked


def _matching(
    api: KubeApi, kind: HeldKind, namespace: str, selector: dict[str, str], is_held: Any
) -> Iterator[Held]:
    root = _root(api, kind)
    if not root:
        return
    listed = f"{root}/namespaces/{namespace}/{kind.resource}" if namespace else f"{root}/{kind.resource}"
    following = ""
    while True:
        params: dict[str, str | int] = {**selector, "limit": PAGE}
        if following:
            params["continue"] = following
        try:
            page = json.loads(api.get(listed, params))
        except Gone as error:
            if error.code == NOT_SERVED:
                return  # the group is there, this kind of it is not
            raise
        for each in page["items"]:
            if is_held(each):
                yield _held(kind, root, each)
        following = page["metadata"].get("continue", "")
        if not following:
            return


def _root(api: KubeApi, kind: HeldKind) -> str:
    """Where the API server serves the group; empty: its CRD is not installed."""
    if not kind.group:
        return "/api/v1"
    try:
        group = json.loads(api.get(f"/apis/{kind.group}"))
    except Gone:
        return ""
    return f"/apis/{group['preferredVersion']['groupVersion']}"


def _held(kind: HeldKind, root: str, each: Any) -> Held:
    meta = each["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    within = f"namespaces/{namespace}/" if namespace else ""
    path = f"{root}/{within}{kind.resource}/{name}"
    return Held(kind, namespace, name, meta["uid"], path, meta.get("creationTimestamp", ""), each)


def _is_gated(pod: Any) -> bool:
    return any(gate.get("name") == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _is_tainted(node: Any) -> bool:
    return any(taint.get("key") == TAINT_HELD for taint in node["spec"].get("taints") or ())
