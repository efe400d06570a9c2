"""The images that AWS publishes for EKS nodes: one for each family, architecture and variant, whatever the release.

Their ids are the values of public parameters of SSM; any other parameter is moto's. Each is an image of its own:
clients (Karpenter) tell by the image which instance types it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire.errors import AnsweredByMoto
from tidemill.sim.wire.network import no_ids_drawn
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.state import Wire

IMAGE_NAME = "tidemill-simulated-{family}-{arch}-{variant}"
# Family, architecture, variant; those of AL2023 without accelerators are the network's own images.
_PUBLISHED = (
    ("al2023", "x86_64", "nvidia"), ("al2023", "x86_64", "neuron"), ("al2023", "arm64", "nvidia"),
    ("al2", "x86_64", "standard"), ("al2", "x86_64", "nvidia"), ("al2", "arm64", "standard"),
    ("bottlerocket", "x86_64", "standard"), ("bottlerocket", "x86_64", "nvidia"),
    ("bottlerocket", "arm64", "standard"), ("bottlerocket", "arm64", "nvidia"),
)  # fmt: skip
RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
# The releases there are: the newest, and whatever is pinned in full. An alias with a typo is not among them.
_RELEASE = (
    r"(?:recommended|latest|amazon-eks-(?:gpu-|arm64-)?node-[\w.-]+-v\d{8}|\d+\.\d+\.\d+(?:-[0-9a-f]{8})?)"
)
_AL2023 = r"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/(?P<arch>x86_64|arm64)"
_AL2 = r"/aws/service/eks/optimized-ami/{version}/amazon-linux-2(?:-(?P<variant>gpu)|-(?P<arch>arm64))?"
_BOTTLEROCKET = r"/aws/service/bottlerocket/aws-k8s-{version}(?:-(?P<variant>nvidia))?/(?P<arch>x86_64|arm64)"
_PARAMETERS = {
    "al2023": _AL2023 + "/(?P<variant>standard|nvidia|neuron)",
    "al2": _AL2,
    "bottlerocket": _BOTTLEROCKET,
}
_READ = {
    family: re.compile(path.replace("{version}", r"\d+\.\d+") + f"/{_RELEASE}/image_id")
    for family, path in _PARAMETERS.items()
}
Published = Mapping[tuple[str, str, str], str]


def publish(ec2: Any, seed: int, standard: Mapping[str, str]) -> Published:
    """Makes them in moto, under ids of their own; `standard`: those of AL2023 that are there, by architecture."""
    made = {("al2023", arch, "standard"): id_ for arch, id_ in standard.items()}
    with no_ids_drawn():
        for family, arch, variant in _PUBLISHED:
            name = IMAGE_NAME.format(family=family, arch=arch, variant=variant)
            image = ec2.register_image(name, "published by AWS, in the simulated account only")
            del ec2.amis[image.id]
            image.id = made[family, arch, variant] = seeded_id("ami", seed, family, arch, variant)
            image.architecture, image.creation_date = arch, RELEASED
            ec2.amis[image.id] = image
    return made


def image_behind(wire: Wire, parameter: str) -> str | None:
    """The image that AWS publishes under a parameter; None: it publishes none there."""
    for family, pattern in _READ.items():
        if (found := pattern.fullmatch(parameter)) is not None:
            said = found.groupdict()
            variant = {"gpu": "nvidia"}.get(said["variant"] or "standard", said["variant"] or "standard")
            return wire.published_images.get((family, said["arch"] or "x86_64", variant))
    return None


@operation("ssm", "GetParameter")
def parameter(call: ApiCall) -> Result:
    return {"Parameter": _image(call, call.require("Name"))}


@operation("ssm", "GetParameters")
def parameters(call: ApiCall) -> Result:
    """Answered here where all are images; moto knows none of them."""
    return {"Parameters": [_image(call, name) for name in call.require("Names")], "InvalidParameters": []}


def _image(call: ApiCall, name: str) -> dict[str, Any]:
    image = image_behind(call.wire, name)
    if image is None:
        raise AnsweredByMoto
    return {
        "Name": name,
        "Type": "String",
        "Value": image,
        "Version": 1,
        "DataType": "aws:ec2:image",
        "ARN": f"arn:aws:ssm:{call.region}::parameter{name}",
        "LastModifiedDate": call.wire.clock.now(),
    }
