"""EC2's calls for reservations: Describe; Create, Modify and Cancel on-demand ones, which a block refuses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidemill.model.capacity import NOT_STARTED_STATES, UNPAID_STATES, Reservation, SourceKind
from tidemill.model.labels import Pairs
from tidemill.sim.wire.errors import AwsError, not_simulated
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.sim.wire.tag_format import as_tags, specified
from tidemill.spec.units import format_instant

_AWS = "aws:ec2capacityreservation:"
_TAGGED = ("capacity-reservation",)
_MOST_INSTANCES = 1000
PLATFORMS = ("Linux/UNIX", "Red Hat Enterprise Linux", "RHEL with HA", "SUSE Linux", "Ubuntu Pro")


@operation("ec2", "DescribeCapacityReservations")
def describe(call: ApiCall) -> Result:
    wire, ids = call.wire, call.get("CapacityReservationIds", [])
    listed = wire.cloud.reservations()
    if ids:
        if call.get("MaxResults") is not None:
            raise AwsError(
                "InvalidParameterCombination",
                "MaxResults cannot be used together with CapacityReservationIds",
            )
        listed = tuple(by_id(listed, id_) for id_ in dict.fromkeys(ids))
    fields = {**_FILTER_FIELDS, "instance-match-criteria": lambda reservation: _criteria(wire, reservation)}
    matching = filtered(
        listed, call.get("Filters", []), fields, lambda reservation: tags_of(wire, reservation)
    )
    call.stop_dry_run()
    page, token = wire.pages.page(matching, lambda reservation: reservation.id, call.params)
    return {"CapacityReservations": [as_aws(wire, reservation) for reservation in page], "NextToken": token}


@operation("ec2", "CreateCapacityReservation")
def create(call: ApiCall) -> Result:
    """On-demand and at once; a block is bought."""
    wire, instance_type = call.wire, call.require("InstanceType")
    if call.require("InstancePlatform") not in PLATFORMS:
        raise AwsError("InvalidParameterValue", f"Invalid InstancePlatform: {call.get('InstancePlatform')}")
    zone = call.get("AvailabilityZone") or _zone_of(wire, call.require("AvailabilityZoneId"))
    if zone not in wire.cloud.zones:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    if instance_type not in wire.cloud.catalog.types:
        raise AwsError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    criteria = call.get("InstanceMatchCriteria", "open")
    if criteria not in ("open", "targeted"):
        raise AwsError("InvalidParameterValue", f"Invalid value '{criteria}' for InstanceMatchCriteria.")
    for key in ("StartDate", "CommitmentDuration", "PlacementGroupArn", "OutpostArn"):
        if call.get(key) is not None:
            raise not_simulated(f"{key} of a capacity reservation")
    tags = specified(call.get("TagSpecifications", []), _TAGGED, _TAGGED)
    call.stop_dry_run()
    made = wire.cloud.on_demand_reservations.create(
        instance_type,
        zone,
        _count(call.require("InstanceCount")),
        end=_end(call),
        tags=tags,
        token=call.get("ClientToken") or wire.new_token("create-capacity-reservation"),
        open_to_all=criteria == "open",
    )
    return {"CapacityReservation": as_aws(wire, made)}


@operation("ec2", "CancelCapacityReservation")
def cancel(call: ApiCall) -> Result:
    reservation = _changeable(call, "cancel")
    call.wire.cloud.on_demand_reservations.cancel(reservation.id)
    return {"Return": True}


@operation("ec2", "ModifyCapacityReservation")
def modify(call: ApiCall) -> Result:
    reservation = _changeable(call, "modify")
    count = call.get("InstanceCount")
    call.wire.cloud.on_demand_reservations.modify(
        reservation.id,
        count=None if count is None else _count(count),
        end=_end(call),
        unlimited=call.get("EndDateType") == "unlimited",
    )
    return {"Return": True}


def _changeable(call: ApiCall, verb: str) -> Reservation:
    reservation = by_id(call.wire.cloud.reservations(), call.require("CapacityReservationId"))
    call.stop_dry_run()
    if reservation.kind is SourceKind.BLOCK:
        raise AwsError("UnsupportedOperation", f"You can't {verb} a Capacity Block: {reservation.id}")
    return reservation


def _count(given: Any) -> int:
    if not 1 <= int(given) <= _MOST_INSTANCES:
        raise AwsError("InvalidParameterValue", f"Invalid value '{given}' for InstanceCount.")
    return int(given)


def _end(call: ApiCall) -> datetime | None:
    end = call.get("EndDate")
    if (end is not None) != (call.get("EndDateType") == "limited"):
        raise AwsError("InvalidParameterCombination", "EndDate and EndDateType 'limited' go together")
    if end is not None and end <= call.wire.clock.now():
        raise AwsError("InvalidParameterValue", "EndDate must be in the future")
    return end  # type: ignore[no-any-return]  # a timestamp of the request


def _zone_of(wire: Wire, zone_id: str) -> str:
    return next((zone for zone, known in wire.network.zone_ids.items() if known == zone_id), zone_id)


def by_id(listed: tuple[Reservation, ...], id_: str) -> Reservation:
    if not id_.startswith("cr-"):
        raise AwsError("InvalidCapacityReservationId.Malformed", f"The ID '{id_}' is malformed")
    known = next((reservation for reservation in listed if reservation.id == id_), None)
    if known is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The reservation '{id_}' does not exist")
    return known


# --- as EC2 writes one --------------------------------------------------------------------------------


def as_aws(wire: Wire, reservation: Reservation) -> dict[str, Any]:
    block = reservation.kind is SourceKind.BLOCK
    opened_at, _ = wire.cloud.sale(reservation.id)
    written = {
        "CapacityReservationId": reservation.id,
        "CapacityReservationArn": arn(wire, reservation),
        "OwnerId": owner_of(wire, reservation),
        "AvailabilityZone": reservation.zone,
        "AvailabilityZoneId": wire.network.zone_ids[reservation.zone],
        "InstanceType": reservation.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "Tenancy": "default",
        # Of a block that has not begun EC2 shows nothing here: what is to come is in its tags.
        "TotalInstanceCount": 0
        if block and reservation.state in NOT_STARTED_STATES | UNPAID_STATES
        else reservation.count,
        "AvailableInstanceCount": reservation.available,
        "EbsOptimized": True,
        "EphemeralStorage": False,
        "State": reservation.state.value,
        "StartDate": reservation.start,
        "EndDateType": "unlimited" if reservation.end is None else "limited",
        "InstanceMatchCriteria": _criteria(wire, reservation),
        "CreateDate": opened_at,
        "Tags": as_tags(tags_of(wire, reservation)),
        "CapacityAllocations": _allocations(wire, reservation),
        "ReservationType": "capacity-block" if block else "default",
    }
    if reservation.end is not None:
        written["EndDate"] = reservation.end
    if block:
        written["CapacityBlockId"] = block_id(reservation)
    return written


def tags_of(wire: Wire, reservation: Reservation) -> Pairs:
    """Its own, and those AWS puts on a block."""
    if reservation.kind is not SourceKind.BLOCK:
        return reservation.tags
    _, bought = wire.cloud.sale(reservation.id)
    theirs = (
        (_AWS + "capacityReservationType", "capacity-block"),
        (_AWS + "incrementalRequestedQuantity", str(bought)),
    )
    return reservation.tags + theirs


def block_id(reservation: Reservation) -> str:
    return "cb-" + reservation.id.removeprefix("cr-")


def arn(wire: Wire, reservation: Reservation) -> str:
    return f"arn:aws:ec2:{wire.region}:{owner_of(wire, reservation)}:capacity-reservation/{reservation.id}"


def owner_of(wire: Wire, reservation: Reservation) -> str:
    """The account it belongs to: this one, or the one that shares it."""
    return wire.cloud.shared_by.get(reservation.id, wire.account)


def _criteria(wire: Wire, reservation: Reservation) -> str:
    return "open" if wire.cloud.on_demand_reservations.is_open_to_all(reservation.id) else "targeted"


def _allocations(wire: Wire, reservation: Reservation) -> list[dict[str, Any]]:
    used = wire.cloud.used(reservation.id)
    return [{"AllocationType": "used", "Count": used}] if used else []


_FILTER_FIELDS: FilterFields[Reservation] = {
    "availability-zone": lambda reservation: reservation.zone,
    "capacity-reservation-id": lambda reservation: reservation.id,
    "end-date": lambda reservation: "" if reservation.end is None else format_instant(reservation.end),
    "end-date-type": lambda reservation: "unlimited" if reservation.end is None else "limited",
    "instance-platform": lambda _: "Linux/UNIX",
    "instance-type": lambda reservation: reservation.instance_type,
    "reservation-type": lambda reservation: (
        "capacity-block" if reservation.kind is SourceKind.BLOCK else "default"
    ),
    "start-date": lambda reservation: format_instant(reservation.start),
    "state": lambda reservation: reservation.state.value,
    "tenancy": lambda _: "default",
}
