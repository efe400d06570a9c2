"""Lifecycle hooks on terminating: an instance waits until somebody completes the action, or the time is out.

Only terminations by the group wait. No hook holds back EC2 at the end of a block, or a host that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from tidemill.model.ec2_facts import LONGEST_HOOK_WAIT
from tidemill.model.errors import Gone, Refused
from tidemill.sim.cloud.events import AUTOSCALING, Events
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, GroupMember, LifecycleHook, Wait
from tidemill.sim.timeline import Journal, Timeline, seeded_uuid
from tidemill.spec.units import format_instant

SHORTEST_S, LONGEST_S = 30, 7200
# However often somebody asks for more time: min(48 h, 100 heartbeats).
_MOST_HEARTBEATS = 100
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
TERMINATE_ACTION = "EC2 Instance-terminate Lifecycle Action"

Proceed = Callable[[AutoScalingGroup, GroupMember], None]


class LifecycleHooks:
    def __init__(
        self, timeline: Timeline, journal: Journal, events: Events, *, seed: int, proceed: Proceed
    ) -> None:
        self._timeline, self._journal, self._events, self._seed = timeline, journal, events, seed
        self._proceed = proceed
        self.tested: list[Callable[[AutoScalingGroup, LifecycleHook], None]] = []  # a new hook with a target

    def put(self, group: AutoScalingGroup, hook: LifecycleHook) -> None:
        if not SHORTEST_S <= hook.heartbeat_s <= LONGEST_S:
            raise Refused(
                f"HeartbeatTimeout of {hook.heartbeat_s} s; it is {SHORTEST_S} to {LONGEST_S} s",
                code="ValidationError",
            )
        known = group.hooks.get(hook.name)
        group.hooks[hook.name] = hook
        if hook.target and (known is None or known.target != hook.target):
            for listener in self.tested:
                listener(group, hook)

    def delete(self, group: AutoScalingGroup, name: str) -> None:
        """Instances that wait in it go on."""
        if group.hooks.pop(name, None) is None:
            raise Refused(f"No Lifecycle Hook found with name: {name}", code="ValidationError")
        for member in list(group.members.values()):
            if member.wait is not None and member.wait.hook.name == name:
                self._go_on(group, member)

    def hold(self, group: AutoScalingGroup, member: GroupMember) -> bool:
        """True: the instance waits now. Of several hooks the first; they are rare and hold at the same time."""
        hook = next((hook for hook in group.hooks.values() if hook.transition == TERMINATING), None)
        if hook is None:
            return False
        now = self._timeline.now()
        token = seeded_uuid(self._seed, "lifecycle action", group.name, member.instance_id, now.isoformat())
        member.state = "Terminating:Wait"
        member.wait = Wait(hook, token, now, now, lambda: None)
        self._set_time(group, member, now + timedelta(seconds=hook.heartbeat_s))
        self._journal.add(
            "instance-waits", member.instance_id,
            f"{group.name} ends it ({member.ended_why}); hook {hook.name} holds it until "
            f"{format_instant(member.wait.until)} at the latest",
        )  # fmt: skip
        self._events.post(TERMINATE_ACTION, AUTOSCALING, notice(group, member, member.wait))
        return True

    def complete(self, group: AutoScalingGroup, hook: str, *, instance_id: str = "", token: str = "") -> None:
        """Either result ends the instance: ABANDON only skips what other hooks would have waited for."""
        member = self._waiting(group, hook, instance_id, token)
        self._go_on(group, member)

    def heartbeat(
        self, group: AutoScalingGroup, hook: str, *, instance_id: str = "", token: str = ""
    ) -> None:
        member = self._waiting(group, hook, instance_id, token)
        assert member.wait is not None
        heartbeat = timedelta(seconds=member.wait.hook.heartbeat_s)
        latest = member.wait.since + min(LONGEST_HOOK_WAIT, _MOST_HEARTBEATS * heartbeat)
        self._set_time(group, member, min(self._timeline.now() + heartbeat, latest))

    def drop(self, member: GroupMember) -> None:
        """The instance is gone before anybody completed the action."""
        if member.wait is not None:
            member.wait.cancel()
            member.wait = None

    def _set_time(self, group: AutoScalingGroup, member: GroupMember, until: datetime) -> None:
        assert member.wait is not None
        member.wait.cancel()
        member.wait.until = until
        member.wait.cancel = self._timeline.at(until, lambda: self._go_on(group, member))

    def _go_on(self, group: AutoScalingGroup, member: GroupMember) -> None:
        if member.wait is None:
            return
        self.drop(member)
        member.state = "Terminating:Proceed"
        self._proceed(group, member)

    def _waiting(self, group: AutoScalingGroup, hook: str, instance_id: str, token: str) -> GroupMember:
        for member in group.members.values():
            wait = member.wait
            if wait is None or wait.hook.name != hook:
                continue
            if (token and wait.token == token) or (instance_id and member.instance_id == instance_id):
                return member
        raise Gone(
            f"No active Lifecycle Action found with instance ID {instance_id or token}",
            code="ValidationError",
        )


def notice(group: AutoScalingGroup, member: GroupMember, wait: Wait) -> dict[str, str]:
    """The detail of the event, which is also what a hook's own target is sent."""
    detail = {
        "LifecycleActionToken": wait.token,
        "AutoScalingGroupName": group.name,
        "LifecycleHookName": wait.hook.name,
        "EC2InstanceId": member.instance_id,
        "LifecycleTransition": wait.hook.transition,
        "Origin": "AutoScalingGroup",
        "Destination": "EC2",
    }
    return detail | ({"NotificationMetadata": wait.hook.metadata} if wait.hook.metadata else {})
