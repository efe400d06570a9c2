"""The AWS Price List: what the account's instance types cost on demand, as the list writes it, JSON inside JSON.

The prices are the catalog's own, for whichever region is asked for: this AWS has one price everywhere.
"""

from __future__ import annotations

import json
from typing import Any

from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.refusals import AwsError

_MOST = 100
# What there is in this list: ordinary instances. Any other wish is met by nothing.
_THERE = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@operation("pricing", "GetProducts")
def products(asked: Asked) -> Result:
    if asked.need("ServiceCode") != "AmazonEC2":
        raise AwsError("NotFoundException", "the simulated price list is of AmazonEC2 alone")
    wanted = {str(one["Field"]): str(one["Value"]) for one in asked.get("Filters", [])}
    region = wanted.pop("regionCode", asked.wire.region)
    found = [
        name
        for name, kind in asked.wire.body.catalog.types.items()
        if kind.on_demand_usd_h is not None
        and all((_THERE | {"instanceType": name}).get(field) == value for field, value in wanted.items())
    ]
    params = {"MaxResults": asked.get("MaxResults", _MOST), "NextToken": asked.get("NextToken")}
    page, token = asked.wire.pages.page(found, lambda name: name, params, most=_MOST)
    written = [json.dumps(_product(asked, name, region)) for name in page]
    return {"FormatVersion": "aws_v1", "PriceList": written, "NextToken": token}


def _product(asked: Asked, name: str, region: str) -> dict[str, Any]:
    kind = asked.wire.body.catalog.types[name]
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
        "publicationDate": f"{asked.wire.clock.now():%Y-%m-%dT%H:%M:%SZ}",
    }
