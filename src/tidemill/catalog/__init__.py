"""Instance types and prices: dated data files, never code. `load()` reads the shipped files; `refreshed` reads what was
queried from AWS since.

Prices changed by 20-32 % in six months, so every price has the date of its data. An unknown price is None, never a
guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tidemill.catalog.sizing import allocatable
from tidemill.model.capacity import PREPAID, SourceKind
from tidemill.model.resources import Amounts, Resources


@dataclass(frozen=True, slots=True)
class Accelerator:
    resource: str  # nvidia.com/gpu or aws.amazon.com/neuron
    model: str
    count: int
    memory_mib: int  # each


@dataclass(frozen=True, slots=True)
class InstanceType:
    name: str
    family: str  # "p5", "g6e"
    category: str  # "p", "g", "trn"; "c", "m", "r", "t" have no accelerators
    generation: int
    size: str
    arch: str
    hypervisor: str
    vcpus: int
    memory_mib: int
    accelerator: Accelerator | None
    efa: int  # EFA interfaces
    nvme_gb: int
    block: bool  # sold as Capacity Blocks, by the instance
    ultraserver: str  # "", or the UltraServer family it is sold in
    block_usd_h: float | None
    on_demand_usd_h: float | None
    spot_usd_h: float | None
    allocatable: Amounts  # what pods may use, accelerators and EFA included

    def __hash__(self) -> int:
        """In one catalog a name is one type: it is looked up far too often to hash every figure of it."""
        return hash(self.name)

    @property
    def gpus(self) -> int:
        return self.accelerator.count if self.accelerator else 0

    def usd_h(self, source: SourceKind) -> float:
        """What an hour costs now. Prepaid capacity costs nothing more. 0 where no price is known."""
        if source in PREPAID or self.on_demand_usd_h is None:
            return 0.0
        if source is SourceKind.SPOT and self.spot_usd_h is not None:
            return self.spot_usd_h
        return self.on_demand_usd_h

    def free_beside(self, daemons: Mapping[str, int]) -> Resources:
        """What a new node of this type has for pods, beside its daemons."""
        return Resources(self.allocatable).minus(daemons)


@dataclass(frozen=True, slots=True)
class PriceList:
    """USD per instance-hour by type name, from one source at one date."""

    kind: str  # "block", "on-demand"
    as_of: str
    region: str
    source: str
    usd_h: Mapping[str, float]


@dataclass(
    frozen=True, eq=False
)  # compared and hashed by identity: it is loaded once and used as a cache key
class Catalog:
    types: Mapping[str, InstanceType]
    prices_as_of: str  # of the oldest price list
    price_lists: tuple[PriceList, ...] = ()
    types_as_of: str = ""
    types_source: str = ""
    region: str = ""  # of a refreshed catalog; empty: the shipped one, which is the same everywhere

    def usd_h(self, instance_type: str, source: SourceKind) -> float:
        """What an hour of a type costs now; 0 where the type is not known."""
        known = self.types.get(instance_type)
        return known.usd_h(source) if known is not None else 0.0


@dataclass(frozen=True, slots=True)
class BlockRegion:
    """A region where AWS's documentation says that Capacity Blocks are sold. `opt_in`: an account must enable it."""

    name: str
    opt_in: bool = False


@cache
def block_regions() -> tuple[BlockRegion, ...]:
    """AWS adds regions: one that is missing here can still be named, and EC2's answer counts."""
    return tuple(BlockRegion(**entry) for entry in _read("block_regions.json")["regions"])


@cache
def load() -> Catalog:
    """The catalog that ships with this version: types with accelerators, then those without. Both are in the order of
    the data: family, then size."""
    facts = _read("instance_types.json")
    return assembled(shipped_types(), shipped_prices(), as_of=facts["as_of"], source=facts["source"])


def shipped_types() -> list[dict[str, Any]]:
    """The shipped facts, which `refreshed` changes."""
    types: list[dict[str, Any]] = _read("instance_types.json")["types"]
    plain = _read("cpu_instance_types.json")
    return types + [
        {"hypervisor": "nitro", "accelerator": None, **dict(zip(plain["columns"], row, strict=True))}
        for row in plain["types"]
    ]


def shipped_prices() -> tuple[PriceList, ...]:
    return tuple(PriceList(**entry) for entry in _read("prices.json")["lists"])


def assembled(
    types: Iterable[Mapping[str, Any]], lists: tuple[PriceList, ...], *, as_of: str, source: str, region: str = ""
) -> Catalog:  # fmt: skip
    """A catalog from facts and price lists."""
    prices: dict[str, dict[str, float]] = {"block": {}, "on-demand": {}}
    for price_list in lists:
        prices[price_list.kind].update(price_list.usd_h)
    made = (_instance_type(facts, prices) for facts in types)
    oldest = min(price_list.as_of for price_list in lists)
    return Catalog({t.name: t for t in made}, oldest, lists, as_of, source, region)


def split_name(name: str) -> tuple[str, str, int, str]:
    """Family, category, generation and size: `p6e-gb200.36xlarge` is p6e-gb200, p, 6, 36xlarge."""
    parsed = re.fullmatch(r"(([a-z]+)(\d+)[a-z0-9-]*)\.([a-z0-9-]+)", name)
    if parsed is None:
        raise ValueError(f"{name!r} does not read as an EC2 instance type")
    family, category, generation, size = parsed.groups()
    return family, category, int(generation), size


def _read(file: str) -> Any:
    return json.loads(resources.files(__name__).joinpath(file).read_bytes())


def _instance_type(facts: Mapping[str, Any], prices: Mapping[str, Mapping[str, float]]) -> InstanceType:
    name = facts["name"]
    family, category, generation, size = split_name(name)
    accelerator = Accelerator(**facts["accelerator"]) if facts.get("accelerator") else None
    return InstanceType(
        name=name,
        family=family,
        category=category,
        generation=generation,
        size=size,
        arch=facts["arch"],
        hypervisor=facts["hypervisor"],
        vcpus=facts["vcpus"],
        memory_mib=facts["memory_mib"],
        accelerator=accelerator,
        efa=facts["efa"],
        nvme_gb=facts["nvme_gb"],
        block=facts.get("block", False),
        ultraserver=facts.get("ultraserver", ""),
        block_usd_h=prices["block"].get(name),
        on_demand_usd_h=prices["on-demand"].get(name),
        spot_usd_h=None,  # changes by the minute and by zone: a list would be wrong
        allocatable=allocatable(
            vcpus=facts["vcpus"],
            memory_mib=facts["memory_mib"],
            arch=facts["arch"],
            max_pods=facts["max_pods"],
            devices={accelerator.resource: accelerator.count} if accelerator else {},
            efa=facts["efa"],
        ),
    )
