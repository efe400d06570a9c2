"""The control plane itself: it starts, is emptied, loses parts and ends with whoever started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from controlplane import start
from controlplane.api import Api, ApiError, eventually
from controlplane.clean import clean
from controlplane.components import Options
from controlplane.processes import started_at
from controlplane.start import ControlPlane
from tests.cluster.programs import Kubectl, SimulatedAws

ROOT = Path(__file__).parents[2]


def test_the_versions_are_stamped(api: Api, kubectl: Kubectl):
    assert api.get("/version")["gitVersion"] == "v1.37.1"
    assert kubectl.json("version")["clientVersion"]["gitVersion"] == "v1.37.1"


def test_a_cluster_is_empty_although_another_test_left_much(
    api: Api, make_namespace: Callable[..., str], kubectl: Kubectl
):
    before = snapshot(api)
    for _ in range(2):
        leave_much(kubectl, make_namespace())
        eventually(lambda: len(api.items("/api/v1/pods")) >= 5, what="all the pods")
        clean(api)
        assert snapshot(api) == before


def snapshot(api: Api) -> dict[str, list[str]]:
    kinds = (
        "/api/v1/namespaces", "/api/v1/pods", "/api/v1/nodes", "/apis/batch/v1/jobs", "/apis/apps/v1/deployments",
        "/apis/policy/v1/poddisruptionbudgets", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/configmaps", "/api/v1/serviceaccounts",
    )  # fmt: skip
    return {kind: [one["metadata"]["name"] for one in api.items(kind)] for kind in kinds}


def leave_much(kubectl: Kubectl, namespace: str) -> None:
    pod = {"containers": [{"name": "one", "image": "none"}]}
    labels = {"app": "left"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "left"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "left"},
         "rules": rules},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "left", "namespace": namespace},
         "spec": {"parallelism": 2, "template": {"spec": pod | {"restartPolicy": "Never", "nodeName": "left"}}}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "left", "namespace": namespace},
         "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 2, "selector": {}},
         "metadata": {"name": "left", "namespace": namespace, "finalizers": ["example.com/nobody"]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "namespace": "default"}, "spec": pod},
    )  # fmt: skip


def test_the_api_server_comes_back_on_its_port(cluster: ControlPlane, namespace: str):
    server = cluster.server
    cluster.restart("kube-apiserver", kill=True)
    assert cluster.server == server
    assert cluster.admin().get(f"/api/v1/namespaces/{namespace}")["status"]["phase"] == "Active"


def test_old_resource_versions_are_too_old_after_history_is_forgotten(
    cluster: ControlPlane, api: Api, namespace: str
):
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(3):
        api.create(configmaps, {"metadata": {"name": f"old-{number}"}})
    first = api.get(configmaps, limit="1")["metadata"]
    old = first["resourceVersion"]
    api.create(configmaps, {"metadata": {"name": "new"}})
    cluster.forget_history()
    with pytest.raises(ApiError) as refused:
        api.get(configmaps, limit="1", **{"continue": first["continue"]})
    assert refused.value.status == 410
    told = api.get(configmaps, watch="true", resourceVersion=old, timeoutSeconds="5")
    assert told["type"] == "ERROR"
    assert told["object"]["code"] == 410


def test_a_slow_etcd_makes_writes_slow(cluster: ControlPlane, api: Api, namespace: str):
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.slow_etcd(stopped_s=0.5, running_s=0.05):
        began = time.monotonic()
        for number in range(4):
            api.create(configmaps, {"metadata": {"name": f"slow-{number}"}})
    assert time.monotonic() - began > 0.5


def test_users_have_the_rights_that_rbac_gives_them(cluster: ControlPlane, kubectl: Kubectl, namespace: str):
    somebody = kubectl.as_user(cluster.user("jane", ["researchers"]))
    robot = kubectl.as_user(cluster.service_account(namespace, "robot"))
    assert "forbidden" in somebody("get", "pods", "-n", namespace, fails=True).lower()
    assert "forbidden" in robot("get", "pods", "-n", namespace, fails=True).lower()
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", "-n", namespace)
    bind = ("create", "rolebinding", "-n", namespace, "--role=reader")
    kubectl(*bind, "people", "--group=researchers")
    kubectl(*bind, "robots", f"--serviceaccount={namespace}:robot")
    for user in (somebody, robot):
        eventually(partial(may_read, user, namespace), what="the rights are given")
    stranger = kubectl.as_user(cluster.kubeconfig_with_token("nonsense"))
    assert "must be logged in" in stranger("get", "pods", fails=True)


def may_read(user: Kubectl, namespace: str) -> bool:
    return user("auth", "can-i", "list", "pods", "-n", namespace, fails=None).strip() == "yes"


def test_instances_of_the_simulated_aws_know_this_cluster(sim_aws: Callable[..., SimulatedAws]):
    aws = sim_aws("--speed", "0")
    assert aws.endpoint.startswith("http://127.0.0.1:")
    assert aws.environment["AWS_ENDPOINT_URL"] == aws.endpoint


@pytest.mark.parametrize("position", [0, 1])
def test_a_port_that_was_taken_meanwhile_is_given_up_for_another(
    position: int, binaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of etcd, then of the API server."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answers = [start.free_ports(5), start.free_ports(5)]
        answers[0][position] = taken.getsockname()[1]
        monkeypatch.setattr(start, "free_ports", lambda count: answers.pop(0))
        with ControlPlane(tmp_path, Options(components=("etcd", "kube-apiserver"))) as plane:
            assert plane.admin().get("/readyz") == "ok"
        assert answers == []


def test_everything_ends_with_the_process_that_started_it(binaries: Path):
    """Killed with SIGKILL, it cannot clean up: nothing of it may be left."""
    program = (
        "import json, sys, time\n"
        "from controlplane.components import Options\n"
        "from controlplane.start import ControlPlane\n"
        "plane = ControlPlane(options=Options(components=('etcd', 'kube-apiserver')))\n"
        "plane.start()\n"
        "print(json.dumps(plane.processes.pids()), flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen((sys.executable, "-c", program), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    try:
        pids = json.loads(starter.stdout.readline())
        begun = {pid: started_at(pid) for pid in pids.values()}
        assert all(begun.values())
    finally:
        os.kill(starter.pid, signal.SIGKILL)
        starter.communicate()
    for pid, since in begun.items():
        eventually(partial(is_gone, pid, since), timeout_s=10, what="etcd and kube-apiserver end")


def is_gone(pid: int, since: str) -> bool:
    return started_at(pid) != since
