"""The policies or the webhook in a cluster: put there, taken away, and what is there.

Applied by server-side apply with our field manager and never forced. Installing one of the two ways takes the other
away afterwards, so that nothing passes in between; both together do no harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.kube.admission.policy import OBJECTS_API, SYSTEM_NAMESPACES, policy_objects
from tidemill.kube.admission.webhook import webhook_object
from tidemill.kube.api import APPLY_PATCH, KubeApi
from tidemill.model.errors import Gone, Retryable
from tidemill.spec.names import GATE, GROUP, MANAGED

FIELD_MANAGER = "tidemill"
IN_FORCE_WITHIN_S = 30.0
_LOOK_AGAIN_S = 0.2
_ROOT = f"/apis/{OBJECTS_API}"
_NAME_END = f"admission.{GROUP}"  # of all objects that we install
# In the order in which they are taken away: a binding before its policy.
_RESOURCES = {
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}


@dataclass(frozen=True, slots=True)
class Installed:
    """One object of ours in the cluster."""

    kind: str
    name: str
    found: Mapping[str, Any]  # as the API server has it

    @property
    def path(self) -> str:
        return f"{_ROOT}/{_RESOURCES[self.kind]}/{self.name}"


def serves_policies(api: KubeApi) -> bool:
    """Whether the API server serves v1 of MutatingAdmissionPolicy (Kubernetes 1.36 and later)."""
    served = json.loads(api.get(_ROOT))
    return any(each["name"] == "mutatingadmissionpolicies" for each in served["resources"])


def installed(api: KubeApi) -> list[Installed]:
    served = serves_policies(api)
    found = []
    for kind, resource in _RESOURCES.items():
        if kind == "MutatingWebhookConfiguration" or served:
            listed = json.loads(api.get(f"{_ROOT}/{resource}"))["items"]
            found += [
                Installed(kind, each["metadata"]["name"], each)
                for each in listed
                if each["metadata"]["name"].endswith(_NAME_END)
            ]
    return found


def install(api: KubeApi, objects: Sequence[Mapping[str, Any]]) -> list[Installed]:
    """Apply these, then take away what else of ours is there; returns what was taken away."""
    for each in objects:
        path = f"{_ROOT}/{_RESOURCES[each['kind']]}/{each['metadata']['name']}"
        body = json.dumps(each).encode()
        api.send("PATCH", path, body, content_type=APPLY_PATCH, params={"fieldManager": FIELD_MANAGER})
    wanted = {(each["kind"], each["metadata"]["name"]) for each in objects}
    return remove(api, [each for each in installed(api) if (each.kind, each.name) not in wanted])


def probe_namespace(api: KubeApi, excluded: Sequence[str]) -> str:
    """Where a workload of ours would be held: `default`, else a namespace of ours; empty: there is none."""
    never = {*SYSTEM_NAMESPACES, *excluded}
    return next((name for name in ("default", *managed_namespaces(api)) if name not in never), "")


def wait_until_held(api: KubeApi, namespace: str, *, within_s: float = IN_FORCE_WITHIN_S) -> None:
    """Until the API server follows what was installed, a second or so later. Nothing is created: it is asked what would
    become of a Job and a pod. Retryable: it did not in time. Any other error: it cannot be asked."""
    until_s = time.monotonic() + within_s
    why = "they would not be held"
    while True:
        try:
            if _would_be_held(api, namespace):
                return
        except Retryable as error:  # a webhook that does not answer, say
            why = str(error)
        if time.monotonic() >= until_s:
            raise Retryable(
                f"installed, but {api.server} does not hold workloads of ours after {within_s:g} s: {why}",
                code="not-in-force",
            )
        time.sleep(_LOOK_AGAIN_S)


def _would_be_held(api: KubeApi, namespace: str) -> bool:
    # As the strictest pod security standard wants it, so that it is not refused for something else.
    container = {
        "name": "probe", "image": "registry.k8s.io/pause:3.10",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    spec = {
        "containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }  # fmt: skip
    meta = {"generateName": "tidemill-probe-", "labels": {MANAGED: "true"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": spec}}}
    made = [
        json.loads(api.send("POST", path, json.dumps(body).encode(), params={"dryRun": "All"}))["spec"]
        for path, body in (
            (f"/api/v1/namespaces/{namespace}/pods", pod),
            (f"/apis/batch/v1/namespaces/{namespace}/jobs", job),
        )
    ]
    gates = made[0].get("schedulingGates") or ()
    return any(gate.get("name") == GATE for gate in gates) and made[1].get("suspend") is True


def remove(api: KubeApi, objects: Sequence[Installed]) -> list[Installed]:
    """Idempotent."""
    for each in objects:
        try:
            api.send("DELETE", each.path)
        except Gone:
            continue
    return list(objects)


def managed_namespaces(api: KubeApi) -> list[str]:
    listed = json.loads(api.get("/api/v1/namespaces", {"labelSelector": f"{MANAGED}=true"}))
    return [each["metadata"]["name"] for each in listed["items"]]


def outdated(found: Sequence[Installed], excluded: Sequence[str]) -> list[str]:
    """Kind and name of what is missing of the way that is installed, or is not as this version would install it."""
    present = {(each.kind, each.name): each.found for each in found}
    wanted: list[dict[str, Any]] = []
    if any(each.kind != "MutatingWebhookConfiguration" for each in found):
        wanted += policy_objects(excluded)
    if any(each.kind == "MutatingWebhookConfiguration" for each in found):
        webhook = webhook_object({"url": ""}, excluded=excluded)
        for each in webhook["webhooks"]:
            del each["clientConfig"]
        wanted.append(webhook)
    differing = []
    for each in wanted:
        kind, name = each.pop("kind"), each["metadata"]["name"]
        del each["apiVersion"]  # a list repeats neither for its items
        if not _within(each, present.get((kind, name), {})):
            differing.append(f"{kind} {name}")
    return sorted(differing)


def _within(wanted: Any, found: Any) -> bool:
    """Everything we write is there; the API server adds defaults."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(key in found and _within(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_within, wanted, found))
    return bool(wanted == found)
