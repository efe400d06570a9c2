"""The platform's secrets in a real cluster: the rendered objects by the operator's own CRDs, the check and the sync.

The operator itself is not run: the test writes what the operator writes, its status and the Secret.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api, ApiError
from controlplane.start import ControlPlane
from tests.cluster.custom_resources import define, published_file
from tests.cluster.programs import TIDEMILL, Kubectl, SimulatedAws

BUNDLE = ("github.com/external-secrets/external-secrets@v1.3.2", "deploy/crds/bundle.yaml")
PLANTED = "planted-Zq7"
PLATFORM = {
    "apiVersion": "tidemill.dev/v1alpha1",
    "kind": "Platform",
    "metadata": {"name": "mill"},
    "spec": {
        "region": "us-east-1",
        "deployment": "mill",
        "cluster": {"name": "mill"},
        "bucket": "mill-models",
        "database": {"loginSecret": "rds!db-0a1b2c3d"},
    },
}
OBJECTS = "/apis/external-secrets.io/v1/namespaces/engine/externalsecrets"


@pytest.fixture
def operator_crds(api: Api) -> None:
    for definition in yaml.safe_load_all(published_file(*BUNDLE).read_text()):
        if definition["spec"]["names"]["plural"] in ("externalsecrets", "clustersecretstores"):
            define(api, definition)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    file = tmp_path / "platform.yaml"
    file.write_text(yaml.safe_dump(PLATFORM))
    return file


class Operator(threading.Thread):
    """Does what the operator does when an ExternalSecret or its annotations change, with values of its own."""

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self.api, self.over = api, threading.Event()
        self.seen: dict[str, str] = {}

    def run(self) -> None:
        while not self.over.wait(0.2):
            for one in self.api.items(OBJECTS):
                asked = one["metadata"].get("annotations", {}).get("force-sync", "")
                if self.seen.get(one["metadata"]["name"]) != asked:
                    self.seen[one["metadata"]["name"]] = asked
                    self.fetch(one)

    def fetch(self, one: dict[str, Any]) -> None:
        name, value = one["metadata"]["name"], base64.b64encode(PLANTED.encode()).decode()
        secret = {
            "metadata": {"name": name},
            "data": {each["secretKey"]: value for each in one["spec"]["data"]},
        }
        try:
            self.api.create("/api/v1/namespaces/engine/secrets", secret)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        status = {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "secret synced"}
            ],
            "refreshTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.api.patch(f"{OBJECTS}/{name}/status", {"status": status})


@pytest.fixture
def operator(cluster: ControlPlane) -> Iterator[Operator]:
    it = Operator(cluster.admin())
    yield it
    it.over.set()
    if it.is_alive():
        it.join(timeout=10)


@pytest.fixture
def tidemill(
    cluster: ControlPlane, sim_aws: Callable[..., SimulatedAws], documents: Path
) -> Callable[..., tuple[int, Any]]:
    aws = sim_aws()

    def run(*arguments: str) -> tuple[int, Any]:
        done = subprocess.run(
            (*TIDEMILL, "secrets", *arguments, "-f", str(documents), "--aws", "--json", "--kubeconfig",
             str(cluster.kubeconfig)),
            env=aws.environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert PLANTED not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def states(document: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in document["cluster"]}


@pytest.mark.requirement("AE-4")
@pytest.mark.parametrize("binding", [(), ("--irsa",)], ids=["pod identity", "irsa"])
def test_the_operators_own_crds_take_what_is_rendered(
    operator_crds: None,
    kubectl: Kubectl,
    make_namespace: Callable[..., str],
    documents: Path,
    binding: tuple[str, ...],
):
    make_namespace("engine")
    rendered = subprocess.run(
        (*TIDEMILL, "render", "secrets", str(documents), *binding), capture_output=True, text=True, check=True
    ).stdout
    kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=rendered)
    found = kubectl.json("get", "externalsecrets", "-n", "engine")["items"]
    intervals = {one["metadata"]["name"]: one["spec"]["refreshInterval"] for one in found}
    assert intervals == {"engine-control-plane": "3m", "engine-workers": "1h", "engine-redis": "1h"}


@pytest.mark.requirement("AE-15")
def test_a_forced_sync_waits_until_everything_was_fetched(
    operator_crds: None, api: Api, kubectl: Kubectl, make_namespace: Callable[..., str], documents: Path,
    operator: Operator, tidemill: Callable[..., tuple[int, Any]],
):  # fmt: skip
    make_namespace("engine")
    code, before = tidemill("check", "--kube")
    assert code == 1
    assert set(states(before).values()) == {"missing"}

    rendered = subprocess.run(
        (*TIDEMILL, "render", "secrets", str(documents)), capture_output=True, text=True, check=True
    ).stdout
    kubectl("apply", "--server-side", "-f", "-", stdin=rendered)
    ready = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Valid", "message": "store validated"}]
    }
    api.patch("/apis/external-secrets.io/v1/clustersecretstores/mill-secrets/status", {"status": ready})
    code, unfetched = tidemill("sync", "--wait", "1")
    assert code == 1  # nobody fetches
    assert states(unfetched)["engine-redis"] == "wrong"

    operator.start()
    code, fetched = tidemill("sync", "--wait", "60")
    assert code == 0
    assert set(states(fetched).values()) == {"fine"}

    api.delete("/api/v1/namespaces/engine/secrets/engine-redis")
    _, after = tidemill("check", "--kube")
    (redis,) = (one for one in after["cluster"] if one["name"] == "engine-redis")
    assert redis["missing_keys"] == ["redisUrl"]
