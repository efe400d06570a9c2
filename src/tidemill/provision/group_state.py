"""What the groups show, read once for every look of the engine, and what that adds to the instances.

An instance of a group carries no intent: it gets the one it came of here. One that waits in a terminate hook, or that
EKS will end before its block does, gets its end here, so that the engine's ordinary drain empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.deadlines import deadline_of
from tidemill.model.capacity import Reservation
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance
from tidemill.model.purchases import LaunchIntent
from tidemill.model.reasons import InstanceEnd, InstanceEndKind
from tidemill.ports import Clock
from tidemill.ports.compute import Compute, Group, Member, NodeGroup, Schedule
from tidemill.provision import managed
from tidemill.provision.asg import early_scale_downs, size_after
from tidemill.provision.group_changes import ExistingGroups
from tidemill.provision.group_sizes import assign_intents, launches_through_groups
from tidemill.spec.compute_pool import Provisioner

# Node groups are described one by one and change seldom; whoever changes one looks again at once.
_NODE_GROUPS_KNOWN_FOR = timedelta(minutes=10)
# Less than the hook gives: the engine's last call must come before Auto Scaling's.
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
        self._dressed: dict[str, tuple[Instance, Instance]] = {}  # id -> as listed, as shown
        self._answer: tuple[object, tuple[Instance, ...]] = (None, ())
        self.attributed: dict[str, str] = {}  # instance id -> intent id
        self.reservations: tuple[Reservation, ...] = ()
        self.instances: tuple[Instance, ...] = ()

    # --- reading ------------------------------------------------------------------------------------

    @property
    def there(self) -> ExistingGroups:
        return ExistingGroups.of(self.groups, self.node_groups)

    @property
    def groups(self) -> tuple[Group, ...]:
        if self._groups is None:
            self._groups = tuple(self._compute.groups())
        return self._groups

    @property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        known, read_at, now = self._node_groups, self._node_groups_read_at, self._clock.now()
        busy = known is not None and any(one.status in managed.AT_WORK for one in known)
        good_for = timedelta(0) if busy else _NODE_GROUPS_KNOWN_FOR
        if known is None or read_at is None or now - read_at > good_for:
            self._node_groups, self._node_groups_read_at = tuple(self._compute.node_groups()), now
        assert self._node_groups is not None
        return self._node_groups

    def invalidate(self, *, node_groups: bool = False) -> None:
        """What was read is no longer true: something was changed, or a new look begins."""
        self._groups = None
        if node_groups:
            self._node_groups = None

    def note(self, group: Group) -> None:
        """It was changed, and this is known of it without asking again: a group has many members, and each look costs
        several calls."""
        if self._groups is not None:
            name = group.shape.name
            self._groups = tuple(group if one.shape.name == name else one for one in self._groups)

    def dead_members(self, group: Group) -> tuple[Member, ...]:
        """Members that the group keeps on its list although EC2 has ended them: it replaces nobody by itself. Those
        behind EKS's node groups are EKS's business."""
        if group.node_group or self._answer[0] is None:
            return ()
        ended = {one.id: one.state in INSTANCE_ENDED_STATES for one in self.instances}
        kept = (one for one in group.members if one.stays or one.waits)
        # EC2 shows the ended for an hour; before the health check has noticed, and after that, one of the two knows.
        return tuple(one for one in kept if ended.get(one.instance_id, not one.healthy))

    def may_be_in_a_group(self, instance_id: str) -> bool:
        return any(
            one.id == instance_id and launches_through_groups(one.provisioner) for one in self.instances
        )

    def member(self, instance_id: str) -> tuple[Group, Member] | None:
        for group in self.groups:
            for one in group.members:
                if one.instance_id == instance_id:
                    return group, one
        return None

    # --- dressing the instances ---------------------------------------------------------------------

    def annotate(self, listed: Sequence[Instance]) -> tuple[Instance, ...]:
        """The same objects, and the same tuple, as long as nothing about them changed."""
        self.attributed = assign_intents(listed, self._launches(), self.attributed)
        ends = self._ends()
        of = (listed, dict(self.attributed), ends)
        if self._answer[0] is not None and _same(self._answer[0], of):
            return self._answer[1]
        shown = tuple(self._show(one, ends) for one in listed)
        self._dressed = {one.id: (one, dressed) for one, dressed in zip(listed, shown, strict=True)}
        self._answer = (of, shown)
        self.instances = shown
        return shown

    def _show(self, one: Instance, ends: dict[str, _End]) -> Instance:
        if not launches_through_groups(one.provisioner):
            return one
        fresh = replace(one, intent_id=self.attributed.get(one.id, one.intent_id))
        end = ends.get(one.id)
        if end is not None and (one.ends_at is None or end.at < one.ends_at):
            fresh = replace(fresh, ends_at=end.at, ends_why=end.why)
        if end is not None and end.leaves:
            fresh = replace(fresh, leaves=True)
        if fresh == one:
            return one
        known = self._dressed.get(one.id)
        return known[1] if known is not None and known[0] is one and known[1] == fresh else fresh

    def _ends(self) -> dict[str, _End]:
        ends: dict[str, _End] = {}
        waiting: dict[str, datetime] = {}
        for group in self.groups:
            # Of one that leaves some nobody knows whom it ends: they wait in the hook, and are drained there.
            ending = (one for one in early_scale_downs(group, self._deadline(group)) if size_after(one) == 0)
            down = next(ending, None)
            for one in group.members:
                if one.waits and group.shape.hook is not None:
                    since = one.waits_since or self._first_seen_waiting.get(
                        one.instance_id, self._clock.now()
                    )
                    waiting[one.instance_id] = since
                    until = since + timedelta(seconds=group.shape.hook.heartbeat_s) - HOOK_MARGIN
                    why = InstanceEnd(InstanceEndKind.GROUP_SHRUNK, group.shape.name)
                    ends[one.instance_id] = _End(until, why, leaves=True)
                elif down is not None and one.stays:
                    ends[one.instance_id] = _End(down.at, _why(group, down))
        self._first_seen_waiting = waiting
        return ends

    def _deadline(self, group: Group) -> datetime | None:
        """That of the block its name tells, or its node group's; None: it has none."""
        by = Provisioner.MANAGED if group.node_group else Provisioner.ASG
        for one in self.reservations:
            if (group.node_group or group.shape.name).endswith(one.id):
                return deadline_of(one, by)
        return None


def _why(group: Group, down: Schedule) -> InstanceEnd:
    kind = InstanceEndKind.EKS_SCALE_DOWN if down.theirs else InstanceEndKind.SCHEDULED_ACTION
    return InstanceEnd(kind, group.shape.name, down.name)


def _same(before: object, after: tuple[object, ...]) -> bool:
    assert isinstance(before, tuple)
    return before[0] is after[0] and before[1:] == after[1:]
