"""A KubeCluster on the real API server with nodes and pods that a test makes by hand, and their small kubelet."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from controlplane.api import Api, ApiError, eventually
from controlplane.start import ControlPlane
from tests.cluster.small_kubelet import SmallKubelet
from tests.contracts.cluster_contract import POOL, SOURCE
from tidemill.engine.clock import FasterClock
from tidemill.kube.cluster import KubeCluster
from tidemill.kube.connect import connect
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase
from tidemill.spec import names

SPEED = 60.0  # a minute of the engine in a second: Kubernetes counts in seconds
_QUIET_S = 1.2  # nothing has changed for so long: it has come to rest
_GPUS = {"cpu": "192", "memory": "2000Gi", "pods": "110", "ephemeral-storage": "100Gi", names.NVIDIA_GPU: "8"}


class KubeStage:
    def __init__(self, plane: ControlPlane, namespace: str, kubeconfig: Path | None = None) -> None:
        """`kubeconfig`: of whom the adapter is; without, an administrator."""
        self.api: Api = plane.admin()
        self.namespace = namespace
        wall = datetime.now(UTC)
        self.clock = FasterClock(wall, wall, SPEED)
        self.wakes: list[str] = []
        self.kube_api = connect(str(kubeconfig or plane.kubeconfig))
        self.cluster = KubeCluster(self.kube_api, self.clock, wake=self.wakes.append)
        self.kubelet = SmallKubelet(self.api, SPEED)
        self._numbers = itertools.count(1)
        self.cluster.start()
        assert self.cluster.reader.wait_synced(20), self.cluster.reader.errors()

    def close(self) -> None:
        self.kubelet.stop()
        self.cluster.stop()
        self.kube_api.close()
        self.api.close()

    # --- time ---------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.clock.now()

    def settle(self, duration: timedelta) -> None:
        self.kubelet.holding = False
        time.sleep(self.clock.wall_seconds(duration))
        view, since, began = self.cluster.view(), time.monotonic(), time.monotonic()
        while time.monotonic() < since + _QUIET_S:
            assert time.monotonic() < began + 60, "the cluster does not come to rest"
            time.sleep(0.05)
            if self.cluster.view() is not view:
                view, since = self.cluster.view(), time.monotonic()

    def until(self, look: Callable[[], Any], what: str = "") -> Any:
        return eventually(look, timeout_s=30, what=what)

    # --- nodes --------------------------------------------------------------------------------------

    def joined_node(self, **labels: str) -> KubeNode:
        number = next(self._numbers)
        name, instance = f"{self.namespace}-{number}.internal", f"i-{number:017x}"
        marks = {
            names.LABEL_POOL: POOL, names.LABEL_SOURCE: SOURCE, names.LABEL_ZONE: "us-west-2a",
            names.LABEL_TYPE: "p5.48xlarge", names.LABEL_ARCH: "amd64", **labels,
        }  # fmt: skip
        startup = {"key": names.TAINT_STARTUP, "effect": "NoSchedule"}
        self.kubelet.join(name, f"aws:///us-west-2a/{instance}", marks, [startup])
        self.until(
            lambda: (node := self.node(name)) and node.ready and len(node.taints) == 1, f"{name} is Ready"
        )
        return self.known_node(name)

    def register(self, node: KubeNode) -> None:
        self.kubelet.report(node.name, _GPUS, **{names.CONDITION_GPUS_VERIFIED: "True"})
        self.until(lambda: self.known_node(node.name).accelerators_registered_at, "GPUs are registered")

    def fresh_node(self) -> KubeNode:
        node = self.joined_node()
        self.register(node)
        return self.known_node(node.name)

    def ready_node(self) -> KubeNode:
        node = self.fresh_node()
        self.cluster.mark_ready(node.name)
        return self.known_node(node.name)

    def lose(self, node: str) -> None:
        self.kubelet.turn(node, ready=False)
        self.until(lambda: not self.known_node(node).ready, f"{node} is not ready")

    def node(self, name: str) -> KubeNode | None:
        return next((node for node in self.cluster.view().nodes if node.name == name), None)

    def known_node(self, name: str) -> KubeNode:
        node = self.node(name)
        assert node is not None, name
        return node

    # --- jobs ---------------------------------------------------------------------------------------

    def job(
        self, name: str = "", *, pods: int = 1, held: bool = True, gang: bool = False, **spec: Any
    ) -> str:
        """Made as admission makes it: suspended, with our mark. Its workload's name."""
        name = name or f"job-{next(self._numbers)}"
        labels = {names.HELD_BY: names.HELD_BY_US} if held else {}
        labels |= {names.GANG: name} if gang else {}
        spared = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        job = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "suspend": held, "parallelism": pods, "completions": pods, "backoffLimit": 6,
                "podFailurePolicy": {"rules": [spared]}, "template": pod_template(restartPolicy="Never"), **spec,
            },
        }  # fmt: skip
        self.api.create(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", job)
        workload = f"Job/{self.namespace}/{name}"
        self.until(lambda: not held or len(self.pods_of(workload)) == pods, f"{workload} is shown")
        return workload

    def gated_pod(self, name: str, **more: Any) -> Pod:
        """Without a controller. `more` is added to its metadata."""
        made = pod_template(schedulingGates=[{"name": names.GATE}])
        made["metadata"] |= {"name": name, **more}
        uid = self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", made)["metadata"]["uid"]
        self.until(lambda: any(pod.uid == uid for pod in self.cluster.view().pods), f"{name} is shown")
        return self.pod(uid)

    def gated_job_pod(self) -> Pod:
        return self.pods_of(self.job())[0]

    def gated_gang(self) -> list[Pod]:
        self.ready_node()
        self.ready_node()
        return self.pods_of(self.job(pods=2, gang=True, completionMode="Indexed"))

    def bound_pod(self, ends_at: datetime | None) -> Pod:
        self.ready_node()
        pod = self.gated_job_pod()
        self.kubelet.holding = True
        self.cluster.admit([pod.uid], SOURCE, ends_at)
        self.until(lambda: [each for each in self.pods_of(pod.workload) if each.node], f"{pod.name} is bound")
        (bound,) = self.pods_of(pod.workload)
        assert bound.phase is PodPhase.PENDING
        return bound

    def running_job_pod(self) -> Pod:
        pod = self.bound_pod(None)
        self.settle(timedelta(0))
        (running,) = self.pods_of(pod.workload)
        assert (running.uid, running.phase) == (pod.uid, PodPhase.RUNNING)
        return running

    def acknowledge(self, pod: Pod) -> None:
        done = {"metadata": {"annotations": {names.CHECKPOINT_DONE: datetime.now(UTC).isoformat()}}}
        self.api.patch(self.path(pod), done, fieldManager="the-pod-itself")
        self.until(lambda: self.pod(pod.uid).checkpoint_done_at, "the checkpoint is acknowledged")

    def crash(self, pod: Pod) -> None:
        self.kubelet.end(pod.namespace, pod.name, "Failed")

    def finish(self, pod: Pod) -> None:
        self.kubelet.end(pod.namespace, pod.name, "Succeeded")
        self.settle(timedelta(0))

    def failures(self, pod: Pod) -> int:
        _, namespace, name = pod.workload.split("/")
        job = self.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
        return int(job["status"].get("failed", 0))

    def pods_of(self, workload: str) -> list[Pod]:
        return [pod for pod in self.cluster.view().pods if pod.workload == workload]

    def pod(self, uid: str) -> Pod:
        return next(pod for pod in self.cluster.view().pods if pod.uid == uid)

    def path(self, pod: Pod) -> str:
        return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"

    def raw(self, pod: Pod) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.api.get(self.path(pod))
            return found
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    # --- services -----------------------------------------------------------------------------------

    def service(self, name: str, replicas: int, **strategy: Any) -> str:
        labels = {"app": name}
        notes = {names.HANDOVER: "scale", names.MAY_SCALE: "true"}
        deployment = {
            "metadata": {"name": name, "labels": labels, "annotations": notes},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": pod_template(labels=labels, gpus=4),
                **({"strategy": {"rollingUpdate": strategy}} if strategy else {}),
            },
        }  # fmt: skip
        self.api.create(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", deployment)
        workload = f"Deployment/{self.namespace}/{name}"
        self.until(
            lambda: sum(pod.ready for pod in self.pods_of(workload)) == replicas, f"{workload} is ready"
        )
        self.settle(timedelta(0))
        return workload

    def service_at_its_minimum(self) -> Pod:
        self.ready_node()
        budget = {
            "metadata": {"name": "chat"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "chat"}}},
        }
        self.api.create(f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets", budget)
        (pod,) = self.pods_of(self.service("chat", 1))
        return pod

    def rolling_service(self) -> str:
        self.ready_node()
        self.ready_node()
        return self.service("roll", 2, maxSurge=1, maxUnavailable=0)


def pod_template(gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    asked = {"cpu": "8", names.NVIDIA_GPU: str(gpus)}
    container = {
        "name": "main", "image": "work", "resources": {"requests": asked, "limits": {names.NVIDIA_GPU: str(gpus)}}
    }  # fmt: skip
    return {
        "metadata": {"labels": labels or {}, "annotations": {names.CHECKPOINT_EVERY: "30m"}},
        "spec": {"terminationGracePeriodSeconds": 60, "containers": [container], **spec},
    }
