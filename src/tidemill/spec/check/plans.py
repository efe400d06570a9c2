"""CapacityPlan: EC2 sells blocks for its windows and its calendar, and services have time to move. Whether its pool can
use them is in `usable_plans`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from tidemill.model import ec2_facts
from tidemill.model.ec2_facts import DAY
from tidemill.spec.capacity_plan import CapacityPlan, DemandCalendar, DemandWindow, LearnedDemand
from tidemill.spec.check.document_set import DocumentSet, LocatedDocument
from tidemill.spec.default_durations import BOOT, LOAD
from tidemill.spec.document import Document
from tidemill.spec.located_yaml import Path
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario
from tidemill.spec.units import format_duration

Span = tuple[datetime, datetime, int]  # start, end, number of instances


def windows_can_be_bought(documents: DocumentSet) -> Iterator[Problem]:
    """The planner rounds lengths up to what EC2 sells, so only a window that is too long is an error."""
    for plan, index, window in documents.windows():
        yield from documents.unknown_type(plan, ("demand", index, "instanceType"), window.instance_type)
        yield from documents.not_sold_as_block(plan, ("demand", index, "instanceType"), window.instance_type)
        yield from documents.part_of_an_ultraserver(
            plan, ("demand", index, "instances"), window.instance_type, window.instances
        )
        length = window.end - window.start
        if length > ec2_facts.LONGEST_BLOCK:
            message = (
                f"a window of {format_duration(length)} is longer than any block EC2 sells"
                f" ({format_duration(ec2_facts.LONGEST_BLOCK)}); split it in two"
            )
            yield plan.error(("demand", index, "to"), message, "duration")
        if window.instances > ec2_facts.MAX_INSTANCES_PER_BLOCK:
            message = (
                f"EC2 sells at most {ec2_facts.MAX_INSTANCES_PER_BLOCK} instances in one block, and this window needs"
                f" {window.instances}; split it into several windows"
            )
            yield plan.error(("demand", index, "instances"), message, "block-size")


def window_names_are_unique(documents: DocumentSet) -> Iterator[Problem]:
    """Across plans: an approval names only a window."""
    first: dict[str, str] = {}
    for plan, index, window in documents.windows():
        line, column = plan.parsed.at(("spec", "demand", index, "name"))
        here = f"{plan.parsed.file}:{line}:{column}"
        if first.setdefault(window.name, here) != here:
            message = f"window {quoted(window.name)} is already defined at {first[window.name]}"
            yield plan.error(("demand", index, "name"), message, "duplicate-name")


def dates_are_not_overbooked(documents: DocumentSet) -> Iterator[Problem]:
    """At most 256 instances at once. Demand and existing blocks are counted separately: an existing block may cover the
    demand, so their sum would refuse legal plans."""
    yield from _overbooked(
        [
            _Booking(
                plan,
                ("demand", index, "instances"),
                window.name,
                (window.start, window.end, window.instances),
            )
            for plan, index, window in documents.windows()
        ]
    )
    for scenario in documents.all(Scenario):
        begin = scenario.model.spec.start
        yield from _overbooked(
            [
                _Booking(
                    scenario,
                    ("reservations", index, "count"),
                    block.name,
                    (begin + block.start, begin + block.start + block.duration, block.count),
                )
                for index, block in enumerate(scenario.model.spec.reservations)
                if block.type == "block" and block.duration is not None
            ]
        )


class _Booking(NamedTuple):
    document: LocatedDocument[Document]
    path: Path
    name: str
    span: Span


def _overbooked(bookings: Sequence[_Booking]) -> Iterator[Problem]:
    """A problem for each booking that exceeds the limit together with the bookings before it."""
    if most_at_once([booking.span for booking in bookings]) <= ec2_facts.MAX_INSTANCES_ON_A_DATE:
        return
    fitting: list[Span] = []
    for booking in bookings:
        peak = most_at_once([*fitting, booking.span])
        if peak <= ec2_facts.MAX_INSTANCES_ON_A_DATE:
            fitting.append(booking.span)
            continue
        message = (
            f"with {quoted(booking.name)} there would be {peak} instances in blocks on one date;"
            f" EC2 allows at most {ec2_facts.MAX_INSTANCES_ON_A_DATE}"
        )
        yield booking.document.error(booking.path, message, "date-size")


def most_at_once(spans: Sequence[Span]) -> int:
    """The largest number of instances at one instant; a booking that ends when another begins does not overlap it."""
    changes = sorted(
        [(start, count) for start, _, count in spans] + [(end, -count) for _, end, count in spans]
    )
    peak = standing = 0
    for _, change in changes:  # at the same instant the ends sort before the starts
        standing += change
        peak = max(peak, standing)
    return peak


def calendars_can_be_bought(documents: DocumentSet) -> Iterator[Problem]:
    for plan, calendar in _calendars(documents):
        for index, name in enumerate(calendar.instance_types):
            path = ("calendar", "instanceTypes", index)
            yield from documents.unknown_type(plan, path, name)
            yield from documents.not_sold_as_block(plan, path, name)
        yield from _amounts_make_sense(documents, plan, calendar)


def _amounts_make_sense(
    documents: DocumentSet, plan: LocatedDocument[CapacityPlan], calendar: DemandCalendar
) -> Iterator[Problem]:
    kinds = [
        documents.catalog.types[name] for name in calendar.instance_types if name in documents.catalog.types
    ]
    several_sizes = len({kind.gpus for kind in kinds}) > 1
    for index, entry in enumerate(calendar.entries):
        demand = entry.demand
        learned = isinstance(demand, LearnedDemand)
        key = "learned" if learned else next(k for k in ("constant", "weekly", "window") if getattr(entry, k))
        path: Path = ("calendar", "entries", index, key)
        instances = demand.most_instances if isinstance(demand, LearnedDemand) else demand.instances
        if instances is not None and several_sizes and not learned:
            message = "the instance types have different numbers of GPUs; write the demand in 'gpus'"
            yield plan.error((*path, "instances"), message, "unit")
        if instances is not None and instances > ec2_facts.MAX_INSTANCES_ON_A_DATE:
            field = "mostInstances" if learned else "instances"
            most = ec2_facts.MAX_INSTANCES_ON_A_DATE
            message = f"EC2 allows at most {most} instances in blocks on one date, not {instances}"
            yield plan.error((*path, field), message, "date-size")
    unpriced = [kind.name for kind in kinds if kind.on_demand_usd_h is None and kind.block_usd_h is None]
    if calendar.penalty_usd_per_gpu_hour is None and unpriced:
        message = f"the catalog has no price for {unpriced[0]}; set 'penaltyUsdPerGpuHour'"
        yield plan.error(("calendar",), message, "missing-key")


def pools_have_one_calendar(documents: DocumentSet) -> Iterator[Problem]:
    """Two plans for one pool would each count the same blocks as their own."""
    first: dict[str, LocatedDocument[CapacityPlan]] = {}
    for plan, _ in _calendars(documents):
        pool = plan.model.spec.pool
        if first.setdefault(pool, plan) is not plan:
            message = (
                f"pool {quoted(pool)} already has a calendar in plan {quoted(first[pool].name)};"
                " add entries to that one"
            )
            yield plan.error(("pool",), message, "duplicate-name")
    for plan in documents.all(CapacityPlan):
        pool = plan.model.spec.pool
        if plan.model.spec.calendar is None and pool in first:
            message = (
                f"pool {quoted(pool)} already has a calendar in plan {quoted(first[pool].name)};"
                " write these windows as entries of that calendar"
            )
            yield plan.error(("demand",), message, "duplicate-name")


def hours_on_demand_have_a_source(documents: DocumentSet) -> Iterator[Problem]:
    for plan, calendar in _calendars(documents):
        pool = documents.pool(plan.model.spec.pool)
        if pool is None or calendar.on_demand == "never":
            continue
        if not any(source.type == "on-demand" for source in pool.spec.sources):
            message = (
                f"pool {quoted(pool.name)} has no source of type 'on-demand', so it cannot launch on demand;"
                " add such a source with both caps, or write 'never'"
            )
            yield plan.error(("calendar", "onDemand"), message, "reference")


def calendars_are_where_subnets_are(documents: DocumentSet) -> Iterator[Problem]:
    for platform in documents.all(Platform):
        served = {zone for zone, subnets in platform.model.spec.subnets.items() if subnets}
        for plan, calendar in _calendars(documents) if served else ():
            for index, zone in enumerate(calendar.zones):
                if zone not in served:
                    message = (
                        f"the platform has no subnets in {quoted(zone)}: a block bought there could not be used;"
                        f" it has them in {', '.join(sorted(served))}"
                    )
                    yield plan.error(("calendar", "zones", index), message, "zone")


def _calendars(documents: DocumentSet) -> Iterator[tuple[LocatedDocument[CapacityPlan], DemandCalendar]]:
    for plan in documents.all(CapacityPlan):
        if plan.model.spec.calendar is not None:
            yield plan, plan.model.spec.calendar


def windows_leave_time_to_move(documents: DocumentSet) -> Iterator[Problem]:
    """TR-11: a window that follows another must leave services the time to move. Only for plans that never extend or
    that ask for an overlap: where a block is extended, nothing moves."""
    loads = [service.load for scenario in documents.all(Scenario) for service in scenario.model.spec.services]
    load = max(loads, default=LOAD)  # without services: what loading a model usually takes
    for plan in documents.all(CapacityPlan):
        spec = plan.model.spec
        if spec.extend.policy == "never" or spec.overlap:
            yield from _too_close(plan, BOOT + load)


def _too_close(plan: LocatedDocument[CapacityPlan], needed: timedelta) -> Iterator[Problem]:
    windows = sorted(enumerate(plan.model.spec.demand), key=lambda item: item[1].start)
    for (_, before), (index, after) in pairwise(windows):
        overlap = _overlap_of_blocks(before, after, plan.model.spec.overlap)
        if before.instance_type != after.instance_type or not -DAY < overlap < needed:
            continue
        message = (
            f"the blocks for windows {quoted(before.name)} and {quoted(after.name)} can both run pods for only"
            f" {format_duration(overlap)}, but booting a node and loading a model takes about"
            f" {format_duration(needed)}: services would lose replicas; set 'overlap' to"
            f" {format_duration(needed + ec2_facts.TERMINATES_BEFORE_END)} or more"
        )
        yield plan.warning(("demand", index, "from"), message, "TR-11")


def _overlap_of_blocks(before: DemandWindow, after: DemandWindow, asked: timedelta) -> timedelta:
    """How long the blocks of two windows run side by side. Blocks start and end at 11:30 UTC. Negative: a gap; a gap
    of a day or more is taken as wanted."""
    return (
        ec2_facts.grid_at_or_after(before.end)
        - ec2_facts.TERMINATES_BEFORE_END
        - ec2_facts.grid_at_or_before(after.start - asked)
    )
