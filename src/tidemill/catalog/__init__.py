"""Instance types and prices: dated data files, never code. `load()` reads what ships with the package.

Prices moved 20-32 % in six months: every answer about money carries the date of the data behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.world import Amounts


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
    category: str  # "p", "g", "trn"
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

    @property
    def gpus(self) -> int:
        return self.accelerator.count if self.accelerator else 0


@dataclass(frozen=True)
class Catalog:
    types: Mapping[str, InstanceType]
    prices_as_of: str
