"""Who is charged how much, as rows for the terminal and the page: every pool and team, and the dearest workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.render.figures import NOTHING, hours, usd
from tidemill.report.costs import Costs

TEAMS_SHOWN = 10
JOBS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CostRow:
    """`idle_h` is the pool's alone; a saving is against the price on demand of the hours that were used."""

    kind: str
    name: str
    used_h: str
    idle_h: str
    usd: str
    on_demand: str
    saving: str
    lost: bool = False  # it cost more than on demand would have


def cost_rows(told: Costs, *, jobs: int = JOBS_SHOWN) -> tuple[CostRow, ...]:
    return tuple(_rows(told, jobs))


def left_out(told: Costs, *, jobs: int = JOBS_SHOWN) -> int:
    """Teams and workloads that have no row."""
    return max(0, len(told.teams) - TEAMS_SHOWN) + max(0, len(told.jobs) - jobs)


def _rows(told: Costs, jobs: int) -> Iterator[CostRow]:
    for pool in told.pools:
        name, idle = pool.pool or "any pool", hours(pool.gpu_hours_idle)
        money = (pool.used_usd + pool.idle_usd, pool.on_demand_usd, pool.saving_usd)
        yield _row("pool", name, pool.gpu_hours_used, idle, *money)
    for team in told.teams[:TEAMS_SHOWN]:
        money = (team.usd, team.on_demand_usd, team.saving_usd)
        yield _row("team", team.team or "no team", team.gpu_hours, "", *money)
    for job in told.jobs[:jobs]:
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
