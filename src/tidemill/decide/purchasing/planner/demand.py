"""Planner inputs from the documents: the demand of each pool in GPUs, its penalty, prices and ceilings.

Knows the documents and the catalog; what is held and what is on sale are asked for elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache

from tidemill.catalog import Catalog
from tidemill.decide.deadlines import PROVISIONER_ACTS_BEFORE_END
from tidemill.decide.purchasing.planner.inputs import (
    WEEK,
    BoundedConstant,
    Calendar,
    CombinedCalendar,
    Constant,
    PoolDemand,
    Prices,
    Step,
    TypePrice,
    Weekly,
    WeekSpan,
    Windows,
)
from tidemill.model.ec2_facts import TERMINATES_BEFORE_END
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import (
    DAY,
    DAYS,
    CalendarEntry,
    CapacityPlan,
    ConstantDemand,
    DemandCalendar,
    LearnedDemand,
    WeeklyDemand,
    WindowDemand,
)
from tidemill.spec.compute_pool import Allowance, ComputePool, Provisioner
from tidemill.spec.usable_blocks import usable_zones, why_unusable

# For a type without an on-demand price, an uncovered hour counts as this many hours in a block.
_WORTH_WITHOUT_ON_DEMAND = 2.0


def plans_with_calendar(spec: Spec) -> tuple[CapacityPlan, ...]:
    """Plans with a calendar."""
    return tuple(plan for plan in spec.plans.values() if plan.spec.calendar is not None)


@lru_cache(maxsize=256)
def calendar_demand(spec: Spec, plan_name: str, learned_gpus: int) -> PoolDemand:
    plan = spec.plans[plan_name]
    calendar = plan.spec.calendar
    assert calendar is not None
    pool = spec.pools.get(plan.spec.pool)
    own = plan.spec.budget
    zones = usable_zones(spec.platform, pool, calendar.zones) if pool is not None else None
    return PoolDemand(
        plan.spec.pool,
        CombinedCalendar(
            tuple(_expanded(entry, gpus_each(spec, calendar), learned_gpus) for entry in calendar.entries)
        ),
        calendar.instance_types,
        penalty_usd_gpu_h(spec.catalog, calendar),
        zones=zones or calendar.zones or tuple(sorted(spec.platform.spec.subnets)),
        one_zone=calendar.one_zone,
        warm_up=calendar.warm_up,
        wind_down=wind_down(pool),
        buy_ahead=calendar.buy_ahead,
        per_purchase_usd=own.per_purchase_usd or None if own else None,
        monthly_usd=own.monthly_usd or None if own else None,
        usable_counts=_usable_counts(spec, pool, calendar.instance_types, zones),
    )


def _usable_counts(
    spec: Spec, pool: ComputePool | None, types: tuple[str, ...], zones: tuple[str, ...] | None
) -> tuple[tuple[str, float], ...]:
    """None of a type that the pool could not use at all, else as many as its limits allow."""
    if pool is None or zones is None:
        return ()
    usable = [
        name for name in types if why_unusable(spec.catalog, spec.platform, pool, name, 1, zones) is None
    ]
    allowance = Allowance.of(pool.spec.limits)
    return tuple((name, allowance.most(spec.catalog.types[name])) for name in usable)


def window_demand(spec: Spec, plan: CapacityPlan) -> PoolDemand:
    """The windows of a plan as a calendar, so that the planner can be compared with them."""
    windows = plan.spec.demand
    kinds = [spec.catalog.types[window.instance_type] for window in windows]
    steps = tuple(
        Step(window.start, window.end, window.instances * kind.gpus)
        for window, kind in zip(windows, kinds, strict=True)
    )
    types = tuple(dict.fromkeys(window.instance_type for window in windows))
    worth = max(worth_usd_gpu_h(spec.catalog, name) for name in types)
    pool = spec.pools.get(plan.spec.pool)
    usable = usable_zones(spec.platform, pool) if pool is not None else None
    return PoolDemand(
        plan.spec.pool,
        Windows(steps),
        types,
        worth,
        zones=usable or tuple(sorted(spec.platform.spec.subnets)),
        wind_down=wind_down(pool),
        usable_counts=_usable_counts(spec, pool, types, usable),
    )


def wind_down(pool: ComputePool | None) -> timedelta:
    acts = PROVISIONER_ACTS_BEFORE_END[pool.spec.provisioner if pool else Provisioner.NATIVE]
    return max(TERMINATES_BEFORE_END, acts)


def gpus_each(spec: Spec, calendar: DemandCalendar) -> int:
    """GPUs of an instance of the first type. Demand in instances is about types of one size."""
    return max(1, spec.catalog.types[calendar.instance_types[0]].gpus)


def learned_of(calendar: DemandCalendar) -> tuple[LearnedDemand, ...]:
    return tuple(entry.learned for entry in calendar.entries if entry.learned is not None)


def most_learned_gpus(spec: Spec, calendar: DemandCalendar) -> int:
    return sum(entry.most_instances for entry in learned_of(calendar)) * gpus_each(spec, calendar)


def penalty_usd_gpu_h(catalog: Catalog, calendar: DemandCalendar) -> float:
    if calendar.penalty_usd_per_gpu_hour is not None:
        return calendar.penalty_usd_per_gpu_hour
    return max(worth_usd_gpu_h(catalog, name) for name in calendar.instance_types)


def worth_usd_gpu_h(catalog: Catalog, name: str) -> float:
    kind = catalog.types[name]
    usd_h = kind.on_demand_usd_h
    if usd_h is None:
        usd_h = _WORTH_WITHOUT_ON_DEMAND * (kind.block_usd_h or 0.0)
    return usd_h / max(1, kind.gpus)


def prices(spec: Spec, demand: Mapping[str, PoolDemand]) -> Prices:
    """For the types of these plans; an on-demand price only where every plan that uses the type allows it."""
    users: dict[str, list[str]] = {}
    for plan, one in demand.items():
        for name in one.types:
            users.setdefault(name, []).append(plan)
    return {
        name: _price(spec, name, demand, all(_allows_on_demand(spec.plans[plan]) for plan in plans))
        for name, plans in users.items()
    }


def _allows_on_demand(plan: CapacityPlan) -> bool:
    return plan.spec.calendar is not None and plan.spec.calendar.on_demand == "allowed"


def _price(spec: Spec, name: str, demand: Mapping[str, PoolDemand], allows: bool) -> TypePrice:
    kind = spec.catalog.types[name]
    usd_h = kind.on_demand_usd_h if allows else None
    return TypePrice(max(1, kind.gpus), usd_h, _most_at_once(spec, name, demand, usd_h))


def _most_at_once(spec: Spec, name: str, demand: Mapping[str, PoolDemand], usd_h: float | None) -> int | None:
    """As many as the hourly caps of the pools' on-demand sources pay for."""
    caps = [
        source.max_hourly_usd
        for one in demand.values()
        if name in one.types and one.pool in spec.pools
        for source in spec.pools[one.pool].spec.sources
        if source.type == "on-demand"
    ]
    if not usd_h or not caps or None in caps:
        return None
    return int(sum(cap for cap in caps if cap is not None) // usd_h)


# --- entries ------------------------------------------------------------------------------------------


def _expanded(entry: CalendarEntry, each: int, learned_gpus: int) -> Calendar:
    match entry.demand:
        case ConstantDemand() as demand:
            if demand.start is None and demand.end is None:
                return Constant(_gpus(demand, each))
            return BoundedConstant(demand.start, demand.end, _gpus(demand, each))
        case WeeklyDemand() as demand:
            return Weekly(_spans(demand, _gpus(demand, each)))
        case WindowDemand() as demand:
            return Windows((Step(demand.start, demand.end, _gpus(demand, each)),))
        case LearnedDemand() as demand:
            return Constant(min(learned_gpus, demand.most_instances * each))


def _gpus(demand: ConstantDemand | WeeklyDemand | WindowDemand, each: int) -> int:
    return demand.gpus if demand.gpus is not None else (demand.instances or 0) * each


def _spans(demand: WeeklyDemand, gpus: int) -> tuple[WeekSpan, ...]:
    """Hours past midnight belong to the next day; past Sunday midnight, to the beginning of the week."""
    found: list[WeekSpan] = []
    for number, name in enumerate(DAYS):
        if name not in demand.days:
            continue
        start, end = number * DAY + demand.start, number * DAY + demand.end
        end += DAY if demand.end <= demand.start else timedelta(0)
        if start < WEEK:
            found.append(WeekSpan(start, min(end, WEEK), gpus))
        if end > WEEK:
            found.append(WeekSpan(max(start, WEEK) - WEEK, end - WEEK, gpus))
    return tuple(found)
