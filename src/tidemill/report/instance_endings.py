"""When each instance on a reservation would end if nobody did anything, why, and whose it is. Pure.

EC2's own end of a block is only the last of several: a group that scales to zero, Karpenter, an announced retirement
may each be earlier. The size of a group is played forward through its scheduled actions; what people do by hand, and
actions that recur, cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.deadlines import kill_at
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import KARPENTER_DRAINS_BEFORE_END
from tidemill.model.nodes import InstanceState
from tidemill.report.survey import TAG_GROUP, TAG_NODE_GROUP, Machine, ScalingGroup, Survey
from tidemill.spec import names
from tidemill.wording.actions import instance_end_sentence


@dataclass(frozen=True, slots=True)
class Ending:
    """Instances that would end together. `at` is None where nothing ends them."""

    at: datetime | None
    reservation: str
    why: str
    whose: str
    instances: tuple[str, ...]


def endings(survey: Survey, deployment: str = "") -> tuple[Ending, ...]:
    """The soonest first; those without an end last."""
    held = {one.id: one for one in survey.reservations or ()}
    groups = {id_: group for group in survey.groups for id_ in group.members}
    together: dict[tuple[datetime | None, str, str, str], list[str]] = {}
    for machine in survey.machines:
        one, group = machine.instance, groups.get(machine.instance.id)
        at, why = _end(machine, held.get(one.source.id), group, survey.at)
        together.setdefault((at, one.source.id, why, whose(machine, group, deployment)), []).append(one.id)
    found = (Ending(at, id_, why, who, tuple(sorted(ids))) for (at, id_, why, who), ids in together.items())
    return tuple(
        sorted(found, key=lambda one: (one.at is None, one.at or survey.at, one.reservation, one.whose))
    )


def whose(machine: Machine, group: ScalingGroup | None, deployment: str) -> str:
    """By its tags; a group that says it is a member is as good as the tag."""
    tags = dict(machine.tags)
    owner, pool = tags.get(names.TAG_OWNER, ""), tags.get(names.TAG_POOL, "")
    if owner:
        ours = "ours" if owner == deployment else f"deployment {owner}"
        return f"{ours}, pool {pool}" if pool else ours
    if node_group := tags.get(TAG_NODE_GROUP) or (group.node_group if group else ""):
        return f"node group {node_group}"
    if machine.node_pool:
        return f"Karpenter, NodePool {machine.node_pool}"
    if named := tags.get(TAG_GROUP) or (group.name if group else ""):
        return f"Auto Scaling group {named}"
    return f"nobody ({tags['Name']})" if tags.get("Name") else "nobody"


def killed_at(reservation: Reservation) -> datetime | None:
    """An on-demand reservation that ends leaves its instances running, at the hourly price."""
    return kill_at(reservation) if reservation.kind is SourceKind.BLOCK else None


@dataclass(frozen=True, slots=True)
class Shrinking:
    """A group's size as its scheduled actions will have it at some instant."""

    size: int
    zero_since: datetime | None  # None: it is not zero then
    by: str = ""  # the action that brings it to zero; empty: it is there already


def size_at(group: ScalingGroup, at: datetime, now: datetime) -> Shrinking:
    """Played forward from now. An action that names no size keeps the one there is, within its new bounds."""
    size, low, high = group.desired, group.minimum, group.maximum
    since, by = (now, "") if size == 0 else (None, "")
    for action in sorted(group.schedules or (), key=lambda one: one.at):
        if not now < action.at < at:
            continue
        low = low if action.minimum is None else action.minimum
        high = high if action.maximum is None else action.maximum
        size = max(low, min(size if action.desired is None else action.desired, high))
        if size:
            since, by = None, ""
        elif since is None:
            since, by = action.at, "EKS's own action" if action.theirs else action.name
    return Shrinking(size, since, by)


def _end(
    machine: Machine, reservation: Reservation | None, group: ScalingGroup | None, now: datetime
) -> tuple[datetime | None, str]:
    if machine.instance.state is InstanceState.SHUTTING_DOWN:
        return now, "it is ending"
    known = [*_announced(machine), *_of_the_block(machine, reservation, group, now)]
    return min(known, default=(None, "nothing ends it"))


def _announced(machine: Machine) -> Iterable[tuple[datetime, str]]:
    one = machine.instance
    return [(one.ends_at, instance_end_sentence(one.ends_why))] if one.ends_at else []


def _of_the_block(
    machine: Machine, block: Reservation | None, group: ScalingGroup | None, now: datetime
) -> Iterable[tuple[datetime, str]]:
    killed = killed_at(block) if block is not None else None
    if block is None or block.end is None or killed is None:
        return
    yield killed, "EC2 takes the block back"
    if machine.node_pool:
        yield block.end - KARPENTER_DRAINS_BEFORE_END, "Karpenter deletes it"
    if group is not None:
        shrinking = size_at(group, killed, now)
        if shrinking.zero_since is not None:
            by = f" ({shrinking.by})" if shrinking.by else ""
            yield shrinking.zero_since, f"its group goes to 0{by}"


def by_reservation(groups: Iterable[ScalingGroup]) -> Mapping[str, list[ScalingGroup]]:
    found: dict[str, list[ScalingGroup]] = {}
    for group in groups:
        for id_ in group.aim.reservations:
            found.setdefault(id_, []).append(group)
    return found
