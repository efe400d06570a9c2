"""Describe and terminate instances, and say what AWS announces about them: retirements and spot interruptions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import SPOT_NOTICE
from tidemill.model.nodes import INSTANCE_UP_STATES, InstanceState
from tidemill.model.reasons import InstanceEndKind
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.wire import instance_format
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.spec.units import format_instant
from tidemill.wording.actions import instance_end_sentence


@operation("ec2", "DescribeInstances")
def describe(call: ApiCall) -> Result:
    wire = call.wire
    matching = filtered(
        _histories(call),
        call.get("Filters", []),
        _filter_fields(wire),
        lambda history: instance_format.all_tags(wire, history),
    )
    call.stop_dry_run()
    page, token = wire.pages.page(matching, lambda history: history.now.id, call.params, least=5)
    by_call: dict[str, list[InstanceHistory]] = {}
    for history in page:
        by_call.setdefault(instance_format.reservation_id(wire, history), []).append(history)
    return {
        "Reservations": [instance_format.as_reservation(wire, histories) for histories in by_call.values()],
        "NextToken": token,
    }


@operation("ec2", "DescribeInstanceStatus")
def statuses(call: ApiCall) -> Result:
    wire = call.wire
    running = [
        history
        for history in _histories(call)
        if call.get("IncludeAllInstances", False) or history.now.state is InstanceState.RUNNING
    ]
    matching = filtered(
        running, call.get("Filters", []), _status_filter_fields(), lambda history: history.tags
    )
    call.stop_dry_run()
    page, token = wire.pages.page(matching, lambda history: history.now.id, call.params, least=5)
    return {"InstanceStatuses": [_status(wire, history) for history in page], "NextToken": token}


@operation("ec2", "TerminateInstances")
def terminate(call: ApiCall) -> Result:
    wire = call.wire
    histories = _named(wire, call.require("InstanceIds"))
    call.stop_dry_run()
    changes = []
    for history in histories:
        before = history.now.state
        wire.cloud.terminate(history.now.id)
        changes.append(
            {
                "InstanceId": history.now.id,
                "PreviousState": instance_format.state(before),
                "CurrentState": instance_format.state(history.now.state),
            }
        )
    return {"TerminatingInstances": changes}


@operation("ec2", "GetConsoleOutput")
def console_output(call: ApiCall) -> Result:
    wire = call.wire
    (history,) = _named(wire, [call.require("InstanceId")])
    call.stop_dry_run()
    text = wire.cloud.console_output(history.now.id)
    return {
        "InstanceId": history.now.id,
        "Timestamp": format_instant(wire.clock.now()),
        "Output": b64encode(text.encode()).decode(),
    }


@operation("ec2", "DescribeInstanceAttribute")
def attribute(call: ApiCall) -> Result:
    wire, wanted = call.wire, call.require("Attribute")
    (history,) = _named(wire, [call.require("InstanceId")])
    record = wire.launch_of(history)
    told: dict[str, Any] = {
        "userData": ("UserData", {"Value": record.user_data} if record.user_data else {}),
        "instanceType": ("InstanceType", {"Value": history.now.instance_type}),
        "disableApiTermination": ("DisableApiTermination", {"Value": False}),
        "groupSet": ("Groups", [{"GroupId": id_} for id_ in record.security_groups]),
    }
    if wanted not in told:
        raise AwsError(
            "UnsupportedOperation", f"the simulated AWS knows no attribute '{wanted}' of an instance"
        )
    call.stop_dry_run()
    name, value = told[wanted]
    return {"InstanceId": history.now.id, name: value}


@operation("ec2", "StopInstances", "StartInstances", "RebootInstances")
def refuse(call: ApiCall) -> Result:
    _named(call.wire, call.require("InstanceIds"))
    verb = call.action.removesuffix("Instances").lower()
    raise AwsError(
        "UnsupportedOperation", f"the simulated AWS does not {verb} instances: it only terminates them"
    )


@operation("ec2", "RequestSpotInstances", "RequestSpotFleet", "RunScheduledInstances")
def refuse_other_ways(call: ApiCall) -> Result:
    """moto would launch instances of its own, which nobody could find."""
    raise AwsError(
        "UnsupportedOperation", "the simulated AWS launches by RunInstances, CreateFleet and groups only"
    )


# --- which ones ---------------------------------------------------------------------------------------


def _histories(call: ApiCall) -> list[InstanceHistory]:
    """Those named, or all that EC2 lists: not those launched a moment ago, and terminated ones for an hour."""
    ids = call.get("InstanceIds", [])
    if not ids:
        return [call.wire.cloud.instance_histories[instance.id] for instance in call.wire.cloud.instances()]
    if call.get("MaxResults") is not None:
        raise AwsError(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        )
    return _named(call.wire, ids)


def _named(wire: Wire, ids: Sequence[str]) -> list[InstanceHistory]:
    malformed = [id_ for id_ in ids if not id_.startswith("i-")]
    if malformed:
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
    listed = {instance.id for instance in wire.cloud.instances()}
    missing = [id_ for id_ in dict.fromkeys(ids) if id_ not in listed]
    if missing:
        many = f"s '{', '.join(missing)}' do" if len(missing) > 1 else f" '{missing[0]}' does"
        raise AwsError("InvalidInstanceID.NotFound", f"The instance ID{many} not exist")
    return [wire.cloud.instance_histories[id_] for id_ in dict.fromkeys(ids)]


def _filter_fields(wire: Wire) -> FilterFields[InstanceHistory]:
    return {
        "architecture": lambda history: str(instance_format.as_aws(wire, history)["Architecture"]),
        "availability-zone": lambda history: history.now.zone,
        "capacity-reservation-id": lambda history: history.now.source.id,
        "client-token": lambda history: history.token,
        "iam-instance-profile.arn": lambda history: wire.launch_of(history).profile,
        "image-id": lambda history: wire.launch_of(history).image,
        "instance-id": lambda history: history.now.id,
        "instance-lifecycle": instance_format.lifecycle,
        "instance-state-code": lambda history: str(instance_format.state(history.now.state)["Code"]),
        "instance-state-name": lambda history: history.now.state.value,
        "instance-type": lambda history: history.now.instance_type,
        "launch-time": lambda history: format_instant(history.now.launched_at),
        "owner-id": lambda _: wire.account,
        "private-dns-name": lambda history: instance_format.private_name(wire, history),
        "private-ip-address": wire.address,
        "reservation-id": lambda history: instance_format.reservation_id(wire, history),
        "instance.group-id": lambda history: wire.launch_of(history).security_groups,
        "subnet-id": lambda history: wire.launch_of(history).subnet.id,
        "tenancy": lambda _: "default",
        "vpc-id": lambda history: wire.launch_of(history).subnet.vpc,
    }


# --- what AWS announces -------------------------------------------------------------------------------


def _status(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    running = history.now.state is InstanceState.RUNNING
    health = {
        "Status": "ok" if running else "not-applicable",
        "Details": [{"Name": "reachability", "Status": "passed"}] if running else [],
    }
    return {
        "AvailabilityZone": history.now.zone,
        "AvailabilityZoneId": wire.network.zone_ids[history.now.zone],
        "InstanceId": history.now.id,
        "InstanceState": instance_format.state(history.now.state),
        "InstanceStatus": health,
        "SystemStatus": health,
        "Events": _events(history),
    }


def _events(history: InstanceHistory) -> list[dict[str, Any]]:
    """A retirement. EC2 announces a spot interruption elsewhere: in an event, and in the spot request."""
    if history.now.ends_at is None or is_interrupted(history):
        return []
    return [
        {
            "InstanceEventId": "instance-event-" + history.now.id.removeprefix("i-"),
            "Code": "instance-retirement",
            "Description": instance_end_sentence(history.now.ends_why),
            "NotBefore": history.now.ends_at,
        }
    ]


def _status_filter_fields() -> FilterFields[InstanceHistory]:
    return {
        "availability-zone": lambda history: history.now.zone,
        "event.code": lambda history: [str(event["Code"]) for event in _events(history)],
        "event.description": lambda history: [str(event["Description"]) for event in _events(history)],
        "event.instance-event-id": lambda history: [
            str(event["InstanceEventId"]) for event in _events(history)
        ],
        "instance-state-code": lambda history: str(instance_format.state(history.now.state)["Code"]),
        "instance-state-name": lambda history: history.now.state.value,
        "instance-status.status": lambda history: (
            "ok" if history.now.state is InstanceState.RUNNING else "not-applicable"
        ),
        "system-status.status": lambda history: (
            "ok" if history.now.state is InstanceState.RUNNING else "not-applicable"
        ),
    }


# --- spot requests ------------------------------------------------------------------------------------


@operation("ec2", "DescribeSpotInstanceRequests")
def describe_spot_requests(call: ApiCall) -> Result:
    wire = call.wire
    histories = [
        wire.cloud.instance_histories[instance.id]
        for instance in wire.cloud.instances()
        if instance.source.kind is SourceKind.SPOT
    ]
    wanted = call.get("SpotInstanceRequestIds", [])
    named = [
        history for history in histories if not wanted or instance_format.spot_request(history) in wanted
    ]
    matching = filtered(named, call.get("Filters", []), _SPOT_FILTER_FIELDS, lambda history: history.tags)
    call.stop_dry_run()
    page, token = wire.pages.page(matching, lambda history: history.now.id, call.params, least=5)
    return {"SpotInstanceRequests": [_request(wire, history) for history in page], "NextToken": token}


def is_interrupted(history: InstanceHistory) -> bool:
    return history.now.ends_why is not None and history.now.ends_why.kind is InstanceEndKind.SPOT_INTERRUPTION


def _request(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    launched = history.now.launched_at
    marked = history.now.ends_at is not None and is_interrupted(history)
    updated = history.now.ends_at - SPOT_NOTICE if marked and history.now.ends_at is not None else launched
    return {
        "SpotInstanceRequestId": instance_format.spot_request(history),
        "InstanceId": history.now.id,
        "CreateTime": launched,
        "LaunchedAvailabilityZone": history.now.zone,
        "ProductDescription": "Linux/UNIX",
        "Type": "one-time",
        "State": "active" if history.now.state in INSTANCE_UP_STATES else "closed",
        "Status": {
            "Code": _spot_status(history),
            "Message": _spot_status(history).replace("-", " "),
            "UpdateTime": updated,
        },
        "InstanceInterruptionBehavior": "terminate",
    }


def _spot_status(history: InstanceHistory) -> str:
    interrupted = is_interrupted(history)
    if history.now.state in INSTANCE_UP_STATES:
        return "marked-for-termination" if interrupted else "fulfilled"
    return "instance-terminated-no-capacity" if interrupted else "instance-terminated-by-user"


_SPOT_FILTER_FIELDS: FilterFields[InstanceHistory] = {
    "availability-zone": lambda history: history.now.zone,
    "instance-id": lambda history: history.now.id,
    "launched-availability-zone": lambda history: history.now.zone,
    "spot-instance-request-id": instance_format.spot_request,
    "state": lambda history: "active" if history.now.state in INSTANCE_UP_STATES else "closed",
    "status-code": _spot_status,
    "type": lambda _: "one-time",
}
