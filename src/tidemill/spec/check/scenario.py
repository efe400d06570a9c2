"""Scenario: a rehearsal may only assume what EC2 could sell, and each of its lines must hit something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from tidemill.model.ec2_facts import (
    LONGEST_BLOCK,
    MAX_INSTANCES_PER_BLOCK,
    is_legal_duration,
    nearest_legal_durations,
)
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.check.market import Shelf
from tidemill.spec.document import Path
from tidemill.spec.located import Written
from tidemill.spec.model import Document
from tidemill.spec.problem import Problem, quoted, suggestion
from tidemill.spec.scenario import OwnedReservation, Scenario
from tidemill.spec.units import format_duration


def reservations_could_exist(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        first: dict[str, int] = {}
        ids: dict[str, int] = {}
        for index, reservation in enumerate(scenario.model.spec.reservations):
            path = ("reservations", index)
            if reservation.id is not None and ids.setdefault(reservation.id, index) != index:
                message = f"{reservation.id} is already the id of another reservation"
                yield scenario.error((*path, "id"), message, "duplicate-name")
            if first.setdefault(reservation.name, index) != index:
                message = f"a reservation {quoted(reservation.name)} is already listed"
                yield scenario.error((*path, "name"), message, "duplicate-name")
            yield from shelf.unknown_type(scenario, (*path, "instanceType"), reservation.instance_type)
            if reservation.pool:
                yield from shelf.missing(scenario, (*path, "pool"), "ComputePool", reservation.pool)
            if reservation.delivered is not None and reservation.delivered > reservation.count:
                message = f"{reservation.delivered} delivered are more than the {reservation.count} reserved"
                yield scenario.error((*path, "delivered"), message, "value")
            if reservation.type == "block":
                yield from _block_could_be_sold(shelf, scenario, path, reservation)


def _block_could_be_sold(
    shelf: Shelf, scenario: Written[Scenario], path: Path, block: OwnedReservation
) -> Iterator[Problem]:
    yield from shelf.not_sold_as_block(scenario, (*path, "instanceType"), block.instance_type)
    if block.duration is None:
        yield scenario.error(
            path, f"block {quoted(block.name)} needs a 'duration': every block ends", "duration"
        )
    else:
        yield from _legal(scenario, (*path, "duration"), block.duration)
    if block.count > MAX_INSTANCES_PER_BLOCK:
        message = f"EC2 sells at most {MAX_INSTANCES_PER_BLOCK} instances a block, not {block.count}"
        yield scenario.error((*path, "count"), message, "block-size")


def _legal(document: Written[Document], path: Path, duration: timedelta) -> Iterator[Problem]:
    if is_legal_duration(duration):
        return
    nearest = [format_duration(each) for each in nearest_legal_durations(duration)]
    hint = f"the nearest are {' and '.join(nearest)}" if len(nearest) > 1 else f"the nearest is {nearest[0]}"
    message = f"{format_duration(duration)} is not a duration EC2 sells; {hint}"
    yield document.error(path, message, "duration")


def extensions_could_be_bought(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        blocks = {each.name: each for each in scenario.model.spec.reservations if each.type == "block"}
        for index, extension in enumerate(scenario.model.spec.extensions):
            yield from _legal(scenario, ("extensions", index, "by"), extension.by)
            block = blocks.get(extension.block)
            if block is None:
                message = (
                    f"no block is named {quoted(extension.block)}; {suggestion(extension.block, blocks)}"
                )
                yield scenario.error(("extensions", index, "block"), message, "reference")
            elif block.duration is not None and block.duration + extension.by > LONGEST_BLOCK:
                total = format_duration(block.duration + extension.by)
                message = f"extended, the block would last {total}; EC2 allows {format_duration(LONGEST_BLOCK)} in all"
                yield scenario.error(("extensions", index, "by"), message, "duration")


def rolls_name_a_node_class(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        for index, roll in enumerate(scenario.model.spec.rolls):
            yield from shelf.missing(scenario, ("rolls", index, "nodeClass"), "NodeClass", roll.node_class)


def decisions_name_a_window(shelf: Shelf) -> Iterator[Problem]:
    windows = {window.name for _, _, window in shelf.windows()}
    if shelf.names("CapacityPlan") - {plan.name for plan in shelf.all(CapacityPlan)}:
        return  # a plan could not be read, and the window may be in it
    for scenario in shelf.all(Scenario):
        for index, decision in enumerate(scenario.model.spec.decisions):
            if decision.window not in windows:
                message = (
                    f"no plan has a window {quoted(decision.window)}; {suggestion(decision.window, windows)}"
                )
                yield scenario.error(("decisions", index, "window"), message, "reference")


def workload_names_are_unique(shelf: Shelf) -> Iterator[Problem]:
    """Of two job streams or two services with one name, only one would be played."""
    for scenario in shelf.all(Scenario):
        spec = scenario.model.spec
        yield from _twice(scenario, "jobs", "job stream", [each.name for each in spec.jobs])
        yield from _twice(scenario, "services", "service", [each.name for each in spec.services])


def checkpoints_outlive_their_node(shelf: Shelf) -> Iterator[Problem]:
    """TR-17: the local disks of a node are gone with it, and every block ends."""
    for scenario in shelf.all(Scenario):
        for index, job in enumerate(scenario.model.spec.jobs):
            if job.checkpoint_every is not None and job.checkpoint_on == "instance-store":
                message = (
                    "checkpoints on instance store are gone with the node, so that this job starts over whenever it"
                    " must move; write them to shared storage (FSx for Lustre, S3, EFS)"
                )
                yield scenario.warning(("jobs", index, "checkpointOn"), message, "TR-17")


def _twice(scenario: Written[Scenario], key: str, what: str, names: Sequence[str]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        known = first.setdefault(name, index)
        if known != index:
            line, column = scenario.parsed.at(("spec", key, known, "name"))
            message = f"{what} {quoted(name)} is already defined at {scenario.parsed.file}:{line}:{column}"
            yield scenario.error((key, index, "name"), message, "duplicate-name")


def services_can_keep_their_minimum(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        for index, service in enumerate(scenario.model.spec.services):
            minimum = max(service.min_available, service.handover.min_available or 0)
            if minimum > service.replicas:
                message = (
                    f"service {quoted(service.name)} can never have {minimum} available"
                    f" of {service.replicas} replicas"
                )
                yield scenario.error(("services", index, "minAvailable"), message, "value")
            elif service.zero_downtime and minimum == 0:
                message = (
                    f"zeroDowntime promises nothing while service {quoted(service.name)} has no minAvailable"
                )
                yield scenario.warning(("services", index, "zeroDowntime"), message, "empty-promise")


def faults_hit_something(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        targets = {each.name for each in scenario.model.spec.reservations} | shelf.names("ComputePool")
        for index, fault in enumerate(scenario.model.spec.faults):
            if fault.target and fault.target not in targets and fault.target not in shelf.catalog.types:
                hint = suggestion(fault.target, targets, what="pools and blocks")
                message = (
                    f"nothing is named {quoted(fault.target)} (a pool, a block or an instance type); {hint}"
                )
                yield scenario.error(("faults", index, "target"), message, "reference")
