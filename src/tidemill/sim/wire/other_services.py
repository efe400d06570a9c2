"""STS, the public parameters of SSM, and the AWS Price List.

The caller is whom the account says, or the user that an access key `as-NAME` names: what one person proposes another
can approve, as with AWS. The parameters under which AWS publishes its images all name the account's own image; any
other is moto's. Prices are the catalog's, the same in every region.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tidemill.sim.wire.errors import AnsweredByMoto, AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.state import Wire

_USER = "as-"


@operation("sts", "GetCallerIdentity")
def caller(call: ApiCall) -> Result:
    arn = call.wire.cloud.identity()
    if call.key.startswith(_USER):
        arn = f"arn:aws:iam::{call.wire.account}:user/{call.key.removeprefix(_USER)}"
    return {"Account": call.wire.account, "Arn": arn, "UserId": f"AIDASIMULATED:{arn.rsplit('/', 1)[-1]}"}


_IMAGE = re.compile(r"/aws/service/(?:eks/optimized-ami|bottlerocket)/.+/image_id")
# The releases there are: the newest, and whatever is pinned in full. An alias with a typo is not among them.
_RELEASE = re.compile(r"recommended|latest|amazon-eks-node-[\w.-]+-v\d{8}|\d+\.\d+\.\d+(?:-[0-9a-f]{8})?")


@operation("ssm", "GetParameter")
def parameter(call: ApiCall) -> Result:
    return {"Parameter": _image(call, call.require("Name"))}


@operation("ssm", "GetParameters")
def parameters(call: ApiCall) -> Result:
    """Answered here where all are images; moto knows none of them."""
    return {"Parameters": [_image(call, name) for name in call.require("Names")], "InvalidParameters": []}


def image_behind(wire: Wire, name: str) -> str | None:
    """The image that AWS publishes under a parameter; None: it publishes none there."""
    parts = name.split("/")
    if _IMAGE.fullmatch(name) is None or _RELEASE.fullmatch(parts[-2]) is None:
        return None
    image: str = wire.network.images["arm64" if "arm64" in parts else "x86_64"]
    return image


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


_MOST = 100
# The attributes of every product in this list; other filters match nothing.
_THERE = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@operation("pricing", "GetProducts")
def products(call: ApiCall) -> Result:
    if call.require("ServiceCode") != "AmazonEC2":
        raise AwsError("NotFoundException", "the simulated price list is of AmazonEC2 alone")
    wanted = {str(wish["Field"]): str(wish["Value"]) for wish in call.get("Filters", [])}
    region = wanted.pop("regionCode", call.wire.region)
    names = [
        name
        for name, kind in call.wire.cloud.catalog.types.items()
        if kind.on_demand_usd_h is not None
        and all((_THERE | {"instanceType": name}).get(field) == value for field, value in wanted.items())
    ]
    params = {"MaxResults": call.get("MaxResults", _MOST), "NextToken": call.get("NextToken")}
    page, token = call.wire.pages.page(names, lambda name: name, params, most=_MOST)
    written = [json.dumps(_product(call, name, region)) for name in page]
    return {"FormatVersion": "aws_v1", "PriceList": written, "NextToken": token}


def _product(call: ApiCall, name: str, region: str) -> dict[str, Any]:
    kind = call.wire.cloud.catalog.types[name]
    sku = name.replace(".", "").upper()
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "pricePerUnit": {"USD": f"{kind.on_demand_usd_h:.10f}"},
    }
    term = {"sku": sku, "offerTermCode": "JRTCKXETXF", "priceDimensions": {dimension["rateCode"]: dimension}}
    attributes = {**_THERE, "instanceType": name, "regionCode": region, "servicecode": "AmazonEC2"}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "publicationDate": f"{call.wire.clock.now():%Y-%m-%dT%H:%M:%SZ}",
    }
