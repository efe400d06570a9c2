"""The difference between the groups that exist and those that should, as changes with reasons. Pure.

`tidemill plan` shows the changes and the group reconciler carries them out. Only groups with our owner tag are looked
at. A group is removed only when it is empty and there is a reason to remove it (`removal_reasons`). A change that must
wait (the template of a node group with nodes) is reported and not listed.
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
from tidemill.provision.group_spec import GroupSpec, reservation_of
from tidemill.provision.removal_reasons import Evidence, RemovalKind, RemovalReason
from tidemill.spec import names
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.units import format_instant

Verb = Literal["create", "change", "remove"]
_ANOTHERS_TEMPLATE = (
    "it was made with a launch template that is not the engine's (a stack's, perhaps), and EKS cannot change which: the"
    " engine launches through it as it is, and changes nothing but its size. Delete it, or its stack, while it is"
    " empty, and the engine makes its own"
)


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
    """It is empty, and there is a reason to remove it."""

    name: str
    managed: bool
    why: RemovalReason
    verb: Verb = "remove"

    @property
    def reason(self) -> str:
        return f"it is empty, and {self.why}"

    @property
    def about(self) -> str:
        return f"{'node group' if self.managed else 'group'} {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveTemplate:
    name: str
    why: RemovalReason
    verb: Verb = "remove"

    @property
    def reason(self) -> str:
        return f"nothing launches from it any more: {self.why}"

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
    evidence: Evidence | None = None,
    joined_roles: Collection[str] | None = None,
    unmade: Collection[tuple[bool, str]] = frozenset(),
) -> GroupChanges:
    """`evidence`: what a removal is decided by; None: nothing is removed. `unmade`: groups that are wanted although
    they are not in `wanted`, because something about them could not be found out.

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
    if evidence is not None:
        kept = {(group_spec.managed, group_spec.name) for group_spec in wanted} | set(unmade)
        listed += _removals({group_spec.template.name for group_spec in wanted}, kept, existing, evidence)
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
        detail = managed.problem_of(node_group)
        why = RemovalReason(RemovalKind.CREATE_FAILED, group_spec.name, detail=detail)
        listed.append(RemoveGroup(group_spec.name, True, why))
        return
    differs = _node_group_differences(group_spec, node_group, behind)
    if not differs:
        return
    if _has_another_template(group_spec, node_group, existing):
        waiting.append((about, _ANOTHERS_TEMPLATE))
        return
    own = existing.templates.get(group_spec.template.name)
    if own is not None and (old_end := _old_end(group_spec, node_group, behind)) is not None:
        why = RemovalReason(RemovalKind.OLD_END, group_spec.key.source.label, old_end)
        listed.append(RemoveGroup(group_spec.name, True, why))
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


def _has_another_template(group_spec: GroupSpec, node_group: NodeGroup, existing: ExistingGroups) -> bool:
    """It was made with a template that is not the engine's, by a stack for example, and EKS never changes which."""
    own = existing.templates.get(group_spec.template.name)
    return bool(existing.templates) and (own is None or own.id != node_group.shape.template.id)


def _failed_and_empty(node_group: NodeGroup, behind: Group | None) -> bool:
    """EKS names the group behind it: one that is named and not listed may have members."""
    empty = not node_group.group if behind is None else not behind.members
    return node_group.status == managed.CREATE_FAILED and empty


def _old_end(group_spec: GroupSpec, node_group: NodeGroup, behind: Group | None) -> datetime | None:
    """When EKS's own action fires, which nobody else may move, if it is for an older end of the block. A new node
    group gets the right date; while this one is empty, that costs nobody anything. Its template has the deadline in it,
    so one that was made for this end is never taken for an older one, whatever EKS does."""
    made_for_another = _digest_tag(group_spec.tags) != _digest_tag(node_group.shape.tags)
    if behind is None or not _is_idle(behind) or node_group.status not in managed.CHANGEABLE:
        return None
    stays_behind = any(schedule.by_eks for schedule in asg.early_scale_downs(behind, group_spec.deadline))
    return asg.emptied_at(behind, group_spec.deadline) if made_for_another and stays_behind else None


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
    used: Collection[str], kept: Collection[tuple[bool, str]], existing: ExistingGroups, evidence: Evidence
) -> Iterable[Change]:
    """Empty groups that there is a reason to remove. Hourly groups stay for the next launch. `used`: templates that
    wanted groups launch from; `kept`: the groups that stay."""
    unused = {
        name: over
        for name in existing.templates
        if name not in used and (over := evidence.source_is_over(reservation_of(name)))
    }
    for name, group in existing.groups.items():
        why = None if group.node_group or (False, name) in kept else removal_reason(group, evidence)
        if why is not None and _is_idle(group):
            yield RemoveGroup(name, False, why)
        else:
            unused.pop(group.shape.template.name, None)
    for name, node_group in existing.node_groups.items():
        behind = existing.groups.get(node_group.group)
        unused.pop(node_group.shape.template.name, None)  # EKS needs it until the node group is gone
        done = behind is not None and _is_idle(behind) and node_group.status in managed.CHANGEABLE
        done |= _failed_and_empty(node_group, behind)
        why = None if (True, name) in kept else removal_reason(node_group, evidence)
        if why is not None and done:
            yield RemoveGroup(name, True, why)
    for name, over in sorted(unused.items()):
        yield RemoveTemplate(name, over)


def removal_reason(found: Group | NodeGroup, evidence: Evidence) -> RemovalReason | None:
    """Why nothing should launch from it any more; None: there is no reason, or it is for hourly capacity."""
    provisioner = Provisioner.MANAGED if isinstance(found, NodeGroup) else Provisioner.ASG
    pool = dict(found.shape.tags).get(names.TAG_POOL, "")
    source = reservation_of(found.shape.name)
    return evidence.not_wanted(pool, provisioner, source) if source else None


def _is_idle(group: Group) -> bool:
    return not group.members and group.desired == 0


def _digest_tag(tags: Pairs) -> str:
    return dict(tags).get(names.TAG_TEMPLATE, "")


def _other_tags(tags: Pairs) -> set[tuple[str, str]]:
    return {(key, value) for key, value in tags if key != names.TAG_TEMPLATE}


def _source(group_spec: GroupSpec) -> str:
    return group_spec.key.source.label
