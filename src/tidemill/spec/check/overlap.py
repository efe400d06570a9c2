"""TR-11: a service that was promised no downtime needs its next block early enough to boot and load there first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.model.ec2_facts import DAY, TERMINATES_BEFORE_END
from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.located import Written
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import OwnedReservation, Scenario, ScenarioSpec, Service, block_window
from tidemill.spec.units import format_duration

CODE = "TR-11"
# Boot, registration and the node check of a large GPU node, as the engine reckons before it has measured any.
BOOT = timedelta(minutes=7)

Span = tuple[int, datetime, datetime]  # its place in the scenario, start and end


def hand_overs_have_time(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        spec = scenario.model.spec
        for service in spec.services:
            if service.zero_downtime and not service.overflow:
                for pool in _pools_of(shelf, service):
                    yield from _late(scenario, spec, service, _blocks(spec, pool))


def _pools_of(shelf: Shelf, service: Service) -> Iterator[ComputePool]:
    for pool in shelf.all(ComputePool):
        if service.node_selector and service.node_selector.items() <= pool.model.spec.labels.items():
            yield pool.model


def _blocks(spec: ScenarioSpec, pool: ComputePool) -> list[Span]:
    return [
        (index, *block_window(spec.start, one.start, one.duration))
        for index, one in enumerate(spec.reservations)
        if one.type == "block" and one.duration is not None and _serves(one, pool)
    ]


def _serves(one: OwnedReservation, pool: ComputePool) -> bool:
    types = pool.spec.requirements.instance_types
    return one.pool == pool.name or (not one.pool and (not types or one.instance_type in types))


def _late(
    scenario: Written[Scenario], spec: ScenarioSpec, service: Service, blocks: list[Span]
) -> Iterator[Problem]:
    needed = BOOT + service.load + service.grace
    over = spec.start + min(spec.duration, service.until or spec.duration)
    for _, _, end in blocks:
        empty_by = end - TERMINATES_BEFORE_END
        if empty_by >= over:
            continue
        if any(start + needed <= empty_by and later > end for _, start, later in blocks):
            continue
        for index, start, later in blocks:
            if empty_by - needed < start <= end + DAY and later > end:
                there = max(timedelta(0), empty_by - start)
                message = (
                    f"service {quoted(service.name)} is promised no downtime, but this block is beside the one before"
                    f" it for {format_duration(there)}, and it needs {format_duration(needed)} to boot and load: start"
                    " it a day earlier, or extend the block before it by a day"
                )
                yield scenario.warning(("reservations", index, "from"), message, CODE)
