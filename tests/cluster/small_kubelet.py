"""A kubelet for tests of single calls: it starts and stops the pods of nodes that a test made by hand.

It looks at all pods twenty times a second and shares nothing with the adapter. The data plane of the simulated AWS is
for tests of whole stories.
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from typing import Any

from controlplane.api import APPLY, Api, ApiError

STRATEGIC = "application/strategic-merge-patch+json"
_LOOK_S = 0.05
_BEAT_S = 5.0


class SmallKubelet:
    """`speed`: graces are divided by it. `holding`: what is bound does not start."""

    def __init__(self, api: Api, speed: float) -> None:
        self._api, self._speed = api, speed
        self.holding = False
        self._nodes: set[str] = set()
        self._told: dict[str, float] = {}  # uid -> when it was first seen to be deleted
        self._beat_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)

    # --- nodes --------------------------------------------------------------------------------------

    def join(self, name: str, provider_id: str, labels: dict[str, str], taints: list[dict[str, str]]) -> None:
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {"providerID": provider_id, "taints": taints},
        }
        self._api.create("/api/v1/nodes", node)
        room = {"cpu": "192", "memory": "2000Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        self.report(name, room)
        self.turn(name, ready=True)
        self._nodes.add(name)

    def report(self, name: str, room: dict[str, str], **conditions: str) -> None:
        made = [_condition(kind.replace("__", "/"), status) for kind, status in conditions.items()]
        status = {"allocatable": room, "capacity": room, **({"conditions": made} if made else {})}
        self._patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def turn(self, name: str, *, ready: bool) -> None:
        status = {"conditions": [_condition("Ready", "True" if ready else "False")]}
        self._patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def abandon(self, name: str) -> None:
        self._nodes.discard(name)

    # --- pods ---------------------------------------------------------------------------------------

    def end(self, namespace: str, name: str, phase: str) -> None:
        code = 0 if phase == "Succeeded" else 1
        state = {"terminated": {"exitCode": code, "finishedAt": _now(), "startedAt": _now()}}
        self._status(namespace, name, phase, ready=False, state=state)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            with contextlib.suppress(ApiError, OSError):
                self._beat()
            with contextlib.suppress(ApiError, OSError):
                for pod in self._api.get("/api/v1/pods")["items"]:
                    if pod["spec"].get("nodeName") in self._nodes:
                        with contextlib.suppress(ApiError):
                            self._tend(pod)

    def _tend(self, pod: dict[str, Any]) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        namespace, name, uid = meta["namespace"], meta["name"], meta["uid"]
        if meta.get("deletionTimestamp"):
            told_s = self._told.setdefault(uid, time.monotonic())
            grace_s = meta.get("deletionGracePeriodSeconds", 0) / self._speed
            if time.monotonic() < told_s + grace_s:
                return
            if phase == "Running":
                self.end(namespace, name, "Failed")
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self._api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", **options)
        elif phase == "Pending" and not self.holding:
            self._status(
                namespace, name, "Running", ready=True, state={"running": {"startedAt": _now()}}, uid=uid
            )

    def _status(
        self, namespace: str, name: str, phase: str, *, ready: bool, state: dict[str, Any], uid: str = ""
    ) -> None:
        status = {
            "phase": phase,
            "startTime": _now(),
            "conditions": [_condition(kind, str(ready)) for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {"name": "main", "image": "work", "imageID": "", "restartCount": 0, "ready": ready, "state": state}
            ],
        }  # fmt: skip
        meta = {"metadata": {"uid": uid}} if uid else {}
        self._patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {**meta, "status": status})

    def _beat(self) -> None:
        """Nodes without a lease turn NotReady after 40 s."""
        if time.monotonic() < self._beat_at:
            return
        self._beat_at = time.monotonic() + _BEAT_S
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for name in list(self._nodes):
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
            }
            self._api.patch(f"{path}/{name}", lease, APPLY, fieldManager="kubelet", force="true")

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        self._api.patch(path, body, STRATEGIC)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": _now()}
