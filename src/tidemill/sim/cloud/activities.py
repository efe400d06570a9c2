"""What a group did and tried, as Auto Scaling lists it, and the events that go with it. It decides nothing."""

from __future__ import annotations

from tidemill.sim.cloud.events import AUTOSCALING, Events
from tidemill.sim.cloud.ids import seeded_id
from tidemill.sim.cloud.scaling import Activity, AutoScalingGroup, GroupMember
from tidemill.sim.timeline import Timeline
from tidemill.spec.units import format_instant

_KEPT = 200  # AWS keeps six weeks of them


class Activities:
    def __init__(self, timeline: Timeline, events: Events, *, seed: int) -> None:
        self._timeline, self._events, self._seed = timeline, events, seed

    def begin(
        self, group: AutoScalingGroup, description: str, instance_id: str = "", cause: str = ""
    ) -> Activity:
        now = self._timeline.now()
        id_ = seeded_id(
            "activity", self._seed, group.name, now.isoformat(), str(len(group.activities)), instance_id
        )
        cause = cause or f"the group wants {group.desired} and has {len(group.staying())}"
        activity = Activity(
            id_, now, description, f"At {format_instant(now)} {cause}.", instance_id=instance_id
        )
        group.activities.append(activity)
        del group.activities[:-_KEPT]
        return activity

    def fail(self, group: AutoScalingGroup, words: str) -> None:
        """A launch, in EC2's own words."""
        activity = self.begin(group, "Launching a new EC2 instance")
        activity.status, activity.ended_at = "Failed", self._timeline.now()
        activity.message = f"{words} Launching EC2 instance failed."
        detail = {
            "AutoScalingGroupName": group.name,
            "StatusMessage": activity.message,
            "StatusCode": "Failed",
        }
        self._events.post("EC2 Instance Launch Unsuccessful", AUTOSCALING, detail)

    def finish(self, group: AutoScalingGroup, member: GroupMember, event: str) -> None:
        activity = self._of(group, member)
        activity.status, activity.ended_at = "Successful", self._timeline.now()
        detail = {
            "AutoScalingGroupName": group.name,
            "EC2InstanceId": member.instance_id,
            "ActivityId": activity.id,
            "Cause": activity.cause,
            "StatusCode": "InProgress",  # AWS's own samples say so of what has succeeded
        }
        self._events.post(event, AUTOSCALING, detail)

    def _of(self, group: AutoScalingGroup, member: GroupMember) -> Activity:
        """The last one about it; of one that is no longer kept, a new one."""
        for one in reversed(group.activities):
            if one.instance_id == member.instance_id:
                return one
        return self.begin(group, f"Terminating EC2 instance: {member.instance_id}", member.instance_id)
