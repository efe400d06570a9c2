"""What the checklist reads of a real cluster: workloads and their readiness, the Lease, nodes, pods with GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from controlplane.api import Api
from controlplane.start import ControlPlane
from tidemill.kube.api import KubeApi
from tidemill.kube.connect import connect
from tidemill.kube.platform_survey import KubePlatform
from tidemill.platform.checklist.views import NodeFacts, PodFacts, WorkloadFacts

READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.requirement("AE-13")
@pytest.mark.requirement("AE-14")
def test_the_checklist_reads_a_real_cluster(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str]
):
    with contextlib.closing(connect(str(cluster.kubeconfig), None)) as reader:
        _look(reader, api, make_namespace("engine"), make_namespace("tidemill-system"))


def _look(reader: KubeApi, api: Api, engine: str, system: str) -> None:
    seen = KubePlatform(reader, system)
    assert seen.version().startswith("v1.")
    assert seen.engine_seen_at() is None
    assert list(seen.nodes()) == []

    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    api.create(
        f"/apis/apps/v1/namespaces/{engine}/deployments",
        {"metadata": {"name": "control-plane"}, "spec": spec},
    )
    assert WorkloadFacts("control-plane", 0, 0) in seen.workloads(engine)
    assert WorkloadFacts("control-plane", 0, 0) in seen.workloads()

    lease = {"metadata": {"name": "tidemill"}, "spec": {"renewTime": "2026-11-18T12:00:00.000000Z"}}
    api.create(f"/apis/coordination.k8s.io/v1/namespaces/{system}/leases", lease)
    assert seen.engine_seen_at() == datetime(2026, 11, 18, 12, tzinfo=UTC)

    labels = {"tidemill.dev/pool": "train", "tidemill.dev/source": "cr-1"}
    api.create("/api/v1/nodes", {"metadata": {"name": "n1", "labels": labels}})
    api.patch(
        "/api/v1/nodes/n1/status", {"status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": READY}}
    )
    api.create("/api/v1/nodes", {"metadata": {"name": "stranger"}})
    (node,) = seen.nodes()
    assert node == NodeFacts("n1", "train", "cr-1", ready=True, gpus=8)

    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"metadata": {"name": "w"}, "spec": {"nodeName": "n1", "containers": [container]}}
    api.create(f"/api/v1/namespaces/{engine}/pods", pod)
    api.patch(f"/api/v1/namespaces/{engine}/pods/w/status", {"status": {"conditions": READY}})
    assert PodFacts("w", "n1", ready=True, gpus=8) in seen.pods(engine)
