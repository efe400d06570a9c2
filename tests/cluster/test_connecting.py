"""Credentials and refusals on a real API server: each is one sentence, of the right kind."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api, eventually
from controlplane.start import ControlPlane
from tidemill.kube.api import APPLY_PATCH, MERGE_PATCH, KubeApi
from tidemill.kube.connect import connect
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable, TidemillError

PODS = "/api/v1/pods"


@contextmanager
def connected(kubeconfig: Path | str | None = None, **options: Any) -> Iterator[KubeApi]:
    api = connect(str(kubeconfig) if kubeconfig else None, **options)
    try:
        yield api
    finally:
        api.close()


def refused(api: KubeApi, *call: Any, **options: Any) -> TidemillError:
    with pytest.raises(TidemillError) as caught:
        api.send(*call, **options) if len(call) > 1 else api.get(*call)
    assert "\n" not in str(caught.value)
    return caught.value


def changed(source: Path, target: Path, **user: Any) -> Path:
    """The kubeconfig with another user."""
    document = yaml.safe_load(source.read_text())
    document["users"][0]["user"] = user
    target.write_text(yaml.safe_dump(document))
    return target


def test_a_client_certificate(cluster):
    with connected(cluster.kubeconfig) as api:
        assert json.loads(api.get("/version"))["major"] == "1"


def test_the_service_account_of_a_pod(cluster, namespace, api, tmp_path, monkeypatch):
    """As the kubelet mounts it; the token is rotated under way."""
    first = yaml.safe_load(cluster.service_account(namespace, "one").read_text())["users"][0]["user"]["token"]
    (tmp_path / "token").write_text(first)
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_bytes(cluster.ca.read_bytes())
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", cluster.server.rpartition(":")[2])
    with connected(service_account=str(tmp_path)) as mine:
        error = refused(mine, PODS)
        assert f"system:serviceaccount:{namespace}:one" in str(error)
        (tmp_path / "token").write_text(cluster.token)
        assert mine.get(PODS)
        api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/one")
        (tmp_path / "token").write_text(first)
        eventually(
            lambda: isinstance(refused(mine, PODS), NotAllowed), what="the token ends with its account"
        )


def test_an_exec_plugin_as_eks_has_it(cluster, tmp_path):
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {},
              "status": {"token": cluster.token, "expirationTimestamp": "2099-01-01T00:00:00Z"}}  # fmt: skip
    plugin = tmp_path / "aws"
    plugin.write_text(f"#!/bin/sh\necho run >> {tmp_path}/log\ncat <<'E'\n{json.dumps(answer)}\nE\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "IfAvailable",
             "args": ["--region", "us-east-1", "eks", "get-token", "--cluster-name", "x", "--output", "json"],
             "env": [{"name": "AWS_PROFILE", "value": "x"}], "provideClusterInfo": False}  # fmt: skip
    with connected(changed(cluster.kubeconfig, tmp_path / "c", exec=asked)) as api:
        assert api.get(PODS)
        assert api.get(PODS)
    assert (tmp_path / "log").read_text() == "run\n"


def test_a_token_that_is_not_accepted(cluster):
    with connected(cluster.kubeconfig_with_token("expired")) as api:
        error = refused(api, PODS)
    assert isinstance(error, NotAllowed)
    assert error.code == "unauthorized"
    assert "expired" not in str(error)


def test_somebody_without_rights(cluster):
    with connected(cluster.user("jane")) as api:
        error = refused(api, "DELETE", "/api/v1/nodes/n1")
    assert isinstance(error, NotAllowed)
    assert 'User "jane" cannot delete resource "nodes"' in str(error)


def test_a_certificate_of_another_authority(cluster, tmp_path):
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority"]
    (tmp_path / "c").write_text(yaml.safe_dump(document))
    with connected(tmp_path / "c") as api:
        error = refused(api, PODS)
    assert isinstance(error, NotAllowed)
    assert error.code == "tls"
    assert "does not fit the kubeconfig" in str(error)


def test_tls_server_name(cluster, tmp_path):
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for name, fits in (("kubernetes.default.svc", True), ("other.example", False)):
        document["clusters"][0]["cluster"]["tls-server-name"] = name
        (tmp_path / "c").write_text(yaml.safe_dump(document))
        with connected(tmp_path / "c") as api:
            assert api.get(PODS) if fits else refused(api, PODS).code == "tls"


@pytest.fixture
def deployment(api: Api, namespace: str) -> str:
    labels = {"app": "chat"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    api.create(path, {"metadata": {"name": "chat"}, "spec": spec})
    return f"{path}/chat"


def test_refusals_have_their_kinds(cluster: ControlPlane, deployment: str, namespace: str, api: Api) -> None:
    with connected(cluster.kubeconfig) as mine:
        apply = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}}
        options: dict[str, Any] = {
            "content_type": APPLY_PATCH,
            "params": {"fieldManager": "kubectl", "force": "true"},
        }
        mine.send("PATCH", deployment, json.dumps(apply).encode(), **options)
        apply["spec"] = {"replicas": 4}
        error = refused(mine, "PATCH", deployment, json.dumps(apply).encode(),
                        content_type=APPLY_PATCH, params={"fieldManager": "tidemill"})  # fmt: skip
        assert (type(error), error.code) == (Refused, "field-conflict")
        assert ".spec.replicas" in str(error)
        assert "kubectl" in str(error)

        stale = json.dumps({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}}).encode()
        error = refused(mine, "PATCH", deployment, stale, content_type=MERGE_PATCH)
        assert (type(error), error.code) == (Retryable, "conflict")

        other = json.dumps({"preconditions": {"uid": "another"}}).encode()
        error = refused(mine, "DELETE", deployment, other)
        assert (type(error), error.code) == (Gone, "other-uid")

        assert isinstance(refused(mine, "DELETE", f"{deployment}-gone"), Gone)
        error = refused(mine, "POST", "/api/v1/namespaces", b"not json")
        assert type(error) is Refused
        error = refused(mine, "/apis/jobset.x-k8s.io/v1alpha2/jobsets")
        assert (type(error), error.code) == (Gone, "not-served")

        # A finalizer keeps the namespace terminating.
        spec = {"metadata": {"finalizers": ["example.com/stay"]}}
        api.create(
            f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "stay", **spec["metadata"]}}
        )
        api.delete(f"/api/v1/namespaces/{namespace}")
        one = json.dumps({"metadata": {"name": "late"}}).encode()
        error = refused(mine, "POST", f"/api/v1/namespaces/{namespace}/configmaps", one)
        assert (type(error), error.code) == (Gone, "terminating-namespace")
        api.patch(f"/api/v1/namespaces/{namespace}/configmaps/stay", {"metadata": {"finalizers": None}})


def test_an_eviction_that_a_budget_forbids(cluster, deployment, namespace, api):
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "chat"}}}
    api.create(budgets, {"metadata": {"name": "chat"}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: len(api.items(pods)) == 2, timeout_s=90, what="two pods")
    ready = {"type": "Ready", "status": "True"}
    for pod in api.items(pods):
        name = pod["metadata"]["name"]
        api.patch(f"{pods}/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}})
    eventually(
        lambda: api.get(f"{budgets}/chat")["status"].get("expectedPods") == 2, what="the budget is counted"
    )
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    with connected(cluster.kubeconfig) as mine:
        error = refused(mine, "POST", f"{pods}/{name}/eviction", json.dumps(body).encode())
    assert (type(error), error.code) == (Refused, "disruption-budget")
