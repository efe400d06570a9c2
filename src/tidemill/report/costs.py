"""What capacity cost, by pool, team and workload: used, idle and still to come. It adds up to the last cent.

A fee is spread evenly over the hours it pays for; who uses a GPU for an hour is charged that GPU's share of the hour.
Hours nobody uses are charged to the pool that owns the capacity. Pure arithmetic on spans: whose they are, and what an
hour costs, is the caller's to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Use:
    """A pod's time on some capacity, and the share of it that was its own."""

    pool: str
    team: str
    workload: str
    gpus: int
    share: float  # of the whole capacity: GPUs of GPUs, or vCPUs of vCPUs where there are none
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Paid:
    """Capacity that was paid for from an instant to another: a block, a reservation, an instance."""

    pool: str  # which owns it, and pays for what nobody uses
    gpus: int
    usd_per_hour: float
    since: datetime
    until: datetime
    on_demand_usd_per_hour: float | None = None  # of all of it; None: unknown
    outside_usd: float = 0.0  # paid for hours before or after the span that is looked at
    uses: tuple[Use, ...] = ()

    @property
    def hours(self) -> float:
        return max(0.0, (self.until - self.since) / _HOUR)


@dataclass(frozen=True, slots=True)
class PoolCost:
    """`on_demand_usd` is what the used hours would have cost on demand; the saving is that less what all hours cost."""

    pool: str
    gpu_hours_used: float
    gpu_hours_idle: float
    used_usd: float
    idle_usd: float
    outside_usd: float  # paid for hours before or after
    on_demand_usd: float | None
    saving_usd: float | None
    capacity_on_demand_usd: float | None = None  # all its hours, used or idle, on demand


@dataclass(frozen=True, slots=True)
class TeamCost:
    team: str
    gpu_hours: float
    usd: float
    on_demand_usd: float | None
    saving_usd: float | None


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    workload: str  # "Job/train-7"
    team: str
    gpu_hours: float
    usd: float
    on_demand_usd: float | None
    saving_usd: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Dearest first. Used and idle of all pools and what lies outside are all the money there was; teams and jobs
    share the used part."""

    pools: tuple[PoolCost, ...] = ()
    teams: tuple[TeamCost, ...] = ()
    jobs: tuple[WorkloadCost, ...] = ()

    @property
    def used_usd(self) -> float:
        return sum(pool.used_usd for pool in self.pools)

    @property
    def idle_usd(self) -> float:
        return sum(pool.idle_usd for pool in self.pools)

    @property
    def total_usd(self) -> float:
        return self.used_usd + self.idle_usd + sum(pool.outside_usd for pool in self.pools)


NO_COSTS = Costs()


@dataclass(slots=True)
class _Sum:
    gpu_hours: float = 0.0
    usd: float = 0.0
    on_demand_usd: float = 0.0
    unpriced: bool = False

    def add(self, gpu_hours: float, usd: float, on_demand_usd: float | None) -> None:
        self.gpu_hours += gpu_hours
        self.usd += usd
        self.on_demand_usd += on_demand_usd or 0.0
        self.unpriced |= on_demand_usd is None and bool(gpu_hours or usd)

    def equivalent_usd(self) -> float | None:
        """None if any part has no known price: half a comparison misleads."""
        return None if self.unpriced else self.on_demand_usd

    def saving_usd(self, more_usd: float = 0.0) -> float | None:
        return None if self.unpriced else self.on_demand_usd - self.usd - more_usd


@dataclass(slots=True)
class CostAccounts:
    """Running sums. Every use has a pool, a team and a workload; the rest of the money is charged to the owner."""

    used: dict[str, _Sum] = field(default_factory=dict)
    idle: dict[str, _Sum] = field(default_factory=dict)
    outside_usd: dict[str, float] = field(default_factory=dict)
    teams: dict[str, _Sum] = field(default_factory=dict)
    jobs: dict[tuple[str, str], _Sum] = field(default_factory=dict)

    def use(
        self, pool: str, team: str, workload: str, gpu_hours: float, usd: float, on_demand_usd: float | None
    ) -> None:
        self.used.setdefault(pool, _Sum()).add(gpu_hours, usd, on_demand_usd)
        self.teams.setdefault(team, _Sum()).add(gpu_hours, usd, on_demand_usd)
        if workload:
            self.jobs.setdefault((workload, team), _Sum()).add(gpu_hours, usd, on_demand_usd)

    def rest(
        self, pool: str, gpu_hours: float, usd: float, outside_usd: float, on_demand_usd: float | None
    ) -> None:
        self.idle.setdefault(pool, _Sum()).add(gpu_hours, usd, on_demand_usd)
        self.outside_usd[pool] = self.outside_usd.get(pool, 0.0) + outside_usd

    def enter(self, paid: Paid) -> None:
        used_usd = used_h = listed_usd = 0.0
        for use in paid.uses:
            hours = max(0.0, (min(use.until, paid.until) - max(use.since, paid.since)) / _HOUR)
            usd, rate = hours * use.share * paid.usd_per_hour, paid.on_demand_usd_per_hour
            on_demand_usd = None if rate is None else hours * use.share * rate
            self.use(use.pool, use.team, use.workload, hours * use.gpus, usd, on_demand_usd)
            used_usd += usd
            used_h += hours * use.gpus
            listed_usd += on_demand_usd or 0.0
        all_usd, all_h = paid.hours * paid.usd_per_hour, paid.hours * paid.gpus
        rate = paid.on_demand_usd_per_hour
        idle_listed = None if rate is None else paid.hours * rate - listed_usd
        self.rest(paid.pool, all_h - used_h, all_usd - used_usd, paid.outside_usd, idle_listed)

    def costs(self) -> Costs:
        pools = [_pool(self, name) for name in {**self.used, **self.idle}]
        teams = [
            TeamCost(team, one.gpu_hours, one.usd, one.equivalent_usd(), one.saving_usd())
            for team, one in self.teams.items()
        ]
        jobs = [
            WorkloadCost(workload, team, one.gpu_hours, one.usd, one.equivalent_usd(), one.saving_usd())
            for (workload, team), one in self.jobs.items()
        ]
        return Costs(
            tuple(sorted(pools, key=lambda one: (-one.used_usd - one.idle_usd, one.pool))),
            tuple(sorted(teams, key=lambda one: (-one.usd, one.team))),
            tuple(sorted(jobs, key=lambda one: (-one.usd, one.workload, one.team))),
        )


def costs(capacity: Iterable[Paid]) -> Costs:
    books = CostAccounts()
    for paid in capacity:
        books.enter(paid)
    return books.costs()


def _pool(books: CostAccounts, name: str) -> PoolCost:
    used, idle = books.used.get(name, _Sum()), books.idle.get(name, _Sum())
    unpriced = used.unpriced or idle.unpriced
    return PoolCost(
        pool=name,
        gpu_hours_used=used.gpu_hours,
        gpu_hours_idle=idle.gpu_hours,
        used_usd=used.usd,
        idle_usd=idle.usd,
        outside_usd=books.outside_usd.get(name, 0.0),
        on_demand_usd=used.equivalent_usd(),
        saving_usd=None if unpriced else used.saving_usd(idle.usd),
        capacity_on_demand_usd=None if unpriced else used.on_demand_usd + idle.on_demand_usd,
    )


def rounded(of: Costs) -> Costs:
    """For people and programs: hours to thousandths, money to cents. Sums are made before, not of these."""
    return Costs(
        tuple(_rounded(pool) for pool in of.pools),
        tuple(_rounded(team) for team in of.teams),
        tuple(_rounded(job) for job in of.jobs),
    )


R = TypeVar("R", PoolCost, TeamCost, WorkloadCost)


def _rounded(row: R) -> R:
    figures: dict[str, Any] = {
        one.name: round(value, 3 if one.name.startswith("gpu_hours") else 2)
        for one in fields(row)
        if isinstance(value := getattr(row, one.name), float)
    }
    return replace(row, **figures)
