"""Installed, looked at, and let go of again: by Tidemill, and by the kubectl commands of the guide."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import Api, eventually
from controlplane.start import ControlPlane
from tests.cluster.admission_ways import created, path_of, wait_until_held, webhook_serving
from tests.cluster.custom_resources import define_custom_resources
from tests.kube.admission import objects
from tests.kube.admission.objects import GATE, HELD_BY, MANAGED, QUEUE
from tidemill.cli import main
from tidemill.kube.admission import install as installation
from tidemill.kube.admission.webhook import webhook_object
from tidemill.kube.connect import connect
from tidemill.model.errors import Retryable

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "admission.md"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
OTHER_GATE = {"name": "kueue.x-k8s.io/admission"}


class Tidemill:
    """The command line on this cluster."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig, self._capsys = kubeconfig, capsys

    def __call__(self, *words: str, code: int = 0) -> Any:
        self._capsys.readouterr()
        found = main(["admission", *words, "--kubeconfig", str(self._kubeconfig), "--json"])
        said = self._capsys.readouterr()
        assert found == code, said.err
        assert "Traceback" not in said.err
        return json.loads(said.out)


@pytest.fixture
def tidemill(cluster: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Tidemill:
    return Tidemill(cluster.kubeconfig, capsys)


def hold_one_of_each(api: Api, namespace: str) -> None:
    """Held by us, held by others, and both; and a held node."""
    for make in (objects.job, objects.job_set, objects.pytorch_job, objects.pod):
        created(api, make(), namespace)
    created(api, objects.pod({"schedulingGates": [OTHER_GATE]}, name="both"), namespace)
    created(api, objects.job({"suspend": True}, name="theirs"), namespace)
    # Kueue's webhook put it into a queue after we suspended it.
    created(api, objects.job(name="queued"), namespace)
    api.patch(path_of("Job", namespace, "queued"), {"metadata": {"labels": {QUEUE: "research"}}})
    taints = [{"key": "tidemill.dev/held", "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"}]
    api.create("/api/v1/nodes", {"metadata": {"name": "held"}, "spec": {"taints": taints}})


def assert_released(api: Api, namespace: str) -> None:
    for kind in ("Job", "JobSet", "PyTorchJob"):
        found = api.get(path_of(kind, namespace, "thing"))
        assert HELD_BY not in found["metadata"].get("labels", {})
        spec = found["spec"]["runPolicy"] if kind == "PyTorchJob" else found["spec"]
        assert spec["suspend"] is False
    assert "schedulingGates" not in api.get(path_of("Pod", namespace, "thing"))["spec"]
    assert api.get(path_of("Pod", namespace, "both"))["spec"]["schedulingGates"] == [OTHER_GATE]
    for theirs in ("theirs", "queued"):
        assert api.get(path_of("Job", namespace, theirs))["spec"]["suspend"] is True
    eventually(
        lambda: api.items(path_of("Pod", namespace), labelSelector="job-name=thing"), what="the Job starts"
    )


def taints(api: Api) -> set[str]:
    return {taint["key"] for taint in api.get("/api/v1/nodes/held")["spec"]["taints"]}


def installed(api: Api) -> dict[str, int]:
    kinds = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations")
    return {kind: len(api.items(f"{REGISTRATION}/{kind}")) for kind in kinds}


def test_what_is_created_right_after_install_is_held(
    api: Api, make_namespace: Callable[..., str], tidemill: Tidemill
) -> None:
    namespace = make_namespace(**{MANAGED: "true"})
    tidemill("install")
    assert created(api, objects.pod(), namespace)["spec"]["schedulingGates"] == [{"name": GATE}]
    assert created(api, objects.job(), namespace)["spec"]["suspend"] is True
    assert not api.items("/api/v1/namespaces/default/pods"), "the probe is created nowhere"


def test_a_webhook_that_nobody_serves_is_said(cluster: ControlPlane) -> None:
    with closing(connect(str(cluster.kubeconfig))) as ours:
        installation.install(ours, [webhook_object({"url": "https://127.0.0.1:1"})])

        def why_not() -> str:
            try:
                installation.wait_until_held(ours, "default", within_s=1)
            except Retryable as error:
                return str(error)
            return "held"

        # A busy API server follows seconds later: until then it holds by the policies of before, or not at all.
        eventually(lambda: "webhook" in why_not(), what="the API server asks the webhook")
        assert re.search(r"does not hold workloads of ours after 1 s: .*webhook", why_not())


def test_everything_that_we_hold_is_released_and_nothing_of_others(
    api: Api, make_namespace: Callable[..., str], tidemill: Tidemill
) -> None:
    define_custom_resources(api)
    namespace, other = make_namespace(**{MANAGED: "true"}), make_namespace(**{MANAGED: "true"})
    tidemill("install")
    wait_until_held(api, namespace)
    hold_one_of_each(api, namespace)
    created(api, objects.pod(), other)
    status = tidemill("status")
    assert status["installed"] == ["policies"]
    assert status["outdated"] == []
    assert set(status["namespaces"]) == {namespace, other}
    held = {(each["kind"], each["namespace"], each["name"]) for each in status["held"]}
    assert held == {
        ("Node", "", "held"), ("Job", namespace, "thing"), ("Job", namespace, "queued"),
        ("JobSet", namespace, "thing"), ("PyTorchJob", namespace, "thing"), ("Pod", namespace, "thing"),
        ("Pod", namespace, "both"), ("Pod", other, "thing"),
    }  # fmt: skip

    released = tidemill("release", "--namespace", namespace, "--yes")
    assert (len(released["released"]), released["failed"]) == (6, [])
    assert_released(api, namespace)
    assert "tidemill.dev/held" in taints(api)
    assert api.get(path_of("Pod", other, "thing"))["spec"]["schedulingGates"] == [{"name": GATE}]

    tidemill("uninstall")
    assert set(installed(api).values()) == {0}
    assert len(tidemill("release", "--yes")["released"]) == 2
    assert "schedulingGates" not in api.get(path_of("Pod", other, "thing"))["spec"]
    assert "tidemill.dev/held" not in taints(api)
    assert "other" in taints(api)
    assert tidemill("release") == {"released": [], "failed": []}  # nothing to ask about


def test_the_commands_of_the_guide_release_everything_without_tidemill(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str], tidemill: Tidemill
) -> None:
    define_custom_resources(api)
    namespace = make_namespace(**{MANAGED: "true"})
    tidemill("install")
    wait_until_held(api, namespace)
    hold_one_of_each(api, namespace)
    found = re.search(r"<!-- A test runs .*?-->\n```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    path = f"{cluster.binaries}:{os.environ['PATH']}"
    ran = subprocess.run(
        ("bash", "-c", found[1]), env=os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert set(installed(api).values()) == {0}
    assert_released(api, namespace)
    assert taints(api) >= {"other"}
    assert "tidemill.dev/held" not in taints(api)


def test_installing_again_changes_nothing_and_a_strangers_change_is_not_overwritten(
    api: Api, tidemill: Tidemill
) -> None:
    path = f"{REGISTRATION}/mutatingadmissionpolicies/pods.objects.admission.tidemill.dev"
    tidemill("install")
    before = api.get(path)["metadata"]["resourceVersion"]
    assert tidemill("install")["removed"] == []
    assert api.get(path)["metadata"]["resourceVersion"] == before
    api.patch(path, {"spec": {"failurePolicy": "Ignore"}}, fieldManager="somebody")
    assert tidemill("status")["outdated"] == ["MutatingAdmissionPolicy pods.objects.admission.tidemill.dev"]
    assert "somebody" in tidemill("install", code=1)["error"]
    assert api.get(path)["spec"]["failurePolicy"] == "Ignore"


def test_changing_from_the_webhook_to_policies_leaves_one_of_them(
    api: Api, make_namespace: Callable[..., str], tidemill: Tidemill, tmp_path: Path
) -> None:
    namespace = make_namespace(**{MANAGED: "true"})
    with webhook_serving(tmp_path) as (url, _):
        tidemill("install", "--webhook", url, "--ca-file", str(tmp_path / "server.crt"))
        assert tidemill("status")["outdated"] == []
        wait_until_held(api, namespace)
        assert len(tidemill("install")["removed"]) == 1
    assert installed(api)["mutatingwebhookconfigurations"] == 0
    assert tidemill("status")["installed"] == ["policies"]
    wait_until_held(api, namespace)


def test_what_cannot_be_released_is_named_and_stops_nothing_else(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = make_namespace()
    created(api, objects.pod({"schedulingGates": [{"name": GATE}]}), namespace)
    created(api, objects.job({"suspend": True}, labels={HELD_BY: "tidemill"}), namespace)
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["get", "list", "patch"]},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    api.create(f"{rbac}/clusterroles", {"metadata": {"name": "some"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    binding = {"metadata": {"name": "some"}, "roleRef": role, "subjects": [subject]}
    api.create(f"{rbac}/clusterrolebindings", binding)
    jane = Tidemill(cluster.user("jane"), capsys)
    eventually(lambda: may_patch_nodes(api, "jane"), what="the rights are given")
    said = jane("release", "--yes", code=1)
    assert [each["kind"] for each in said["released"]] == ["Pod"]
    assert [each["kind"] for each in said["failed"]] == ["Job"]
    assert "patch jobs.batch" in said["failed"][0]["error"]


def may_patch_nodes(api: Api, user: str) -> bool:
    asked = {"user": user, "resourceAttributes": {"verb": "patch", "resource": "nodes"}}
    answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked})
    return bool(answer["status"]["allowed"])
