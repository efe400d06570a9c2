"""Reads everything in an account that has to do with reservations, whoever made it.

Each list is read by itself: a list that may not be read is one line in the result, and the rest is there. The session
refuses every operation but Describe, Get and List. What a group launches into is read from its launch templates: a
plain group has one, a group with mixed instances several, and may launch outside the block from any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tidemill.aws.account import PAGE
from tidemill.aws.errors import CallKind
from tidemill.aws.fields import Reader, integer, optional_record, optional_records, string, tags
from tidemill.aws.group_records import read_hook, read_schedule
from tidemill.aws.instances import read_instance
from tidemill.aws.offers import read_extensions
from tidemill.aws.reservations import read_each, recently_listed, with_extensions
from tidemill.aws.session import Aws
from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import LONGEST_HOOK_WAIT
from tidemill.model.errors import Gone, NotAllowed, PortError, Refused, Retryable
from tidemill.model.offers import Extension
from tidemill.ports import Clock
from tidemill.ports.compute import Hook, Schedule
from tidemill.report.survey import GroupTarget, NotRead, ScalingGroup, Survey, SurveyedInstance, holds_a_slot

T = TypeVar("T")
_READS = ("Describe", "Get", "List")
_MOST_VALUES = 200
_GROUPS_PAGE = 100
# Each template costs a call. An account with more of them is read in part, and the result says so.
_MOST_TEMPLATES = 300


class ReadOnlyAws(Aws):
    """A session that cannot change anything."""

    def call(self, service: str, operation: str, kind: CallKind, **given: Any) -> dict[str, Any]:
        if kind not in (CallKind.READ, CallKind.QUESTION) or not operation.startswith(_READS):
            raise Refused(f"{service}:{operation} is not a read, and this session only reads")
        return super().call(service, operation, kind, **given)


def _tagged(reservation: Reservation) -> str:
    return f" of deployment {reservation.owner}" if reservation.owner else ""


def survey_account(aws: ReadOnlyAws, clock: Clock, catalog: Catalog) -> Survey:
    """NotAllowed: not even GetCallerIdentity works, so nothing else would."""
    who = str(aws.read("sts", "GetCallerIdentity").get("Arn") or "")
    return _AccountReader(aws, clock, catalog).survey(who)


class _AccountReader:
    """Reads the account once, and collects what it could not read."""

    def __init__(self, aws: ReadOnlyAws, clock: Clock, catalog: Catalog) -> None:
        self._aws, self._clock, self._catalog = aws, clock, catalog
        self._reader = Reader()
        self._templates = 0
        self._missed: list[NotRead] = []
        self._unread: tuple[Reservation, ...] = ()
        self._denied: dict[str, NotAllowed] = {}  # what -> why: tried once
        self._parts: dict[
            tuple[str, str], list[str]
        ] = {}  # what could not be read, and why -> of which groups

    def survey(self, who: str) -> Survey:
        reservations = self._tried("Capacity Blocks and reservations", self._reservations)
        machines = self._tried("instances", lambda: self._machines(reservations or ())) or ()
        groups, others = self._tried("Auto Scaling groups", lambda: self._groups(machines)) or ((), 0)
        zones = self._tried("subnets of the groups", lambda: self._zones(groups)) or {}
        for (what, why), names in self._parts.items():
            unread = f"{what} of {', '.join(sorted(dict.fromkeys(names)))}"
            self._missed.append(NotRead(unread, why, what in self._denied))
        return Survey(
            self._clock.now(), self._aws.region, who, reservations, machines, groups, others, zones,
            tuple(self._missed), self._unread,
        )  # fmt: skip

    def _tried(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except PortError as error:
            self._missed.append(NotRead(what, str(error), isinstance(error, NotAllowed)))
            return None

    def _of_each(self, what: str, group: str, read: Callable[[], T]) -> T | None:
        """A call for each group. A missing permission is tried once, and reported in one line."""
        try:
            if what in self._denied:
                raise self._denied[what]
            return read()
        except PortError as error:
            if isinstance(error, NotAllowed):
                self._denied.setdefault(what, error)
            self._parts.setdefault((what, str(error)), []).append(group)
            return None

    # --- reservations and what runs on them -----------------------------------------------------------

    def _reservations(self) -> tuple[Reservation, ...]:
        records = self._ec2("DescribeCapacityReservations", "CapacityReservations", MaxResults=PAGE)
        found = read_each(records, self._catalog, self._reader.log_once)
        history = self._tried("extensions of blocks", self._history) or ()
        self._unread = tuple(one for one in found if one.unread)
        self._missed += [
            NotRead(f"reservation {one.id}{_tagged(one)}", f"AWS lists it, and its record says {one.unread}")
            for one in self._unread
        ]
        readable = [one for one in found if not one.unread]
        return recently_listed(with_extensions(readable, history), self._clock.now())

    def _history(self) -> list[Extension]:
        records = self._ec2(
            "DescribeCapacityBlockExtensionHistory", "CapacityBlockExtensions", MaxResults=PAGE
        )
        return read_extensions(records, self._clock.now(), self._reader.log_once)

    def _machines(self, reservations: Iterable[Reservation]) -> tuple[SurveyedInstance, ...]:
        ids = [reservation.id for reservation in reservations]
        found: list[SurveyedInstance] = []
        for first in range(0, len(ids), _MOST_VALUES):
            filters = [{"Name": "capacity-reservation-id", "Values": ids[first : first + _MOST_VALUES]}]
            for group in self._ec2("DescribeInstances", "Reservations", MaxResults=PAGE, Filters=filters):
                found += self._reader.each(
                    "instance", optional_records(optional_record(group), "Instances"), _machine
                )
        return tuple(surveyed for surveyed in found if holds_a_slot(surveyed.instance))

    # --- groups ---------------------------------------------------------------------------------------

    def _groups(self, machines: Iterable[SurveyedInstance]) -> tuple[tuple[ScalingGroup, ...], int]:
        """The groups that have to do with a reservation, and how many others there are."""
        listed = self._scaling("DescribeAutoScalingGroups", "AutoScalingGroups", MaxRecords=_GROUPS_PAGE)
        records = [record for record in listed if isinstance(record, Mapping)]
        on_reservations = {instance_record.instance.id for instance_record in machines}
        targets = self._targets(records)
        near = [
            record
            for record in records
            if targets[_name(record)].reservations or on_reservations & set(_members(record, staying=False))
        ]
        schedules = self._tried("scheduled actions", self._schedules) if near else {}
        read = self._reader.each(
            "the Auto Scaling group",
            near,
            lambda record: self._group(record, targets[_name(record)], schedules),
        )
        return tuple(sorted(read, key=lambda group: group.name)), len(records) - len(near)

    def _group(
        self, record: Mapping[str, Any], target: GroupTarget, schedules: Mapping[str, list[Schedule]] | None
    ) -> ScalingGroup:
        name = string(record, "AutoScalingGroupName")
        own = tags(record)
        made = ScalingGroup(
            name=name,
            minimum=integer(record, "MinSize"),
            maximum=integer(record, "MaxSize"),
            desired=integer(record, "DesiredCapacity"),
            target=target,
            members=_members(record),
            subnets=tuple(sorted(filter(None, str(record.get("VPCZoneIdentifier") or "").split(",")))),
            schedules=None
            if schedules is None
            else tuple(sorted(schedules.get(name, ()), key=lambda action: action.at)),
            hooks=self._of_each("lifecycle hooks", name, lambda: self._hooks(name)),
            tags=own,
        )
        trouble = self._of_each("health of node groups", made.node_group, lambda: self._trouble(made))
        return replace(made, trouble=trouble or "")

    def _schedules(self) -> dict[str, list[Schedule]]:
        records = self._scaling(
            "DescribeScheduledActions", "ScheduledUpdateGroupActions", MaxRecords=_GROUPS_PAGE
        )
        found: dict[str, list[Schedule]] = {}
        for group, action in self._reader.each("a scheduled action", records, read_schedule):
            found.setdefault(group, []).append(action)
        return found

    def _hooks(self, group: str) -> tuple[Hook, ...]:
        answer = self._aws.read("autoscaling", "DescribeLifecycleHooks", AutoScalingGroupName=group)
        found = self._reader.each("a hook", optional_records(answer, "LifecycleHooks"), read_hook)
        longest_s = int(LONGEST_HOOK_WAIT.total_seconds())
        return tuple(
            replace(hook, heartbeat_s=min(hook.heartbeat_s, longest_s)) for hook in found if hook is not None
        )

    def _trouble(self, group: ScalingGroup) -> str:
        """What EKS says is wrong with its node group."""
        if not group.node_group or not group.cluster:
            return ""
        try:
            answer = self._aws.read(
                "eks", "DescribeNodegroup", clusterName=group.cluster, nodegroupName=group.node_group
            )
        except Gone:
            return "its node group is gone"
        found = optional_record(answer, "nodegroup")
        issues = optional_records(optional_record(found, "health"), "issues")
        messages = [f"{issue.get('code')}: {issue.get('message')}" for issue in issues]
        status = str(found.get("status") or "")
        return "; ".join(messages) or (
            "" if status in ("ACTIVE", "CREATING", "UPDATING") else f"it is {status}"
        )

    # --- templates ------------------------------------------------------------------------------------

    def _targets(self, records: list[Mapping[str, Any]]) -> dict[str, GroupTarget]:
        """What each group launches into. A template that cannot be read adds nothing."""
        known: dict[TemplateKey, Mapping[str, Any]] = {}
        for record in records:
            for key in templates_of(record):
                if key not in known:
                    found = self._of_each("launch templates", _name(record), partial(self._template, *key))
                    known |= {} if found is None else {key: found}
        return {
            _name(record): group_target(record, [known[key] for key in templates_of(record) if key in known])
            for record in records
        }

    def _template(self, id_: str, version: str) -> Mapping[str, Any]:
        self._templates += 1
        if self._templates > _MOST_TEMPLATES:
            raise Retryable(f"the account has more than {_MOST_TEMPLATES}, and each costs a call")
        answer = self._aws.read(
            "ec2", "DescribeLaunchTemplateVersions", LaunchTemplateId=id_, Versions=[version]
        )
        found = optional_records(answer, "LaunchTemplateVersions")
        data = optional_record(found[0], "LaunchTemplateData") if found else {}
        if not data:
            raise Gone(f"EC2 shows no version {version} of launch template {id_}")
        return data

    def _zones(self, groups: Iterable[ScalingGroup]) -> dict[str, str]:
        ids = sorted({id_ for group in groups for id_ in group.subnets})
        found: dict[str, str] = {}
        for first in range(0, len(ids), _MOST_VALUES):
            # A filter instead of SubnetIds: a deleted subnet must not fail the call.
            filters = [{"Name": "subnet-id", "Values": ids[first : first + _MOST_VALUES]}]
            for record in self._ec2("DescribeSubnets", "Subnets", Filters=filters):
                subnet = optional_record(record)
                found[str(subnet.get("SubnetId"))] = str(subnet.get("AvailabilityZone"))
        return found

    def _ec2(self, operation: str, key: str, **given: Any) -> Iterator[Any]:
        return self._aws.pages("ec2", operation, key, **given)

    def _scaling(self, operation: str, key: str, **given: Any) -> Iterator[Any]:
        return self._aws.pages("autoscaling", operation, key, **given)


def _machine(record: Mapping[str, Any]) -> SurveyedInstance:
    return SurveyedInstance(read_instance(record), tags(record))


def _name(record: Mapping[str, Any]) -> str:
    return str(record.get("AutoScalingGroupName"))


def _members(record: Mapping[str, Any], *, staying: bool = True) -> tuple[str, ...]:
    return tuple(
        str(member.get("InstanceId"))
        for member in optional_records(record, "Instances")
        if not (staying and str(member.get("LifecycleState")).startswith(("Terminat", "Detach")))
    )


# Of a group's own CapacityReservationSpecification: these fall back to on-demand instances.
_FALLS_BACK = ("capacity-reservations-first", "default", "open")

TemplateKey = tuple[str, str]  # lt-…, and a version or $Default or $Latest


def templates_of(record: Mapping[str, Any]) -> tuple[TemplateKey, ...]:
    """Its launch templates. A group with a launch configuration has none; those cannot name a reservation."""
    mixed = optional_record(record, "MixedInstancesPolicy", "LaunchTemplate")
    references = [
        optional_record(record, "LaunchTemplate"),
        optional_record(mixed, "LaunchTemplateSpecification"),
        *(
            optional_record(override, "LaunchTemplateSpecification")
            for override in optional_records(mixed, "Overrides")
        ),
    ]
    keys = (
        (str(reference.get("LaunchTemplateId")), str(reference.get("Version") or "$Default"))
        for reference in references
        if reference.get("LaunchTemplateId")
    )
    return tuple(dict.fromkeys(keys))


def group_target(record: Mapping[str, Any], templates: Iterable[Mapping[str, Any]]) -> GroupTarget:
    """`templates`: the LaunchTemplateData of each."""
    says = list(templates)
    overrides = optional_records(
        optional_record(record, "MixedInstancesPolicy", "LaunchTemplate"), "Overrides"
    )
    targets = (*(_target(data) for data in says), *_own_targets(record))
    return GroupTarget(
        reservations=_distinct(targets),
        markets=_distinct(_market(data) for data in says),
        instance_types=_distinct(data.get("InstanceType") for data in (*says, *overrides)),
        fallback=_fallback(record, says),
    )


def _market(data: Mapping[str, Any]) -> Any:
    return optional_record(data, "InstanceMarketOptions").get("MarketType")


def _target(data: Mapping[str, Any]) -> Any:
    target = optional_record(data, "CapacityReservationSpecification", "CapacityReservationTarget")
    return target.get("CapacityReservationId") or target.get("CapacityReservationResourceGroupArn")


def _own_targets(record: Mapping[str, Any]) -> list[Any]:
    target = optional_record(record, "CapacityReservationSpecification", "CapacityReservationTarget")
    given = (target.get("CapacityReservationIds"), target.get("CapacityReservationResourceGroupArns"))
    return [target for targets in given if isinstance(targets, list) for target in targets]


def _fallback(record: Mapping[str, Any], says: list[Mapping[str, Any]]) -> str:
    if record.get("MixedInstancesPolicy"):
        blocks = [_market(data) == "capacity-block" for data in says]
        if any(blocks) and not all(blocks):
            return "its mixed instances policy has launch templates without the block"
        return "its mixed instances policy decides between on-demand and spot"
    preference = optional_record(record, "CapacityReservationSpecification").get(
        "CapacityReservationPreference"
    )
    if _own_targets(record) and isinstance(preference, str) and preference in _FALLS_BACK:
        return f"its CapacityReservationPreference is {preference}, which falls back to on-demand"
    return ""


def _distinct(found: Iterable[Any]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(value for value in found if isinstance(value, str) and value))
