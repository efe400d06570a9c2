"""A platform that could launch for real, a node class and a pool, with the one thing a test is about put in."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from tidemill.catalog import load
from tidemill.model.capacity import Source, SourceKind
from tidemill.ports.compute import Template
from tidemill.provision.launch_template import launch_template
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform

BLOCK = Source(SourceKind.BLOCK, "cr-0a1b2c3d4e5f60718")
ODCR = Source(SourceKind.ODCR, "cr-0dc0dc0dc0dc0dc0d")
SPOT = Source(SourceKind.SPOT)
ON_DEMAND = Source(SourceKind.ON_DEMAND)
IMAGE = "ami-0123456789abcdef0"


def documents(
    *, node_class: dict[str, Any] | None = None, platform: dict[str, Any] | None = None, **pool: Any
) -> Spec:
    """One pool `train` of p5.48xlarge on node class `gpu`; keywords go to its spec."""
    given = {
        "region": "us-east-1",
        "deployment": "tides",
        "cluster": {
            "name": "ml",
            "endpoint": "https://1A2B.gr7.us-east-1.eks.amazonaws.com",
            "certificateAuthority": "Y2VydA==",
            "serviceCidr": "10.100.0.0/16",
        },
        "nodeRole": "arn:aws:iam::123456789012:role/ml-node",
        "subnets": {"us-east-1a": ["subnet-0a1a1a1a", "subnet-0a2a2a2a"], "us-east-1b": ["subnet-0b1b1b1b"]},
        "securityGroups": ["sg-0aa0aa0a"],
        **(platform or {}),
    }
    classes = {"amiSelectorTerms": [{"alias": "al2023@v20261101"}], **(node_class or {})}
    asked = {"nodeClassName": "gpu", "sources": [{"type": "block"}], "limits": {"nodes": 4}, **pool}
    asked.setdefault("requirements", {"instanceTypes": ["p5.48xlarge"]})
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "prod"}, "spec": given}),
        catalog=load(),
        node_classes={"gpu": NodeClass.model_validate({"metadata": {"name": "gpu"}, "spec": classes})},
        pools={"train": ComputePool.model_validate({"metadata": {"name": "train"}, "spec": asked})},
    )


def template(
    spec: Spec, *, source: Source = BLOCK, instance_type: str = "p5.48xlarge", image: str = IMAGE, **how: Any
) -> Template:
    return launch_template(spec, spec.pools["train"], instance_type, source, "us-east-1a", image, **how)


def booted(made: Template) -> str:
    """The user data as the node reads it."""
    return b64decode(made.data["UserData"]).decode()
