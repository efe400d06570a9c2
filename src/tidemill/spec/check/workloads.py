"""Scenario against the clock: lines that would never be reached while it is played, each a warning.

A rehearsal that silently left them out would look like one in which they did no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Path
from tidemill.spec.problem import Problem, quoted, suggestion
from tidemill.spec.scenario import Scenario, ScenarioSpec
from tidemill.spec.units import format_duration, format_instant

CODE = "never"
# What the engine asks of its ports: an engine-crash strikes before or after one of these.
CALLS = (
    "reservations", "instances", "search_offers", "purchase", "search_extensions", "purchase_extension",
    "extensions", "tag_reservation", "identity", "launch", "terminate",
    "view", "admit", "mark_ready", "start_drain", "cancel_drain", "announce_end", "announce_node_end",
    "request_checkpoint", "evict", "delete", "restart", "scale", "remove_node",
    "launches", "write_launch", "purchases", "propose", "advance", "adopt", "adoptions", "remember", "meter",
    "write_block_hours", "block_hours", "metered", "spending",
)  # fmt: skip
STEPS = {f"{when}:{call}" for when in ("before", "after") for call in CALLS}


def lines_are_reached(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        lasts = scenario.model.spec.duration
        for path, offset in _offsets(scenario.model.spec):
            if offset >= lasts:
                message = (
                    f"{format_duration(offset)} is not before the end of the scenario, which lasts"
                    f" {format_duration(lasts)}: this never happens"
                )
                yield scenario.warning(path, message, CODE)


def _offsets(spec: ScenarioSpec) -> Iterator[tuple[Path, timedelta]]:
    """Not of reservations: a block that begins later still covers the demand of a plan."""
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


def windows_are_not_over(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        start = scenario.model.spec.start
        for plan, index, window in shelf.windows():
            if window.end <= start:
                message = (
                    f"window {quoted(window.name)} is over when the scenario begins,"
                    f" at {format_instant(start)}: nothing is bought for it"
                )
                yield plan.warning(("demand", index, "to"), message, CODE)


def blocks_outlast_their_drain(shelf: Shelf) -> Iterator[Problem]:
    leads = {pool.name: (pool, pool.model.spec.drain.lead) for pool in shelf.all(ComputePool)}
    for scenario in shelf.all(Scenario):
        for block in scenario.model.spec.reservations:
            pool, lead = leads.get(block.pool, (None, None))
            if pool is not None and lead and block.duration is not None and lead >= block.duration:
                message = (
                    f"a lead of {format_duration(lead)} is all of block {quoted(block.name)}, which lasts"
                    f" {format_duration(block.duration)}: it would drain before anything could run"
                )
                yield pool.warning(("drain", "lead"), message, CODE)


def crashes_have_a_step(shelf: Shelf) -> Iterator[Problem]:
    for scenario in shelf.all(Scenario):
        for index, fault in enumerate(scenario.model.spec.faults):
            if fault.step and fault.step not in STEPS:
                message = f"the engine has no step {quoted(fault.step)}; {suggestion(fault.step, STEPS)}"
                yield scenario.error(("faults", index, "step"), message, "reference")
