"""The public parameters under which AWS publishes its images: here they all name the account's own image.

Any other parameter is moto's.
"""

from __future__ import annotations

import re
from typing import Any

from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.refusals import NotOurs

_IMAGE = re.compile(r"/aws/service/(?:eks/optimized-ami|bottlerocket)/.+/image_id")
# The releases there are: the newest, and whatever is pinned in full. An alias with a typo is not among them.
_RELEASE = re.compile(r"recommended|latest|amazon-eks-node-[\w.-]+-v\d{8}|\d+\.\d+\.\d+(?:-[0-9a-f]{8})?")


@operation("ssm", "GetParameter")
def parameter(asked: Asked) -> Result:
    return {"Parameter": _image(asked, asked.need("Name"))}


@operation("ssm", "GetParameters")
def parameters(asked: Asked) -> Result:
    """Answered here where all are images; moto knows none of them."""
    return {"Parameters": [_image(asked, name) for name in asked.need("Names")], "InvalidParameters": []}


def _image(asked: Asked, name: str) -> dict[str, Any]:
    parts = name.split("/")
    if _IMAGE.fullmatch(name) is None or _RELEASE.fullmatch(parts[-2]) is None:
        raise NotOurs
    arch = "arm64" if "arm64" in parts else "x86_64"
    return {
        "Name": name,
        "Type": "String",
        "Value": asked.wire.network.images[arch],
        "Version": 1,
        "DataType": "aws:ec2:image",
        "ARN": f"arn:aws:ssm:{asked.region}::parameter{name}",
        "LastModifiedDate": asked.wire.clock.now(),
    }
