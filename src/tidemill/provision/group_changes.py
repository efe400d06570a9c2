"""The difference between the groups that exist and those that should, as changes with reasons. Pure.

`tidemill plan` shows the changes and the group reconciler carries them out. Only groups with our owner tag are looked
at. A group is removed only when it is empty and its source is over. A change that must wait (the template of a node
group with nodes) is reported and not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tidemill.model.labels import Pairs
from tidemill.ports.compute import Group, NodeGroup, Schedule, TemplateVersion
from tidemill.provision import asg, managed
from tidemill.provision.group_sizes import maximum_size
from tidemill.provision.group_spec import GroupSpec, is_for_a_reservation
from tidemill.spec import names
from tidemill.spec.units import format_instant

Verb = Literal["create", "change", "remove"]
_EMPTY_AND_UNUSED = "it is empty, and nothing launches from it any more"


@dataclass(frozen=True, slots=True)
class ExistingGroups:
    """What AWS lists of ours. `groups` has the Auto Scaling groups behind node groups too."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    node_groups: Mapping[str, NodeGroup] = field(default_factory=dict)
    templates: Mapping[str, TemplateVersion] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        groups: Iterable[Group],
        node_groups: Iterable[NodeGroup],
        templates: Iterable[TemplateVersion] = (),
    ) -> ExistingGroups:
        return cls(
            {group.shape.name: group for group in groups},
            {node_group.shape.name: node_group for node_group in node_groups},
            {template.name: template for template in templates},
        )

    def behind(self, group_spec: GroupSpec) -> Group | None:
        """The Auto Scaling group that launches its nodes."""
        if not group_spec.managed:
            return self.groups.get(group_spec.name)
        node_group = self.node_groups.get(group_spec.name)
        return None if node_group is None else self.groups.get(node_group.group)


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Create it, with its launch template, or change it where it differs."""

    wanted: GroupSpec
    verb: Verb
    reason: str

    @property
    def about(self) -> str:
        return f"{'node group' if self.wanted.managed else 'group'} {self.wanted.name}"


@dataclass(frozen=True, slots=True)
class PutSchedule:
    group: str
    schedule: Schedule
    verb: Verb
    reason: str

    @property
    def about(self) -> str:
        return f"schedule {self.schedule.name} of {self.group}"


@dataclass(frozen=True, slots=True)
class DropSchedule:
    group: str
    name: str
    reason: str
    verb: Verb = "remove"

    @property
    def about(self) -> str:
        return f"schedule {self.name} of {self.group}"


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    name: str
    managed: bool
    reason: str
    verb: Verb = "remove"

    @property
    def about(self) -> str:
        return f"{'node group' if self.managed else 'group'} {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveTemplate:
    name: str
    reason: str
    verb: Verb = "remove"

    @property
    def about(self) -> str:
        return f"launch template {self.name}"


@dataclass(frozen=True, slots=True)
class LetNodesJoin:
    role: str
    reason: str
    verb: Verb = "create"

    @property
    def about(self) -> str:
        return f"access entry of {self.role}"


Change = PutGroup | PutSchedule | DropSchedule | RemoveGroup | RemoveTemplate | LetNodesJoin


@dataclass(frozen=True, slots=True)
class GroupChanges:
    now: tuple[Change, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()  # which group, and what its change waits for


def group_changes(
    wanted: Iterable[GroupSpec],
    existing: ExistingGroups,
    now: datetime,
    live: Collection[str] = frozenset(),
    joined_roles: Collection[str] | None = None,
) -> GroupChanges:
    """`live`: scheduled and active reservations. Their templates stay, whoever launches from them.

    `joined_roles`: roles that have an access entry for certain. Others get one; where there is one, nothing changes.
    None: not known, and only roles of new groups are listed.
    """
    wanted = tuple(wanted)
    new = {
        group_spec.role
        for group_spec in wanted
        if not group_spec.managed and _has_new_template(group_spec, existing)
    }
    if joined_roles is not None:
        new |= {group_spec.role for group_spec in wanted if not group_spec.managed} - set(joined_roles)
    # For self-managed nodes; EKS adds the access entry of its own node groups.
    reason = "self-managed nodes join by an access entry of their role"
    listed: list[Change] = [LetNodesJoin(role, reason) for role in sorted(new - {""})]
    waiting: list[tuple[str, str]] = []
    for group_spec in wanted:
        if group_spec.managed:
            _node_group(group_spec, existing, listed, waiting)
        else:
            _auto_scaling_group(group_spec, existing, listed)
            group = existing.groups.get(group_spec.name)
            _schedules(group_spec, () if group is None else group.schedules, now, listed)
    listed += _removals(wanted, existing, live)
    return GroupChanges(tuple(listed), tuple(waiting))


def change_before_launch(group_spec: GroupSpec, existing: ExistingGroups) -> PutGroup | None:
    """What must be created or changed before it launches; None: nothing, or nothing that EKS would do now."""
    listed: list[Change] = []
    if group_spec.managed:
        _node_group(group_spec, existing, listed, [])
    else:
        _auto_scaling_group(group_spec, existing, listed)
    return next((change for change in listed if isinstance(change, PutGroup)), None)


def _has_new_template(group_spec: GroupSpec, existing: ExistingGroups) -> bool:
    """Its nodes will come from a new template, which may name another role."""
    known = existing.groups.get(group_spec.name)
    return known is None or _digest_tag(known.shape.tags) != _digest_tag(group_spec.tags)


# --- Auto Scaling groups --------------------------------------------------------------------------------


def _auto_scaling_group(group_spec: GroupSpec, existing: ExistingGroups, listed: list[Change]) -> None:
    group = existing.groups.get(group_spec.name)
    if group is None:
        listed.append(
            PutGroup(
                group_spec, "create", f"pool {group_spec.key.pool} launches there from {_source(group_spec)}"
            )
        )
    elif differs := _differences(group_spec, group):
        listed.append(PutGroup(group_spec, "change", f"{' and '.join(differs)} changed"))


def _differences(group_spec: GroupSpec, group: Group) -> list[str]:
    has = group.shape
    ours = {
        "its template": _digest_tag(group_spec.tags) == _digest_tag(has.tags),
        "its subnets": set(group_spec.subnets) == set(has.subnets),
        "its maximum size": maximum_size(group_spec, group) == has.maximum,
        "its hook": group_spec.hook == has.hook,
        "its termination policy": has.policies == asg.ENDS_FIRST,
        "its suspended processes": set(asg.SUSPENDED) <= set(has.suspended),  # people may suspend more
        "its tags": _other_tags(group_spec.tags) <= set(has.tags),  # people may add some
    }
    return [what for what, same in ours.items() if not same]


def _schedules(group_spec: GroupSpec, has: tuple[Schedule, ...], now: datetime, listed: list[Change]) -> None:
    known = {schedule.name: schedule for schedule in has if not schedule.by_eks}
    for schedule in group_spec.schedules:
        old = known.pop(schedule.name, None)
        if old is None:
            reason = f"to {schedule.desired} nodes at {format_instant(schedule.at)}"
            listed.append(PutSchedule(group_spec.name, schedule, "create", reason))
        elif old.at != schedule.at:
            reason = f"moved from {format_instant(old.at)} to {format_instant(schedule.at)} with {_source(group_spec)}"
            listed.append(PutSchedule(group_spec.name, schedule, "change", reason))
        elif (old.desired, old.minimum) != (schedule.desired, schedule.minimum):
            listed.append(
                PutSchedule(
                    group_spec.name, schedule, "change", f"to {schedule.desired} nodes, not {old.desired}"
                )
            )
    listed.extend(
        DropSchedule(group_spec.name, name, "nothing needs it any more")
        for name in sorted(known.keys() & {asg.UP, asg.DOWN})  # never the actions of others
        if known[name].at > now
    )


# --- EKS node groups ------------------------------------------------------------------------------------


def _node_group(
    group_spec: GroupSpec, existing: ExistingGroups, listed: list[Change], waiting: list[tuple[str, str]]
) -> None:
    node_group = existing.node_groups.get(group_spec.name)
    if node_group is None:
        listed.append(
            PutGroup(
                group_spec, "create", f"pool {group_spec.key.pool} launches there from {_source(group_spec)}"
            )
        )
        return
    behind, about = existing.groups.get(node_group.group), f"node group {group_spec.name}"
    if _failed_and_empty(node_group, behind):
        reason = f"{managed.problem_of(node_group)}; it is created again once it is deleted"
        listed.append(RemoveGroup(group_spec.name, True, reason))
        return
    differs = _node_group_differences(group_spec, node_group, behind)
    if not differs:
        return
    changed = f"{' and '.join(differs)} changed"
    new_template = _digest_tag(group_spec.tags) != _digest_tag(node_group.shape.tags)
    # The Auto Scaling group behind it is read more often than the node group.
    desired = node_group.desired if behind is None else behind.desired
    if node_group.status not in managed.CHANGEABLE:
        waiting.append((about, f"{changed}; it waits until EKS is done: {node_group.status}"))
    elif new_template and desired:
        # On a block EKS refuses. Elsewhere it would replace the nodes itself, whatever runs there.
        waiting.append((about, f"{changed}; that waits until it is empty: scale it to 0"))
    else:
        listed.append(PutGroup(group_spec, "change", changed))


def _failed_and_empty(node_group: NodeGroup, behind: Group | None) -> bool:
    return node_group.status == managed.CREATE_FAILED and (behind is None or not behind.members)


def _node_group_differences(group_spec: GroupSpec, node_group: NodeGroup, behind: Group | None) -> list[str]:
    has = node_group.shape
    ours = {
        "its template": _digest_tag(group_spec.tags) == _digest_tag(has.tags),
        "its maximum size": maximum_size(group_spec, behind) == has.maximum,
        "its labels": set(group_spec.labels) == set(has.labels),
        "its taints": set(group_spec.taints) == set(has.taints),
        "its tags": _other_tags(group_spec.tags) <= set(has.tags),
        "EKS's node repair, which must be off,": not has.repair,
    }
    return [what for what, same in ours.items() if not same]


# --- what is over ---------------------------------------------------------------------------------------


def _removals(
    wanted: tuple[GroupSpec, ...], existing: ExistingGroups, live: Collection[str]
) -> Iterable[Change]:
    """Empty groups that nothing launches from any more: their block is over, or their pool is gone. Hourly groups stay
    for the next launch."""
    unused = {
        name for name in existing.templates if is_for_a_reservation(name) and not name.endswith(tuple(live))
    }
    unused -= {group_spec.template.name for group_spec in wanted}
    kept = {
        (group_spec.managed, group_spec.name) for group_spec in wanted
    }  # both services may have one of that name
    for name, group in existing.groups.items():
        if (
            (False, name) not in kept
            and _is_idle(group)
            and not group.node_group
            and is_for_a_reservation(name)
        ):
            yield RemoveGroup(name, False, _EMPTY_AND_UNUSED)
        else:
            unused.discard(group.shape.template.name)
    for name, node_group in existing.node_groups.items():
        behind = existing.groups.get(node_group.group)
        unused.discard(node_group.shape.template.name)  # EKS needs it until the node group is gone
        done = behind is not None and _is_idle(behind) and node_group.status in managed.CHANGEABLE
        done |= _failed_and_empty(node_group, behind)
        if (True, name) not in kept and done and is_for_a_reservation(name):
            yield RemoveGroup(name, True, _EMPTY_AND_UNUSED)
    for name in sorted(unused):
        yield RemoveTemplate(name, "nothing launches from it any more")


def _is_idle(group: Group) -> bool:
    return not group.members and group.desired == 0


def _digest_tag(tags: Pairs) -> str:
    return dict(tags).get(names.TAG_TEMPLATE, "")


def _other_tags(tags: Pairs) -> set[tuple[str, str]]:
    return {(key, value) for key, value in tags if key != names.TAG_TEMPLATE}


def _source(group_spec: GroupSpec) -> str:
    return group_spec.key.source.label
