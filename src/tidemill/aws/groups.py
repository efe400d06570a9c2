"""Auto Scaling groups over boto3. Few calls read them; only groups with our owner tag are changed.

Groups that EKS made carry EKS's tags only; they are ours where their node group is. A member is ended by its instance
id, in a call that is tried once: a second try could lower the size again, and the group would end another instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tidemill.aws.errors import CallKind
from tidemill.aws.fields import Reader, Unreadable, listed, string, tags
from tidemill.aws.group_records import (
    EKS_GROUP,
    HistoryNeeds,
    group_request,
    history_needs,
    hook_request,
    owner_of,
    read_group,
    read_hook,
    read_schedule,
    tags_request,
)
from tidemill.aws.session import Aws
from tidemill.model.ec2_facts import LONGEST_HOOK_WAIT
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.ports.compute import Group, GroupShape, Hook, Schedule
from tidemill.spec import names

_PAGE = 100
# Enough activities to find the last failed launch. Members that wait in a hook may need older ones.
_HISTORY = 20
_SERVICE = "autoscaling"
_OURS = "tidemill"  # how the names of our hooks begin; people may have other hooks


class AwsGroups:
    """The part of `ports.Compute` about Auto Scaling groups."""

    def __init__(self, aws: Aws, owner: str, cluster: str = "") -> None:
        """`cluster`: the EKS cluster whose node groups have groups behind them; empty: there is none."""
        self._aws, self._owner, self._cluster = aws, owner, cluster
        self._reader = Reader()
        self._ours: frozenset[str] = frozenset()  # names, as of the last list
        self._hooks: dict[str, Hook | None] = {}  # by group; only we change the hooks of our groups

    def groups(self) -> tuple[Group, ...]:
        records = self._records(f"tag:{names.TAG_OWNER}", self._owner)
        if self._cluster:
            behind = self._records("tag:eks:cluster-name", self._cluster)
            records += [
                record for record in behind if isinstance(record, Mapping) and self._is_behind_ours(record)
            ]
        found = tuple(self._read(records)) if records else ()
        self._ours = frozenset(group.shape.name for group in found)
        return found

    def put_group(self, shape: GroupShape) -> None:
        known = self._described(shape.name)
        if known is None:
            hooks = {"LifecycleHookSpecificationList": [hook_request(shape.hook)]} if shape.hook else {}
            asked = group_request(shape) | tags_request(shape) | hooks
            self._change("CreateAutoScalingGroup", **asked, MinSize=0, DesiredCapacity=0)
            self._hooks[shape.name] = shape.hook
            self._suspend(shape)
            return
        self._must_be_ours(known)
        self._change("UpdateAutoScalingGroup", **group_request(shape))
        self._change("CreateOrUpdateTags", **tags_request(shape))
        self._hooks.pop(shape.name, None)
        if shape.hook is not None:
            self._change("PutLifecycleHook", AutoScalingGroupName=shape.name, **hook_request(shape.hook))
            self._hooks[shape.name] = shape.hook
        self._suspend(shape)

    def resize(self, group: str, desired: int) -> None:
        self._find(group)
        self._change(
            "SetDesiredCapacity", AutoScalingGroupName=group, DesiredCapacity=desired, HonorCooldown=False
        )

    def terminate_in_group(self, instance_id: str) -> None:
        found = self._aws.read(_SERVICE, "DescribeAutoScalingInstances", InstanceIds=[instance_id])
        for record in listed(found, "AutoScalingInstances"):
            name, state = _text(record, "AutoScalingGroupName"), _text(record, "LifecycleState")
            self._check_group_of(instance_id, name)
            if not state.startswith("Terminat"):
                self._aws.call(_SERVICE, "TerminateInstanceInAutoScalingGroup", CallKind.ONCE, InstanceId=instance_id,
                               ShouldDecrementDesiredCapacity=True)  # fmt: skip
            return
        raise Gone(f"{instance_id} is in no Auto Scaling group")

    def release(self, group: str, hook: str, instance_id: str) -> None:
        self._change("CompleteLifecycleAction", AutoScalingGroupName=group, LifecycleHookName=hook,
                     InstanceId=instance_id, LifecycleActionResult="CONTINUE")  # fmt: skip

    def put_schedule(self, group: str, schedule: Schedule) -> None:
        sizes = {
            "DesiredCapacity": schedule.desired,
            "MinSize": schedule.minimum,
            "MaxSize": schedule.maximum,
        }
        given = {key: size for key, size in sizes.items() if size is not None}
        self._change("PutScheduledUpdateGroupAction", AutoScalingGroupName=group, ScheduledActionName=schedule.name,
                     StartTime=schedule.at, **given)  # fmt: skip

    def delete_schedule(self, group: str, name: str) -> None:
        self._change("DeleteScheduledAction", AutoScalingGroupName=group, ScheduledActionName=name)

    def delete_group(self, name: str) -> None:
        self._find(name)
        self._change("DeleteAutoScalingGroup", AutoScalingGroupName=name, ForceDelete=False)
        self._hooks.pop(name, None)

    # --- reading --------------------------------------------------------------------------------------

    def _is_behind_ours(self, record: Mapping[str, Any]) -> bool:
        """Of a group that EKS made: whether its node group is ours. Overridden by `AwsNodeGroups`."""
        return False

    def _records(self, filter_: str, value: str) -> list[Any]:
        return list(
            self._aws.pages(
                _SERVICE,
                "DescribeAutoScalingGroups",
                "AutoScalingGroups",
                MaxRecords=_PAGE,
                Filters=[{"Name": filter_, "Values": [value]}],
            )
        )

    def _read(self, records: Sequence[Any]) -> list[Group]:
        listed = self._aws.pages(
            _SERVICE, "DescribeScheduledActions", "ScheduledUpdateGroupActions", MaxRecords=_PAGE
        )
        actions = self._reader.each("a scheduled action", listed, read_schedule)

        found: list[Group] = []
        for record, name, needs in self._reader.each("the Auto Scaling group", records, _read_needs):
            mine = sorted((one for group, one in actions if group == name), key=lambda action: action.at)
            # Called outside the reader, which leaves out what it cannot read. A failed call says nothing about the
            # group; if it counted as gone, its members would be terminated in EC2 and the group would replace them.
            hook, history = self._hook_of(name, record), self._history(name, needs)
            read = partial(read_group, schedules=mine, hook=hook, history=history)
            found += self._reader.each("the Auto Scaling group", [record], read)
        return found

    def _history(self, name: str, needs: HistoryNeeds) -> Sequence[Mapping[str, Any]]:
        """Its last activities, newest first; read only where they are needed, and as far back as needed."""
        if not needs:
            return ()
        found: list[Mapping[str, Any]] = []
        waiting = set(needs.waiting)
        listing = self._aws.pages(
            _SERVICE, "DescribeScalingActivities", "Activities", AutoScalingGroupName=name, MaxRecords=_PAGE
        )
        for entry in listing:
            (activity,) = listed([entry], "Activities")
            found.append(activity)
            waiting -= {id_ for id_ in waiting if str(activity.get("Description", "")).endswith(id_)}
            if (len(found) >= _HISTORY and not waiting) or _is_older(activity, found[0], LONGEST_HOOK_WAIT):
                break
        return found

    def _hook_of(self, name: str, record: Mapping[str, Any]) -> Hook | None:
        if EKS_GROUP in dict(tags(record)):
            return None  # EKS manages its hooks
        if name not in self._hooks:
            answer = self._aws.read(_SERVICE, "DescribeLifecycleHooks", AutoScalingGroupName=name)
            found = self._reader.each("a hook", listed(answer, "LifecycleHooks"), read_hook)
            self._hooks[name] = max(
                filter(None, found), key=lambda hook: hook.name.startswith(_OURS), default=None
            )
        return self._hooks[name]

    def _described(self, name: str) -> Mapping[str, Any] | None:
        answer = self._aws.read(_SERVICE, "DescribeAutoScalingGroups", AutoScalingGroupNames=[name])
        return next(iter(listed(answer, "AutoScalingGroups")), None)

    def _find(self, name: str) -> Mapping[str, Any]:
        found = self._described(name)
        if found is None:
            raise Gone(f"there is no Auto Scaling group '{name}'")
        self._must_be_ours(found)
        return found

    def _check_group_of(self, instance_id: str, name: str) -> None:
        if name in self._ours:
            return  # listed as ours a moment ago: hundreds may be ended at once, and each check costs a call
        try:
            self._find(name)
        except (
            Gone
        ) as why:  # as an instance without a group it would be ended in EC2, and the group would replace it
            raise Retryable(f"{instance_id} is in {name}, which Auto Scaling does not list") from why

    def _must_be_ours(self, record: Mapping[str, Any]) -> None:
        try:
            ours = owner_of(record) == self._owner or self._is_behind_ours(record)
        except Unreadable:
            ours = False
        if not ours:
            name = record.get("AutoScalingGroupName")
            raise Refused(f"the Auto Scaling group {name} does not carry the owner tag of {self._owner}")

    # --- changing -------------------------------------------------------------------------------------

    def _change(self, operation: str, **given: Any) -> None:
        self._aws.call(_SERVICE, operation, CallKind.CHANGE, **given)

    def _suspend(self, shape: GroupShape) -> None:
        if shape.suspended:
            self._change(
                "SuspendProcesses",
                AutoScalingGroupName=shape.name,
                ScalingProcesses=list(shape.suspended),
            )


def _read_needs(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, HistoryNeeds]:
    """What must be read about a group before the group itself. Raises Unreadable."""
    tags(record)
    return record, string(record, "AutoScalingGroupName"), history_needs(record)


def _is_older(activity: Mapping[str, Any], newest: Mapping[str, Any], by: timedelta) -> bool:
    began, last = activity.get("StartTime"), newest.get("StartTime")
    return isinstance(began, datetime) and isinstance(last, datetime) and last - began > by


def _text(record: Mapping[str, Any], key: str) -> str:
    try:
        return string(record, key)
    except Unreadable as why:
        raise Retryable(f"the answer of Auto Scaling cannot be read: {why}") from why
