"""CapacityPlan: a window that follows another must leave services the time to move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from tidemill.model.ec2_facts import DAY, TERMINATES_BEFORE_END, grid_at_or_after, grid_at_or_before
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.check.market import Shelf
from tidemill.spec.default_durations import BOOT, LOAD
from tidemill.spec.located import Written
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario
from tidemill.spec.units import format_duration


def windows_leave_time_to_move(shelf: Shelf) -> Iterator[Problem]:
    """TR-11. Where blocks are extended nothing moves: only plans that never do so, or ask for an overlap, are told."""
    load = max(
        (one.load for each in shelf.all(Scenario) for one in each.model.spec.services), default=LOAD
    )  # nobody serves in what is written: as a model usually takes
    for plan in shelf.all(CapacityPlan):
        spec = plan.model.spec
        if spec.extend.policy == "never" or spec.overlap:
            yield from _too_close(plan, BOOT + load)


def _too_close(plan: Written[CapacityPlan], needed: timedelta) -> Iterator[Problem]:
    windows = sorted(enumerate(plan.model.spec.demand), key=lambda one: one[1].start)
    for (_, before), (index, after) in pairwise(windows):
        overlap = _overlap(before, after, plan.model.spec.overlap)
        if before.instance_type != after.instance_type or not -DAY < overlap < needed:
            continue
        message = (
            f"window {quoted(after.name)} follows {quoted(before.name)} with {format_duration(overlap)} in which nodes"
            f" of both take pods; booting one and loading a model takes about {format_duration(needed)}, and services"
            f" would be short: set 'overlap' to {format_duration(needed + TERMINATES_BEFORE_END)} or more"
        )
        yield plan.warning(("demand", index, "from"), message, "TR-11")


def _overlap(before: DemandWindow, after: DemandWindow, asked: timedelta) -> timedelta:
    """Of their blocks, which start and end on the grid. A day or more apart: somebody wants the pause.

    Errs on the short side: some provisioners, and EC2 with UltraServers, act earlier.
    """
    ends = grid_at_or_after(before.end) - TERMINATES_BEFORE_END
    return ends - grid_at_or_before(after.start - asked)
