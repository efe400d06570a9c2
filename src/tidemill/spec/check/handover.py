"""CapacityPlan: a window that follows another must leave services the time to move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.check.market import Shelf
from tidemill.spec.default_durations import BOOT, LOAD
from tidemill.spec.located import Written
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario
from tidemill.spec.units import format_duration

_DAY = timedelta(days=1)
# EC2 takes a block's nodes then. Errs on the short side: some provisioners, and UltraServers, act earlier.
_KILLED_BEFORE_END = timedelta(minutes=30)


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
        if before.instance_type != after.instance_type or not -_DAY < overlap < needed:
            continue
        message = (
            f"window {quoted(after.name)} follows {quoted(before.name)} with {format_duration(overlap)} in which nodes"
            f" of both take pods; booting one and loading a model takes about {format_duration(needed)}, and services"
            f" would be short: set 'overlap' to {format_duration(needed + _KILLED_BEFORE_END)} or more"
        )
        yield plan.warning(("demand", index, "from"), message, "TR-11")


def _overlap(before: DemandWindow, after: DemandWindow, asked: timedelta) -> timedelta:
    """Of their blocks, which lie on the 11:30 UTC grid. A day or more apart: a pause that somebody wants."""
    ends = -(-(before.end - _GRID) // _DAY) * _DAY + _GRID - _KILLED_BEFORE_END
    starts = (after.start - asked - _GRID) // _DAY * _DAY + _GRID
    return ends - starts


_GRID = datetime.fromisoformat("2000-01-01T11:30:00+00:00")
