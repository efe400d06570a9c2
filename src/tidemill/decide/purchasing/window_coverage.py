"""What a demand window misses, in instances of its type.

A block serves the window that it was bought for. What that window does not need just then, and what was bought for no
window of the pool, serves the pool's windows in the order they are written. So no block counts twice, nothing that is
held is bought again, and a window that nobody approves takes nothing from one that was bought for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.usability import counts_for
from tidemill.model.capacity import LIVE_STATES, Reservation
from tidemill.model.ec2_facts import LEGAL_DURATIONS
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow


@dataclass(frozen=True, slots=True)
class _Supply:
    """So many instances, from an instant to another (None: without end), bought for a window (empty: for none)."""

    start: datetime
    end: datetime | None
    count: int
    window: str

    def serves_at(self, at: datetime) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


def missing_instances(
    spec: Spec,
    reservations: Iterable[Reservation],
    pool: str,
    window: DemandWindow,
    now: datetime,
    *,
    to_the_minute: bool = False,
) -> tuple[Step, ...]:
    """One step after the other, without those in which nothing is missing. Outside the window nothing is asked about.

    `reservations`: as `with_expected` tells what they were bought for. `to_the_minute`: what starts within a day counts
    from its start and not from now.
    """
    start, until = max(window.start, now), window.end
    if until <= start:
        return ()
    windows = _windows_beside(spec, pool, window)
    supplies = [
        supply
        for block in held_for(spec, reservations, pool, window)
        for supply in _supplies(block, block.start if to_the_minute else _serves_from(block, window, now))
    ]
    changes = {at for one in windows for at in (one.start, one.end)}
    changes |= {at for one in supplies for at in (one.start, one.end) if at is not None}
    cuts = sorted({start, until} | {at for at in changes if start < at < until})
    missing: list[Step] = []
    for here, there in pairwise(cuts):
        wanting = [one for one in windows if one.start <= here < one.end]
        short = _shortage(window, wanting, [one for one in supplies if one.serves_at(here)])
        if missing and missing[-1].end == here and missing[-1].amount == short:
            missing[-1] = Step(missing[-1].start, there, short)
        elif short:
            missing.append(Step(here, there, short))
    return tuple(missing)


def _shortage(window: DemandWindow, wanting: Iterable[DemandWindow], supplies: Iterable[_Supply]) -> int:
    """What a window lacks at an instant, of those that want instances then, in the order they are written."""
    lacking = {one.name: one.instances for one in wanting}
    left = 0
    for supply in supplies:
        own = min(supply.count, lacking.get(supply.window, 0))
        if own:
            lacking[supply.window] -= own
        left += supply.count - own
    for name, count in lacking.items():
        if name == window.name:
            return max(0, count - left)
        left -= min(left, count)
    return 0


def first_gap(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> Step | None:
    """As high as its highest step. What is bought next is for this: a window is not bought as a whole where part of it
    is covered."""
    gap: Step | None = None
    for step in missing_instances(spec, reservations, pool, window, now):
        if gap is not None and step.start != gap.end:
            break
        gap = step if gap is None else Step(gap.start, step.end, max(gap.amount, step.amount))
    return gap


def missing_instance_time(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> timedelta:
    """Instances times how long each is missing, over the whole window: what must become less with every purchase.

    Exact: two sums of hours as floats may differ although nothing was gained.
    """
    steps = missing_instances(spec, reservations, pool, window, now)
    return sum((step.amount * (step.end - step.start) for step in steps), timedelta(0))


def coverage_changes_at(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow
) -> Iterator[datetime]:
    """When another answer may follow from the same blocks: as windows and blocks begin and end, and once what starts
    within a day counts."""
    for one in _windows_beside(spec, pool, window):
        yield from (one.start, one.end)
    for block in held_for(spec, reservations, pool, window):
        yield from (block.start - LEGAL_DURATIONS[0], block.start)
        yield from (at for at, _ in block.bought_for)
        if block.end is not None:
            yield block.end


def held_for(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow
) -> list[Reservation]:
    """Ours, of the type it asks for, and this pool's or one that it can use."""
    return [
        reservation
        for reservation in reservations
        if reservation.instance_type == window.instance_type
        and reservation.owner == spec.platform.spec.deployment
        and reservation.state in LIVE_STATES
        and counts_for(spec, pool, reservation)
    ]


def window_named(plan: CapacityPlan | None, name: str) -> DemandWindow | None:
    return (
        next((window for window in plan.spec.demand if window.name == name), None)
        if plan is not None
        else None
    )


def _windows_beside(spec: Spec, pool: str, window: DemandWindow) -> Sequence[DemandWindow]:
    """The windows that the same blocks may serve, by plan and place in it. This one is among them; one that no document
    has (a week of a calendar) is the last."""
    windows = _windows_of(spec, pool, window.instance_type)
    written = (
        any(one is window for one in windows) or window in windows
    )  # to compare every field takes longer
    return windows if written else (*windows, window)


@lru_cache(maxsize=64)
def _windows_of(spec: Spec, pool: str, instance_type: str) -> tuple[DemandWindow, ...]:
    return tuple(
        one
        for plan in spec.plans.values()
        if plan.spec.pool == pool
        for one in plan.spec.demand
        if one.instance_type == instance_type
    )


def _supplies(block: Reservation, start: datetime) -> Iterator[_Supply]:
    """A block, cut where an extension of it was bought for another window."""
    window = ""
    for at, name in sorted(block.bought_for):
        if at > block.start:
            yield _Supply(start, at, block.count, window)
            start = at
        window = name
    yield _Supply(start, block.end, block.count, window)


def _serves_from(block: Reservation, window: DemandWindow, now: datetime) -> datetime:
    """A window that has begun is served as soon as can be: what starts within a day closes the gap before it, since
    nothing shorter than a day is sold. Without this each start-now block would ask for another one."""
    return now if window.start <= now < block.start <= now + LEGAL_DURATIONS[0] else block.start
