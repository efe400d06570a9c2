"""Prices: the AWS Price List, and the history of spot prices. They are the catalog's, the same in every region.

A price of today is all the history there is: the catalog has no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemill.sim.cloud.launches import spot_usd_h
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered

_MOST = 100
_SERVICE = "AmazonEC2"
# Of all products in this list; filters by other attributes match nothing.
_COMMON = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "servicecode": _SERVICE,
}
_VIRTUAL, _BARE_METAL = "Compute Instance", "Compute Instance (bare metal)"
# Bare metal is no part of the catalog, and clients (Karpenter) take a list without any for a broken one. It costs what
# the largest size of its family costs (AWS Price List, 2026-11).
_METAL = {"c5.metal": "c5.24xlarge", "m5.metal": "m5.24xlarge", "r5.metal": "r5.24xlarge"}


@operation("pricing", "GetProducts")
def products(call: ApiCall) -> Result:
    if call.require("ServiceCode") != _SERVICE:
        raise AwsError("NotFoundException", f"the simulated price list is of {_SERVICE} alone")
    wanted = {str(wish["Field"]): str(wish["Value"]) for wish in call.get("Filters", [])}
    region = wanted.pop("regionCode", call.wire.region)
    listed = [_product(call, name, usd_h, region) for name, usd_h in _priced(call).items()]
    matching = [each for each in listed if wanted.items() <= _searchable(each).items()]
    params = {"MaxResults": call.get("MaxResults", _MOST), "NextToken": call.get("NextToken")}
    page, token = call.wire.pages.page(matching, _sku, params, most=_MOST)
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in page], "NextToken": token}


def _priced(call: ApiCall) -> dict[str, float]:
    """What an hour costs, by type."""
    types = call.wire.cloud.catalog.types
    priced = {name: kind.on_demand_usd_h for name, kind in types.items() if kind.on_demand_usd_h is not None}
    return priced | {metal: priced[size] for metal, size in _METAL.items() if size in priced}


def _sku(product: Mapping[str, Any]) -> str:
    return str(product["product"]["sku"])


def _searchable(product: Mapping[str, Any]) -> dict[str, str]:
    """What filters go by: a product's attributes, and the two fields beside them."""
    own = product["product"]
    return {**own["attributes"], "productFamily": own["productFamily"], "serviceCode": product["serviceCode"]}


def _product(call: ApiCall, name: str, usd_h: float, region: str) -> dict[str, Any]:
    sku, metal = name.replace(".", "").upper(), name in _METAL
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "pricePerUnit": {"USD": f"{usd_h:.10f}"},
    }
    term = {"sku": sku, "offerTermCode": "JRTCKXETXF", "priceDimensions": {dimension["rateCode"]: dimension}}
    tenancy = "Dedicated" if metal else "Shared"
    attributes = {**_COMMON, "tenancy": tenancy, "instanceType": name, "regionCode": region}
    return {
        "product": {
            "productFamily": _BARE_METAL if metal else _VIRTUAL,
            "attributes": attributes,
            "sku": sku,
        },
        "serviceCode": _SERVICE,
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "publicationDate": f"{call.wire.clock.now():%Y-%m-%dT%H:%M:%SZ}",
    }


# --- spot ---------------------------------------------------------------------------------------------

_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_MOST_SPOT = 1000  # EC2 gives no larger pages, whatever is asked for


@operation("ec2", "DescribeSpotPriceHistory")
def spot_prices(call: ApiCall) -> Result:
    """The price in force now, by type and zone: what a spot launch costs here."""
    wire = call.wire
    zones = [call.get("AvailabilityZone")] if call.get("AvailabilityZone") else wire.cloud.zones
    types, products = call.get("InstanceTypes", []), call.get("ProductDescriptions", [])
    listed = [
        _spot_price(call, name, zone, price)
        for name, kind in wire.cloud.catalog.types.items()
        if (not types or name in types) and (price := spot_usd_h(kind)) is not None
        for zone in zones
        if not products or set(products) & set(_LINUX)
    ]
    matching = filtered(listed, call.get("Filters", []), _SPOT_FIELDS, lambda _: ())
    call.stop_dry_run()
    asked = int(call.get("MaxResults", _MOST_SPOT)) or _MOST_SPOT
    params = {"MaxResults": min(asked, _MOST_SPOT), "NextToken": call.get("NextToken") or None}
    page, token = wire.pages.page(
        matching, lambda each: f"{each['InstanceType']} {each['AvailabilityZone']}", params
    )
    return {"SpotPriceHistory": page, "NextToken": token or ""}


def _spot_price(call: ApiCall, name: str, zone: str, usd_h: float) -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": name,
        "ProductDescription": _LINUX[0],
        "SpotPrice": f"{usd_h:.6f}",
        "Timestamp": call.wire.clock.now(),
    }


_SPOT_FIELDS: FilterFields[dict[str, Any]] = {
    "availability-zone": lambda each: str(each["AvailabilityZone"]),
    "instance-type": lambda each: str(each["InstanceType"]),
    "product-description": lambda each: str(each["ProductDescription"]),
    "spot-price": lambda each: str(each["SpotPrice"]),
}
