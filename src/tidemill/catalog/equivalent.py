"""What GPU-hours would have cost at the on-demand list price: the yardstick for capacity paid another way."""

from __future__ import annotations

from tidemill.catalog import InstanceType


def on_demand_usd(kind: InstanceType, gpu_hours: float) -> float | None:
    """By the accelerator-hour, an instance's price shared equally by its accelerators; None: no price is known."""
    if kind.on_demand_usd_h is None or not kind.gpus:
        return None
    return kind.on_demand_usd_h * gpu_hours / kind.gpus
