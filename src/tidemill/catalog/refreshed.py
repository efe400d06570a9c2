"""Instance types and prices of one region as AWS reported them on some day, and how they change the shipped catalog.
Pure.

What AWS does not report stays as shipped: there is no list of Capacity Block prices or of UltraServers. A
type that ships and that AWS did not list stays too: it may be sold ahead. A text that is not whole is no catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidemill.catalog import Catalog, PriceList, assembled, load, shipped_prices, shipped_types, split_name
from tidemill.model.ec2_facts import ULTRASERVER_FAMILIES

VERSION: Final = 1
# EC2 answers 512 GiB for a Trainium2 chip; the Neuron architecture guide says what a chip has: 96 GiB.
_MEMORY_MIB = {"Trainium2": 98_304}
_ON_DEMAND = "on-demand"

Count = Annotated[int, Field(ge=1, le=2**31)]
Maybe = Annotated[int, Field(ge=0, le=2**31)]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
TypeName = Annotated[str, Field(pattern=r"^[a-z]+[0-9]+[a-z0-9-]*\.[a-z0-9-]+$", max_length=64)]
Dollars = Annotated[float, Field(gt=0, lt=100_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AcceleratorFacts(_Strict):
    resource: Literal["nvidia.com/gpu", "aws.amazon.com/neuron"]
    model: Word
    count: Count
    memory_mib: Count


class TypeFacts(_Strict):
    """As `instance_types.json` has them."""

    name: TypeName
    arch: Literal["amd64", "arm64"]
    hypervisor: Word
    vcpus: Count
    memory_mib: Count
    accelerator: AcceleratorFacts | None
    efa: Maybe
    nvme_gb: Maybe
    max_pods: Count
    block: bool = False


class Prices(_Strict):
    """On demand, in dollars per instance-hour."""

    as_of: date
    source: Word
    usd_h: dict[TypeName, Dollars]


class Refreshed(_Strict):
    version: Literal[1] = VERSION
    region: Word
    as_of: date
    source: Word
    types: Annotated[list[TypeFacts], Field(min_length=1)]
    on_demand: Prices | None = None  # None: AWS did not report prices; the shipped ones stay

    @property
    def newer(self) -> bool:
        """Newer than all shipped data. A later version of Tidemill may be right where an old answer of AWS is not."""
        shipped = load()
        dates = (shipped.types_as_of, *(prices.as_of for prices in shipped.price_lists))
        return self.as_of.isoformat() > max(dates)


def written(refreshed: Refreshed) -> str:
    return refreshed.model_dump_json(indent=1) + "\n"


def read(text: str | bytes, region: str) -> Refreshed:
    """A catalog that `written` wrote. Raises ValueError with the reason if it cannot be used."""
    try:
        data = json.loads(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise ValueError("a newer version of Tidemill wrote it")
    try:
        refreshed = Refreshed.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise ValueError(f"{where}: {first['msg']}") from None
    if refreshed.region != region:
        raise ValueError(f"it is for region {refreshed.region}")
    return refreshed


def corrected(facts: TypeFacts) -> TypeFacts:
    """With corrections for what EC2 is known to report wrongly or not at all."""
    changes: dict[str, Any] = {}
    if facts.accelerator is not None and facts.accelerator.model in _MEMORY_MIB:
        true_mib = _MEMORY_MIB[facts.accelerator.model]
        changes["accelerator"] = facts.accelerator.model_copy(update={"memory_mib": true_mib})
    # One that does not ship counts as not sold in blocks: better no offer than one for a count that does not exist.
    if facts.name.startswith(ULTRASERVER_FAMILIES):
        changes["block"] = False
    return facts.model_copy(update=changes)


def applied(refreshed: Refreshed) -> Catalog:
    """The shipped catalog with what AWS reported in its place; new types come last."""
    fresh = {facts.name: facts.model_dump() for facts in map(corrected, refreshed.types)}
    known = [_replaced(facts, fresh.pop(facts["name"], None)) for facts in shipped_types()]
    return assembled(
        [*known, *sorted(fresh.values(), key=_by_family)],
        _lists(refreshed),
        as_of=refreshed.as_of.isoformat(),
        source=refreshed.source,
        region=refreshed.region,
    )


def not_listed(refreshed: Refreshed) -> tuple[str, ...]:
    """Shipped types that AWS does not list in this region."""
    listed = {facts.name for facts in refreshed.types}
    return tuple(facts["name"] for facts in shipped_types() if facts["name"] not in listed)


def _replaced(shipped: Mapping[str, Any], fresh: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if fresh is None:
        return shipped
    return {**fresh, "ultraserver": shipped.get("ultraserver", "")}


def _by_family(facts: Mapping[str, Any]) -> tuple[str, int, str]:
    return split_name(facts["name"])[0], facts["vcpus"], facts["name"]


def _lists(refreshed: Refreshed) -> tuple[PriceList, ...]:
    """The on-demand list is replaced as a whole: a type that is not in the region's list is not sold there on
    demand."""
    prices = refreshed.on_demand
    if prices is None:
        return shipped_prices()
    others = (prices for prices in shipped_prices() if prices.kind != _ON_DEMAND)
    return (
        *others,
        PriceList(_ON_DEMAND, prices.as_of.isoformat(), refreshed.region, prices.source, prices.usd_h),
    )
