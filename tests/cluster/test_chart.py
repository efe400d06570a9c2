"""The chart on a real API server: what it installs is accepted, runs, is upgraded in mid-drain and goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.chart_pods import NAMESPACE, ChartPods, Helm
from tests.cluster.objects import sim
from tests.cluster.programs import Kubectl
from tests.cluster.stage import Stage
from tests.deploy.helm import IMAGE, ROOT, VALUES, rendered
from tidemill.spec import names

INSTALL = ROOT / "examples" / "install"
Opened = Callable[..., Stage]


@pytest.fixture
def helm(cluster: ControlPlane) -> Helm:
    return Helm(cluster.kubeconfig)


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_every_object_of_the_chart_is_accepted_with_strict_field_validation(
    values: Path, kubectl: Kubectl, cluster: ControlPlane
) -> None:
    kubectl("create", "namespace", NAMESPACE)
    objects = rendered("-f", str(values))
    text = yaml.safe_dump_all(objects)
    said = kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert len(said.splitlines()) == len(objects)
    objects[0].setdefault("metadata", {})["nonsense"] = 1
    refused = kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
        stdin=yaml.safe_dump(objects[0]), fails=True,
    )  # fmt: skip
    assert "nonsense" in refused


def example(server: str) -> list[dict[str, Any]]:
    """The documents of the guide, for this cluster."""
    documents = list(yaml.safe_load_all((INSTALL / "platform.yaml").read_text()))
    documents[0]["spec"]["cluster"]["endpoint"] = server
    return documents


def example_job(**simulated: str) -> dict[str, Any]:
    """The Job of the guide; the simulated kubelets are told how long it runs."""
    made: dict[str, Any] = yaml.safe_load((INSTALL / "job.yaml").read_text())
    made["spec"]["template"]["metadata"]["annotations"] |= sim(**simulated)
    return made


class Installed:
    """A release whose controller runs here, and the account it works in."""

    def __init__(self, scene: Stage, helm: Helm, pods: ChartPods, kubectl: Kubectl) -> None:
        self.scene, self.helm, self.pods, self.kubectl = scene, helm, pods, kubectl


@pytest.fixture
def install(
    stage: Opened, helm: Helm, cluster: ControlPlane, processes: Processes, tmp_path: Path, kubectl: Kubectl
) -> Callable[..., Installed]:
    def make(*arguments: str, speed: float = 60) -> Installed:
        documents = example(cluster.server)
        scene = stage(*(one for one in documents if one["kind"] != "NodeClass"), speed=speed, admission=False)
        helm.install("--set", IMAGE, *arguments)
        pods = ChartPods(cluster, processes, tmp_path, scene.environment)
        scene.ledger = f"sqlite:///{pods.claim('tidemill-ledger')}/ledger.db"
        pods.controller().wait_for("waiting for what is away")  # there is no Platform yet
        kubectl.apply(*documents)
        pods.controller().wait_for("this process leads")
        return Installed(scene, helm, pods, kubectl)

    return make


def phases(api: Api, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in api.items(f"/api/v1/namespaces/{namespace}/pods")]


@pytest.mark.requirement("PE-21")
def test_helm_install_and_an_example_run_a_gpu_job_and_helm_uninstall_releases_what_is_held(
    install: Callable[..., Installed], api: Api, ours: str, kubectl: Kubectl
) -> None:
    installed = install()
    scene = installed.scene
    scene.wait_until_held()
    kubectl.apply(example_job(duration="30m"), namespace=ours)
    assert kubectl.json("get", "job", "finetune", "-n", ours)["spec"]["suspend"] is True
    block = scene.buy(1, ends="2026-11-19T11:30:00Z", pool="train")
    scene.eventually(lambda: phases(api, ours) == ["Running"], "the Job runs", timeout_s=180)
    assert scene.sources_of(ours, "finetune") == {block}
    log = installed.pods.controller().log()
    assert "does not allow" not in log, "the chart's roles have every right that is used"

    # Another Job is held: it is too long for the block.
    late = example_job(duration="60h")
    late["metadata"]["name"] = "too-long"
    late["spec"]["template"]["metadata"]["annotations"][names.EXPECTED_DURATION] = "60h"
    kubectl.apply(late, namespace=ours)
    assert kubectl.json("get", "job", "too-long", "-n", ours)["spec"]["suspend"] is True
    nodes = {node["metadata"]["name"] for node in scene.nodes()}

    removal = subprocess.Popen(
        installed.helm.command("uninstall"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    installed.pods.run_to_end("tidemill-release")
    said, _ = removal.communicate(timeout=120)
    assert removal.returncode == 0, said
    eventually(lambda: not installed.pods.sync("tidemill-controller"), what="the controller has ended")
    assert (
        "suspend" not in (job := kubectl.json("get", "job", "too-long", "-n", ours)["spec"])
        or not job["suspend"]
    )
    assert {node["metadata"]["name"] for node in scene.nodes()} == nodes
    assert scene.account.instances_on(block, "running"), "nodes run on"
    fresh = example_job(duration="1m")
    fresh["metadata"]["name"] = "after"
    kubectl.apply(fresh, namespace=ours)
    assert not kubectl.json("get", "job", "after", "-n", ours)["spec"].get("suspend"), "nothing is held"
    assert kubectl.json("get", "computepool", "train")["status"], "the documents are still there"
    assert kubectl.json("get", "pvc", "tidemill-ledger", "-n", NAMESPACE), "so is the ledger"
    left = kubectl("get", "clusterroles,serviceaccounts,mutatingadmissionpolicies", "-A", "-o", "name")
    assert "tidemill" not in left
