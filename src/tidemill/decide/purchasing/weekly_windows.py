"""The simple rule for calendars where nothing can be planned: a window for each week, as high as its peak.

Dearer than a plan, and never clever; but what it buys is needed, and it needs no solver.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import ceil

from tidemill.decide.purchasing.planner.calendar import WEEK, Step
from tidemill.decide.purchasing.planner.demand import calendar_demand, gpus_each
from tidemill.model.ec2_facts import MAX_INSTANCES_PER_BLOCK
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

_A_MONDAY = datetime(2024, 1, 1, 11, 30, tzinfo=UTC)  # any Monday on the grid: weeks are counted from it
# Less than this is over before a block bought for it would serve.
SHORTEST = timedelta(hours=2)


def weekly_windows(
    spec: Spec, plan: CapacityPlan, lacks: Iterable[Step], now: datetime
) -> tuple[DemandWindow, ...]:
    """Of what is missing; named by the Monday they begin on, so that each week is bought once."""
    calendar = plan.spec.calendar
    assert calendar is not None
    demand, each = calendar_demand(spec, plan.name, 0), gpus_each(spec, calendar)
    by_week: dict[datetime, list[Step]] = {}
    for step in lacks:
        monday = _A_MONDAY + (step.start - _A_MONDAY) // WEEK * WEEK
        while monday < step.end:
            part = Step(max(step.start, monday), min(step.end, monday + WEEK), step.amount)
            by_week.setdefault(monday, []).append(part)
            monday += WEEK
    found = []
    for monday, steps in sorted(by_week.items()):
        start, end = max(monday, min(one.start for one in steps) - demand.warm_up), monday + WEEK
        end = min(end, max(one.end for one in steps) + demand.wind_down)
        if end - max(start, now) >= SHORTEST:
            instances = min(MAX_INSTANCES_PER_BLOCK, ceil(max(one.amount for one in steps) / each))
            found.append(
                DemandWindow.model_validate(
                    {
                        "name": f"week-{monday:%Y-%m-%d}",
                        "from": start,
                        "to": end,
                        "instanceType": calendar.instance_types[0],
                        "instances": instances,
                        "zones": calendar.zones,
                    }
                )
            )
    return tuple(found)
