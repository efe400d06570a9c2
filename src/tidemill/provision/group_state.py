"""The groups that exist, read once per tick, and what they add to the list of instances.

An instance of a group carries no launch intent in its tags: it is assigned one here. An instance that waits in a
terminate hook, or that a scheduled action will end before its block ends, gets its end here, so that the engine's
ordinary drain empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.read_models import deadline_of
from tidemill.model.capacity import Reservation
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance
from tidemill.model.purchases import LaunchIntent
from tidemill.model.reasons import InstanceEnd, InstanceEndKind
from tidemill.ports import Clock
from tidemill.ports.compute import Compute, Group, Member, NodeGroup
from tidemill.provision import managed
from tidemill.provision.asg import early_scale_downs, emptied_at, size_after
from tidemill.provision.group_changes import ExistingGroups
from tidemill.provision.group_sizes import assign_intents, launches_through_groups
from tidemill.provision.group_spec import GroupKey, group_name
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner

# Each node group takes one DescribeNodegroup call and they change seldom. Whoever changes one invalidates the list.
_NODE_GROUPS_KNOWN_FOR = timedelta(minutes=10)
# The engine must release an instance before the heartbeat of its hook runs out.
HOOK_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _End:
    at: datetime
    why: InstanceEnd
    leaves: bool = False


class GroupState:
    def __init__(
        self, compute: Compute, clock: Clock, launches: Callable[[], Sequence[LaunchIntent]]
    ) -> None:
        self._compute, self._clock, self._launches = compute, clock, launches
        self._groups: tuple[Group, ...] | None = None
        self._node_groups: tuple[NodeGroup, ...] | None = None
        self._node_groups_read_at: datetime | None = None
        self._first_seen_waiting: dict[str, datetime] = {}
        self._known: dict[str, tuple[Instance, Instance]] = {}  # id -> as listed, as annotated
        self._answer: tuple[object, tuple[Instance, ...]] = (None, ())
        self.intent_of: dict[str, str] = {}  # instance id -> intent id
        self.reservations: tuple[Reservation, ...] = ()
        self.instances: tuple[Instance, ...] = ()

    # --- reading ------------------------------------------------------------------------------------

    @property
    def existing(self) -> ExistingGroups:
        return ExistingGroups.of(self.groups, self.node_groups)

    @property
    def groups(self) -> tuple[Group, ...]:
        if self._groups is None:
            self._groups = tuple(self._compute.groups())
        return self._groups

    @property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        known, read_at, now = self._node_groups, self._node_groups_read_at, self._clock.now()
        busy = known is not None and any(node_group.status in managed.AT_WORK for node_group in known)
        good_for = timedelta(0) if busy else _NODE_GROUPS_KNOWN_FOR
        if known is None or read_at is None or now - read_at > good_for:
            self._node_groups, self._node_groups_read_at = tuple(self._compute.node_groups()), now
        assert self._node_groups is not None
        return self._node_groups

    @property
    def known_node_groups(self) -> tuple[NodeGroup, ...]:
        """As they were last read; nothing is asked."""
        return self._node_groups or ()

    def invalidate(self, *, node_groups: bool = False) -> None:
        """Read the groups again: something was changed, or a new tick begins."""
        self._groups = None
        if node_groups:
            self._node_groups = None

    def update(self, group: Group) -> None:
        """The group was changed to this. Saves reading all groups again, which costs several calls."""
        if self._groups is not None:
            name = group.shape.name
            self._groups = tuple(group if known.shape.name == name else known for known in self._groups)

    def dead_members(self, group: Group) -> tuple[Member, ...]:
        """Members that EC2 has ended and the group still lists: replacing unhealthy instances is suspended in our
        groups. EKS does it for the groups behind its node groups."""
        if group.node_group or self._answer[0] is None:
            return ()
        ended = {instance.id: instance.state in INSTANCE_ENDED_STATES for instance in self.instances}
        kept = (member for member in group.members if member.stays or member.waits)
        # EC2 lists an ended instance for an hour. After that the health check knows.
        return tuple(member for member in kept if ended.get(member.instance_id, not member.healthy))

    def may_be_in_a_group(self, instance_id: str) -> bool:
        return any(
            instance.id == instance_id and launches_through_groups(instance.provisioner)
            for instance in self.instances
        )

    def member(self, instance_id: str) -> tuple[Group, Member] | None:
        for group in self.groups:
            for member in group.members:
                if member.instance_id == instance_id:
                    return group, member
        return None

    # --- what groups add to the reservations --------------------------------------------------------

    def scale_downs(
        self, spec: Spec, reservations: Iterable[Reservation]
    ) -> dict[str, tuple[tuple[str, datetime], ...]]:
        """By reservation and pool: when its group on it is emptied before the end."""
        by_name = {group.node_group or group.shape.name: group for group in self.groups}
        return {one.id: tuple(_scale_downs(spec, one, by_name)) for one in reservations} if by_name else {}

    # --- what groups add to the instances -----------------------------------------------------------

    def annotate(self, listed: Sequence[Instance]) -> tuple[Instance, ...]:
        """With intents and ends. The same objects, and the same tuple, while nothing about them changed."""
        self.intent_of = assign_intents(listed, self._launches(), self.intent_of)
        ends = self._ends()
        inputs = (listed, dict(self.intent_of), ends)
        if self._answer[0] is not None and _same(self._answer[0], inputs):
            return self._answer[1]
        annotated = tuple(self._annotated(instance, ends) for instance in listed)
        self._known = {before.id: (before, after) for before, after in zip(listed, annotated, strict=True)}
        self._answer = (inputs, annotated)
        self.instances = annotated
        return annotated

    def _annotated(self, instance: Instance, ends: dict[str, _End]) -> Instance:
        if not launches_through_groups(instance.provisioner):
            return instance
        fresh = replace(instance, intent_id=self.intent_of.get(instance.id, instance.intent_id))
        end = ends.get(instance.id)
        if end is not None and (instance.ends_at is None or end.at < instance.ends_at):
            fresh = replace(fresh, ends_at=end.at, ends_why=end.why)
        if end is not None and end.leaves:
            fresh = replace(fresh, leaves=True)
        if fresh == instance:
            return instance
        known = self._known.get(instance.id)
        return known[1] if known is not None and known[0] is instance and known[1] == fresh else fresh

    def _ends(self) -> dict[str, _End]:
        ends: dict[str, _End] = {}
        waiting: dict[str, datetime] = {}
        for group in self.groups:
            # An action that leaves some instances chooses which it ends: those wait in the hook and are drained there.
            early = early_scale_downs(group, self._deadline(group))
            down = next((schedule for schedule in early if size_after(schedule) == 0), None)
            for member in group.members:
                if member.waits and group.shape.hook is not None:
                    since = member.waits_since or self._first_seen_waiting.get(
                        member.instance_id, self._clock.now()
                    )
                    waiting[member.instance_id] = since
                    until = since + timedelta(seconds=group.shape.hook.heartbeat_s) - HOOK_MARGIN
                    why = InstanceEnd(InstanceEndKind.GROUP_SHRUNK, group.shape.name)
                    ends[member.instance_id] = _End(until, why, leaves=True)
                elif down is not None and member.stays:
                    kind = InstanceEndKind.EKS_SCALE_DOWN if down.by_eks else InstanceEndKind.SCHEDULED_ACTION
                    ends[member.instance_id] = _End(down.at, InstanceEnd(kind, group.shape.name, down.name))
        self._first_seen_waiting = waiting
        return ends

    def _deadline(self, group: Group) -> datetime | None:
        """The deadline of the block in its name, or in the name of its node group; None: it has none."""
        provisioner = Provisioner.MANAGED if group.node_group else Provisioner.ASG
        for reservation in self.reservations:
            if (group.node_group or group.shape.name).endswith(reservation.id):
                return deadline_of(reservation, provisioner)
        return None


def _scale_downs(
    spec: Spec, reservation: Reservation, by_name: Mapping[str, Group]
) -> Iterator[tuple[str, datetime]]:
    for pool in spec.pools.values():
        key = GroupKey(pool.name, reservation.source, reservation.instance_type, reservation.zone)
        group = by_name.get(group_name(spec.platform.spec.deployment, key))
        at = None if group is None else emptied_at(group, deadline_of(reservation, pool.spec.provisioner))
        if at is not None:
            yield pool.name, at


def _same(before: object, after: tuple[object, ...]) -> bool:
    assert isinstance(before, tuple)
    return before[0] is after[0] and before[1:] == after[1:]
