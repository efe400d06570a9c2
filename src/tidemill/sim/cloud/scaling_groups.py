"""Auto Scaling groups of the simulated account: a desired size, and members that are launched and ended to meet it.

A group launches like everybody else, so that a block that is full, not active yet or over refuses it in the same words;
the group then tries again for ever, less and less often. It replaces what dies and chooses what to end when it is made
smaller. It knows nothing of what runs on its instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from tidemill.model.errors import Gone, NoCapacity, Refused, Retryable
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.events import Events
from tidemill.sim.cloud.instances import Instances
from tidemill.sim.cloud.launch_template import LaunchSpec
from tidemill.sim.cloud.launches import Launches
from tidemill.sim.cloud.lifecycle_hooks import LifecycleHooks
from tidemill.sim.cloud.scaling_group import Activities, AutoScalingGroup, GroupMember, ScheduledAction
from tidemill.sim.timeline import Journal, Timeline
from tidemill.sim.wakes import Wakes
from tidemill.spec import names
from tidemill.spec.units import format_instant

# AWS documents none of these; observed are some seconds, about a minute, and a growing number of minutes.
REACTION_TIME = timedelta(seconds=5)
HEALTH_CHECK = timedelta(seconds=60)
FIRST_RETRY = timedelta(seconds=30)
LONGEST_RETRY = timedelta(minutes=10)
PROCESSES = ("Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance", "HealthCheck",
             "InstanceRefresh", "ReplaceUnhealthy", "ScheduledActions")  # fmt: skip
_UNHEALTHY = "an instance was taken out of service in response to an EC2 health check"


class ScalingGroups:
    def __init__(
        self, timeline: Timeline, journal: Journal, wakes: Wakes, events: Events, *,
        seed: int, launches: Launches, instances: Instances,
    ) -> None:  # fmt: skip
        self._timeline, self._journal, self._wakes, self._events = timeline, journal, wakes, events
        self._seed, self._launches, self._instances = seed, launches, instances
        self._by_name: dict[str, AutoScalingGroup] = {}
        self._made = 0
        self.version = 0  # counts changes, so that others can tell cheaply whether to look again
        self.on_launch: list[Callable[[AutoScalingGroup, str, str], None]] = []  # group, token, zone
        self._activities = Activities(timeline, events, seed=seed)
        self.hooks = LifecycleHooks(timeline, journal, events, seed=seed, proceed=self._shut_down)
        instances.on_instance.append(self._instance_changed)

    # --- reading ------------------------------------------------------------------------------------

    def all(self) -> tuple[AutoScalingGroup, ...]:
        return tuple(self._by_name.values())

    def find(self, name: str) -> AutoScalingGroup | None:
        return self._by_name.get(name)

    def get(self, name: str) -> AutoScalingGroup:
        group = self._by_name.get(name)
        if group is None:
            raise Gone(f"AutoScalingGroup name not found - {name}", code="ValidationError")
        return group

    def of(self, instance_id: str) -> tuple[AutoScalingGroup, GroupMember] | None:
        for group in self._by_name.values():
            if instance_id in group.members:
                return group, group.members[instance_id]
        return None

    # --- what people and programs ask for -----------------------------------------------------------

    def create(
        self, name: str, launch_spec: LaunchSpec, *, zones: tuple[str, ...], minimum: int = 0, maximum: int = 0,
        desired: int | None = None, tags: Pairs = (), propagated: Pairs = (), template: Any = None,
        subnets: tuple[str, ...] = (), node_group: str = "", policies: tuple[str, ...] = ("Default",),
    ) -> AutoScalingGroup:  # fmt: skip
        if name in self._by_name:
            raise Refused(f"AutoScalingGroup by this name already exists - {name}", code="AlreadyExists")
        wanted = minimum if desired is None else desired
        _check_size(minimum, wanted, maximum)
        self._made += 1
        group = AutoScalingGroup(
            name, launch_spec, zones, minimum, maximum, wanted, self._timeline.now(), tags, propagated, template,
            subnets, policies, node_group=node_group,
        )  # fmt: skip
        self._by_name[name] = group
        self._journal.add("group-made", name, f"{launch_spec.instance_type} on {launch_spec.source.label}")
        self.reconcile_after(group, REACTION_TIME)
        return group

    def update(
        self, name: str, *, minimum: int | None = None, maximum: int | None = None,
        desired: int | None = None, launch_spec: LaunchSpec | None = None, template: Any = None,
        zones: tuple[str, ...] | None = None, subnets: tuple[str, ...] | None = None,
        policies: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        """A size outside the new bounds is moved into them, as Auto Scaling does when none is given."""
        group = self.get(name)
        low = group.minimum if minimum is None else minimum
        high = group.maximum if maximum is None else maximum
        wanted = max(low, min(group.desired, high)) if desired is None else desired
        _check_size(low, wanted, high)
        group.minimum, group.maximum = low, high
        if launch_spec is not None:
            group.launch_spec, group.template = launch_spec, template
        if zones is not None:
            group.zones, group.subnets = zones, subnets or ()
        group.policies = group.policies if policies is None else policies
        self._set_desired(group, wanted, "a user request")

    def set_desired(self, name: str, desired: int) -> None:
        group = self.get(name)
        if not group.minimum <= desired <= group.maximum:
            side, bound = (
                ("below min", group.minimum) if desired < group.minimum else ("above max", group.maximum)
            )
            raise Refused(
                f"New SetDesiredCapacity value {desired} is {side} value {bound} "
                f"for the AutoScalingGroup {name}",
                code="ValidationError",
            )
        self._set_desired(group, desired, "a user request")

    def set_tags(self, name: str, tags: Pairs, propagated: Pairs) -> None:
        """Of the group and of what it launches from now on; its members keep theirs."""
        group = self.get(name)
        group.tags, group.propagated = tags, propagated
        self.version += 1

    def suspend(self, name: str, processes: Iterable[str] = ()) -> None:
        """What it does by itself, in AWS's words; none named: everything."""
        group = self.get(name)
        for process in _valid_processes(processes):
            group.suspended.setdefault(process, self._timeline.now())
        self.version += 1

    def resume(self, name: str, processes: Iterable[str] = ()) -> None:
        group = self.get(name)
        for process in _valid_processes(processes):
            group.suspended.pop(process, None)
        if "ReplaceUnhealthy" not in group.suspended:
            for member in [member for member in group.staying() if not member.healthy]:
                self._end(group, member, by="group", why=_UNHEALTHY)
        self.reconcile_after(group, REACTION_TIME)

    def terminate(self, instance_id: str, *, decrement: bool) -> AutoScalingGroup:
        """Of one instance. Does nothing to a member that is terminating already."""
        membership = self.of(instance_id)
        if membership is None:
            raise Gone(
                f"Instance Id not found - No managed instance found for {instance_id}", code="ValidationError"
            )
        group, member = membership
        if not member.stays:
            return group
        if decrement:
            if group.desired - 1 < group.minimum:
                raise Refused(
                    f"Currently, desiredSize equals minSize ({group.minimum}). Terminating "
                    "instance without replacement will violate group's min size constraint.",
                    code="ValidationError",
                )
            group.desired -= 1
        self._end(group, member, by="engine", why="a call that named it")
        self.reconcile_after(group, REACTION_TIME)
        return group

    def delete(self, name: str, *, force: bool = False) -> None:
        group = self.get(name)
        if group.members and not force:
            raise Refused(
                f"You cannot delete an AutoScalingGroup while there are instances or pending "
                f"Spot instance request(s) still in the group: {name}",
                code="ResourceInUse",
            )
        group.cancel_reconcile()
        group.deleted = True
        for member in list(group.members.values()):
            self.hooks.drop(member)
            self._instances.shut_down(member.instance_id, by="group", why="its group was deleted")
        self.version += 1
        del self._by_name[name]
        self._journal.add("group-deleted", name, "deleted")

    # --- scheduled actions --------------------------------------------------------------------------

    def put_schedule(self, name: str, action: ScheduledAction) -> None:
        """The same name moves it. One that has fired is gone, unless it recurs."""
        group = self.get(name)
        if action.at <= self._timeline.now():
            raise Refused("Given start time is in the past", code="ValidationError")
        for other in group.schedules.values():
            if other.name != action.name and other.at == action.at:
                raise Refused(
                    f"{other.name} is scheduled at {format_instant(action.at)} already", code="AlreadyExists"
                )
        group.schedules[action.name] = action
        self.version += 1
        self._timeline.at(action.at, lambda: self._fire(group, action))

    def delete_schedule(self, name: str, action: str) -> None:
        if self.get(name).schedules.pop(action, None) is None:
            raise Gone(f"Scheduled action name not found - {action}", code="ValidationError")
        self.version += 1

    def _fire(self, group: AutoScalingGroup, action: ScheduledAction) -> None:
        if group.deleted or group.schedules.get(action.name) is not action:
            return  # it was moved or deleted since
        del group.schedules[action.name]
        again = action.following(self._timeline.now())
        if again is not None:
            group.schedules[action.name] = again
            self._timeline.at(again.at, lambda: self._fire(group, again))
        if "ScheduledActions" in group.suspended:
            return
        group.minimum = group.minimum if action.minimum is None else action.minimum
        group.maximum = group.maximum if action.maximum is None else action.maximum
        wanted = group.desired if action.desired is None else action.desired
        self._journal.add("schedule-fired", group.name, f"{action.name}: size {wanted}")
        wanted = max(group.minimum, min(wanted, group.maximum))
        self._set_desired(group, wanted, f"scheduled action {action.name}", after=timedelta(0))

    # --- meeting the size ---------------------------------------------------------------------------

    def reconcile_after(self, group: AutoScalingGroup, after: timedelta) -> None:
        """Compare the desired size with the members after this time, or sooner where that is due already."""
        self.version += 1
        at = self._timeline.now() + after
        if group.next_reconcile is not None and group.next_reconcile <= at:
            return
        group.cancel_reconcile()
        group.next_reconcile = at
        group.cancel_reconcile = self._timeline.at(at, lambda: self._reconcile(group))

    def _set_desired(
        self, group: AutoScalingGroup, desired: int, cause: str, *, after: timedelta = REACTION_TIME
    ) -> None:
        if desired != group.desired:
            self._journal.add("group-resized", group.name, f"from {group.desired} to {desired}: {cause}")
        group.desired = desired
        group.failures = 0
        self.reconcile_after(group, after)

    def _reconcile(self, group: AutoScalingGroup) -> None:
        group.next_reconcile = None
        staying = group.staying()
        missing = group.desired - len(staying)
        if missing > 0 and "Launch" not in group.suspended:
            self._launch(group, missing)
        for member in _to_terminate(group, -missing) if "Terminate" not in group.suspended else ():
            self._end(
                group, member, by="eks" if group.node_group else "group", why="its group was made smaller"
            )

    def _launch(self, group: AutoScalingGroup, missing: int) -> None:
        group.launches += 1
        own = dict(group.launch_spec.tags) | dict(group.propagated)
        where = {zone: sum(member.zone == zone for member in group.members.values()) for zone in group.zones}
        intent = LaunchIntent(
            id=f"{group.name}/{group.made_at.isoformat()}/{group.launches}",
            pool=own.get(names.TAG_POOL, ""),
            source=group.launch_spec.source,
            instance_type=group.launch_spec.instance_type,
            zone=min(where, key=where.__getitem__, default=""),
            count=missing,
            provisioner=own.get(names.TAG_PROVISIONER, ""),
            written_at=self._timeline.now(),
        )
        try:
            ids = self._launches.launch(intent, tuple(own.items()), fills_open=group.launch_spec.fills_open)
        except (NoCapacity, Retryable) as refusal:
            self._failed(group, str(refusal))
            return
        for listener in self.on_launch:
            listener(group, intent.id, intent.zone)
        for instance_id in ids:
            self._joined(group, instance_id, intent.zone)
        if len(ids) < missing:
            self._failed(group, f"{missing - len(ids)} fewer than asked for")
        else:
            group.failures = 0

    def _joined(self, group: AutoScalingGroup, instance_id: str, zone: str) -> None:
        now = self._timeline.now()
        group.members[instance_id] = GroupMember(instance_id, zone, "Pending", now, group.template)
        self._activities.begin(group, f"Launching a new EC2 instance: {instance_id}", instance_id)
        self.version += 1

    def _failed(self, group: AutoScalingGroup, words: str) -> None:
        """Tried again for ever, less and less often."""
        self._activities.fail(group, words)
        retry = min(FIRST_RETRY * 2.0 ** min(group.failures, 10), LONGEST_RETRY)
        if not group.failures:  # only the first failure in a row is told
            self._journal.add("group-launch-failed", group.name, words)
            self._wakes(f"group-launch-failed {group.name}")
        group.failures += 1
        self.reconcile_after(group, retry)

    # --- endings ------------------------------------------------------------------------------------

    def _end(self, group: AutoScalingGroup, member: GroupMember, *, by: str, why: str) -> None:
        member.ended_by, member.ended_why, member.since = by, why, self._timeline.now()
        member.state = "Terminating"
        activity = self._activities.begin(
            group, f"Terminating EC2 instance: {member.instance_id}", member.instance_id, why
        )
        if not member.healthy:  # EC2 has ended it: there is nothing to wait for
            self._remove_member(group, member)
        elif self.hooks.hold(group, member):
            activity.status = "MidTerminatingLifecycleAction"
            self._wakes(f"lifecycle-action {member.instance_id}")
        else:
            self._shut_down(group, member)
        self.version += 1

    def _shut_down(self, group: AutoScalingGroup, member: GroupMember) -> None:
        self.version += 1
        self._instances.shut_down(member.instance_id, by=member.ended_by, why=member.ended_why)

    def _instance_changed(self, instance: Instance) -> None:
        membership = self.of(instance.id)
        if membership is None:
            return
        group, member = membership
        self.version += 1
        if instance.state is InstanceState.RUNNING and member.state == "Pending":
            member.state = "InService"
            self._activities.finish(group, member, "EC2 Instance Launch Successful")
        elif instance.state is InstanceState.SHUTTING_DOWN:
            self._instance_ended(group, member)
        elif instance.state is InstanceState.TERMINATED and not member.stays:
            self._remove_member(group, member)

    def _remove_member(self, group: AutoScalingGroup, member: GroupMember) -> None:
        self._activities.finish(group, member, "EC2 Instance Terminate Successful")
        del group.members[member.instance_id]

    def _instance_ended(self, group: AutoScalingGroup, member: GroupMember) -> None:
        """A termination by the group goes on. An instance that ended otherwise is found by the health check and
        replaced; while that is suspended it stays listed until somebody removes it."""
        self.hooks.drop(member)
        if member.stays:
            member.healthy = False
            if "ReplaceUnhealthy" in group.suspended:
                return
            self._activities.begin(
                group, f"Terminating EC2 instance: {member.instance_id}", member.instance_id, _UNHEALTHY
            )
            self.reconcile_after(group, HEALTH_CHECK)
        member.state = "Terminating"


def _check_size(minimum: int, desired: int, maximum: int) -> None:
    if not 0 <= minimum <= desired <= maximum:
        raise Refused(
            f"Desired capacity:{desired} must be between the specified "
            f"min size:{minimum} and max size:{maximum}",
            code="ValidationError",
        )


def _to_terminate(group: AutoScalingGroup, surplus: int) -> Iterator[GroupMember]:
    """The members a group ends when it is made smaller: the oldest first, or the newest, whatever runs there."""
    staying = group.staying()
    ordered = staying[::-1] if group.policies[:1] == ("NewestInstance",) else staying
    yield from sorted(ordered, key=lambda member: member.healthy)[: max(0, surplus)]


def _valid_processes(processes: Iterable[str]) -> tuple[str, ...]:
    named = tuple(processes) or PROCESSES
    if strange := [process for process in named if process not in PROCESSES]:
        raise Refused(f"{', '.join(strange)} is not a valid scaling process", code="ValidationError")
    return named
