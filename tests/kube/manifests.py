"""Objects as an API server returns them, as plain JSON, with keyword overrides."""

from __future__ import annotations

import itertools
from typing import Any

CREATED = "2026-11-16T06:00:00Z"
_numbers = itertools.count(1)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Deep: a mapping adds to a mapping, None takes away, everything else replaces."""
    result = dict(base)
    for key, value in more.items():
        if value is None:
            result.pop(key, None)
            continue
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def meta(name: str, namespace: str = "team", **more: Any) -> dict[str, Any]:
    number = next(_numbers)
    base = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(number), "creationTimestamp": CREATED}
    if namespace:
        base["namespace"] = namespace
    return merged(base, more)


def owner(kind: str, name: str, uid: str = "") -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid or f"uid-{name}", "controller": True,
         "blockOwnerDeletion": True}
    ]  # fmt: skip


def pod(name: str = "web-1", *, metadata: Any = None, spec: Any = None, status: Any = None) -> dict[str, Any]:
    """A running GPU pod, bound, with what a real one has around it."""
    base_meta = meta(
        name,
        labels={"app": "web"},
        managedFields=[{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
    )
    token = f"kube-api-access-{name}"
    base_spec: dict[str, Any] = {
        "containers": [
            {
                "name": "main",
                "image": "registry/web:1",
                "resources": {"limits": {"nvidia.com/gpu": "8"},
                              "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "8"}},
                "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            }
        ],
        "volumes": [{"name": token, "projected": {"sources": []}}],
        "nodeName": "node-1",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": 300}
        ],
        "priority": 0,
    }  # fmt: skip
    base_status: dict[str, Any] = {
        "phase": "Running",
        "startTime": "2026-11-16T06:00:05Z",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-16T06:00:04Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T06:01:00Z"},
        ],
        "containerStatuses": [
            {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-11-16T06:00:30Z"}}}
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": merged(base_meta, metadata or {}),
        "spec": merged(base_spec, spec or {}),
        "status": merged(base_status, status or {}),
    }


def pending(
    name: str = "train-1", *, metadata: Any = None, spec: Any = None, status: Any = None
) -> dict[str, Any]:
    return pod(
        name,
        metadata=metadata,
        spec=merged({"nodeName": ""}, spec or {}),
        status=merged(
            {"phase": "Pending", "startTime": None, "containerStatuses": [], "conditions": []}, status or {}
        ),
    )


def node(
    name: str = "node-1", *, metadata: Any = None, spec: Any = None, status: Any = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": merged(
            meta(name, "", labels={"node.kubernetes.io/instance-type": "p5.48xlarge", "tidemill.dev/pool": "h100"}),
            metadata or {},
        ),
        "spec": merged({"providerID": "aws:///us-east-1a/i-0123456789abcdef0"}, spec or {}),
        "status": merged(
            {
                "allocatable": {"cpu": "191450m", "memory": "2062607904Ki", "pods": "100", "nvidia.com/gpu": "8"},
                "capacity": {"cpu": "192"},
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T06:02:00Z",
                     "lastHeartbeatTime": "2026-11-16T06:30:00Z"},
                ],
                "images": [{"names": ["registry/web:1"], "sizeBytes": 1}],
            },
            status or {},
        ),
    }  # fmt: skip


def template(**spec: Any) -> dict[str, Any]:
    base = {
        "metadata": {"creationTimestamp": None, "labels": {"app": "train"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}}],
            "restartPolicy": "Never",
        },
    }
    return merged(base, spec)


def job(name: str = "train", *, metadata: Any = None, spec: Any = None, status: Any = None) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": merged(meta(name, labels={"tidemill.dev/held-by": "tidemill"}), metadata or {}),
        "spec": merged(
            {"parallelism": 1, "completions": 1, "suspend": True, "template": template()}, spec or {}
        ),
        "status": merged({}, status or {}),
    }


def deployment(
    name: str = "chat", *, metadata: Any = None, spec: Any = None, status: Any = None
) -> dict[str, Any]:
    return {
        "metadata": merged(meta(name, generation=2), metadata or {}),
        "spec": merged(
            {
                "replicas": 4,
                "template": template(metadata={"labels": {"app": name}}),
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                },
            },
            spec or {},
        ),
        "status": merged(
            {"observedGeneration": 2, "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4}, status or {}
        ),
    }


def budget(
    name: str = "chat", *, metadata: Any = None, spec: Any = None, status: Any = None
) -> dict[str, Any]:
    return {
        "metadata": merged(meta(name), metadata or {}),
        "spec": merged({"selector": {"matchLabels": {"app": "chat"}}}, spec or {}),
        "status": merged({"disruptionsAllowed": 1, "desiredHealthy": 3, "expectedPods": 4}, status or {}),
    }
