"""Costs as rows for the terminal and the page: every pool and team, and the most expensive workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.render.figures import NOTHING, hours, usd
from tidemill.report.costs import Costs

TEAMS_SHOWN = 10
JOBS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CostRow:
    """Only pools have `idle_h`. A saving is compared with the on-demand price of the used hours."""

    kind: str
    name: str
    used_h: str
    idle_h: str
    usd: str
    on_demand: str
    saving: str
    lost: bool = False  # it cost more than on demand


def cost_rows(costs: Costs, *, jobs: int = JOBS_SHOWN) -> tuple[CostRow, ...]:
    return tuple(_rows(costs, jobs))


def left_out(costs: Costs, *, jobs: int = JOBS_SHOWN) -> int:
    """Teams and workloads that have no row."""
    return max(0, len(costs.teams) - TEAMS_SHOWN) + max(0, len(costs.jobs) - jobs)


def _rows(costs: Costs, jobs: int) -> Iterator[CostRow]:
    for pool in costs.pools:
        name, idle = pool.pool or "any pool", hours(pool.gpu_hours_idle)
        money = (pool.used_usd + pool.idle_usd, pool.on_demand_usd, pool.saving_usd)
        yield _row("pool", name, pool.gpu_hours_used, idle, *money)
    for team in costs.teams[:TEAMS_SHOWN]:
        money = (team.usd, team.on_demand_usd, team.saving_usd)
        yield _row("team", team.team or "no team", team.gpu_hours, "", *money)
    for job in costs.jobs[:jobs]:
        yield _row("workload", job.workload, job.gpu_hours, "", job.usd, job.on_demand_usd, job.saving_usd)


def _row(
    kind: str,
    name: str,
    used_h: float,
    idle_h: str,
    paid_usd: float,
    on_demand_usd: float | None,
    saving_usd: float | None,
) -> CostRow:
    return CostRow(
        kind,
        name,
        hours(used_h),
        idle_h,
        usd(paid_usd),
        NOTHING if on_demand_usd is None else usd(on_demand_usd),
        NOTHING if saving_usd is None else usd(saving_usd),
        saving_usd is not None and saving_usd < -0.005,
    )
