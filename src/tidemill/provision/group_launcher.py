"""Launch and terminate through Auto Scaling groups and EKS node groups: sizes are set, members are ended by name.

A group launches when it likes, so a launch returns no ids. A member that is ended waits in the terminate hook of its
group until it is released. Its node is drained before it is ended here, so each call does the step that is due: end it,
then release it.
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
from tidemill.provision.native import DOCUMENTS
from tidemill.provision.wanted_groups import group_on_reservation, hourly_group
from tidemill.spec import Spec


class GroupLauncher:
    def __init__(
        self,
        spec: Spec,
        compute: Compute,
        clock: Clock,
        group_state: GroupState,
        launches: Callable[[], Sequence[LaunchIntent]],
        template_inputs: TemplateInputsOf,
    ) -> None:
        self._spec, self._compute, self._clock = spec, compute, clock
        self._state, self._launches, self._template_inputs = group_state, launches, template_inputs
        self._sizes: dict[str, int] = {}  # what this process set last, by name of the group or node group

    # --- Cloud.launch and Cloud.terminate -------------------------------------------------------------

    def launch(self, intent: LaunchIntent) -> None:
        """Refused: AWS or the documents do not allow it, and another try soon would change nothing."""
        try:
            group_spec = self.spec_of(GroupKey.of(intent))
            if change_before_launch(group_spec, self._state.existing) is not None:
                self.put(group_spec)  # first: nodes from an older template would have to be replaced
                self._state.invalidate(node_groups=group_spec.managed)
            self.resize_to_need(group_spec)
        except SpecError as error:
            raise Refused(str(error), code=DOCUMENTS) from error

    def terminate(self, instance_id: str) -> bool:
        """False: it is in no group. Idempotent: called again, it releases the instance from the hook."""
        found = self._state.member(instance_id)
        if found is None:
            return self._terminate_unseen(instance_id)
        group, member = found
        try:
            if member.waits and group.shape.hook is not None:
                self._compute.release(group.shape.name, group.shape.hook.name, instance_id)
                self._state.update(_with(group, replace(member, state="Terminating:Proceed")))
            elif member.stays:
                self._compute.terminate_in_group(instance_id)
                left = max(group.minimum, group.desired - member.counts)
                self._sizes[group.node_group or group.shape.name] = left
                self._state.update(replace(_with(group, replace(member, state="Terminating")), desired=left))
        except TidemillError:
            self._state.invalidate()  # the outcome is not known
            raise
        return True

    def _terminate_unseen(self, instance_id: str) -> bool:
        """No group that was read has it. A group that could not be read would replace an instance ended in EC2."""
        try:
            self._compute.terminate_in_group(instance_id)
        except Gone:
            return False
        self._state.invalidate()
        return True

    # --- groups -------------------------------------------------------------------------------------

    def spec_of(self, key: GroupKey) -> GroupSpec:
        pool = self._spec.pools.get(key.pool)
        if pool is None:
            raise SpecError(f"there is no pool {key.pool} any more")
        if not key.source.id:
            return hourly_group(self._spec, pool, key, self._template_inputs)
        for reservation in self._state.reservations:
            if reservation.source == key.source:
                return group_on_reservation(
                    self._spec, pool, reservation, self._clock.now(), self._template_inputs, None
                )
        raise NoCapacity(f"{key.source.id} is not listed")

    def put(self, group_spec: GroupSpec) -> None:
        """Create or change the group. The caller invalidates the state afterwards, once for all groups."""
        behind = self._state.existing.behind(group_spec)
        if behind is None:
            self._sizes[group_spec.name] = 0  # it is created empty
        group_spec = replace(group_spec, maximum=maximum_size(group_spec, behind))
        version = self._compute.put_template(group_spec.template)
        if group_spec.managed:
            self._compute.put_node_group(managed.shape(group_spec, version))
        else:
            self._compute.put_group(asg.shape(group_spec, version))

    def resize_to_need(self, group_spec: GroupSpec) -> None:
        """Set the size that open launch intents need. A node group that EKS is changing gets it later."""
        group = self._state.existing.behind(group_spec)
        if group is not None:
            self._remove_dead(group)
            group = self._state.existing.behind(group_spec)
        if group is None:
            return
        if group.desired < sum(member.counts for member in group.members):
            return  # somebody is scaling it in: it has not chosen an instance yet, and must not be held up
        over = group_spec.deadline is not None and self._clock.now() >= group_spec.deadline
        lacking = 0 if over else missing_instances(group_spec.key, self._launches(), self._state.intent_of)
        target = target_size(group, lacking, [instance.id for instance in self._state.instances])
        if target > group.desired or (target < group.desired and (over or self._is_ours(group_spec, group))):
            self._resize(group_spec, group, target)

    def _remove_dead(self, group: Group) -> None:
        """Terminate dead members by name: the group counts them, and launches nothing in their place."""
        for member in self._state.dead_members(group):
            self.terminate(member.instance_id)

    def shrink_unwanted(self, group: Group) -> None:
        """No document asks for this group: lower its size to the members it has, unless people set it."""
        self._remove_dead(group)
        fresh = (known for known in self._state.groups if known.shape.name == group.shape.name)
        group = next(fresh, group)
        staying, name = sum(member.counts for member in group.members), group.node_group or group.shape.name
        # The size of an hourly group may be people's own.
        ours = is_for_a_reservation(name) or self._set_by_us(name, group)
        if group.desired > staying and ours:
            if group.node_group:
                self._compute.resize_node_group(group.node_group, staying)
            else:
                self._compute.resize(group.shape.name, staying)
            self._state.update(replace(group, desired=staying))

    def _resize(self, group_spec: GroupSpec, group: Group, target: int) -> None:
        if group_spec.managed:
            node_group = self._state.existing.node_groups[group_spec.name]
            if node_group.status not in managed.CHANGEABLE:
                return
            self._compute.resize_node_group(group_spec.name, target)
        else:
            self._compute.resize(group_spec.name, target)
        self._sizes[group_spec.name] = target
        self._state.update(replace(group, desired=target))

    def _is_ours(self, group_spec: GroupSpec, group: Group) -> bool:
        scheduled = {schedule.desired for schedule in group_spec.schedules}
        return group.desired in scheduled or self._set_by_us(group_spec.name, group)

    def _set_by_us(self, name: str, group: Group) -> bool:
        """A size that people set by hand stays while it can be reached (SM-5). After a restart it is not known who set
        it; then a group that fails to launch goes back to the size the engine needs."""
        known = self._sizes.get(name)
        return group.desired == known or (known is None and group.launch_error is not None)


def _with(group: Group, changed: Member) -> Group:
    members = (changed if member.instance_id == changed.instance_id else member for member in group.members)
    return replace(group, members=tuple(members))
