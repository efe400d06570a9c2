"""Scheduled actions of others that would end nodes before their time: EKS's own, or a stack's, whose block was extended
since; people's. They are shown and warned of, and never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.ports.compute import Group, Schedule
from tidemill.provision.asg import DOWN, UP
from tidemill.spec.units import format_instant

# A stack brings its group down early enough for the pool's drain, and no less than some minutes before the deadline.
_AS_GOOD_AS_THE_END = timedelta(minutes=15)


def early_scale_downs(group: Group, over_at: datetime | None) -> Iterator[Schedule]:
    """Those that lower it below its members before the deadline, the first one first. EKS's also while it is empty:
    what is launched before it fires would go."""
    staying = sum(one.counts for one in group.members)
    for one in sorted(group.schedules, key=lambda each: each.at):
        if over_at is not None and one.at >= over_at:
            continue
        if one.theirs:
            if over_at is not None:
                yield one
        elif one.name not in (UP, DOWN) and (to := size_after(one)) is not None and to < staying:
            yield one


def size_after(schedule: Schedule) -> int | None:
    """The largest size it leaves; None: it says nothing about that."""
    return min((one for one in (schedule.desired, schedule.maximum) if one is not None), default=None)


def early_scale_down_warning(group: Group, one: Schedule, over_at: datetime, lead: timedelta) -> str:
    """Empty: it is as good as the end. `lead`: how long before it the pool begins to drain, as its document says."""
    if one.theirs:
        return (
            f"EKS still scales node group {group.node_group} to 0 at {format_instant(one.at)}, though its block was "
            f"extended and its nodes could stay until {format_instant(over_at)}: they are drained before that and "
            "launched again after it; a new node group has the right date"
        )
    if over_at - one.at <= lead + _AS_GOOD_AS_THE_END:
        return ""
    return (
        f"the scheduled action {one.name} takes it to {size_after(one)} at {format_instant(one.at)}, though its nodes "
        f"could stay until {format_instant(over_at)}: move it, delete it, or update the stack that made it"
    )
