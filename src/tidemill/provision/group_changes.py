"""What is there, what should be, and the difference: changes with reasons, for `tidemill plan` and for the reconciler.

Pure. Only groups with our owner tag are ever listed here; one is removed only when it is empty and what it launched
from is over. A change that must wait (an upgrade on a block needs an empty group) is said and not listed.
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
_NOTHING_LEFT = "nothing launches from it any more, and nothing is left in it"


@dataclass(frozen=True, slots=True)
class ExistingGroups:
    """What AWS shows of ours. Groups behind node groups are among the groups."""

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
        """The Auto Scaling group that launches for it."""
        if not group_spec.managed:
            return self.groups.get(group_spec.name)
        node_group = self.node_groups.get(group_spec.name)
        return None if node_group is None else self.groups.get(node_group.group)


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Make it, with its template, or change it where it differs."""

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
    waiting: tuple[tuple[str, str], ...] = ()  # about what, and what it waits for


def group_changes(
    wanted: Iterable[GroupSpec],
    there: ExistingGroups,
    now: datetime,
    live: Collection[str] = frozenset(),
    let_in: Collection[str] | None = None,
) -> GroupChanges:
    """`live`: reservations that are or will be there. Templates onto them stay, whoever launches from them.

    `let_in`: roles whose nodes may join for certain; others are let in again, which changes nothing where they may.
    None: nobody keeps track, and only what is new is listed.
    """
    wanted = tuple(wanted)
    new = {
        group_spec.role for group_spec in wanted if not group_spec.managed and _boots_anew(group_spec, there)
    }
    if let_in is not None:
        new |= {group_spec.role for group_spec in wanted if not group_spec.managed} - set(let_in)
    listed: list[Change] = [_joining(role) for role in sorted(new - {""})]
    waiting: list[tuple[str, str]] = []
    for group_spec in wanted:
        if group_spec.managed:
            _node_group(group_spec, there, listed, waiting)
        else:
            _group(group_spec, there, now, listed)
    listed += _removals(wanted, there, live)
    return GroupChanges(tuple(listed), tuple(waiting))


def change_before_launch(group_spec: GroupSpec, there: ExistingGroups) -> PutGroup | None:
    """What must be made or changed before it launches anything; None: nothing, or nothing that EKS does now."""
    listed: list[Change] = []
    if group_spec.managed:
        _node_group(group_spec, there, listed, [])
    else:
        _auto_scaling_group(group_spec, there, listed)
    return next((one for one in listed if isinstance(one, PutGroup)), None)


def _boots_anew(group_spec: GroupSpec, there: ExistingGroups) -> bool:
    """Nodes will come from a template that none came from before: it may name another role."""
    known = there.groups.get(group_spec.name)
    return known is None or _mark(known.shape.tags) != _mark(group_spec.tags)


def _joining(role: str) -> LetNodesJoin:
    """EKS lets the nodes of its own groups join by itself."""
    return LetNodesJoin(role, "self-managed nodes join by an access entry of their role")


# --- Auto Scaling groups --------------------------------------------------------------------------------


def _group(group_spec: GroupSpec, there: ExistingGroups, now: datetime, listed: list[Change]) -> None:
    group = there.groups.get(group_spec.name)
    _auto_scaling_group(group_spec, there, listed)
    _schedules(group_spec, () if group is None else group.schedules, now, listed)


def _auto_scaling_group(group_spec: GroupSpec, there: ExistingGroups, listed: list[Change]) -> None:
    group = there.groups.get(group_spec.name)
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
        "its template": _mark(group_spec.tags) == _mark(has.tags),
        "its subnets": set(group_spec.subnets) == set(has.subnets),
        "its largest size": maximum_size(group_spec, group) == has.maximum,
        "its hook": group_spec.hook == has.hook,
        "whom it ends first": has.policies == asg.ENDS_FIRST,
        "what it does by itself": set(asg.SUSPENDED) <= set(has.suspended),  # people may suspend more
        "its tags": _others(group_spec.tags) <= set(has.tags),  # people may add some
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
        DropSchedule(group_spec.name, name, "it is no longer wanted")
        for name in sorted(known.keys() & {asg.UP, asg.DOWN})  # what people scheduled themselves is theirs
        if known[name].at > now
    )


# --- EKS node groups ------------------------------------------------------------------------------------


def _node_group(
    group_spec: GroupSpec, there: ExistingGroups, listed: list[Change], waiting: list[tuple[str, str]]
) -> None:
    node_group = there.node_groups.get(group_spec.name)
    if node_group is None:
        listed.append(
            PutGroup(
                group_spec, "create", f"pool {group_spec.key.pool} launches there from {_source(group_spec)}"
            )
        )
        return
    behind, about = there.groups.get(node_group.group), f"node group {group_spec.name}"
    if _failed_and_empty(node_group, behind):
        reason = f"{managed.problem_of(node_group)}; it is made again once it is gone"
        listed.append(RemoveGroup(group_spec.name, True, reason))
        return
    differs = _node_group_differences(group_spec, node_group, behind)
    if not differs:
        return
    words = " and ".join(differs)
    if node_group.status not in managed.CHANGEABLE:
        waiting.append((about, f"{words} changed; it waits until EKS is done: {node_group.status}"))
    elif "its template" in differs and _wants_nodes(node_group, there):
        # On a block EKS refuses; elsewhere it would replace the nodes itself, and ask nobody what runs there.
        waiting.append((about, f"{words} changed; that waits until it is empty: scale it to 0"))
    else:
        listed.append(PutGroup(group_spec, "change", f"{words} changed"))


def _failed_and_empty(node_group: NodeGroup, behind: Group | None) -> bool:
    return node_group.status == managed.CREATE_FAILED and (behind is None or not behind.members)


def _wants_nodes(node_group: NodeGroup, there: ExistingGroups) -> bool:
    """By the group behind it, which is read more often than EKS is asked."""
    behind = there.groups.get(node_group.group)
    return bool(node_group.desired if behind is None else behind.desired)


def _node_group_differences(group_spec: GroupSpec, node_group: NodeGroup, behind: Group | None) -> list[str]:
    has = node_group.shape
    ours = {
        "its template": _mark(group_spec.tags) == _mark(has.tags),
        "its largest size": maximum_size(group_spec, behind) == has.maximum,
        "its labels": set(group_spec.labels) == set(has.labels),
        "its taints": set(group_spec.taints) == set(has.taints),
        "its tags": _others(group_spec.tags) <= set(has.tags),
        "EKS's node repair, which is the engine's business,": not has.repair,
    }
    return [what for what, same in ours.items() if not same]


# --- what is over ---------------------------------------------------------------------------------------


def _removals(
    wanted: tuple[GroupSpec, ...], there: ExistingGroups, live: Collection[str]
) -> Iterable[Change]:
    """Empty ones that nothing launches from any more: their block is over, or their pool left. Groups by the hour stay
    for the next time they are asked for."""
    unused = {
        name for name in there.templates if is_for_a_reservation(name) and not name.endswith(tuple(live))
    }
    unused -= {group_spec.template.name for group_spec in wanted}
    kept = {
        (group_spec.managed, group_spec.name) for group_spec in wanted
    }  # the two services may each have one of that name
    for name, group in there.groups.items():
        if (
            (False, name) not in kept
            and _is_idle(group)
            and not group.node_group
            and is_for_a_reservation(name)
        ):
            yield RemoveGroup(name, False, _NOTHING_LEFT)
        else:
            unused.discard(group.shape.template.name)
    for name, node_group in there.node_groups.items():
        behind = there.groups.get(node_group.group)
        unused.discard(node_group.shape.template.name)  # EKS needs it until the node group is gone
        done = behind is not None and _is_idle(behind) and node_group.status in managed.CHANGEABLE
        done |= _failed_and_empty(node_group, behind)
        if (True, name) not in kept and done and is_for_a_reservation(name):
            yield RemoveGroup(name, True, _NOTHING_LEFT)
    for name in sorted(unused):
        yield RemoveTemplate(name, "nothing is launched from it any more")


def _is_idle(group: Group) -> bool:
    return not group.members and group.desired == 0


def _mark(tags: Pairs) -> str:
    return dict(tags).get(names.TAG_TEMPLATE, "")


def _others(tags: Pairs) -> set[tuple[str, str]]:
    return {(key, value) for key, value in tags if key != names.TAG_TEMPLATE}


def _source(group_spec: GroupSpec) -> str:
    return group_spec.key.source.label
