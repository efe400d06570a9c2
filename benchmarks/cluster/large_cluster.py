"""A large cluster on a real API server: nodes and pods of ordinary size, without kubelets, written straight into etcd.

Every node is full of running pods, so that a pending pod with GPUs needs a new node. `churn` replaces pods at a steady
rate, as finished ones are replaced in a busy cluster.
"""

from __future__ import annotations

import json
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any
from uuid import uuid4

from controlplane.api import eventually
from controlplane.components import ETCD
from controlplane.start import ControlPlane

NAMESPACE = "bench"
THREADS = 8
TYPE = "g6.12xlarge"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
ROOM = {"cpu": "47", "memory": "180Gi", "pods": "110", "nvidia.com/gpu": "4", "ephemeral-storage": "200Gi"}
SLOTS = 10  # pods of one node, of as many Deployments
GPU_SLOTS = 4  # of them have a GPU: the node has no other
ALIKE = 20  # so many kinds of nodes by their pods, 200 Deployments in all


def node_name(number: int) -> str:
    return f"node-{number:05}"


def node(number: int) -> dict[str, Any]:
    """Of nobody's: neither controller may think that it is one of its own."""
    zone = ZONES[number % len(ZONES)]
    return {
        "metadata": {
            "name": node_name(number),
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": node_name(number),
                "node.kubernetes.io/instance-type": TYPE,
                "topology.kubernetes.io/region": "us-east-1",
                "topology.kubernetes.io/zone": zone,
            },
        },
        "spec": {"providerID": f"bench:///{zone}/{number}", "taints": [_GPU_TAINT]},
    }


def node_status() -> dict[str, Any]:
    quiet = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [{"type": kind, "status": "False", "reason": "Sufficient"} for kind in quiet]
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady"})
    images = [{"names": [f"registry.example/team/image-{at}:v{at}"], "sizeBytes": 10**9} for at in range(20)]
    return {"status": {"capacity": ROOM, "allocatable": ROOM, "conditions": conditions, "images": images}}


_GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def pod(name: str, on: str, template: int) -> dict[str, Any]:
    """About four kilobytes, as pods of a service are."""
    gpus = {"nvidia.com/gpu": "1"} if template % SLOTS < GPU_SLOTS else {}
    app = f"app-{template}"
    owner = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-6c8f7d5b9", "uid": f"rs-{template}",
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    env = [
        {"name": f"SETTING_{at}", "value": f"https://service-{at}.{app}.svc.cluster.local:8443"}
        for at in range(12)
    ]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
    container = {
        "name": "main",
        "image": f"registry.example/team/{app}:v{template}",
        "args": ["--model", f"/models/{app}", "--port", "8080"],
        "env": env,
        "ports": [{"containerPort": 8080}],
        "readinessProbe": probe,
        "livenessProbe": probe,
        "resources": {"requests": {"cpu": "4", "memory": "16Gi", **gpus}, "limits": gpus},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "metadata": {
            "name": name,
            "labels": {"app": app, "pod-template-hash": "6c8f7d5b9"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0" * 64},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": on,
            "containers": [container],
            "tolerations": [_TOLERATION],
            "volumes": [{"name": "models", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 30,
            "automountServiceAccountToken": False,
        },
    }


def running(at: str) -> dict[str, Any]:
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    started = {"running": {"startedAt": at}}
    container = {
        "name": "main",
        "image": "i",
        "imageID": "i",
        "ready": True,
        "restartCount": 0,
        "state": started,
    }
    return {
        "status": {
            "phase": "Running",
            "startTime": at,
            "podIP": "10.0.0.1",
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds],
            "containerStatuses": [container],
        }
    }


def pending(name: str, gpus: int, selector: dict[str, str]) -> dict[str, Any]:
    """A pod that fits no node there is."""
    made = pod(name, "", 0)
    del made["spec"]["nodeName"], made["metadata"]["ownerReferences"]
    made["spec"]["nodeSelector"] = selector
    asked = {"cpu": "1", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    made["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    return made


@dataclass(frozen=True, slots=True)
class Made:
    nodes: int
    pods: int
    seconds: float


class LargeCluster:
    def __init__(self, plane: ControlPlane, seed: int = 1) -> None:
        self._api = plane.admin()
        self._etcd = f"http://127.0.0.1:{plane.ports[ETCD]}"
        self._random = Random(seed)
        self._on: list[tuple[str, int]] = []  # pods and the numbers of their nodes
        self._nodes = self._count = 0

    def make(self, nodes: int, pods: int, node: Callable[[int], dict[str, Any]] = node) -> Made:
        """`node`: what each is, by its number."""
        began = time.monotonic()
        self._api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        eventually(lambda: self._api.get(account), what="the namespace takes pods")
        self._on = [(f"pod-{number:06}", number % nodes) for number in range(pods)]
        self._nodes = nodes
        at = _now()
        self._write(
            (f"/registry/minions/{node_name(number)}", _stored("Node", node(number) | node_status(), at))
            for number in range(nodes)
        )
        self._write(
            (f"/registry/pods/{NAMESPACE}/{name}", _stored("Pod", self._pod(index) | running(at), at))
            for index, (name, _) in enumerate(self._on)
        )
        self._count = pods
        # The API server's cache follows a moment later: what it serves from there is what a controller lists.
        last = f"/api/v1/namespaces/{NAMESPACE}/pods/{self._on[-1][0]}"
        eventually(
            lambda: self._api.get(last, resourceVersion="0"), timeout_s=300, what="all pods are served"
        )
        return Made(nodes, pods, time.monotonic() - began)

    def _write(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """Past the API server, which would take many minutes: a hundred objects in one transaction."""
        listed = iter(pairs)
        while batch := list(islice(listed, 100)):
            puts = [
                {"requestPut": {"key": _base64(key.encode()), "value": _base64(value)}}
                for key, value in batch
            ]
            request = urllib.request.Request(
                f"{self._etcd}/v3/kv/txn", json.dumps({"success": puts}).encode()
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["succeeded"]

    def churn(self, pods_per_s: float, for_s: float) -> float:
        """Replaces pods; returns how many a second it managed."""
        began = time.monotonic()
        done = 0
        with ThreadPoolExecutor(THREADS) as threads:
            while (passed := time.monotonic() - began) < for_s:
                due = int(passed * pods_per_s) - done
                if due > 0:
                    list(
                        threads.map(
                            self._replace, (self._random.randrange(len(self._on)) for _ in range(due))
                        )
                    )
                    done += due
                else:
                    time.sleep(0.01)
        return done / (time.monotonic() - began)

    def _pod(self, index: int) -> dict[str, Any]:
        name, on = self._on[index]
        slot = index // self._nodes % SLOTS
        return pod(name, node_name(on), on % ALIKE * SLOTS + slot)

    def _replace(self, index: int) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        name, on = self._on[index]
        if not self._api.delete(f"{path}/{name}", gracePeriodSeconds=0):
            return
        self._count += 1
        self._on[index] = name, _ = f"pod-{self._count:06}", on
        self._api.create(path, self._pod(index))
        self._api.patch(f"{path}/{name}/status", running(_now()))


def _stored(kind: str, value: dict[str, Any], at: str) -> bytes:
    """As the API server keeps it: with what it adds to an object that it takes."""
    metadata = {"uid": str(uuid4()), "creationTimestamp": at, "generation": 1, **value["metadata"]}
    if kind == "Pod":
        metadata["namespace"] = NAMESPACE
    whole = {"apiVersion": "v1", "kind": kind, **value, "metadata": metadata}
    return json.dumps(whole, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
