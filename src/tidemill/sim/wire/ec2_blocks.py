"""EC2's calls for Capacity Blocks: offerings, the purchase, the blocks and their status.

The purchase takes no token: called twice it buys twice, as with AWS.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import FARTHEST_START, ULTRASERVER_SIZES, ultraserver_for
from tidemill.model.errors import NoCapacity
from tidemill.model.offers import Offer, OfferQuery
from tidemill.sim.wire.ec2_reservations import PLATFORMS, as_aws, block_id, tags_of
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.sim.wire.tag_format import as_tags, specified
from tidemill.spec.units import format_instant

_HOUR = timedelta(hours=1)
# What a block can be bought for; see the list in EC2's page on Capacity Blocks.
_TAGGED = ("capacity-reservation", "capacity-block")


# --- offerings ----------------------------------------------------------------------------------------


@operation("ec2", "DescribeCapacityBlockOfferings")
def offerings(call: ApiCall) -> Result:
    wire = call.wire
    duration = call.hours("CapacityDurationHours")
    instance_type, count = _shape(call)
    now = wire.clock.now()
    # EndDateRange is the latest end, not the latest start. Left out: whatever is sold at all.
    query = OfferQuery(
        instance_type,
        count,
        duration,
        _whole(call.get("StartDateRange", now)),
        _whole(call.get("EndDateRange", now + FARTHEST_START + duration + timedelta(days=1))),
    )
    if call.region == wire.region:
        offers = wire.cloud.search_offers(query)
        call.stop_dry_run()
        wire.shown_offers.update(offer.id for offer in offers)
    else:  # not shown here: they cannot be bought here
        offers = wire.cloud.search_offers_in(call.region, query)
    page, token = wire.pages.page(offers, lambda offer: offer.id, call.params)
    return {"CapacityBlockOfferings": [_offering(wire, offer) for offer in page], "NextToken": token}


def _shape(call: ApiCall) -> tuple[str, int]:
    """The type and number of instances, asked for as such or by the UltraServer."""
    ultraserver = call.get("UltraserverType")
    if ultraserver is None:
        return call.require("InstanceType"), call.require("InstanceCount")
    if call.get("InstanceType") is not None:
        raise AwsError("InvalidParameterCombination", "name an InstanceType or an UltraserverType, not both")
    family, size = ultraserver[:-3], ultraserver[-3:]
    kinds = [kind.name for kind in call.wire.cloud.catalog.types.values() if kind.ultraserver == family]
    if not kinds or size not in ULTRASERVER_SIZES:
        raise AwsError("InvalidParameterValue", f"there is no UltraServer '{ultraserver}'")
    return kinds[0], ULTRASERVER_SIZES[size] * call.get("UltraserverCount", 1)


def _offering(wire: Wire, offer: Offer) -> dict[str, Any]:
    length = offer.end - offer.start
    written: dict[str, Any] = {
        "CapacityBlockOfferingId": offer.id,
        "InstanceType": offer.instance_type,
        "AvailabilityZone": offer.zone,
        "InstanceCount": offer.count,
        "StartDate": offer.start,
        "EndDate": offer.end,
        "CapacityBlockDurationHours": length // _HOUR,
        "CapacityBlockDurationMinutes": length % _HOUR // timedelta(minutes=1),
        "UpfrontFee": str(offer.fee_usd),
        "CurrencyCode": "USD",
        "Tenancy": "default",
        "ZoneType": "availability-zone",
    }
    if offer.ultraserver:
        ultraserver = ultraserver_for(offer.count)
        assert ultraserver is not None
        suffix, size = ultraserver
        written["UltraserverType"] = f"{wire.cloud.catalog.types[offer.instance_type].ultraserver}{suffix}"
        written["UltraserverCount"] = offer.count // size
    return written


def _whole(instant: datetime) -> datetime:
    return instant.replace(microsecond=0)


# --- buying -------------------------------------------------------------------------------------------


@operation("ec2", "PurchaseCapacityBlock")
def purchase(call: ApiCall) -> Result:
    wire, offer_id = call.wire, call.require("CapacityBlockOfferingId")
    platform = call.require("InstancePlatform")
    if platform not in PLATFORMS:
        raise AwsError("InvalidParameterValue", f"a Capacity Block is not sold for '{platform}'")
    if not offer_id.startswith("cb-"):
        raise AwsError("InvalidCapacityBlockOfferingIdMalformed", f"'{offer_id}' is malformed")
    tags = specified(call.get("TagSpecifications", []), _TAGGED, _TAGGED)
    call.stop_dry_run()
    try:
        bought = wire.cloud.purchase(offer_id, tags)
    except NoCapacity as gone:
        ending = "Expired" if offer_id in wire.shown_offers else "NotFound"
        raise AwsError(f"InvalidCapacityBlockOfferingId{ending}", str(gone)) from gone
    return {
        "CapacityReservation": as_aws(wire, bought[0]),
        "CapacityBlocks": [_block(wire, reservation) for reservation in bought],
    }


# --- the blocks ---------------------------------------------------------------------------------------


@operation("ec2", "DescribeCapacityBlocks")
def blocks(call: ApiCall) -> Result:
    page, token = _page(call, _BLOCK_FILTER_FIELDS)
    return {"CapacityBlocks": [_block(call.wire, reservation) for reservation in page], "NextToken": token}


@operation("ec2", "DescribeCapacityBlockStatus")
def statuses(call: ApiCall) -> Result:
    page, token = _page(call, _STATUS_FILTER_FIELDS)
    return {
        "CapacityBlockStatuses": [_status(call.wire, reservation) for reservation in page],
        "NextToken": token,
    }


def _page(call: ApiCall, fields: FilterFields[Reservation]) -> tuple[list[Reservation], str | None]:
    wire, ids = call.wire, call.get("CapacityBlockIds", [])
    there = {
        block_id(reservation): reservation
        for reservation in wire.cloud.reservations()
        if reservation.kind is SourceKind.BLOCK
    }
    unknown = [id_ for id_ in ids if id_ not in there]
    if unknown:
        raise AwsError("InvalidCapacityBlockId.NotFound", f"The Capacity Block '{unknown[0]}' does not exist")
    listed = [there[id_] for id_ in dict.fromkeys(ids)] if ids else list(there.values())
    matching = filtered(
        listed, call.get("Filters", []), fields, lambda reservation: tags_of(wire, reservation)
    )
    call.stop_dry_run()
    return wire.pages.page(matching, lambda reservation: reservation.id, call.params)


def _block(wire: Wire, reservation: Reservation) -> dict[str, Any]:
    opened_at, _ = wire.cloud.sale(reservation.id)
    written = {
        "CapacityBlockId": block_id(reservation),
        "AvailabilityZone": reservation.zone,
        "AvailabilityZoneId": wire.network.zone_ids[reservation.zone],
        "CapacityReservationIds": [reservation.id],
        "StartDate": reservation.start,
        "EndDate": reservation.end,
        "CreateDate": opened_at,
        "State": reservation.state.value,
        "Tags": as_tags(tags_of(wire, reservation)),
    }
    if reservation.ultraserver:
        # A short delivery (fewer instances than either has) shows as the smaller of the two.
        suffix = "x72" if reservation.count == ULTRASERVER_SIZES["x72"] else "x36"
        written["UltraserverType"] = (
            f"{wire.cloud.catalog.types[reservation.instance_type].ultraserver}{suffix}"
        )
    return written


def _status(wire: Wire, reservation: Reservation) -> dict[str, Any]:
    """Capacity that was bought and not delivered is what is unavailable."""
    _, bought = wire.cloud.sale(reservation.id)
    active = reservation.state is ReservationState.ACTIVE
    capacity = {
        "TotalCapacity": bought,
        "TotalAvailableCapacity": reservation.available,
        "TotalUnavailableCapacity": bought - reservation.count if active else 0,
    }
    return {
        "CapacityBlockId": block_id(reservation),
        "InterconnectStatus": "ok" if active else "insufficient-data",
        **capacity,
        "CapacityReservationStatuses": [{"CapacityReservationId": reservation.id, **capacity}],
    }


_BLOCK_FILTER_FIELDS: FilterFields[Reservation] = {
    "capacity-block-id": block_id,
    "capacity-reservation-id": lambda block: block.id,
    "availability-zone": lambda block: block.zone,
    "state": lambda block: block.state.value,
    "start-date": lambda block: format_instant(block.start),
    "end-date": lambda block: "" if block.end is None else format_instant(block.end),
}
_STATUS_FILTER_FIELDS: FilterFields[Reservation] = {
    "interconnect-status": lambda block: (
        "ok" if block.state is ReservationState.ACTIVE else "insufficient-data"
    )
}
