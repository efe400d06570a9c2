"""EC2's calls for extensions of a block: offerings, the purchase (no token, no tags), and the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidemill.model.errors import NoCapacity
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery
from tidemill.sim.wire.ec2_reservations import by_id
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire

_HOUR = timedelta(hours=1)


@operation("ec2", "DescribeCapacityBlockExtensionOfferings")
def offerings(call: ApiCall) -> Result:
    wire = call.wire
    block = by_id(wire.cloud.reservations(), call.require("CapacityReservationId"))
    length = call.hours("CapacityBlockExtensionDurationHours")
    offers = wire.cloud.search_extensions(ExtensionQuery(block.id, length))
    call.stop_dry_run()
    wire.shown_offers.update(offer.id for offer in offers)
    page, token = wire.pages.page(offers, lambda offer: offer.id, call.params)
    return {
        "CapacityBlockExtensionOfferings": [_offering(wire, offer) for offer in page],
        "NextToken": token,
    }


@operation("ec2", "PurchaseCapacityBlockExtension")
def purchase(call: ApiCall) -> Result:
    wire, offer_id = call.wire, call.require("CapacityBlockExtensionOfferingId")
    block = by_id(wire.cloud.reservations(), call.require("CapacityReservationId"))
    call.stop_dry_run()
    try:
        bought = wire.cloud.purchase_extension(offer_id, block.id)
    except NoCapacity as gone:
        # AWS documents no code of its own for extensions: those of block offerings are the nearest.
        ending = "Expired" if offer_id in wire.shown_offers else "NotFound"
        raise AwsError(f"InvalidCapacityBlockOfferingId{ending}", str(gone)) from gone
    return {"CapacityBlockExtensions": [_extension(wire, bought)]}


@operation("ec2", "DescribeCapacityBlockExtensionHistory")
def history(call: ApiCall) -> Result:
    wire, ids = call.wire, set(call.get("CapacityReservationIds", []))
    listed = [
        extension for extension in wire.cloud.extensions() if not ids or extension.reservation_id in ids
    ]
    matching = filtered(listed, call.get("Filters", []), _filter_fields(wire), lambda _: ())
    call.stop_dry_run()
    page, token = wire.pages.page(matching, _key, call.params)
    return {
        "CapacityBlockExtensions": [_extension(wire, extension) for extension in page],
        "NextToken": token,
    }


def _key(extension: Extension) -> str:
    """An offer can be bought more than once."""
    return f"{extension.offer_id} {extension.asked_at.isoformat()} {extension.end.isoformat()}"


def _offering(wire: Wire, offer: ExtensionOffer) -> dict[str, Any]:
    return {
        "CapacityBlockExtensionOfferingId": offer.id,
        **_place(wire, offer.reservation_id),
        "StartDate": by_id(wire.cloud.all_reservations(), offer.reservation_id).start,
        "CapacityBlockExtensionStartDate": offer.start,
        "CapacityBlockExtensionEndDate": offer.end,
        "CapacityBlockExtensionDurationHours": (offer.end - offer.start) // _HOUR,
        "UpfrontFee": str(offer.fee_usd),
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }


def _extension(wire: Wire, extension: Extension) -> dict[str, Any]:
    start = next(
        sold.start
        for sold in wire.cloud.bought_extensions
        if (sold.offer_id, sold.at, sold.to) == (extension.offer_id, extension.asked_at, extension.end)
    )
    return {
        "CapacityReservationId": extension.reservation_id,
        **_place(wire, extension.reservation_id),
        "CapacityBlockExtensionOfferingId": extension.offer_id,
        "CapacityBlockExtensionDurationHours": (extension.end - start) // _HOUR,
        "CapacityBlockExtensionStatus": extension.state.value,
        "CapacityBlockExtensionPurchaseDate": extension.asked_at,
        "CapacityBlockExtensionStartDate": start,
        "CapacityBlockExtensionEndDate": extension.end,
        "UpfrontFee": str(extension.fee_usd),
        "CurrencyCode": "USD",
    }


def _place(wire: Wire, reservation_id: str) -> dict[str, Any]:
    block = by_id(wire.cloud.all_reservations(), reservation_id)
    return {
        "InstanceType": block.instance_type,
        "InstanceCount": block.count,
        "AvailabilityZone": block.zone,
        "AvailabilityZoneId": wire.network.zone_ids[block.zone],
        "ZoneType": "availability-zone",
    }


def _filter_fields(wire: Wire) -> FilterFields[Extension]:
    def block(extension: Extension) -> dict[str, Any]:
        return _place(wire, extension.reservation_id)

    return {
        "availability-zone": lambda extension: str(block(extension)["AvailabilityZone"]),
        "availability-zone-id": lambda extension: str(block(extension)["AvailabilityZoneId"]),
        "capacity-block-extension-offering-id": lambda extension: extension.offer_id,
        "capacity-block-extension-status": lambda extension: extension.state.value,
        "capacity-reservation-id": lambda extension: extension.reservation_id,
        "instance-type": lambda extension: str(block(extension)["InstanceType"]),
    }
