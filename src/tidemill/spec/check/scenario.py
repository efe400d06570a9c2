"""Scenario: it assumes only what EC2 could sell, its references exist, and every line of it happens while it is played.

A rehearsal that silently left a line out would look like one in which that line did no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tidemill.model import ec2_facts
from tidemill.model.ec2_facts import DAY
from tidemill.spec import traps
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.check.document_set import DocumentSet, LocatedDocument
from tidemill.spec.compute_pool import Allowance, ComputePool, matching_types
from tidemill.spec.default_durations import BOOT
from tidemill.spec.document import Document
from tidemill.spec.located_yaml import Path
from tidemill.spec.node_class import NodeClass
from tidemill.spec.problem import Problem, quoted, suggestion
from tidemill.spec.scenario import JobStream, OwnedReservation, Scenario, ScenarioSpec, Service, block_window
from tidemill.spec.units import format_duration, format_instant


def reservations_could_exist(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        first: dict[str, int] = {}
        ids: dict[str, int] = {}
        for index, reservation in enumerate(scenario.model.spec.reservations):
            path = ("reservations", index)
            if reservation.id is not None and ids.setdefault(reservation.id, index) != index:
                message = f"another reservation already has the id {reservation.id}"
                yield scenario.error((*path, "id"), message, "duplicate-name")
            if first.setdefault(reservation.name, index) != index:
                message = f"a reservation {quoted(reservation.name)} is already listed"
                yield scenario.error((*path, "name"), message, "duplicate-name")
            yield from documents.unknown_type(scenario, (*path, "instanceType"), reservation.instance_type)
            if reservation.pool:
                yield from documents.missing(scenario, (*path, "pool"), "ComputePool", reservation.pool)
            if reservation.delivered is not None and reservation.delivered > reservation.count:
                message = f"'delivered' ({reservation.delivered}) must not be more than 'count' ({reservation.count})"
                yield scenario.error((*path, "delivered"), message, "value")
            yield from _overlap_could_be(scenario, (*path, "overlap"), reservation)
            if reservation.type == "block":
                yield from _block_could_be_sold(documents, scenario, path, reservation)


def limits_hold_their_blocks(documents: DocumentSet) -> Iterator[Problem]:
    """A block is paid for whole, whatever its pools may use of it. A pool without limits has a warning of its own."""
    pools = [pool.model for pool in documents.all(ComputePool)]
    for scenario in documents.all(Scenario):
        for index, block in enumerate(scenario.model.spec.reservations):
            kind = documents.catalog.types.get(block.instance_type)
            users = [pool for pool in pools if _usable(block, pool)]
            if kind is None or not users or any(pool.spec.limits is None for pool in users):
                continue
            most = sum(Allowance.of(pool.spec.limits).most(kind) // 1 for pool in users)
            if most < block.count:
                names = ", ".join(quoted(pool.name) for pool in users)
                message = (
                    f"the limits of {'pool' if len(users) == 1 else 'pools'} {names} allow {int(most)} x {kind.name},"
                    f" and this one has {block.count}: the others are paid for and never run; raise 'limits'"
                )
                yield scenario.warning(("reservations", index, "count"), message, "limits")


def _block_could_be_sold(
    documents: DocumentSet, scenario: LocatedDocument[Scenario], path: Path, block: OwnedReservation
) -> Iterator[Problem]:
    yield from documents.not_sold_as_block(scenario, (*path, "instanceType"), block.instance_type)
    yield from documents.part_of_an_ultraserver(scenario, (*path, "count"), block.instance_type, block.count)
    if block.duration is None:
        yield scenario.error(
            path, f"block {quoted(block.name)} needs a 'duration': every block ends", "duration"
        )
    else:
        yield from _legal(scenario, (*path, "duration"), block.duration)
    if block.count > ec2_facts.MAX_INSTANCES_PER_BLOCK:
        message = (
            f"EC2 sells at most {ec2_facts.MAX_INSTANCES_PER_BLOCK} instances in one block, not {block.count}"
        )
        yield scenario.error((*path, "count"), message, "block-size")


def _overlap_could_be(
    scenario: LocatedDocument[Scenario], path: Path, reservation: OwnedReservation
) -> Iterator[Problem]:
    overlap, begins = reservation.overlap, scenario.model.spec.start
    if not overlap:
        return
    starts, _ = block_window(begins, reservation.start, DAY, overlap)
    if reservation.type != "block":
        message = (
            "an on-demand reservation starts at any minute; leave out 'overlap' and write its start as 'from'"
        )
    elif overlap >= DAY:
        message = (
            f"'overlap' must be shorter than a day, not {format_duration(overlap)}: for whole days write an earlier"
            " 'from'"
        )
    elif starts <= begins:
        message = (
            f"with an overlap of {format_duration(overlap)} it would start at {format_instant(starts)}, which is not"
            f" after the start of the scenario, {format_instant(begins)}; leave out 'overlap' or write a later 'from'"
        )
    else:
        return
    yield scenario.error(path, message, "value")


def _legal(document: LocatedDocument[Document], path: Path, duration: timedelta) -> Iterator[Problem]:
    if message := traps.unsold_duration(duration):
        yield document.error(path, message, "TR-1")


def extensions_could_be_bought(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        blocks = {each.name: each for each in scenario.model.spec.reservations if each.type == "block"}
        for index, extension in enumerate(scenario.model.spec.extensions):
            yield from _legal(scenario, ("extensions", index, "by"), extension.by)
            block = blocks.get(extension.block)
            if block is None:
                message = (
                    f"no block is named {quoted(extension.block)}; {suggestion(extension.block, blocks)}"
                )
                yield scenario.error(("extensions", index, "block"), message, "reference")
            elif block.duration is not None and block.duration + extension.by > ec2_facts.LONGEST_BLOCK:
                total = format_duration(block.duration + extension.by)
                longest = format_duration(ec2_facts.LONGEST_BLOCK)
                message = f"the extended block would last {total}; EC2 allows at most {longest}"
                yield scenario.error(("extensions", index, "by"), message, "duration")


def rolls_name_a_node_class(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        for index, roll in enumerate(scenario.model.spec.rolls):
            yield from documents.missing(
                scenario, ("rolls", index, "nodeClass"), "NodeClass", roll.node_class
            )


def decisions_name_a_window(documents: DocumentSet) -> Iterator[Problem]:
    windows = {window.name for _, _, window in documents.windows()}
    if documents.names("CapacityPlan") - {plan.name for plan in documents.all(CapacityPlan)}:
        return  # a plan could not be read, and the window may be in it
    for scenario in documents.all(Scenario):
        for index, decision in enumerate(scenario.model.spec.decisions):
            if decision.window not in windows:
                message = (
                    f"no plan has a window {quoted(decision.window)}; {suggestion(decision.window, windows)}"
                )
                yield scenario.error(("decisions", index, "window"), message, "reference")


def workload_names_are_unique(documents: DocumentSet) -> Iterator[Problem]:
    """Of two job streams or two services with the same name, only one would be played."""
    for scenario in documents.all(Scenario):
        spec = scenario.model.spec
        yield from _twice(scenario, "jobs", "job stream", [each.name for each in spec.jobs])
        yield from _twice(scenario, "services", "service", [each.name for each in spec.services])


def checkpoints_outlive_their_node(documents: DocumentSet) -> Iterator[Problem]:
    """TR-17: a node's local disks are lost with the node, and every block ends."""
    for scenario in documents.all(Scenario):
        for index, job in enumerate(scenario.model.spec.jobs):
            if job.checkpoint_every is not None and job.checkpoint_on == "instance-store":
                yield scenario.warning(("jobs", index, "checkpointOn"), traps.CHECKPOINTS_ARE_LOST, "TR-17")


def multi_node_jobs_have_efa(documents: DocumentSet) -> Iterator[Problem]:
    """TR-16: of jobs whose pods take whole nodes of types that have EFA."""
    classes = {each.name: each.model.spec for each in documents.all(NodeClass)}
    for scenario in documents.all(Scenario):
        for index, job in enumerate(scenario.model.spec.jobs):
            pools = list(_pools_of(documents, job)) if job.nodes > 1 and job.gpus else []
            kinds = [
                kind for pool in pools for kind in matching_types(documents.catalog, pool.spec.requirements)
            ]
            if not kinds or not all(kind.efa and job.gpus >= kind.gpus for kind in kinds):
                continue
            if not job.efa:
                message = f"job {quoted(job.name)}: {traps.no_efa(job.nodes, 'efa')}"
                yield scenario.warning(("jobs", index, "nodes"), message, "TR-16")
                continue
            for pool in pools:
                node_class = classes.get(pool.spec.node_class_name)
                if node_class is not None and not node_class.efa and node_class.launch_template is None:
                    message = traps.efa_not_attached(
                        f"job {quoted(job.name)}", pool.spec.node_class_name, pool.name
                    )
                    yield scenario.warning(("jobs", index, "efa"), message, "TR-16")


def _twice(
    scenario: LocatedDocument[Scenario], key: str, what: str, names: Sequence[str]
) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        known = first.setdefault(name, index)
        if known != index:
            line, column = scenario.parsed.at(("spec", key, known, "name"))
            message = f"{what} {quoted(name)} is already defined at {scenario.parsed.file}:{line}:{column}"
            yield scenario.error((key, index, "name"), message, "duplicate-name")


def services_can_keep_their_minimum(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        for index, service in enumerate(scenario.model.spec.services):
            minimum = max(service.min_available, service.handover.min_available or 0)
            if minimum > service.replicas:
                message = (
                    f"service {quoted(service.name)} has {service.replicas} replicas, so it can never have"
                    f" {minimum} available"
                )
                yield scenario.error(("services", index, "minAvailable"), message, "value")
            elif service.zero_downtime and minimum == 0:
                message = (
                    f"zeroDowntime has no effect because service {quoted(service.name)} has no minAvailable;"
                    " set it"
                )
                yield scenario.warning(("services", index, "zeroDowntime"), message, "empty-promise")


def faults_hit_something(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        targets = {each.name for each in scenario.model.spec.reservations} | documents.names("ComputePool")
        for index, fault in enumerate(scenario.model.spec.faults):
            if fault.target and fault.target not in targets and fault.target not in documents.catalog.types:
                hint = suggestion(fault.target, targets, what="pools and blocks")
                message = f"no pool, block or instance type is named {quoted(fault.target)}; {hint}"
                yield scenario.error(("faults", index, "target"), message, "reference")


NEVER_HAPPENS = "never"
# The engine's calls to its ports: an engine-crash happens before or after one of these.
ENGINE_CALLS = (
    "reservations", "instances", "search_offers", "purchase", "search_extensions", "purchase_extension",
    "extensions", "tag_reservation", "untag_reservation", "identity", "launch", "terminate", "console_output",
    "view", "admit", "mark_ready", "start_drain", "cancel_drain", "keep_for_jobs", "announce_end", "announce_node_end",
    "request_checkpoint", "evict", "delete", "restart", "scale", "is_empty", "remove_node",
    "launches", "write_launch", "purchases", "propose", "advance", "adopt", "adoptions", "remember", "meter",
    "write_block_hours", "block_hours", "metered", "spending", "pause", "write_pause",
)  # fmt: skip
CRASH_STEPS = {f"{when}:{call}" for when in ("before", "after") for call in ENGINE_CALLS}


def lines_are_reached(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        lasts = scenario.model.spec.duration
        for path, offset in _offsets(scenario.model.spec):
            if offset >= lasts:
                message = (
                    f"this never happens: {format_duration(offset)} is not before the end of the scenario, which lasts"
                    f" {format_duration(lasts)}"
                )
                yield scenario.warning(path, message, NEVER_HAPPENS)


def _offsets(spec: ScenarioSpec) -> Iterator[tuple[Path, timedelta]]:
    """Reservations are left out: a block that begins later still covers the demand of a plan."""
    for index, decision in enumerate(spec.decisions):
        yield ("decisions", index, "at"), decision.at
    for index, extension in enumerate(spec.extensions):
        yield ("extensions", index, "at"), extension.at
    for index, roll in enumerate(spec.rolls):
        yield ("rolls", index, "at"), roll.at
    for index, fault in enumerate(spec.faults):
        yield ("faults", index, "at"), fault.at
    for index, service in enumerate(spec.services):
        yield ("services", index, "from"), service.start
    for index, stream in enumerate(spec.jobs):
        yield ("jobs", index, "arrivals", "from"), stream.arrivals.start
        for position, at in enumerate(stream.arrivals.at):
            yield ("jobs", index, "arrivals", "at", position), at
    if spec.random_faults is not None:
        yield ("randomFaults", "from"), spec.random_faults.start


def windows_are_not_over(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        start = scenario.model.spec.start
        for plan, index, window in documents.windows():
            if window.end <= start:
                message = (
                    f"window {quoted(window.name)} ends before the scenario begins, at {format_instant(start)}:"
                    " nothing is bought for it"
                )
                yield plan.warning(("demand", index, "to"), message, NEVER_HAPPENS)


def blocks_outlast_their_drain(documents: DocumentSet) -> Iterator[Problem]:
    leads = {pool.name: (pool, pool.model.spec.drain.lead) for pool in documents.all(ComputePool)}
    for scenario in documents.all(Scenario):
        for block in scenario.model.spec.reservations:
            pool, lead = leads.get(block.pool, (None, None))
            if pool is not None and lead and block.duration is not None and lead >= block.duration:
                message = (
                    f"a lead of {format_duration(lead)} is not shorter than block {quoted(block.name)}, which lasts"
                    f" {format_duration(block.duration)}: it would drain before any pod could run"
                )
                yield pool.warning(("drain", "lead"), message, NEVER_HAPPENS)


def crashes_have_a_step(documents: DocumentSet) -> Iterator[Problem]:
    for scenario in documents.all(Scenario):
        for index, fault in enumerate(scenario.model.spec.faults):
            if fault.step and fault.step not in CRASH_STEPS:
                message = (
                    f"the engine has no step {quoted(fault.step)}; {suggestion(fault.step, CRASH_STEPS)}"
                )
                yield scenario.error(("faults", index, "step"), message, "reference")


Span = tuple[int, datetime, datetime]  # index in the scenario, start and end


def hand_overs_have_time(documents: DocumentSet) -> Iterator[Problem]:
    """TR-11: a service without downtime needs its next block early enough to boot a node and load there first."""
    for scenario in documents.all(Scenario):
        spec = scenario.model.spec
        for service in spec.services:
            if service.zero_downtime and not service.overflow:
                for pool in _pools_of(documents, service):
                    yield from _late(scenario, spec, service, _blocks_of_pool(spec, pool))


def _pools_of(documents: DocumentSet, service: Service | JobStream) -> Iterator[ComputePool]:
    for pool in documents.all(ComputePool):
        if service.node_selector and service.node_selector.items() <= pool.model.spec.labels.items():
            yield pool.model


def _blocks_of_pool(spec: ScenarioSpec, pool: ComputePool) -> list[Span]:
    return [
        (index, *block_window(spec.start, reservation.start, reservation.duration, reservation.overlap))
        for index, reservation in enumerate(spec.reservations)
        if reservation.type == "block" and reservation.duration is not None and _usable(reservation, pool)
    ]


def _usable(reservation: OwnedReservation, pool: ComputePool) -> bool:
    types = pool.spec.requirements.instance_types
    return reservation.pool == pool.name or (
        not reservation.pool and (not types or reservation.instance_type in types)
    )


def _late(
    scenario: LocatedDocument[Scenario], spec: ScenarioSpec, service: Service, blocks: list[Span]
) -> Iterator[Problem]:
    needed = BOOT + service.load + service.grace
    over = spec.start + min(spec.duration, service.until or spec.duration)
    for _, _, end in blocks:
        empty_by = end - ec2_facts.TERMINATES_BEFORE_END
        if empty_by >= over:
            continue
        if any(start + needed <= empty_by and later > end for _, start, later in blocks):
            continue
        for index, start, later in blocks:
            if empty_by - needed < start <= end + DAY and later > end:
                shared = max(timedelta(0), empty_by - start)
                message = (
                    f"service {quoted(service.name)} must have no downtime, but this block and the one before it"
                    f" both run for only {format_duration(shared)}, and the service needs {format_duration(needed)} to"
                    " boot and load: let this block start earlier ('overlap' for hours, 'from' for days), or extend"
                    " the block before it by a day"
                )
                yield scenario.warning(("reservations", index, "from"), message, "TR-11")
