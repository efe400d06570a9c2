"""Calendars of CapacityPlans: demand that EC2 could sell blocks for, of one unit, for a pool that has no other plan."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.model.ec2_facts import MAX_INSTANCES_ON_A_DATE
from tidemill.spec.capacity_plan import CapacityPlan, DemandCalendar, LearnedDemand
from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import matching_types
from tidemill.spec.document import Path
from tidemill.spec.located import Written
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted


def calendars_can_be_bought(shelf: Shelf) -> Iterator[Problem]:
    for plan, calendar in _calendars(shelf):
        pool = shelf.pool(plan.model.spec.pool)
        usable = (
            {each.name for each in matching_types(shelf.catalog, pool.spec.requirements)} if pool else set()
        )
        for index, name in enumerate(calendar.instance_types):
            path = ("calendar", "instanceTypes", index)
            yield from shelf.unknown_type(plan, path, name)
            yield from shelf.not_sold_as_block(plan, path, name)
            if pool is not None and name in shelf.catalog.types and name not in usable:
                message = f"the requirements of pool {quoted(pool.name)} exclude {name}"
                yield plan.error(path, message, "idle-block")
        yield from _amounts_make_sense(shelf, plan, calendar)


def _amounts_make_sense(
    shelf: Shelf, plan: Written[CapacityPlan], calendar: DemandCalendar
) -> Iterator[Problem]:
    kinds = [shelf.catalog.types[name] for name in calendar.instance_types if name in shelf.catalog.types]
    several_sizes = len({kind.gpus for kind in kinds}) > 1
    for index, entry in enumerate(calendar.entries):
        demand = entry.demand
        learned = isinstance(demand, LearnedDemand)
        key = "learned" if learned else next(k for k in ("constant", "weekly", "window") if getattr(entry, k))
        path: Path = ("calendar", "entries", index, key)
        instances = demand.most_instances if isinstance(demand, LearnedDemand) else demand.instances
        if instances is not None and several_sizes and not learned:
            message = "the instance types differ in size, so the demand must be in 'gpus'"
            yield plan.error((*path, "instances"), message, "unit")
        if instances is not None and instances > MAX_INSTANCES_ON_A_DATE:
            field = "mostInstances" if learned else "instances"
            message = f"EC2 allows {MAX_INSTANCES_ON_A_DATE} instances in blocks on one date, not {instances}"
            yield plan.error((*path, field), message, "date-size")
    unpriced = [kind.name for kind in kinds if kind.on_demand_usd_h is None and kind.block_usd_h is None]
    if calendar.penalty_usd_per_gpu_hour is None and unpriced:
        message = f"no price of {unpriced[0]} is known: say 'penaltyUsdPerGpuHour'"
        yield plan.error(("calendar",), message, "missing-key")


def pools_have_one_calendar(shelf: Shelf) -> Iterator[Problem]:
    """Two plans for one pool would each count the same blocks as their own."""
    first: dict[str, Written[CapacityPlan]] = {}
    for plan, _ in _calendars(shelf):
        pool = plan.model.spec.pool
        if first.setdefault(pool, plan) is not plan:
            message = (
                f"pool {quoted(pool)} has its calendar in plan {quoted(first[pool].name)}; add to that one"
            )
            yield plan.error(("pool",), message, "duplicate-name")
    for plan in shelf.all(CapacityPlan):
        pool = plan.model.spec.pool
        if plan.model.spec.calendar is None and pool in first:
            message = (
                f"pool {quoted(pool)} is planned by the calendar of {quoted(first[pool].name)};"
                " write these windows as entries of it"
            )
            yield plan.error(("demand",), message, "duplicate-name")


def hours_on_demand_have_a_source(shelf: Shelf) -> Iterator[Problem]:
    for plan, calendar in _calendars(shelf):
        pool = shelf.pool(plan.model.spec.pool)
        if pool is None or calendar.on_demand == "never":
            continue
        if not any(source.type == "on-demand" for source in pool.spec.sources):
            message = (
                f"pool {quoted(pool.name)} has no source of type 'on-demand', so hours on demand could not be"
                " used; add one with its caps, or write 'never'"
            )
            yield plan.error(("calendar", "onDemand"), message, "reference")


def calendars_are_where_subnets_are(shelf: Shelf) -> Iterator[Problem]:
    for platform in shelf.all(Platform):
        served = {zone for zone, subnets in platform.model.spec.subnets.items() if subnets}
        for plan, calendar in _calendars(shelf) if served else ():
            for index, zone in enumerate(calendar.zones):
                if zone not in served:
                    message = (
                        f"the platform has no subnets in {quoted(zone)}: a block bought there could not be used;"
                        f" it has them in {', '.join(sorted(served))}"
                    )
                    yield plan.error(("calendar", "zones", index), message, "zone")


def _calendars(shelf: Shelf) -> Iterator[tuple[Written[CapacityPlan], DemandCalendar]]:
    for plan in shelf.all(CapacityPlan):
        if plan.model.spec.calendar is not None:
            yield plan, plan.model.spec.calendar
