"""EC2's words for reservations: Describe, and the refusal to cancel or modify a block."""

from __future__ import annotations

from typing import Any

from tidemill.model.capacity import (
    NOT_STARTED_STATES,
    UNPAID_STATES,
    Reservation,
    SourceKind,
)
from tidemill.model.labels import Pairs
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.sim.wire.tag_format import as_tags
from tidemill.spec.units import format_instant

_AWS = "aws:ec2capacityreservation:"


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
    found = filtered(listed, call.get("Filters", []), _FACETS, lambda one: tags_of(wire, one))
    call.stop_dry_run()
    page, token = wire.pages.page(found, lambda one: one.id, call.params)
    return {"CapacityReservations": [as_aws(wire, one) for one in page], "NextToken": token}


@operation("ec2", "CancelCapacityReservation", "ModifyCapacityReservation")
def refuse_to_change(call: ApiCall) -> Result:
    found = by_id(call.wire.cloud.reservations(), call.require("CapacityReservationId"))
    call.stop_dry_run()
    verb = "cancel" if call.action.startswith("Cancel") else "modify"
    if found.kind is SourceKind.BLOCK:
        raise AwsError("UnsupportedOperation", f"You can't {verb} a Capacity Block: {found.id}")
    raise AwsError(
        "UnsupportedOperation", f"the simulated AWS does not {verb} on-demand reservations: {found.id}"
    )


def by_id(listed: tuple[Reservation, ...], id_: str) -> Reservation:
    if not id_.startswith("cr-"):
        raise AwsError("InvalidCapacityReservationId.Malformed", f"The ID '{id_}' is malformed")
    found = next((one for one in listed if one.id == id_), None)
    if found is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The reservation '{id_}' does not exist")
    return found


# --- as EC2 writes one --------------------------------------------------------------------------------


def as_aws(wire: Wire, one: Reservation) -> dict[str, Any]:
    block = one.kind is SourceKind.BLOCK
    opened_at, _ = wire.cloud.sale(one.id)
    written = {
        "CapacityReservationId": one.id,
        "CapacityReservationArn": arn(wire, one),
        "OwnerId": wire.account,
        "AvailabilityZone": one.zone,
        "AvailabilityZoneId": wire.network.zone_ids[one.zone],
        "InstanceType": one.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "Tenancy": "default",
        # Of a block that has not begun EC2 shows nothing here: what is to come is in its tags.
        "TotalInstanceCount": 0 if block and one.state in NOT_STARTED_STATES | UNPAID_STATES else one.count,
        "AvailableInstanceCount": one.available,
        "EbsOptimized": True,
        "EphemeralStorage": False,
        "State": one.state.value,
        "StartDate": one.start,
        "EndDateType": "unlimited" if one.end is None else "limited",
        "InstanceMatchCriteria": "targeted",
        "CreateDate": opened_at,
        "Tags": as_tags(tags_of(wire, one)),
        "CapacityAllocations": _allocations(wire, one),
        "ReservationType": "capacity-block" if block else "default",
    }
    if one.end is not None:
        written["EndDate"] = one.end
    if block:
        written["CapacityBlockId"] = block_id(one)
    return written


def tags_of(wire: Wire, one: Reservation) -> Pairs:
    """Its own, and those AWS puts on a block."""
    if one.kind is not SourceKind.BLOCK:
        return one.tags
    _, bought = wire.cloud.sale(one.id)
    theirs = (
        (_AWS + "capacityReservationType", "capacity-block"),
        (_AWS + "incrementalRequestedQuantity", str(bought)),
    )
    return one.tags + theirs


def block_id(one: Reservation) -> str:
    return "cb-" + one.id.removeprefix("cr-")


def arn(wire: Wire, one: Reservation) -> str:
    return f"arn:aws:ec2:{wire.region}:{wire.account}:capacity-reservation/{one.id}"


def _allocations(wire: Wire, one: Reservation) -> list[dict[str, Any]]:
    used = wire.cloud.used(one.id)
    return [{"AllocationType": "used", "Count": used}] if used else []


_FACETS: FilterFields[Reservation] = {
    "availability-zone": lambda one: one.zone,
    "capacity-reservation-id": lambda one: one.id,
    "end-date": lambda one: "" if one.end is None else format_instant(one.end),
    "end-date-type": lambda one: "unlimited" if one.end is None else "limited",
    "instance-match-criteria": lambda _: "targeted",
    "instance-platform": lambda _: "Linux/UNIX",
    "instance-type": lambda one: one.instance_type,
    "reservation-type": lambda one: "capacity-block" if one.kind is SourceKind.BLOCK else "default",
    "start-date": lambda one: format_instant(one.start),
    "state": lambda one: one.state.value,
    "tenancy": lambda _: "default",
}
