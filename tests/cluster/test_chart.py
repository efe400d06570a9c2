"""The chart on a real API server: what it installs is accepted, runs, is upgraded in mid-drain and goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from controlplane.api import Api, eventually
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.chart_pods import NAMESPACE, ChartPods, Helm
from tests.cluster.controller import Controller
from tests.cluster.documents import document
from tests.cluster.guide_output import check_guide, events, table
from tests.cluster.objects import sim
from tests.cluster.programs import Kubectl
from tests.cluster.small_kubelet import SmallKubelet
from tests.cluster.stage import Stage
from tests.deploy.helm import IMAGE, ROOT, VALUES, rendered
from tests.store.postgres import Server
from tidemill.model.purchases import PurchaseState
from tidemill.spec import names
from tidemill.store.open_ledger import read_ledger

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
) -> Iterator[Callable[..., Installed]]:
    """`helm install` beside a simulated account; the pods of the chart run on this machine."""
    kubelet = SmallKubelet(cluster.admin(), speed=30)

    def make(*arguments: str, ledger: str = "", **account: Any) -> Installed:
        documents = example(cluster.server)
        scene = stage(
            *(one for one in documents if one["kind"] != "NodeClass"),
            admission=False,
            **{"speed": 60, **account},
        )
        if ledger:
            secret = (
                "create",
                "secret",
                "generic",
                "ledger",
                "-n",
                NAMESPACE,
                "--from-literal=password=of-the-ledger",
            )
            kubectl(*secret)
        kubelet.join("system-1", "test:///system-1", {}, [])
        pods = ChartPods(cluster, processes, tmp_path, scene.environment)
        pods.provide_volume()
        helm.install("--set", IMAGE, *arguments)
        scene.ledger = ledger or f"sqlite:///{pods.claim('tidemill-ledger')}/ledger.db"
        pods.controller().wait_for("waiting for what is away")  # there is no Platform yet
        kubectl.apply(*documents)
        pods.controller().wait_for("this process leads")
        return Installed(scene, helm, pods, kubectl)

    yield make
    kubelet.stop()


def phases(api: Api, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in api.items(f"/api/v1/namespaces/{namespace}/pods")]


def shown(scene: Stage, kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """What the guide shows: the pool while its Job runs, and the Job that cannot end on its block."""

    def settled() -> Any:
        told = kubectl.json("get", "computepool", "train").get("status", {})
        why = kubectl("get", "events", "-n", namespace, "--field-selector=involvedObject.name=too-long")
        return told.get("gpusUsed") == 8 and told.get("waitingPods") == 1 and "Held" in why

    scene.account.speed(1)  # so that durations in it do not run away while it is printed
    scene.eventually(settled, "the status shows the Job", timeout_s=60)
    kinds = ("platforms", "computepools", "capacityblocks")
    listed = [f"$ kubectl get {kind}\n{table(kubectl('get', kind))}" for kind in kinds]
    listed.append(f"$ kubectl get jobs -n {namespace}\n{table(kubectl('get', 'jobs', '-n', namespace))}")
    told = kubectl("describe", "job", "too-long", "-n", namespace).partition("Events:\n")[2]
    return {
        "get": "\n".join(listed),
        "describe": f"$ kubectl describe computepool train\n{kubectl('describe', 'computepool', 'train')}",
        "explain": f"$ kubectl explain computepool.spec.drain\n{kubectl('explain', 'computepool.spec.drain')}",
        "held": f"$ kubectl describe job too-long -n {namespace}\n…\nEvents:\n{events(told)}",
    }


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
    check_guide(ROOT / "docs" / "guides" / "install.md", shown(scene, kubectl, ours))

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


@pytest.mark.requirement("PE-21")
def test_helm_upgrade_in_mid_drain_and_the_drain_goes_on(
    install: Callable[..., Installed], api: Api, ours: str, kubectl: Kubectl
) -> None:
    """The block ends at 11:30, its nodes at 11:00. A pod that takes ten minutes to end is being drained when the
    controller's pod is replaced by another version's."""
    installed = install()
    scene, pods = installed.scene, installed.pods
    scene.wait_until_held()
    scene.account.speed(120)
    block = scene.buy(1, ends="2026-11-18T11:30:00Z", pool="train")
    work = example_job(duration="10h")
    work["spec"]["template"]["metadata"]["annotations"] |= {
        names.EXPECTED_DURATION: "10h", names.CHECKPOINT_EVERY: "10m",
    }  # fmt: skip
    work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    kubectl.apply(work, namespace=ours)
    scene.eventually(lambda: phases(api, ours) == ["Running"], "the Job runs", timeout_s=180)

    def drains() -> Any:
        (node,) = [one for one in scene.nodes() if names.LABEL_POOL in one["metadata"]["labels"]]
        return node["metadata"]["annotations"].get(names.DRAINING_SINCE)

    since = scene.eventually(drains, "the drain has begun", timeout_s=240)
    scene.account.speed(2)  # an upgrade takes real seconds
    old = pods.controller().name
    installed.helm.upgrade("--set", IMAGE, "--set", "controller.podAnnotations.version=two")
    new = eventually(
        lambda: found[0] if (found := pods.sync("tidemill-controller")) and found != [old] else "",
        timeout_s=60, what="the pod of the new version",
    )  # fmt: skip
    Controller(new, pods.processes).wait_for("this process leads")
    assert drains() == since, "it is the same drain"
    assert scene.account.instances_on(block, "running"), "and it is still going on"
    scene.account.speed(60)
    scene.eventually(
        lambda: not scene.account.instances_on(block, "pending", "running"), "the node ends", timeout_s=180
    )
    assert scene.account.now() < datetime(2026, 11, 18, 11, 1, tzinfo=UTC), "before EC2 would have ended it"
    assert not scene.account.kubelets()["diedWithInstance"]
    assert not scene.account.kubelets()["withoutFullGrace"]


def test_an_upgrade_upgrades_the_crds_and_keeps_the_certificate_and_a_second_install_finds_what_stayed(
    helm: Helm, api: Api, kubectl: Kubectl
) -> None:
    values = ("--set", IMAGE, "--set", "admission.mode=webhook")
    helm.install(*values)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/computepools.tidemill.dev"
    columns = api.get(path)["spec"]["versions"][0]["additionalPrinterColumns"]
    older = [{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns[:1]}]
    api.patch(path, older, "application/json-patch+json")
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/tidemill-webhook"
    certificate = api.get(secret)["data"]

    helm.upgrade(*values)
    assert api.get(path)["spec"]["versions"][0]["additionalPrinterColumns"] == columns
    assert api.get(secret)["data"] == certificate, "made once"
    helm.upgrade(*values, "--set", "admission.webhook.renew=true")
    renewed = api.get(secret)["data"]
    assert renewed["ca.crt"] != certificate["ca.crt"]
    (hook,) = api.items("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")
    assert {each["clientConfig"]["caBundle"] for each in hook["webhooks"]} == {renewed["ca.crt"]}

    helm("uninstall", "--no-hooks")
    assert api.get(path)["metadata"]["name"] == "computepools.tidemill.dev"
    helm.install("--set", IMAGE)
    assert kubectl("get", "mutatingadmissionpolicies", "-o", "name").strip()


# --- a purchaser of its own ---------------------------------------------------------------------------


@pytest.mark.requirement("PE-23", "CB-4")
def test_with_postgresql_the_controller_proposes_and_the_purchaser_alone_buys(
    install: Callable[..., Installed], postgres: Server, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Each is somebody else to AWS, and the ledger's audit trail names who did what."""
    address = postgres.new_database()
    place = urlsplit(address)
    values = {
        "ledger": {
            "type": "postgresql",
            "postgresql": {
                "host": place.hostname, "port": place.port, "database": place.path.strip("/"),
                "user": place.username, "sslmode": "disable", "existingSecret": "ledger",
            },
        },
        "ceilings": {"approval": "one", "monthlyUsd": 60_000},
        "controller": {"extraEnv": [{"name": "AWS_ACCESS_KEY_ID", "value": "as-controller"}]},
        "purchaser": {"extraEnv": [{"name": "AWS_ACCESS_KEY_ID", "value": "as-purchaser"}]},
    }  # fmt: skip
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    installed = install("-f", str(file), ledger=address)
    scene, pods = installed.scene, installed.pods
    pods.controller("tidemill-purchaser").wait_for("this process leads")
    window = {
        "name": "day", "from": "2026-11-20T12:00:00Z", "to": "2026-11-21T11:00:00Z",
        "instanceType": "p5.48xlarge", "instances": 1,
    }  # fmt: skip
    plan = document("CapacityPlan", "november", pool="train", proposeBefore="7d", demand=[window])
    kubectl.apply(plan)
    own = [one for one in example(scene.cluster.server) if one["kind"] != "NodeClass"]
    scene.write(*own, plan)  # what Alice reads
    ledger = read_ledger(address)

    def proposed() -> Any:
        return [one for one in ledger.purchases() if one.state is PurchaseState.PROPOSED]

    (intent,) = scene.eventually(proposed, "a purchase is proposed", timeout_s=120)
    as_alice = {**scene.environment, "AWS_ACCESS_KEY_ID": "as-alice"}
    given = ("-f", str(scene.files), "--aws", "--yes")
    scene.tidemill("approve", intent.id, *given, env=as_alice)

    def bought() -> bool:
        (one,) = ledger.purchases()
        return one.state is PurchaseState.CONFIRMED

    scene.eventually(bought, "it is bought", timeout_s=60)
    who = {
        line.after["state"]: line.who.rpartition("/")[2]
        for line in ledger.audit(intent.id)
        if line.what == "purchase"
    }
    assert who["approved"] == "alice"
    assert who["submitted"] == who["confirmed"] == "purchaser"
    assert {line.who for line in ledger.audit("leader")} == {
        f"arn:aws:iam::123456789012:user/{name}" for name in ("controller", "purchaser")
    }
    for app in ("tidemill-controller", "tidemill-purchaser"):
        assert "does not allow" not in pods.controller(app).log(), "its role has every right that it uses"
    eventually(lambda: "cr-" in kubectl("get", "capacityblocks"), timeout_s=60, what="the block is shown")
    ledger.close()
