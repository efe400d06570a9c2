"""The asg provisioner: one Auto Scaling group per source, with a terminate hook and two scheduled actions.

The engine sets the size of a group and terminates nodes by name. The scheduled actions work without the engine: a
block's nodes come up at its start and go down before its end. The hook holds an instance that anybody scales in until
its pods are gone. Scheduled actions of others are shown and warned about, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.decide.read_models import GROUP_HOOK_WAITS
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.ports.compute import Group, GroupShape, Hook, Schedule, TemplateVersion
from tidemill.provision.group_spec import GroupSpec, template_digest
from tidemill.provision.launch_template import node_tags
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Allowance, ComputePool
from tidemill.spec.units import format_instant

UP, DOWN = "tidemill-up", "tidemill-down"
# A node whose pods need longer than this to leave loses them: their lead is counted against it. At the end of a block
# EC2 waits for no hook, so the group goes to 0 that much earlier.
HOOK = Hook("tidemill-drain", heartbeat_s=round(GROUP_HOOK_WAITS.total_seconds()), result="CONTINUE")
# The engine names the instance it ends, so a group chooses only where people make it smaller: the least work is lost.
ENDS_FIRST = ("NewestInstance",)
# What Auto Scaling must not do by itself: end a node it takes for unhealthy, drained or not, and move nodes between
# zones. The engine replaces nodes that fail. Sorted.
SUSPENDED = ("AZRebalance", "ReplaceUnhealthy")
# A block is active a moment after its start. A launch before that fails and is tried again only minutes later.
UP_AFTER_START = timedelta(minutes=1)
# The engine forces the last pod out a minute before the deadline, so the node is empty by then.
DOWN_BEFORE_DEADLINE = timedelta(minutes=1)
# A CloudFormation stack brings its group down early enough for the pool's drain, and at least some minutes before the
# deadline: that is no reason to warn.
_CLOSE_TO_THE_END = timedelta(minutes=15)


# --- ours ---------------------------------------------------------------------------------------------


def as_group(spec: Spec, pool: ComputePool, group: GroupSpec) -> GroupSpec:
    """With the hook, and the tags its instances get: ours, and the two that Kubernetes' cloud provider needs."""
    cluster = spec.platform.spec.cluster.name
    tags = dict(node_tags(spec, pool)) | {
        "Name": f"{cluster}-{group.name}-Node",
        names.TAG_TEMPLATE: template_digest(group.template),
    }
    return replace(group, tags=tuple(sorted(tags.items())), hook=HOOK)


def shape(group: GroupSpec, version: TemplateVersion) -> GroupShape:
    return GroupShape(
        group.name, version, group.subnets, group.maximum, group.tags, group.hook, ENDS_FIRST, SUSPENDED
    )


def schedules(
    spec: Spec,
    pool: ComputePool,
    group: GroupSpec,
    block: Reservation,
    now: datetime,
    allowance: Allowance | None,
) -> tuple[Schedule, ...]:
    """Up at the start of the block and to 0 before its end (SM-4); never in the past.

    `allowance`: what the limits of the pool leave it; None: other pools may use the block too, so nothing comes up.
    """
    if block.kind is not SourceKind.BLOCK or group.deadline is None:
        return ()
    found = []
    up, down = block.start + UP_AFTER_START, group.deadline - DOWN_BEFORE_DEADLINE
    size = 0 if allowance is None else _warm_nodes(spec, pool, block, allowance)
    # Once the block is active the engine sets the size: a schedule that fired then could lower it.
    if size and now < up < down and block.state is ReservationState.SCHEDULED:
        found.append(Schedule(UP, up, size))
    if now < down:
        found.append(Schedule(DOWN, down, 0, 0))
    return tuple(found)


def _warm_nodes(spec: Spec, pool: ComputePool, block: Reservation, allowance: Allowance) -> int:
    """How many nodes the pool keeps up without work, within its limits."""
    setting = pool.spec.kept_warm
    most = block.count if setting is True else min(block.count, int(setting))
    kind = spec.catalog.types[block.instance_type]
    return max((count for count in range(most + 1) if allowance.allows(kind, count)), default=0)


# --- scheduled actions of others ----------------------------------------------------------------------


def early_scale_downs(group: Group, deadline: datetime | None) -> Iterator[Schedule]:
    """Actions of others that end nodes before the deadline `deadline`, the first one first.

    They are EKS's own or a stack's, whose block was extended since, or people's. EKS's count also while the group is
    empty: they would end what is launched before they fire.
    """
    staying = sum(member.counts for member in group.members)
    for schedule in sorted(group.schedules, key=lambda action: action.at):
        if deadline is not None and schedule.at >= deadline:
            continue
        if schedule.by_eks:
            if deadline is not None:
                yield schedule
        elif (
            schedule.name not in (UP, DOWN) and (size := size_after(schedule)) is not None and size < staying
        ):
            yield schedule


def emptied_at(group: Group, deadline: datetime | None) -> datetime | None:
    """When an action of others takes it to 0 before the deadline, whether it has members or not; None: none does. One
    that is due and still listed has not fired yet."""
    return min(
        (
            schedule.at
            for schedule in group.schedules
            if schedule.name not in (UP, DOWN)
            and size_after(schedule) == 0
            and deadline is not None
            and schedule.at < deadline
        ),
        default=None,
    )


def size_after(schedule: Schedule) -> int | None:
    """The largest size it leaves; None: it does not limit the size."""
    sizes = (schedule.desired, schedule.maximum)
    return min((size for size in sizes if size is not None), default=None)


def early_scale_down_warning(group: Group, schedule: Schedule, deadline: datetime, lead: timedelta) -> str:
    """Empty: it fires close enough to the end. `lead`: the pool's drain lead, as its document says."""
    if schedule.by_eks:
        return (
            f"EKS still scales node group {group.node_group} to 0 at {format_instant(schedule.at)}, although its block"
            f" was extended and its nodes could stay until {format_instant(deadline)}: the engine drains them before"
            " that; once it is empty, it makes a new node group, which has the right date"
        )
    if deadline - schedule.at <= lead + _CLOSE_TO_THE_END:
        return ""
    return (
        f"the scheduled action {schedule.name} takes it to {size_after(schedule)} at {format_instant(schedule.at)},"
        f" although its nodes could stay until {format_instant(deadline)}: move it, delete it, or update the stack that"
        " made it"
    )
