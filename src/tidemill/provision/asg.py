"""Self-managed nodes: one Auto Scaling group for each place, with a terminate hook and two scheduled actions.

The engine sets the size and ends nodes by their names. The schedules stand behind it: the block's nodes come up and go
down by themselves if no engine is there. The hook holds an instance that anybody scales in until its pods are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.ports.compute import Group, GroupShape, Hook, Schedule, TemplateVersion
from tidemill.provision.group_spec import GroupSpec, template_digest
from tidemill.provision.launch_template import node_tags
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Allowance, ComputePool
from tidemill.spec.units import format_instant

UP, DOWN = "tidemill-up", "tidemill-down"
# A node whose pods need longer than this to go loses them: their lead is counted against it. Nobody is held longer
# than half an hour by an engine that is away; at the end of a block EC2 waits for no hook anyway.
HOOK = Hook("tidemill-drain", heartbeat_s=1800, result="CONTINUE")
# The engine names whom it ends, so a group chooses only where people make it smaller: then the least work is lost.
ENDS_FIRST = ("NewestInstance",)
# What Auto Scaling would do on its own: end a node that it thinks is ill, drained or not, and move nodes between zones.
# The engine replaces what fails. Sorted.
SUSPENDED = ("AZRebalance", "ReplaceUnhealthy")
# A block is active a moment after its start, and a launch before that fails and is tried again minutes later.
UP_AFTER_START = timedelta(minutes=1)
# AWS asks for more than thirty minutes before the end. By then the engine has emptied the node: it forces the last pod
# out a minute before the deadline.
DOWN_BEFORE_DEADLINE = timedelta(minutes=1)


def as_group(spec: Spec, pool: ComputePool, own: GroupSpec) -> GroupSpec:
    """With the tags that its instances get: ours, and the two that Kubernetes' cloud provider goes by."""
    cluster = spec.platform.spec.cluster.name
    tags = dict(node_tags(spec, pool)) | {
        "Name": f"{cluster}-{own.name}-Node",
        names.TAG_TEMPLATE: template_digest(own.template),
    }
    return replace(own, tags=tuple(sorted(tags.items())), hook=HOOK)


def shape(own: GroupSpec, version: TemplateVersion) -> GroupShape:
    return GroupShape(own.name, version, own.subnets, own.maximum, own.tags, own.hook, ENDS_FIRST, SUSPENDED)


def schedules(
    spec: Spec, pool: ComputePool, own: GroupSpec, block: Reservation, now: datetime, room: Allowance | None
) -> tuple[Schedule, ...]:
    """Up at the start and to nothing before the end (SM-4); never in the past. `room` None: others may use it too."""
    if block.kind is not SourceKind.BLOCK or own.over_at is None:
        return ()
    found = []
    up, down = block.start + UP_AFTER_START, own.over_at - DOWN_BEFORE_DEADLINE
    size = 0 if room is None else _warm(spec, pool, block, room)
    # Once it is active and we are there to see it, the size is the engine's: a schedule that fired then could lower it.
    if size and now < up < down and block.state is ReservationState.SCHEDULED:
        found.append(Schedule(UP, up, size))
    if now < down:
        found.append(Schedule(DOWN, down, 0, 0))
    return tuple(found)


def _warm(spec: Spec, pool: ComputePool, block: Reservation, room: Allowance) -> int:
    """How many nodes the pool keeps up without work, within what its limits leave it."""
    setting = pool.spec.kept_warm
    most = block.count if setting is True else min(block.count, int(setting))
    kind = spec.catalog.types[block.instance_type]
    return max((n for n in range(most + 1) if room.allows(kind, n)), default=0)


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
