"""Karpenter's controller with its kwok provider beside the same cluster. Nothing of it is part of this repository.

Its provider makes a Node itself and launches nothing: a NodeClaim with the condition Launched is its launch call.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.cluster.large_cluster import NAMESPACE, pending
from controlplane.api import APPLY, Api, eventually
from controlplane.start import ControlPlane

MODULE = "sigs.k8s.io/karpenter"
VERSION = "v1.14.1"
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
SYNCED_S = 600.0


def sources() -> Path:
    """The folder of the module, which has the CRDs."""
    told = subprocess.run(
        ("go", "mod", "download", "-json", f"{MODULE}@{VERSION}"), capture_output=True, check=True, text=True
    )
    return Path(json.loads(told.stdout)["Dir"])


def install(api: Api) -> None:
    folder = sources()
    crds = [*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")]
    for path in crds:
        crd = yaml.safe_load(path.read_text())
        name = crd["metadata"]["name"]
        api.patch(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}",
            crd,
            APPLY,
            fieldManager="bench",
        )
        served = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        eventually(lambda served=served: api.get(served), timeout_s=60, what=f"{served} is served")  # type: ignore[misc]
    node_class = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "bench"},
    }  # fmt: skip
    api.create("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", node_class)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "bench"}
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [on_demand], "expireAfter": "Never"}}
    spec = {
        "template": template,
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    }
    api.create(
        "/apis/karpenter.sh/v1/nodepools",
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "bench"}, "spec": spec},
    )


@contextlib.contextmanager
def running(binary: Path, plane: ControlPlane, **settings: str) -> Iterator[tuple[int, str]]:
    """Its process id and the address of its metrics. `settings`: of its environment."""
    metrics, health = _free_port(), _free_port()
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "KARPENTER_SERVICE": "karpenter",
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "LOG_LEVEL": "error",
        **settings,
    }
    log = (plane.folder / "log" / "karpenter.log").open("ab")
    process = subprocess.Popen(
        ("nice", "-n", "10", str(binary)), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    try:
        yield process.pid, f"http://127.0.0.1:{metrics}/metrics"
    finally:
        process.kill()
        process.wait(10)
        log.close()


def is_synced(metrics: str) -> bool:
    with urllib.request.urlopen(metrics, timeout=5) as answer:
        return any(line == b"karpenter_cluster_state_synced 1\n" for line in answer)


def pending_to_launch_s(api: Api, count: int) -> list[float]:
    """For pods one after the other: from the pod's creation to a NodeClaim that is launched."""
    selector = {"karpenter.sh/nodepool": "bench"}
    found = []
    for number in range(count):
        known = {claim["metadata"]["name"] for claim in api.items(NODE_CLAIMS)}
        began = time.monotonic()
        pod = pending(f"pending-{number}", 0, selector)
        # One node each: the last one's node must not have room.
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "3"
        api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        eventually(lambda known=known: _launched(api, known), timeout_s=120, every_s=0.02)  # type: ignore[misc]
        found.append(time.monotonic() - began)
    return found


def _launched(api: Api, known: set[str]) -> bool:
    return any(
        _is_launched(claim) for claim in api.items(NODE_CLAIMS) if claim["metadata"]["name"] not in known
    )


def _is_launched(claim: dict[str, Any]) -> bool:
    conditions = claim.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Launched" and one["status"] == "True" for one in conditions)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
