"""When each instance on a reservation will end if nobody acts, why, and who owns it. Pure.

EC2's termination at the end of a block is the last of several: a group that scales to zero, Karpenter or an announced
retirement may come earlier. The size of a group follows its scheduled actions; manual changes and recurring actions
cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.read_models import kill_at
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import KARPENTER_DRAINS_BEFORE_END
from tidemill.model.nodes import InstanceState
from tidemill.report.survey import (
    TAG_GROUP,
    TAG_NODE_GROUP,
    TAG_NODE_POOL,
    ScalingGroup,
    Survey,
    SurveyedInstance,
)
from tidemill.spec import names
from tidemill.wording.actions import instance_end_sentence


@dataclass(frozen=True, slots=True)
class Ending:
    """Instances that end together. `at` is None if nothing ends them."""

    at: datetime | None
    reservation: str
    why: str
    whose: str
    instances: tuple[str, ...]


def endings(survey: Survey, deployment: str = "") -> tuple[Ending, ...]:
    """The soonest first; those without an end last."""
    held = {reservation.id: reservation for reservation in survey.reservations or ()}
    groups = {id_: group for group in survey.groups for id_ in group.members}
    together: dict[tuple[datetime | None, str, str, str], list[str]] = {}
    for machine in survey.machines:
        instance, group = machine.instance, groups.get(machine.instance.id)
        at, why = _end(machine, held.get(instance.source.id), group, survey.at)
        together.setdefault((at, instance.source.id, why, owner_text(machine, group, deployment)), []).append(
            instance.id
        )
    grouped = (Ending(at, id_, why, who, tuple(sorted(ids))) for (at, id_, why, who), ids in together.items())
    return tuple(
        sorted(grouped, key=lambda end: (end.at is None, end.at or survey.at, end.reservation, end.whose))
    )


def owner_text(machine: SurveyedInstance, group: ScalingGroup | None, deployment: str) -> str:
    """The owner by its tags, or the group that lists it as a member."""
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


def has_no_owner(machine: SurveyedInstance) -> bool:
    """Whether no tag says that a deployment, a node group, Karpenter or an Auto Scaling group manages it."""
    managed_by = (names.TAG_OWNER, TAG_NODE_GROUP, TAG_NODE_POOL, TAG_GROUP)
    tags = dict(machine.tags)
    return not any(tags.get(tag) for tag in managed_by)


def killed_at(reservation: Reservation) -> datetime | None:
    """When EC2 starts to terminate the instances of a block. None for an On-Demand Capacity Reservation: when it
    ends, its instances run on at the on-demand price."""
    return kill_at(reservation) if reservation.kind is SourceKind.BLOCK else None


@dataclass(frozen=True, slots=True)
class ScheduledSize:
    """The size of a group at some instant, after its scheduled actions."""

    size: int
    zero_since: datetime | None  # None: it is not zero
    by: str = ""  # the action that sets it to zero; empty: it is zero already


def size_at(group: ScalingGroup, at: datetime, now: datetime) -> ScheduledSize:
    """Applies the scheduled actions from now on. An action without a size keeps the size, within its new bounds."""
    size, low, high = group.desired, group.minimum, group.maximum
    since, by = (now, "") if size == 0 else (None, "")
    for action in sorted(group.schedules or (), key=lambda action: action.at):
        if not now < action.at < at:
            continue
        low = low if action.minimum is None else action.minimum
        high = high if action.maximum is None else action.maximum
        size = max(low, min(size if action.desired is None else action.desired, high))
        if size:
            since, by = None, ""
        elif since is None:
            since, by = action.at, "EKS's own action" if action.by_eks else action.name
    return ScheduledSize(size, since, by)


def _end(
    machine: SurveyedInstance, reservation: Reservation | None, group: ScalingGroup | None, now: datetime
) -> tuple[datetime | None, str]:
    if machine.instance.state is InstanceState.SHUTTING_DOWN:
        return now, "it is shutting down"
    known = [*_announced(machine), *_of_the_block(machine, reservation, group, now)]
    return min(known, default=(None, "nothing ends it"))


def _announced(machine: SurveyedInstance) -> Iterable[tuple[datetime, str]]:
    instance = machine.instance
    return [(instance.ends_at, instance_end_sentence(instance.ends_why))] if instance.ends_at else []


def _of_the_block(
    machine: SurveyedInstance, block: Reservation | None, group: ScalingGroup | None, now: datetime
) -> Iterable[tuple[datetime, str]]:
    killed = killed_at(block) if block is not None else None
    if block is None or block.end is None or killed is None:
        return
    yield killed, "the block ends"
    if machine.node_pool:
        yield block.end - KARPENTER_DRAINS_BEFORE_END, "Karpenter deletes it"
    if group is not None:
        shrinking = size_at(group, killed, now)
        if shrinking.zero_since is not None:
            by = f" ({shrinking.by})" if shrinking.by else ""
            yield shrinking.zero_since, f"its group scales to 0{by}"


def by_reservation(groups: Iterable[ScalingGroup]) -> Mapping[str, list[ScalingGroup]]:
    by_id: dict[str, list[ScalingGroup]] = {}
    for group in groups:
        for id_ in group.target.reservations:
            by_id.setdefault(id_, []).append(group)
    return by_id
