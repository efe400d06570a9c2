"""CapacityPlan and its pool: what is bought for a plan must be usable by its pool. A block cannot be cancelled.

`spec.usable_blocks` decides; here its reasons become problems with a place in the documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from math import ceil

from tidemill.catalog import InstanceType
from tidemill.model.ec2_facts import least_sold
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.spec.capacity_plan import (
    DAY,
    DAYS,
    CapacityPlan,
    ConstantDemand,
    DemandCalendar,
    DemandWindow,
    LearnedDemand,
    WeeklyDemand,
    WindowDemand,
)
from tidemill.spec.check.document_set import DocumentSet, LocatedDocument
from tidemill.spec.compute_pool import Allowance, ComputePool
from tidemill.spec.located_yaml import Path
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.usable_blocks import usable_zones, why_unusable

IDLE = "idle-block"
_SOME_DAY = datetime(2001, 1, 1, tzinfo=UTC)  # before every window: weeks are all alike


def plans_feed_a_block_pool(documents: DocumentSet) -> Iterator[Problem]:
    """Every window and every type of a calendar, against the pool of its plan."""
    platform = next((one.model for one in documents.all(Platform)), None)
    for plan in documents.all(CapacityPlan):
        name = plan.model.spec.pool
        yield from documents.missing(plan, ("pool",), "ComputePool", name)
        pool = documents.pool(name)
        if pool is None:
            continue
        told: set[ReasonKind] = set()
        for problem, kind in _unusable(documents, platform, plan, pool):
            # What is wrong with the pool is wrong for every window: it is said once.
            if kind not in told or kind in (ReasonKind.TYPE_EXCLUDED, ReasonKind.OVER_POOL_LIMITS):
                yield problem
            told.add(kind)
        if platform is not None:
            yield from _zones_left_out(platform, plan, pool)


def _unusable(
    documents: DocumentSet, platform: Platform | None, plan: LocatedDocument[CapacityPlan], pool: ComputePool
) -> Iterator[tuple[Problem, ReasonKind]]:
    for path, name, count, zones in _purchases(documents, plan):
        why = why_unusable(documents.catalog, platform, pool, name, count, zones)
        if why is None or why.kind is ReasonKind.NO_SUBNET or name not in documents.catalog.types:
            continue  # said by the rules about zones and types
        yield plan.error(_place(path, why), _message(why), IDLE), why.kind


def _purchases(
    documents: DocumentSet, plan: LocatedDocument[CapacityPlan]
) -> Iterator[tuple[Path, str, int, tuple[str, ...]]]:
    """What could be bought for a plan: the path, the type, the least number in one block, the zones."""
    for index, window in enumerate(plan.model.spec.demand):
        kind = documents.catalog.types.get(window.instance_type)
        count = _sold(kind, window.instances) if kind is not None else window.instances
        yield ("demand", index), window.instance_type, count, window.zones
    calendar = plan.model.spec.calendar
    for index, name in enumerate(calendar.instance_types if calendar is not None else ()):
        assert calendar is not None
        kind = documents.catalog.types.get(name)
        yield ("calendar", index), name, _sold(kind, 1) if kind is not None else 1, calendar.zones


def _sold(kind: InstanceType, count: int) -> int:
    return least_sold(count, ultraserver=bool(kind.ultraserver))


def _place(path: Path, why: PurchaseReason) -> Path:
    calendar = path[0] == "calendar"
    match why.kind:
        case ReasonKind.TYPE_EXCLUDED:
            return ("calendar", "instanceTypes", path[1]) if calendar else (*path, "instanceType")
        case ReasonKind.OVER_POOL_LIMITS:
            return ("calendar", "instanceTypes", path[1]) if calendar else (*path, "instances")
        case ReasonKind.ZONE_EXCLUDED if why.zones:
            return ("calendar", "zones") if calendar else (*path, "zones")
        case _:
            return ("pool",)


def _message(why: PurchaseReason) -> str:
    pool = quoted(why.name)
    match why.kind:
        case ReasonKind.NO_BLOCK_SOURCE:
            return f"pool {pool} has no source of type 'block': it could not use the blocks bought for it"
        case ReasonKind.TYPE_EXCLUDED:
            return f"the requirements of pool {pool} exclude {why.instance_type}"
        case ReasonKind.ZONE_EXCLUDED:
            where = f"a block in {', '.join(why.zones)}" if why.zones else "a block in any zone with subnets"
            there = f"; it may be in {', '.join(why.usable_zones)}" if why.usable_zones else ""
            return f"the zones of pool {pool} and its block sources leave out {where}: it could not be used{there}"
        case ReasonKind.TAGS_NOT_SELECTED:
            return (
                f"pool {pool} uses only blocks with the tags {why.expected}, and blocks are bought without them: they"
                " could not be used; add them to 'tags' of the Platform"
            )
        case _:
            return _over_limits(why)


def _over_limits(why: PurchaseReason) -> str:
    return (
        f"the limits of pool {quoted(why.name)} allow {why.most} x {why.instance_type}, not {why.count}: the others"
        " would be paid for and never run; raise 'limits', or ask for fewer"
    )


def _zones_left_out(
    platform: Platform, plan: LocatedDocument[CapacityPlan], pool: ComputePool
) -> Iterator[Problem]:
    """Some of the zones a plan names are not the pool's: nothing is bought there."""
    spec = plan.model.spec
    asked: list[tuple[Path, tuple[str, ...]]] = [
        (("demand", index, "zones"), window.zones) for index, window in enumerate(spec.demand)
    ]
    if spec.calendar is not None:
        asked.append((("calendar", "zones"), spec.calendar.zones))
    served = {zone for zone, subnets in platform.spec.subnets.items() if subnets}
    for path, zones in asked:
        usable = usable_zones(platform, pool, zones) or zones
        for position, zone in enumerate(zones):
            if zone in served and zone not in usable:
                message = f"pool {quoted(pool.name)} cannot use a block in {zone}: nothing is bought there"
                yield plan.warning((*path, position), message, "zone")


# --- the limits, all demand of a pool together --------------------------------------------------------


def demand_fits_the_limits(documents: DocumentSet) -> Iterator[Problem]:
    """The windows of a pool add up, whichever plan they are in, and so do the entries of a calendar."""
    first: dict[str, list[DemandWindow]] = {}
    for plan, index, window in documents.windows():
        pool = documents.pool(plan.model.spec.pool)
        others = first.setdefault(plan.model.spec.pool, [])
        if pool is not None and not _fits(documents, pool, [window]):
            continue  # said of the window alone
        if pool is not None and (crowded := _crowded_with(documents, pool, others, window)):
            names = ", ".join(quoted(other.name) for other in crowded)
            message = (
                f"with {names} at the same time, this is more than the limits of pool {quoted(pool.name)} allow: the"
                " windows of a pool add up; raise 'limits', or ask for fewer"
            )
            yield plan.error(("demand", index, "instances"), message, IDLE)
            continue
        others.append(window)
    for plan in documents.all(CapacityPlan):
        pool = documents.pool(plan.model.spec.pool)
        if plan.model.spec.calendar is not None and pool is not None:
            yield from _calendar_fits(documents, plan, plan.model.spec.calendar, pool)


def _crowded_with(
    documents: DocumentSet, pool: ComputePool, others: list[DemandWindow], window: DemandWindow
) -> list[DemandWindow]:
    """The windows that leave too little room for this one at some instant; empty: it has room."""
    overlapping = [other for other in others if other.start < window.end and window.start < other.end]
    for at in (window.start, *(other.start for other in overlapping if other.start > window.start)):
        there = [other for other in overlapping if other.start <= at < other.end]
        if there and not _fits(documents, pool, [*there, window]):
            return there
    return []


def _fits(documents: DocumentSet, pool: ComputePool, windows: list[DemandWindow]) -> bool:
    allowance = Allowance.of(pool.spec.limits)
    for window in windows:
        kind = documents.catalog.types.get(window.instance_type)
        if kind is None:
            continue
        count = _sold(kind, window.instances)
        if not allowance.allows(kind, count):
            return False
        allowance.take(kind, count)
    return True


def _calendar_fits(
    documents: DocumentSet,
    plan: LocatedDocument[CapacityPlan],
    calendar: DemandCalendar,
    pool: ComputePool,
) -> Iterator[Problem]:
    """Where no type could cover the highest demand within the limits. Learned demand only counts alone."""
    kinds = [
        documents.catalog.types[name] for name in calendar.instance_types if name in documents.catalog.types
    ]
    if not kinds:
        return
    each = max(1, kinds[0].gpus)
    learned = [entry.learned.most_instances * each for entry in calendar.entries if entry.learned is not None]
    gpus = max([_peak_gpus(calendar, each), *learned])
    allowance = Allowance.of(pool.spec.limits)
    needed = {kind.name: _sold(kind, ceil(gpus / max(1, kind.gpus))) for kind in kinds}
    if gpus and not any(allowance.allows(kind, needed[kind.name]) for kind in kinds):
        kind = max(kinds, key=lambda one: allowance.most(one) / needed[one.name])
        if allowance.most(kind) < _sold(kind, 1):
            return  # said of the type alone
        message = (
            f"the entries add up to {needed[kind.name]} x {kind.name} at a time, and the limits of pool"
            f" {quoted(pool.name)} allow {int(allowance.most(kind))}: the others would be paid for and never run;"
            " raise 'limits', or ask for fewer"
        )
        yield plan.error(("calendar", "entries"), message, IDLE)


def _peak_gpus(calendar: DemandCalendar, each: int) -> int:
    """The most at one instant. Demand rises only where an entry begins: at its own start, and on the days of a week
    that follow any start. What is learned is not known here."""
    asked = [
        (
            entry.demand,
            entry.demand.gpus if entry.demand.gpus is not None else (entry.demand.instances or 0) * each,
        )
        for entry in calendar.entries
        if not isinstance(entry.demand, LearnedDemand)
    ]
    bases = [demand.start for demand, _ in asked if not isinstance(demand, WeeklyDemand) and demand.start]
    hours = {demand.start for demand, _ in asked if isinstance(demand, WeeklyDemand)}
    instants = [
        instant
        for base in (_SOME_DAY, *bases)
        for instant in (base, *(_midnight(base) + day * DAY + hour for day in range(8) for hour in hours))
        if instant >= base
    ]
    return max(sum(gpus for demand, gpus in asked if _is_on(demand, at)) for at in instants)


def _is_on(demand: ConstantDemand | WindowDemand | WeeklyDemand, at: datetime) -> bool:
    if not isinstance(demand, WeeklyDemand):
        return (demand.start is None or demand.start <= at) and (demand.end is None or at < demand.end)
    hour, today, yesterday = at - _midnight(at), DAYS[at.weekday()], DAYS[at.weekday() - 1]
    if demand.end > demand.start:
        return today in demand.days and demand.start <= hour < demand.end
    return (today in demand.days and demand.start <= hour) or (yesterday in demand.days and hour < demand.end)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


# --- the same window twice ------------------------------------------------------------------------------


def windows_are_not_written_twice(documents: DocumentSet) -> Iterator[Problem]:
    """The same window in two plans is most likely a copy, and both would be bought. Inside one plan windows add up, so
    what is meant is written there. Less than a day apart they may still be one: blocks begin and end once a day."""
    seen: dict[tuple[str, str], list[tuple[str, DemandWindow]]] = {}
    for plan, index, window in documents.windows():
        others = seen.setdefault((plan.model.spec.pool, window.instance_type), [])
        for name, other in others:
            apart = max(abs(window.start - other.start), abs(window.end - other.end))
            if name == plan.name or apart >= DAY:
                continue
            head = f"plan {quoted(name)} asks for the same type at"
            tail = f"for this pool, as window {quoted(other.name)}"
            if apart:
                message = f"{head} nearly the same time {tail}: both are bought; if one is a copy, remove it"
                yield plan.warning(("demand", index), message, "duplicate-window")
            else:
                message = (
                    f"{head} the same time {tail}: both would be bought; remove one, or write it in that plan to"
                    " have both"
                )
                yield plan.error(("demand", index), message, "duplicate-window")
            break
        others.append((plan.name, window))
