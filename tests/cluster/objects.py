"""Objects of users for the real tier, and what is read off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.api import Api
from tidemill.spec import names

GPU = names.NVIDIA_GPU
RESUMABLE = {names.CHECKPOINT_EVERY: "10m"}
# One failure that counts would end the Job; those whose pod says DisruptionTarget do not count.
SPARED: dict[str, Any] = {
    "backoffLimit": 0,
    "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    },
}


def sim(**notes: str) -> dict[str, str]:
    """Annotations for the simulated kubelets; `_` in a name is `-`: `sim(stops_after="10m")`."""
    return {f"sim.tidemill.dev/{key.replace('_', '-')}": value for key, value in notes.items()}


def template(
    *, gpus: int = 8, grace_s: int = 30, annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None, selector: Mapping[str, str] | None = None, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    asked = {"cpu": "4", "memory": "16Gi"} | ({GPU: str(gpus)} if gpus else {})
    return {
        "metadata": {"annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "spec": {
            "terminationGracePeriodSeconds": grace_s,
            "nodeSelector": dict(selector or {}),
            "tolerations": [{"key": GPU, "operator": "Exists"}],
            "containers": [
                {"name": "work", "image": "example.com/work", "resources": {"requests": asked, "limits": asked}}
            ],
            **spec,
        },
    }  # fmt: skip


def pod(name: str, **given: Any) -> dict[str, Any]:
    made = template(**{"restartPolicy": "Never", **given})
    made["metadata"] |= {"name": name}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def job(
    name: str, *, lasts: str = "10m", parallelism: int = 1, gang: bool = False, spec: Mapping[str, Any] | None = None,
    **pod: Any,
) -> dict[str, Any]:  # fmt: skip
    """A Job whose pods run for a virtual duration."""
    annotations = {names.EXPECTED_DURATION: lasts, **sim(duration=lasts)}
    labels = {names.GANG: name, names.GANG_SIZE: str(parallelism)} if gang else {}
    made = template(annotations=annotations | pod.pop("annotations", {}), labels=labels, **pod)
    made["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": made, **(spec or {})},
    }


def deployment(name: str, replicas: int, *, surge: int = 1, **pod: Any) -> dict[str, Any]:
    made = template(labels={"app": name}, **pod)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}},
            "template": made,
        },
    }


def budget(name: str, minimum: int, **selected: str) -> dict[str, Any]:
    """For the pods of a deployment, or for those with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": selected or {"app": name}}},
    }


def create(api: Api, namespace: str, *objects: Mapping[str, Any]) -> None:
    for body in objects:
        group, kind = body["apiVersion"], body["kind"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        api.create(f"{root}/namespaces/{namespace}/{kind.lower()}s", body)


# --- what they say ------------------------------------------------------------------------------------


def condition(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> str:
    return next((str(one["status"]) for one in conditions or () if one["type"] == kind), "")


def taints(node: Mapping[str, Any]) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints") or ()}


def is_ready(pod: Mapping[str, Any]) -> bool:
    deleting = "deletionTimestamp" in pod["metadata"]
    return not deleting and condition(pod["status"].get("conditions"), "Ready") == "True"


def pod_phase(api: Api, namespace: str, name: str) -> str:
    return str(api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"])


def pod_runs(api: Api, namespace: str, name: str) -> bool:
    return pod_phase(api, namespace, name) == "Running"


def job_is_complete(api: Api, namespace: str, name: str) -> bool:
    status = api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")["status"]
    return condition(status.get("conditions"), "Complete") == "True"
