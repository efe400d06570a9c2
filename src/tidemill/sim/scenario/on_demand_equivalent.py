"""What the blocks of a rehearsal gave, at the price on demand: delivered, used, and the fees for the same hours.

Only hours that went by inside the rehearsal count; those ahead are neither delivered nor paid for here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.model.capacity import DELIVERED_STATES
from tidemill.sim.scenario.outcome import BlockRow, OnDemandEquivalent


def equivalent(blocks: Iterable[BlockRow], start: datetime, end: datetime) -> OnDemandEquivalent:
    """Blocks of a type nobody knows the price of are left out of every sum, and named."""
    paid = [block for block in blocks if block.state in DELIVERED_STATES]
    priced = [block for block in paid if block.delivered_on_demand_usd is not None]
    return OnDemandEquivalent(
        delivered_usd=round(sum(block.delivered_on_demand_usd or 0.0 for block in priced), 2),
        used_usd=round(sum(block.used_on_demand_usd or 0.0 for block in priced), 2),
        fees_usd=round(sum(_fee_of_hours_gone(block, start, end) for block in priced), 2),
        unpriced=tuple(sorted({block.type for block in paid if block.delivered_on_demand_usd is None})),
    )


def _fee_of_hours_gone(block: BlockRow, start: datetime, end: datetime) -> float:
    gone = max(timedelta(0), min(block.end, end) - max(block.start, start))
    return block.fee_usd * (gone / (block.end - block.start))
