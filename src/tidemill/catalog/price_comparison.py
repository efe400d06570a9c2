"""Block fees per accelerator-hour compared with the on-demand price, and what accelerator-hours cost on demand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidemill.catalog import InstanceType

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class BlockPrice:
    hours: float
    usd_per_gpu_h: float
    on_demand_usd_per_gpu_h: float | None  # None: the catalog has no price

    @property
    def against_on_demand(self) -> float | None:
        """-0.31: 31 % below the list price on demand."""
        if not self.on_demand_usd_per_gpu_h:
            return None
        return self.usd_per_gpu_h / self.on_demand_usd_per_gpu_h - 1


def block_price(kind: InstanceType, count: int, length: timedelta, fee_usd: int) -> BlockPrice:
    """Per GPU or Neuron device. For a type without accelerators: per instance."""
    devices = kind.gpus or 1
    hours = length / _HOUR
    on_demand = None if kind.on_demand_usd_h is None else kind.on_demand_usd_h / devices
    return BlockPrice(hours, fee_usd / (count * devices * hours), on_demand)


def on_demand_usd(kind: InstanceType, gpu_hours: float) -> float | None:
    """The on-demand price of accelerator-hours: an instance's price divided by its accelerators. None: no price."""
    if kind.on_demand_usd_h is None or not kind.gpus:
        return None
    return kind.on_demand_usd_h * gpu_hours / kind.gpus
