"""Kueue decides who, Tidemill when and where: the real Kueue, built from its Go module, with our admission check."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api, eventually
from controlplane.build import MODULES, CannotBuild, build, module_folder
from controlplane.processes import Processes
from controlplane.start import ControlPlane
from tests.cluster.custom_resources import define
from tests.cluster.documents import pool
from tests.cluster.objects import create, job
from tests.cluster.programs import Kubectl, clean_environment
from tests.cluster.stage import Stage
from tidemill.kube.kueue import API, CONTROLLER
from tidemill.spec import names

pytestmark = [
    pytest.mark.slow,  # Kueue is built first, for minutes
    pytest.mark.requirement("PE-20"),
]
# Those of the kinds that the test uses; the others are for frameworks that are not installed here.
WEBHOOKS = ("-batch-v1-job", "-v1beta2-workload", "-v1beta2-clusterqueue", "-v1beta2-resourceflavor")
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
OWN, SERVICE = "kueue-system", "kueue-webhook-service"
QUEUE = "team"
WAITS = "Its gang needs 2 nodes at once; the largest source of pool gpu has 0"


@pytest.fixture
def kueue(cluster: ControlPlane, api: Api, processes: Processes, tmp_path: Path) -> None:
    """Kueue's controller and webhooks beside this control plane."""
    module = MODULES["kueue"]
    try:
        binary, source = build(module) / "kueue", module_folder(module, "sigs.k8s.io/kueue")
    except CannotBuild as error:
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Kueue makes its own certificates, for a Service that nobody resolves here. One that is good is left as it is.
    certificate, key = rsa_certificate(tmp_path, "kueue-ca", f"{SERVICE}.{OWN}.svc")
    files = {"ca.crt": certificate, "ca.key": key, "tls.crt": certificate, "tls.key": key}
    data = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
    api.create("/api/v1/namespaces", {"metadata": {"name": OWN}})
    api.create(
        f"/api/v1/namespaces/{OWN}/secrets", {"metadata": {"name": "kueue-webhook-server-cert"}, "data": data}
    )
    at = f"https://127.0.0.1:{port}"
    for file in sorted((source / "config/components/crd/bases").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        if definition["spec"]["names"]["plural"] in CONVERTED:
            client = {"url": f"{at}/convert", "caBundle": data["ca.crt"]}
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        define(api, definition)
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": OWN,
        "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": True},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(tmp_path)},
        "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
        "integrations": {"frameworks": ["batch/job"]}, "featureGates": {"VisibilityOnDemand": False},
    }  # fmt: skip
    written = tmp_path / "kueue.yaml"
    written.write_text(json.dumps(config))
    register_webhooks(api, source, at, data["ca.crt"])
    command = (str(binary), "--config", str(written), "--kubeconfig", str(cluster.kubeconfig))
    processes.start("kueue", command, env=clean_environment())
    try:
        eventually(partial(_listens, port), timeout_s=120, what="Kueue serves its webhooks")
    except TimeoutError:
        pytest.fail(processes.tail("kueue", 20), pytrace=False)


def rsa_certificate(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """Its own CA. Kueue reads keys in PKCS #1 only, and renews what ends within 90 days."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    names = ",".join(["IP:127.0.0.1", *(f"DNS:{host}" for host in hosts)])
    subject = ("-subj", "/CN=kueue-ca", "-addext", f"subjectAltName={names}", "-days", "365")
    made = ("-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate))
    subprocess.run(("openssl", "req", *made, *subject), check=True, capture_output=True)
    subprocess.run(
        ("openssl", "rsa", "-in", str(key), "-traditional", "-out", str(key)), check=True, capture_output=True
    )
    return certificate, key


def register_webhooks(api: Api, source: Path, at: str, bundle: str) -> None:
    """As the project publishes them, at our address, of the kinds that are used here."""
    for each in yaml.safe_load_all((source / "config/components/webhook/manifests.yaml").read_text()):
        kept = [one for one in each["webhooks"] if one["clientConfig"]["service"]["path"].endswith(WEBHOOKS)]
        for webhook in kept:
            url = f"{at}{webhook['clientConfig']['service']['path']}"
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}
        meta = {"name": f"kueue-{each['metadata']['name']}"}
        path = f"/apis/admissionregistration.k8s.io/v1/{each['kind'].lower()}s"
        api.create(path, {**each, "metadata": meta, "webhooks": kept})


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def queues(api: Api, namespace: str, *, gpus: int = 16) -> None:
    """A queue with quota for so many GPUs and our check; its flavour is the pool."""
    check = {"metadata": {"name": "tidemill"}, "spec": {"controllerName": CONTROLLER}}
    api.create(f"{API}/admissionchecks", {"apiVersion": API[6:], "kind": "AdmissionCheck", **check})
    flavor = {"metadata": {"name": "blocks"}, "spec": {"nodeLabels": {names.LABEL_POOL: "gpu"}}}
    api.create(f"{API}/resourceflavors", {"apiVersion": API[6:], "kind": "ResourceFlavor", **flavor})
    quota = {"cpu": "1000", "memory": "10Ti", names.NVIDIA_GPU: str(gpus)}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [
            {"coveredResources": list(quota), "flavors": [{"name": "blocks", "resources": resources}]}
        ],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "tidemill"}]},
    }
    api.create(f"{API}/clusterqueues", {"apiVersion": API[6:], "kind": "ClusterQueue",
                                        "metadata": {"name": "all"}, "spec": spec})  # fmt: skip
    local = {"metadata": {"name": QUEUE}, "spec": {"clusterQueue": "all"}}
    api.create(
        f"{API}/namespaces/{namespace}/localqueues", {"apiVersion": API[6:], "kind": "LocalQueue", **local}
    )


def queued(name: str, **given: Any) -> dict[str, Any]:
    made = job(name, **given)
    made["metadata"]["labels"] = {names.KUEUE_QUEUE: QUEUE}
    return made


def workload(api: Api, namespace: str, name: str) -> dict[str, Any]:
    """Of a Job, by its owner."""
    found = api.items(f"{API}/namespaces/{namespace}/workloads")
    return next((one for one in found if one["metadata"]["ownerReferences"][0]["name"] == name), {})


def check_of(api: Api, namespace: str, name: str) -> dict[str, Any]:
    states = workload(api, namespace, name).get("status", {}).get("admissionChecks", [])
    return next((one for one in states if one["name"] == "tidemill"), {})


@pytest.mark.usefixtures("kueue")
def test_a_workload_with_quota_waits_for_the_block_says_why_and_starts_on_it(
    stage: Callable[..., Stage], api: Api, namespace: str, kubectl: Kubectl
) -> None:
    """Two Jobs of two nodes each, quota for one of them: the first one waits for capacity, the other for quota."""
    scene = stage(pool(admittedPodsOnly=True, limits={"nodes": 4}), speed=60, admission=False)
    kubectl("apply", "-f", "-", stdin=scene.tidemill("rbac", "controller", "--json"))
    controller = scene.run(kubeconfig=scene.cluster.service_account("tidemill-system", "tidemill-controller"))
    controller.wait_for("this process leads")
    queues(api, namespace)
    create(api, namespace, queued("first", parallelism=2, lasts="20m"))
    scene.eventually(
        lambda: WAITS in check_of(api, namespace, "first").get("message", ""),
        "the Workload says why it waits",
    )
    create(api, namespace, queued("second", parallelism=2, lasts="10m"))
    described = kubectl(
        "describe", "workload", "-n", namespace, workload(api, namespace, "first")["metadata"]["name"]
    )
    assert WAITS in described
    assert check_of(api, namespace, "first")["state"] == "Pending"
    assert scene.pods(namespace) == []
    block = scene.buy(4, ends="2026-11-18T11:30:00Z")
    scene.eventually(
        lambda: scene.is_complete(namespace, "first"), "the first Job runs on the block", timeout_s=240
    )
    assert scene.sources_of(namespace, "first") == {block}
    assert check_of(api, namespace, "first")["state"] == "Ready"
    # Four nodes were there for it all the time: it waited for quota, which is Kueue's to give.
    scene.eventually(lambda: scene.is_complete(namespace, "second"), "then the second one", timeout_s=240)
    assert "does not allow" not in controller.log()
    assert condition_reasons(workload(api, namespace, "first")) >= {"QuotaReserved", "Admitted"}


def condition_reasons(of: dict[str, Any]) -> set[str]:
    return {one["type"] for one in of["status"]["conditions"] if one["status"] == "True"}
