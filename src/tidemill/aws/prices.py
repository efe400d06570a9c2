"""On-demand prices from the AWS Price List: GetProducts -> dollars per instance-hour in one region.

The list is served from few regions, for all regions; its records are JSON inside JSON. It has no usable prices of
Capacity Blocks. A price that cannot be read is left out, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemill.aws.fields import Reader, Unreadable
from tidemill.aws.session import Aws
from tidemill.catalog.refreshed import Prices
from tidemill.model.errors import Retryable

SOURCE = "AWS Price List (GetProducts), Linux, shared tenancy"
_PAGE = 100
# An ordinary Linux instance. Without these filters each type is listed some forty times.
_FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def on_demand_prices(aws: Aws, region: str, wanted: Iterable[str]) -> Prices:
    """Of the wanted types that the list has. `aws`: a session in PRICE_LIST_REGION. Retryable: it has none."""
    terms = _FILTERS | {"regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()]
    records = aws.pages(
        "pricing", "GetProducts", "PriceList", ServiceCode="AmazonEC2", FormatVersion="aws_v1", MaxResults=_PAGE,
        Filters=filters,
    )  # fmt: skip
    found = Reader().each("price", map(_decoded, records), price)
    kept = set(wanted)
    prices: dict[str, float] = {}
    for name, usd_h, _ in found:
        if name in kept:
            prices[name] = max(usd_h, prices.get(name, 0.0))  # listed twice: the higher price, to be safe
    if not prices:
        raise Retryable(f"GetProducts: the price list has none of our instance types in {region}")
    return Prices(as_of=max(day for *_, day in found), source=SOURCE, usd_h=prices)


def price(record: Mapping[str, Any]) -> tuple[str, float, date]:
    """Type, dollars an hour, and when the list was published. Raises Unreadable."""
    name = _at(record, "product", "attributes").get("instanceType")
    if not isinstance(name, str):
        raise Unreadable(f"field instanceType: expected a name, got {name!r}")
    amounts = [
        _usd_h(dimension)
        for term in _at(record, "terms", "OnDemand").values()
        for dimension in _at(term, "priceDimensions").values()
    ]
    if len(amounts) != 1:
        raise Unreadable(f"{name} has {len(amounts)} prices")
    return name, amounts[0], _published(record)


def _decoded(record: Any) -> Any:
    """A string that is not JSON stays a string, which the reader rejects."""
    if not isinstance(record, str):
        return record
    try:
        return json.loads(record)
    except ValueError:
        return record


def _usd_h(dimension: Any) -> float:
    unit, written = _at(dimension).get("unit"), _at(dimension, "pricePerUnit").get("USD")
    try:
        amount = Decimal(str(written))
    except InvalidOperation:
        raise Unreadable(f"field USD: expected a number, got {written!r}") from None
    if unit != "Hrs" or not amount.is_finite() or not 0 < amount < 100_000:
        raise Unreadable(f"expected a price per hour, got {written!r} per {unit!r}")
    return float(amount)


def _published(record: Mapping[str, Any]) -> date:
    written = record.get("publicationDate")
    try:
        return datetime.fromisoformat(str(written)).date()
    except ValueError:
        raise Unreadable(f"field publicationDate: expected a date, got {written!r}") from None


def _at(record: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    if not isinstance(record, Mapping):
        raise Unreadable(f"field {'.'.join(keys) or 'price'}: expected a record, got {record!r}")
    return record
