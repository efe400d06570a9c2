"""Documents of a deployment on the real control plane: a Platform, a NodeClass, and pools with usual settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.spec import names

NAME = "real"  # of the platform, the deployment and the cluster
SERVER = "https://real.example.com"


def document(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def platform(server: str = SERVER, **more: Any) -> dict[str, Any]:
    """`server`: of the API server; the controller refuses documents of another cluster."""
    cluster = {
        "name": NAME, "endpoint": server, "certificateAuthority": "UkVBTA==", "serviceCidr": "10.96.0.0/16",
    }  # fmt: skip
    usual = {
        "region": "us-east-1",
        "deployment": NAME,
        "cluster": cluster,
        "securityGroups": ["sg-0a1"],
        "subnets": {"us-east-1a": ["subnet-0a1"], "us-east-1b": ["subnet-0b1"]},
        "nodeRole": "arn:aws:iam::123456789012:role/real-node",
    }
    return document("Platform", NAME, **(usual | more))


def pool(name: str = "gpu", **more: Any) -> dict[str, Any]:
    """Of p5 nodes from blocks."""
    usual = {
        "nodeClassName": "gpu",
        "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "labels": {"workload-type": name},
        "taints": [{"key": names.NVIDIA_GPU, "value": "true"}],
        "limits": {"nodes": 8},
    }
    return document("ComputePool", name, **(usual | more))


def by_the_hour(name: str = "gpu", **more: Any) -> dict[str, Any]:
    """Of nodes with four GPUs, on demand."""
    usual = {"sources": [{"type": "on-demand"}], "requirements": {"instanceTypes": ["g6.12xlarge"]}}
    return pool(name, **(usual | more))


NODE_CLASS = document("NodeClass", "gpu", amiSelectorTerms=[{"alias": "al2023@v20261101"}])


def whole(documents: Sequence[Mapping[str, Any]], server: str) -> list[dict[str, Any]]:
    """With a Platform of this cluster and the node class; a Platform that is given keeps what else it says."""
    given = next((one for one in documents if one["kind"] == "Platform"), platform(server))
    spec = given["spec"]
    if spec["cluster"]["endpoint"] == SERVER:
        spec = {**spec, "cluster": {**spec["cluster"], "endpoint": server}}
    others = [dict(one) for one in documents if one["kind"] != "Platform"]
    return [{**given, "spec": spec}, NODE_CLASS, *others]
