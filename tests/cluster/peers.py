"""Programs that nobody here wrote, run unmodified: built from their Go modules, started beside the simulated AWS."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Api
from controlplane.build import MODULES, CannotBuild, build, module_folder
from tests.cluster.custom_resources import define
from tests.cluster.documents import NAME
from tests.cluster.stage import Stage

KARPENTER = "github.com/aws/karpenter-provider-aws"


def binaries_of(module: str) -> Path:
    """The folder; without Go the test is skipped, or fails where nothing may be skipped."""
    try:
        return build(MODULES[module])
    except CannotBuild as error:
        return _missing(error)


def define_karpenters_objects(api: Api) -> None:
    """The CRDs that come with the controller."""
    try:
        folder = module_folder(MODULES["karpenter"], KARPENTER) / "pkg/apis/crds"
    except CannotBuild as error:
        folder = _missing(error)
    for file in sorted(folder.glob("karpenter*.yaml")):
        define(api, yaml.safe_load(file.read_text()))


def _missing(error: CannotBuild) -> Path:
    if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Karpenter:
    """Karpenter's AWS controller, with an administrator's kubeconfig and the queue of the account's events."""

    def __init__(self, scene: Stage) -> None:
        self.scene, self.api = scene, scene.api()
        binary = binaries_of("karpenter") / "karpenter"
        define_karpenters_objects(self.api)
        queue = scene.account.queue()
        gates = {"ReservedCapacity": True, "StaticCapacity": True, "SpotToSpotConsolidation": False,
                 "NodeRepair": False, "NodeOverlay": False, "CapacityBuffer": False}  # fmt: skip
        settings = {
            "KUBECONFIG": str(scene.cluster.kubeconfig),
            "AWS_ACCESS_KEY_ID": "as-karpenter",
            "CLUSTER_NAME": NAME,
            "INTERRUPTION_QUEUE": queue.rpartition("/")[2],
            "EKS_CONTROL_PLANE": "true",
            "FEATURE_GATES": ",".join(f"{name}={str(on).lower()}" for name, on in gates.items()),
            "KARPENTER_SERVICE": "karpenter",
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "LOG_LEVEL": "debug",
            "METRICS_PORT": free_port(),
            "HEALTH_PROBE_PORT": free_port(),
            "CPU_REQUESTS": "1000",
            "MEMORY_LIMIT": str(2**30),
        }
        scene.processes.start("karpenter", (str(binary),), env=scene.environment | settings)
        scene.running.add("karpenter")

    def wait_until_it_works(self) -> None:
        self.scene.eventually(
            lambda: "watching interruption queue" in self.log(), "Karpenter works", timeout_s=90
        )

    def node_class_is_ready(self, name: str) -> bool:
        found = self.api.get(f"/apis/karpenter.k8s.aws/v1/ec2nodeclasses/{name}")
        conditions = found.get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def claims(self, capacity_type: str = "") -> list[dict[str, Any]]:
        """Its NodeClaims; of one capacity type."""
        found = self.api.items("/apis/karpenter.sh/v1/nodeclaims")
        key = "karpenter.sh/capacity-type"
        return [one for one in found if capacity_type in ("", one["metadata"]["labels"].get(key))]

    def pools(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.api.items("/apis/karpenter.sh/v1/nodepools")}

    def log(self) -> str:
        return (self.scene.processes.logs / "karpenter.log").read_text()


# It reads the API server's token only where a pod has it: so it gets a mount namespace with a /run of its own.
_AS_IN_A_POD = """
here=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run && mkdir -p $here && cp "$1" $here/token && cp "$2" $here/ca.crt || exit 1
echo default > $here/namespace
shift 2
exec "$@"
"""


def start_node_termination_handler(scene: Stage, queue: str) -> None:
    """In queue mode. It drains whatever the queue tells of: no instance carries its own tag."""
    binary = binaries_of("nth") / "node-termination-handler"
    host, _, port = scene.cluster.server.removeprefix("https://").partition(":")
    root = () if os.geteuid() == 0 else ("--map-root-user",)
    settings = {
        "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "AWS_ACCESS_KEY_ID": "as-nth",
    }  # fmt: skip
    arguments = (
        "--enable-sqs-termination-draining", "--enable-spot-interruption-draining=false",
        "--enable-scheduled-event-draining=false", "--check-tag-before-draining=false", "--queue-url", queue,
        "--aws-region", "us-east-1", "--aws-endpoint", scene.account.aws.endpoint, "--log-level", "DEBUG",
        "--pod-namespace", "default", "--pod-name", "nth", "--node-name", "none",
    )  # fmt: skip
    credentials = (str(scene.cluster.token_file), str(scene.cluster.ca))
    command = (
        "unshare",
        *root,
        "--mount",
        "bash",
        "-c",
        _AS_IN_A_POD,
        "nth",
        *credentials,
        str(binary),
        *arguments,
    )
    scene.processes.start("nth", command, env=scene.environment | settings)
    scene.running.add("nth")
