"""CapacityPlan: windows of demand that EC2 could sell blocks for, into a pool that would use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from tidemill.model.ec2_facts import LONGEST_BLOCK, MAX_INSTANCES_ON_A_DATE, MAX_INSTANCES_PER_BLOCK
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import matching_types
from tidemill.spec.document import Path
from tidemill.spec.located import Written
from tidemill.spec.model import Document
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario
from tidemill.spec.units import format_duration

Booking = tuple[datetime, datetime, int]


def plans_feed_a_block_pool(shelf: Shelf) -> Iterator[Problem]:
    """A block bought for a pool that cannot use it is money lost: nothing about it can be cancelled."""
    for plan in shelf.all(CapacityPlan):
        name = plan.model.spec.pool
        yield from shelf.missing(plan, ("pool",), "ComputePool", name)
        pool = shelf.pool(name)
        if pool is None:
            continue
        if not any(source.type == "block" for source in pool.spec.sources):
            message = (
                f"pool {quoted(name)} has no source of type 'block': what is bought for it would stand idle"
            )
            yield plan.error(("pool",), message, "idle-block")
        usable = {each.name for each in matching_types(shelf.catalog, pool.spec.requirements)}
        for index, window in enumerate(plan.model.spec.demand):
            if window.instance_type in shelf.catalog.types and window.instance_type not in usable:
                message = f"the requirements of pool {quoted(name)} exclude {window.instance_type}"
                yield plan.error(("demand", index, "instanceType"), message, "idle-block")


def windows_can_be_bought(shelf: Shelf) -> Iterator[Problem]:
    """The planner rounds lengths up to what EC2 sells, so only what is too long is wrong here."""
    for plan, index, window in shelf.windows():
        yield from shelf.unknown_type(plan, ("demand", index, "instanceType"), window.instance_type)
        yield from shelf.not_sold_as_block(plan, ("demand", index, "instanceType"), window.instance_type)
        length = window.end - window.start
        if length > LONGEST_BLOCK:
            message = (
                f"a window of {format_duration(length)} is longer than any block EC2 sells"
                f" ({format_duration(LONGEST_BLOCK)}); split it in two"
            )
            yield plan.error(("demand", index, "to"), message, "duration")
        if window.instances > MAX_INSTANCES_PER_BLOCK:
            message = (
                f"EC2 sells at most {MAX_INSTANCES_PER_BLOCK} instances a block, and this window asks for"
                f" {window.instances}; split it into several windows"
            )
            yield plan.error(("demand", index, "instances"), message, "block-size")


def window_names_are_unique(shelf: Shelf) -> Iterator[Problem]:
    """Across plans: approvals name a window and nothing else."""
    first: dict[str, str] = {}
    for plan, index, window in shelf.windows():
        line, column = plan.parsed.at(("spec", "demand", index, "name"))
        here = f"{plan.parsed.file}:{line}:{column}"
        if first.setdefault(window.name, here) != here:
            message = f"window {quoted(window.name)} is already defined at {first[window.name]}"
            yield plan.error(("demand", index, "name"), message, "duplicate-name")


def dates_are_not_overbooked(shelf: Shelf) -> Iterator[Problem]:
    """At most 256 instances at once. Demand and blocks that exist are counted apart, because a block may be
    what covers the demand; a sum would refuse calendars that are legal."""
    yield from _overbooked(
        [
            _Line(
                plan,
                ("demand", index, "instances"),
                window.name,
                (window.start, window.end, window.instances),
            )
            for plan, index, window in shelf.windows()
        ]
    )
    for scenario in shelf.all(Scenario):
        begin = scenario.model.spec.start
        yield from _overbooked(
            [
                _Line(
                    scenario,
                    ("reservations", index, "count"),
                    block.name,
                    (begin + block.start, begin + block.start + block.duration, block.count),
                )
                for index, block in enumerate(scenario.model.spec.reservations)
                if block.type == "block" and block.duration is not None
            ]
        )


class _Line(NamedTuple):
    document: Written[Document]
    path: Path
    name: str
    booking: Booking


def _overbooked(lines: Sequence[_Line]) -> Iterator[Problem]:
    """A problem for each line that does not fit beside those before it."""
    if most_at_once([line.booking for line in lines]) <= MAX_INSTANCES_ON_A_DATE:
        return
    fitting: list[Booking] = []
    for line in lines:
        peak = most_at_once([*fitting, line.booking])
        if peak <= MAX_INSTANCES_ON_A_DATE:
            fitting.append(line.booking)
            continue
        message = (
            f"with {quoted(line.name)} there would be {peak} instances in blocks on one date;"
            f" EC2 allows {MAX_INSTANCES_ON_A_DATE}"
        )
        yield line.document.error(line.path, message, "date-size")


def most_at_once(bookings: Sequence[Booking]) -> int:
    """The largest number that stand at one instant; one that ends as another begins does not overlap it."""
    changes = sorted(
        [(start, count) for start, _, count in bookings] + [(end, -count) for _, end, count in bookings]
    )
    peak = standing = 0
    for _, change in changes:  # at one instant the departures sort first
        standing += change
        peak = max(peak, standing)
    return peak
