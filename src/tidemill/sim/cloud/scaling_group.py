"""What Auto Scaling keeps of a group: members, activities, scheduled actions, hooks. `scaling_groups` changes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tidemill.model.errors import SpecError
from tidemill.model.labels import Pairs
from tidemill.sim.cloud.events import AUTOSCALING, Events
from tidemill.sim.cloud.launch_template import LaunchSpec
from tidemill.sim.timeline import Timeline, seeded_id
from tidemill.spec.units import format_instant

_KEPT = 200  # activities of a group; AWS keeps six weeks of them
Result = Literal["CONTINUE", "ABANDON"]


@dataclass(slots=True)
class GroupMember:
    instance_id: str
    zone: str
    state: str  # AWS's word: Pending, InService, Terminating, Terminating:Wait, Terminating:Proceed
    since: datetime
    template: Any = None  # what it was launched from, as the group names it
    ended_by: str = ""
    ended_why: str = ""
    wait: Wait | None = None
    healthy: bool = True  # as EC2's health check has it

    @property
    def stays(self) -> bool:
        return not self.state.startswith("Terminating")


@dataclass(slots=True)
class Wait:
    """An instance held by a hook, until somebody completes the action or the time is out."""

    hook: LifecycleHook
    token: str
    since: datetime
    until: datetime
    cancel: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LifecycleHook:
    name: str
    heartbeat_s: int = 3600
    result: Result = "ABANDON"
    transition: str = "autoscaling:EC2_INSTANCE_TERMINATING"
    target: str = ""  # where its notices go besides EventBridge: an SQS or SNS ARN
    role: str = ""
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ScheduledAction:
    name: str
    at: datetime
    desired: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    recurrence: str = ""  # a cron line of five fields: it fires again and again; `at` is the next time
    zone: str = ""  # of that line, an IANA name; empty: UTC
    until: datetime | None = None  # it fires no later

    def following(self, now: datetime) -> ScheduledAction | None:
        """As it is after it has fired; None: it is over. SpecError: no cron line, or no time zone."""
        if not self.recurrence:
            return None
        try:
            there = now.astimezone(ZoneInfo(self.zone or "UTC"))
            at = next(CronSim(self.recurrence, there)).astimezone(UTC)
        except (CronSimError, StopIteration):
            raise SpecError(f"Invalid cron expression: {self.recurrence}", code="ValidationError") from None
        except (ZoneInfoNotFoundError, ValueError):
            raise SpecError(f"Invalid time zone: {self.zone}", code="ValidationError") from None
        return None if self.until is not None and at > self.until else replace(self, at=at)


@dataclass(slots=True)
class Activity:
    """One thing a group did or tried. Failed ones carry EC2's own words."""

    id: str
    at: datetime
    description: str
    cause: str
    status: str = "InProgress"  # AWS's word: InProgress, MidTerminatingLifecycleAction, Successful, Failed
    message: str = ""
    ended_at: datetime | None = None
    instance_id: str = ""


@dataclass(slots=True, eq=False)
class AutoScalingGroup:
    name: str
    launch_spec: LaunchSpec
    zones: tuple[str, ...]
    minimum: int
    maximum: int
    desired: int
    made_at: datetime
    tags: Pairs = ()  # of the group
    propagated: Pairs = ()  # those of them its instances get
    template: Any = None  # as the caller that made it names it: in process and on the wire they differ
    subnets: tuple[str, ...] = ()
    policies: tuple[str, ...] = ("Default",)  # whom it ends first, in AWS's words
    suspended: dict[str, datetime] = field(default_factory=dict)  # process, since when
    node_group: str = ""  # the EKS node group it stands behind
    members: dict[str, GroupMember] = field(default_factory=dict)
    hooks: dict[str, LifecycleHook] = field(default_factory=dict)
    schedules: dict[str, ScheduledAction] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)  # oldest first
    deleted: bool = False
    launches: int = 0
    failures: int = 0  # in a row
    next_reconcile: datetime | None = None
    cancel_reconcile: Callable[[], None] = lambda: None

    def staying(self) -> list[GroupMember]:
        """Oldest first."""
        return [member for member in self.members.values() if member.stays]

    @property
    def launch_error(self) -> str | None:
        """The error of its last finished launch, if that failed."""
        for activity in reversed(self.activities):
            if activity.description.startswith("Launching") and activity.status in ("Failed", "Successful"):
                return activity.message if activity.status == "Failed" else None
        return None


class Activities:
    """Lists what a group did and tried, and posts the events that go with it."""

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
        for activity in reversed(group.activities):
            if activity.instance_id == member.instance_id:
                return activity
        return self.begin(group, f"Terminating EC2 instance: {member.instance_id}", member.instance_id)
