"""A JobSet is held, admitted and held again beside its own controller and webhooks, built from its Go module."""

from __future__ import annotations

import base64
import json
import os
import socket
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
from tests.cluster.admission_ways import created, path_of, wait_until_held
from tests.cluster.custom_resources import define_custom_resources
from tests.cluster.programs import clean_environment
from tests.kube.admission import objects
from tests.kube.admission.certificates import self_signed
from tests.kube.admission.objects import GATE, HELD_BY, MANAGED, SOURCE, TOLERATION
from tidemill.kube.admission.install import install
from tidemill.kube.admission.policy import OBJECTS_API, policy_objects
from tidemill.kube.admit import Pin, admitted_workload, held_again
from tidemill.kube.connect import connect

pytestmark = pytest.mark.slow  # its controller is built first, for minutes


@pytest.fixture
def job_set_controller(cluster: ControlPlane, api: Api, processes: Processes, tmp_path: Path) -> None:
    module = MODULES["jobset"]
    try:
        binary = build(module) / "jobset"
        source = module_folder(module, "sigs.k8s.io/jobset")
    except CannotBuild as error:
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    define_custom_resources(api)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    certificate, _ = self_signed(tmp_path, "tls")
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
        "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(tmp_path)},
        "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
    }  # fmt: skip
    file = tmp_path / "jobset.yaml"
    file.write_text(json.dumps(config))
    command = (str(binary), "--config", str(file), "--kubeconfig", str(cluster.kubeconfig))
    processes.start("jobset", command, env=clean_environment())
    eventually(partial(listens, port), timeout_s=60, what="the controller of JobSets serves its webhooks")
    register_webhooks(api, source, f"https://127.0.0.1:{port}", certificate)


def listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def register_webhooks(api: Api, source: Path, url: str, certificate: Path) -> None:
    """As the project publishes them, at our address."""
    published = (source / "config/components/webhook/manifests.yaml").read_text()
    bundle = base64.b64encode(certificate.read_bytes()).decode()
    for each in yaml.safe_load_all(published):
        for webhook in each["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": url + path, "caBundle": bundle}
        api.create(f"/apis/{OBJECTS_API}/{each['kind'].lower()}s", each)


def live_pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    found = api.items(path_of("Pod", namespace))
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def pods(api: Api, namespace: str, source: str, count: int) -> list[dict[str, Any]]:
    """All live pods, once they are that many and all pinned to the source."""

    def found() -> list[dict[str, Any]] | None:
        live = live_pods(api, namespace)
        pinned = [each for each in live if each["spec"].get("nodeSelector", {}).get(SOURCE) == source]
        return pinned if len(pinned) == len(live) == count else None

    return eventually(found, timeout_s=60, what=f"{count} pods pinned to {source}") or []


def patch(api: Api, path: str, make: Callable[[dict[str, Any]], Any]) -> None:
    """A patch that is made from what is there, tried again on a conflict."""

    def patched() -> bool:
        found = api.get(path)
        change = make(found)
        change["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        api.patch(path, change)
        return True

    eventually(patched, what=f"{path} is patched")


@pytest.mark.requirement("PE-11")
@pytest.mark.usefixtures("job_set_controller")
def test_a_job_set_is_held_whole_and_its_jobs_are_not_held_again(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str]
) -> None:
    namespace = make_namespace(**{MANAGED: "true"})
    ours = connect(str(cluster.kubeconfig))
    install(ours, policy_objects())
    ours.close()
    wait_until_held(api, namespace)
    inner = {"parallelism": 2, "completions": 2, "template": objects.job()["spec"]["template"]}
    replicated = [{"name": "workers", "replicas": 2, "template": {"spec": inner}}]
    held = created(api, objects.job_set({"replicatedJobs": replicated}), namespace)
    assert held["spec"]["suspend"] is True
    assert held["metadata"]["labels"][HELD_BY] == "tidemill"
    jobs = eventually(
        lambda: len(found := api.items(path_of("Job", namespace))) == 2 and found, what="its two Jobs"
    )
    assert jobs
    for job in jobs:
        assert job["spec"]["suspend"] is True
        assert HELD_BY not in job["metadata"]["labels"]
    assert api.items(path_of("Pod", namespace)) == []

    path = path_of("JobSet", namespace, "thing")
    for source in ("cr-1", "cr-2"):
        pin = Pin(source)
        patch(api, path, partial(admitted_workload, "JobSet", pin=pin, whole=True))
        for pod in pods(api, namespace, source, 4):
            assert GATE not in [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
            assert TOLERATION in pod["spec"]["tolerations"]
        patch(api, path, partial(held_again, "JobSet"))
        eventually(lambda: not live_pods(api, namespace), what="its pods are stopped")
        assert api.get(path)["metadata"]["labels"][HELD_BY] == "tidemill"
