"""Launching and ending through groups: a size that is asked for, and a member that goes by its name.

A group launches when it likes, so a launch answers with no ids. A member that is ended waits in the hook of its group
until it is released: whoever ends it here has drained it, so both happen, one after the other, each time it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.model.errors import Gone, NoCapacity, Refused, SpecError, TidemillError
from tidemill.model.purchases import LaunchIntent
from tidemill.ports import Clock
from tidemill.ports.compute import Compute, Group, Member
from tidemill.provision import asg, managed
from tidemill.provision.group_changes import change_before_launch
from tidemill.provision.group_sizes import maximum_size, missing_instances, target_size
from tidemill.provision.group_spec import GroupKey, GroupSpec, TemplateInputsOf, is_for_a_reservation
from tidemill.provision.group_state import GroupState
from tidemill.provision.wanted_groups import group_on_reservation, hourly_group
from tidemill.spec import Spec


class GroupLauncher:
    def __init__(
        self,
        spec: Spec,
        compute: Compute,
        clock: Clock,
        sight: GroupState,
        launches: Callable[[], Sequence[LaunchIntent]],
        makings: TemplateInputsOf,
    ) -> None:
        self._spec, self._compute, self._clock = spec, compute, clock
        self._sight, self._launches, self._makings = sight, launches, makings
        self._sizes: dict[str, int] = {}  # what this process set last, by name of the group or node group

    # --- the port's verbs ---------------------------------------------------------------------------

    def launch(self, intent: LaunchIntent) -> None:
        """NoCapacity: AWS or the documents do not allow it, and trying again changes nothing soon."""
        try:
            own = self.spec_of(GroupKey.of(intent))
            if change_before_launch(own, self._sight.there) is not None:
                self.put(own)  # first: what it launches from an older template would have to be replaced
                self._sight.invalidate(node_groups=own.managed)
            self.resize_to_need(own)
        except (Refused, SpecError) as refusal:
            raise NoCapacity(str(refusal)) from refusal

    def terminate(self, instance_id: str) -> bool:
        """False: it is in no group. Idempotent: asked again, it is let go from the hook it waits in by then."""
        found = self._sight.member(instance_id)
        if found is None:
            return self._terminate_unseen(instance_id)
        group, member = found
        try:
            if member.waits and group.shape.hook is not None:
                self._compute.release(group.shape.name, group.shape.hook.name, instance_id)
                self._sight.note(_with(group, replace(member, state="Terminating:Proceed")))
            elif member.stays:
                self._compute.terminate_in_group(instance_id)
                left = max(group.minimum, group.desired - member.counts)
                self._sizes[group.node_group or group.shape.name] = left
                self._sight.note(replace(_with(group, replace(member, state="Terminating")), desired=left))
        except TidemillError:
            self._sight.invalidate()  # nobody knows what came of it
            raise
        return True

    def _terminate_unseen(self, instance_id: str) -> bool:
        """No group that was read has it. One that could not be read would replace what EC2 is told to end."""
        try:
            self._compute.terminate_in_group(instance_id)
        except Gone:
            return False
        self._sight.invalidate()
        return True

    # --- groups -------------------------------------------------------------------------------------

    def spec_of(self, place: GroupKey) -> GroupSpec:
        pool = self._spec.pools.get(place.pool)
        if pool is None:
            raise NoCapacity(f"there is no pool {place.pool} any more")
        if not place.source.id:
            return hourly_group(self._spec, pool, place, self._makings)
        for one in self._sight.reservations:
            if one.source == place.source:
                return group_on_reservation(self._spec, pool, one, self._clock.now(), self._makings, None)
        raise NoCapacity(f"{place.source.id} is not listed")

    def put(self, own: GroupSpec) -> None:
        """Whoever puts looks again afterwards: once for all that was put."""
        behind = self._sight.there.behind(own)
        if behind is None:
            self._sizes[own.name] = 0  # it is made empty
        own = replace(own, maximum=maximum_size(own, behind))
        version = self._compute.put_template(own.template)
        if own.managed:
            self._compute.put_node_group(managed.shape(own, version))
        else:
            self._compute.put_group(asg.shape(own, version))

    def resize_to_need(self, own: GroupSpec) -> None:
        """Bring its size to what is wanted now. A node group that EKS is still at work on gets it later."""
        self._remove_dead(own)
        group = self._sight.there.behind(own)
        if group is None:
            return
        if group.desired < sum(one.counts for one in group.members):
            return  # somebody scales it in just now: it has not chosen yet, and must not be held up
        over = own.over_at is not None and self._clock.now() >= own.over_at
        lacking = 0 if over else missing_instances(own.place, self._launches(), self._sight.attributed)
        target = target_size(group, lacking, [one.id for one in self._sight.instances])
        if target > group.desired or (target < group.desired and (over or self._is_ours(own, group))):
            self._resize(own, group, target)

    def _remove_dead(self, own: GroupSpec) -> None:
        """Take the dead off its list, one by one: it counts them as members, and launches nobody in their place."""
        group = self._sight.there.behind(own)
        for one in () if group is None else self._sight.dead_members(group):
            self.terminate(one.instance_id)

    def empty(self, group: Group) -> None:
        """Nobody asks for anything from it: it wants no more than the members it has, unless people say so."""
        for one in self._sight.dead_members(group):
            self.terminate(one.instance_id)
        group = next((one for one in self._sight.groups if one.shape.name == group.shape.name), group)
        staying, name = sum(one.counts for one in group.members), group.node_group or group.shape.name
        hourly_group = not is_for_a_reservation(name)
        if group.desired > staying and not (hourly_group and not self._set_by_us(name, group)):
            if group.node_group:
                self._compute.resize_node_group(group.node_group, staying)
            else:
                self._compute.resize(group.shape.name, staying)
            self._sight.note(replace(group, desired=staying))

    def _resize(self, own: GroupSpec, group: Group, target: int) -> None:
        if own.managed:
            node_group = self._sight.there.node_groups[own.name]
            if node_group.status not in managed.CHANGEABLE:
                return
            self._compute.resize_node_group(own.name, target)
        else:
            self._compute.resize(own.name, target)
        self._sizes[own.name] = target
        self._sight.note(replace(group, desired=target))

    def _is_ours(self, own: GroupSpec, group: Group) -> bool:
        return group.desired in {one.desired for one in own.schedules} or self._set_by_us(own.name, group)

    def _set_by_us(self, name: str, group: Group) -> bool:
        """What people set by hand is theirs while it can be had (SM-5). After a restart nobody knows, and a group that
        fails to launch is taken back to what is wanted."""
        known = self._sizes.get(name)
        return group.desired == known or (known is None and group.launch_error is not None)


def _with(group: Group, member: Member) -> Group:
    others = (member if one.instance_id == member.instance_id else one for one in group.members)
    return replace(group, members=tuple(others))
