"""`tidemill run --shadow` beside real Karpenter: it reports what it would have done, and writes nothing anywhere."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import karpenter_kwok
from benchmarks.cluster_batch import as_kwok, types
from controlplane.api import MERGE, Api, eventually
from controlplane.build import MODULES, build
from controlplane.components import Options
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.documents import by_the_hour
from tests.cluster.programs import Kubectl
from tests.cluster.stage import OWN_NAMESPACE, Stage

pytestmark = pytest.mark.requirement("PE-22")
WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))
WHO = f"system:serviceaccount:{OWN_NAMESPACE}:tidemill-controller"


@pytest.fixture
def audited(binaries: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, whose API server writes down every request."""
    with ControlPlane(tmp_path / "controlplane", Options(audit=True)) as plane:
        yield plane


def requests(plane: ControlPlane) -> list[dict[str, Any]]:
    lines = (plane.folder / "log/audit.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def play_kubelet(api: Api, node: str) -> None:
    """Karpenter's kwok provider makes nodes that nobody runs: this one is Ready from now on."""
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played by the test"}
    ]
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": conditions}}, MERGE)


def gpu_pod() -> dict[str, Any]:
    asked = {"cpu": "3", "memory": "12Gi", "nvidia.com/gpu": "1"}
    resources = {"requests": asked, "limits": asked}
    spec = {"containers": [{"name": "main", "image": "train", "resources": resources}]}
    return {"metadata": {"name": "train"}, "spec": spec}


def test_beside_karpenter_it_reports_and_writes_nothing(
    audited: ControlPlane, processes: Processes, tmp_path: Path
):
    """Karpenter launches a node for a pod and keeps it when the pod is gone; the report says what that cost."""
    api, report = audited.admin(), tmp_path / "report.jsonl"
    empty = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2m"}
    pool = by_the_hour(
        "bench", requirements={"instanceFamilies": ["g6"]}, limits={"nodes": 10}, labels={}, taints=[],
        disruption=empty,
    )  # fmt: skip
    scene = Stage.open(audited, processes, tmp_path, [pool], speed=60, admission=False)
    kubectl = Kubectl(audited.binaries / "kubectl", audited.kubeconfig)
    kubectl("apply", "-f", "-", stdin=scene.tidemill("rbac", "controller", "--json"))
    mine = audited.service_account(OWN_NAMESPACE, "tidemill-controller")  # it may write, and must not
    before = scene.account.ask("calls")
    file = tmp_path / "instance_types.json"
    file.write_text(json.dumps([as_kwok(kind) for kind in types().values()]))
    karpenter_kwok.install(api)
    binary = build(MODULES["karpenter-kwok"]) / "karpenter-kwok"
    with karpenter_kwok.running(binary, audited, INSTANCE_TYPES_FILE_PATH=str(file)):
        shadow = scene.run("shadow", "--shadow", "--report-to", str(report), kubeconfig=mine)
        eventually(shadow.is_ready, timeout_s=120, what="the shadow is ready")
        api.create("/api/v1/namespaces/default/pods", gpu_pod())
        eventually(
            lambda: _wishes(shadow.events("would act"), "Launch"), timeout_s=120, what="it would launch"
        )
        (node,) = eventually(lambda: api.items("/api/v1/nodes"), timeout_s=120, what="Karpenter makes a node")
        name = node["metadata"]["name"]

        def bound() -> bool:
            play_kubelet(api, name)
            return bool(api.get("/api/v1/namespaces/default/pods/train")["spec"].get("nodeName"))

        eventually(bound, timeout_s=120, what="the pod has a node")
        api.delete("/api/v1/namespaces/default/pods/train", gracePeriodSeconds=0)

        def given_up() -> bool:
            play_kubelet(api, name)
            return _wishes(shadow.events("would act"), "StartDrain")

        eventually(given_up, timeout_s=180, what="it would end the idle node")
        scene.processes.signal("shadow", signal.SIGTERM)
        assert scene.processes.wait("shadow", 30) == 0
        assert [one["metadata"]["name"] for one in api.items("/api/v1/nodes")] == [name]
    asked = [one for one in requests(audited) if one["user"]["username"] == WHO]
    assert asked, "it was not seen at all"
    assert [(one["verb"], one["requestURI"]) for one in asked if one["verb"] in WRITES] == []
    assert scene.account.ask("calls") == before
    assert not os.path.exists(scene.ledger.removeprefix("sqlite:///"))
    said = json.loads(report.read_text().splitlines()[-1])
    assert said["assumed_nodes"] == 1
    assert said["launches"][0]["instance_type"].startswith("g6.")
    assert [end["node"] for end in said["ends"]] == [name]
    assert said["saved_usd"] >= 0
    text = shadow.log()[shadow.log().index("SHADOW") :]
    print(text)
    for words in (
        "Nothing was changed.",
        "count as Tidemill's own",
        "have launched 1 node",
        "have ended 1 node",
    ):
        assert words in text


def _wishes(lines: list[dict[str, Any]], action: str) -> bool:
    return any(line["action"] == action for line in lines)
