"""What was paid, and what the same work would have cost on demand: the one place where savings are computed.

Every view shows these figures. The work is the hours that pods used; the price on demand is that of exactly those
hours, as if no on-demand instance were ever idle. So a saving is never overstated.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.report.costs import Costs


@dataclass(frozen=True, slots=True)
class Savings:
    """`break_even` and `reached` are shares of the hours paid for, weighted by their on-demand price: where the second
    is larger, money was saved. Pools with capacity of unknown price are in no comparison."""

    paid_usd: float = 0.0  # for hours that are over, used or idle
    idle_usd: float = 0.0  # of that
    ahead_usd: float = 0.0  # paid for hours outside: before, or still to come
    compared_usd: float = 0.0  # of `paid_usd`: what the figures below are about
    on_demand_usd: float | None = None  # the used hours, on demand; None: nothing to compare
    saved_usd: float | None = None  # negative: it cost more
    break_even: float | None = None  # the share that must be used for on demand to cost as much
    reached: float | None = None  # the share that was used
    unpriced: tuple[str, ...] = ()  # pools left out of the comparison


NOTHING_PAID = Savings()


def savings(costs: Costs) -> Savings:
    known = [pool for pool in costs.pools if pool.capacity_on_demand_usd is not None]
    compared = sum(pool.used_usd + pool.idle_usd for pool in known)
    capacity = sum(pool.capacity_on_demand_usd or 0.0 for pool in known)
    on_demand = sum(pool.on_demand_usd or 0.0 for pool in known)
    has_hours = capacity > 0
    return Savings(
        paid_usd=round(costs.used_usd + costs.idle_usd, 2),
        idle_usd=round(costs.idle_usd, 2),
        ahead_usd=round(costs.total_usd - costs.used_usd - costs.idle_usd, 2),
        compared_usd=round(compared, 2),
        on_demand_usd=round(on_demand, 2) if has_hours else None,
        saved_usd=round(sum(pool.saving_usd or 0.0 for pool in known), 2) if has_hours else None,
        break_even=round(compared / capacity, 4) if has_hours else None,
        reached=round(on_demand / capacity, 4) if has_hours else None,
        unpriced=tuple(
            sorted(
                pool.pool or "any pool"
                for pool in costs.pools
                if pool.capacity_on_demand_usd is None and pool.used_usd + pool.idle_usd > 0
            )
        ),
    )
