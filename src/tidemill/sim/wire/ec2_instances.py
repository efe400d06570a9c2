"""Describe and end instances, and say what AWS announces about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.instances import InstanceLife
from tidemill.sim.wire import instance_format as words
from tidemill.sim.wire.ec2_spot import is_interrupted
from tidemill.sim.wire.operations import Asked, Result, operation
from tidemill.sim.wire.paging import Facets, chosen
from tidemill.sim.wire.refusals import AwsError
from tidemill.sim.wire.state import Wire
from tidemill.spec.units import format_instant


@operation("ec2", "DescribeInstances")
def describe(asked: Asked) -> Result:
    wire = asked.wire
    found = chosen(_lives(asked), asked.get("Filters", []), _facets(wire), lambda life: life.tags)
    asked.stop_if_dry()
    page, token = wire.pages.page(found, lambda life: life.now.id, asked.params, least=5)
    by_call: dict[str, list[InstanceLife]] = {}
    for life in page:
        by_call.setdefault(words.reservation_id(wire, life), []).append(life)
    return {
        "Reservations": [words.as_reservation(wire, lives) for lives in by_call.values()],
        "NextToken": token,
    }


@operation("ec2", "DescribeInstanceStatus")
def statuses(asked: Asked) -> Result:
    wire = asked.wire
    running = [
        life
        for life in _lives(asked)
        if asked.get("IncludeAllInstances", False) or life.now.state is InstanceState.RUNNING
    ]
    found = chosen(running, asked.get("Filters", []), _status_facets(), lambda life: life.tags)
    asked.stop_if_dry()
    page, token = wire.pages.page(found, lambda life: life.now.id, asked.params, least=5)
    return {"InstanceStatuses": [_status(wire, life) for life in page], "NextToken": token}


@operation("ec2", "TerminateInstances")
def terminate(asked: Asked) -> Result:
    wire = asked.wire
    lives = _named(wire, asked.need("InstanceIds"))
    asked.stop_if_dry()
    changes = []
    for life in lives:
        before = life.now.state
        wire.body.terminate(life.now.id)
        changes.append(
            {
                "InstanceId": life.now.id,
                "PreviousState": words.state(before),
                "CurrentState": words.state(life.now.state),
            }
        )
    return {"TerminatingInstances": changes}


@operation("ec2", "DescribeInstanceAttribute")
def attribute(asked: Asked) -> Result:
    wire, wanted = asked.wire, asked.need("Attribute")
    (life,) = _named(wire, [asked.need("InstanceId")])
    record = wire.launch_of(life)
    told: dict[str, Any] = {
        "userData": ("UserData", {"Value": record.user_data} if record.user_data else {}),
        "instanceType": ("InstanceType", {"Value": life.now.instance_type}),
        "disableApiTermination": ("DisableApiTermination", {"Value": False}),
        "groupSet": ("Groups", [{"GroupId": id_} for id_ in record.security_groups]),
    }
    if wanted not in told:
        raise AwsError(
            "UnsupportedOperation", f"the simulated AWS knows no attribute '{wanted}' of an instance"
        )
    asked.stop_if_dry()
    name, value = told[wanted]
    return {"InstanceId": life.now.id, name: value}


@operation("ec2", "StopInstances", "StartInstances", "RebootInstances")
def refuse(asked: Asked) -> Result:
    _named(asked.wire, asked.need("InstanceIds"))
    verb = asked.action.removesuffix("Instances").lower()
    raise AwsError(
        "UnsupportedOperation", f"the simulated AWS does not {verb} instances: it only terminates them"
    )


@operation("ec2", "RequestSpotInstances", "RequestSpotFleet", "RunScheduledInstances")
def refuse_other_ways(asked: Asked) -> Result:
    """moto would launch instances of its own, which nobody could find."""
    raise AwsError(
        "UnsupportedOperation", "the simulated AWS launches by RunInstances, CreateFleet and groups only"
    )


# --- which ones ---------------------------------------------------------------------------------------


def _lives(asked: Asked) -> list[InstanceLife]:
    """Those named, or all that EC2 lists: not those launched a moment ago, and terminated ones for an hour."""
    ids = asked.get("InstanceIds", [])
    if not ids:
        return [asked.wire.body.lives[one.id] for one in asked.wire.body.instances()]
    if asked.get("MaxResults") is not None:
        raise AwsError(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        )
    return _named(asked.wire, ids)


def _named(wire: Wire, ids: Sequence[str]) -> list[InstanceLife]:
    malformed = [id_ for id_ in ids if not id_.startswith("i-")]
    if malformed:
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
    listed = {one.id for one in wire.body.instances()}
    missing = [id_ for id_ in dict.fromkeys(ids) if id_ not in listed]
    if missing:
        many = f"s '{', '.join(missing)}' do" if len(missing) > 1 else f" '{missing[0]}' does"
        raise AwsError("InvalidInstanceID.NotFound", f"The instance ID{many} not exist")
    return [wire.body.lives[id_] for id_ in dict.fromkeys(ids)]


def _facets(wire: Wire) -> Facets[InstanceLife]:
    return {
        "architecture": lambda life: str(words.as_aws(wire, life)["Architecture"]),
        "availability-zone": lambda life: life.now.zone,
        "capacity-reservation-id": lambda life: life.now.source.id,
        "client-token": lambda life: life.token,
        "iam-instance-profile.arn": lambda life: wire.launch_of(life).profile,
        "image-id": lambda life: wire.launch_of(life).image,
        "instance-id": lambda life: life.now.id,
        "instance-lifecycle": words.lifecycle,
        "instance-state-code": lambda life: str(words.state(life.now.state)["Code"]),
        "instance-state-name": lambda life: life.now.state.value,
        "instance-type": lambda life: life.now.instance_type,
        "launch-time": lambda life: format_instant(life.now.launched_at),
        "owner-id": lambda _: wire.account,
        "private-dns-name": lambda life: words.private_name(wire, life),
        "private-ip-address": wire.address,
        "reservation-id": lambda life: words.reservation_id(wire, life),
        "instance.group-id": lambda life: wire.launch_of(life).security_groups,
        "subnet-id": lambda life: wire.launch_of(life).subnet.id,
        "tenancy": lambda _: "default",
        "vpc-id": lambda life: wire.launch_of(life).subnet.vpc,
    }


# --- what AWS announces -------------------------------------------------------------------------------


def _status(wire: Wire, life: InstanceLife) -> dict[str, Any]:
    running = life.now.state is InstanceState.RUNNING
    health = {
        "Status": "ok" if running else "not-applicable",
        "Details": [{"Name": "reachability", "Status": "passed"}] if running else [],
    }
    return {
        "AvailabilityZone": life.now.zone,
        "AvailabilityZoneId": wire.network.zone_ids[life.now.zone],
        "InstanceId": life.now.id,
        "InstanceState": words.state(life.now.state),
        "InstanceStatus": health,
        "SystemStatus": health,
        "Events": _events(life),
    }


def _events(life: InstanceLife) -> list[dict[str, Any]]:
    """A retirement; EC2 tells of a spot interruption elsewhere: in an event, and of the request behind the instance."""
    if life.now.ends_at is None or is_interrupted(life):
        return []
    return [
        {
            "InstanceEventId": "instance-event-" + life.now.id.removeprefix("i-"),
            "Code": "instance-retirement",
            "Description": str(life.now.ends_why),
            "NotBefore": life.now.ends_at,
        }
    ]


def _status_facets() -> Facets[InstanceLife]:
    return {
        "availability-zone": lambda life: life.now.zone,
        "event.code": lambda life: [str(event["Code"]) for event in _events(life)],
        "event.description": lambda life: [str(event["Description"]) for event in _events(life)],
        "event.instance-event-id": lambda life: [str(event["InstanceEventId"]) for event in _events(life)],
        "instance-state-code": lambda life: str(words.state(life.now.state)["Code"]),
        "instance-state-name": lambda life: life.now.state.value,
        "instance-status.status": lambda life: (
            "ok" if life.now.state is InstanceState.RUNNING else "not-applicable"
        ),
        "system-status.status": lambda life: (
            "ok" if life.now.state is InstanceState.RUNNING else "not-applicable"
        ),
    }
