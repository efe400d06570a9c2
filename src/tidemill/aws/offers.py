"""Offers, extension offers and extensions: EC2's records -> the engine's objects, and the search request. Pure.

An offer that cannot be read is left out: what is not understood is not bought. An extension that cannot be read is a
doubt: it may have been bought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidemill.aws.fields import Unreadable, fee_usd, id_of, instant, integer, string
from tidemill.catalog import Catalog
from tidemill.model import ec2_facts
from tidemill.model.capacity import UNKNOWN_START
from tidemill.model.errors import SpecError
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionState, Offer, OfferQuery
from tidemill.spec.units import format_duration, nearest_sold_durations

T = TypeVar("T")
_STATUSES = {state.value: state for state in ExtensionState}


def search_parameters(query: OfferQuery, catalog: Catalog) -> dict[str, Any]:
    """The parameters of DescribeCapacityBlockOfferings. SpecError: what EC2 does not sell to anybody."""
    if not ec2_facts.is_legal_duration(query.duration):
        nearest = nearest_sold_durations(query.duration)
        raise SpecError(
            f"{format_duration(query.duration)} is not a duration EC2 sells; the nearest: {nearest}"
        )
    if not 1 <= query.count <= ec2_facts.MAX_INSTANCES_PER_BLOCK:
        raise SpecError(f"a block has 1 to {ec2_facts.MAX_INSTANCES_PER_BLOCK} instances, not {query.count}")
    return {
        **_what(query, catalog),
        "CapacityDurationHours": query.duration // timedelta(hours=1),
        "StartDateRange": query.earliest_start,
        "EndDateRange": query.latest_end,
    }


def _what(query: OfferQuery, catalog: Catalog) -> dict[str, Any]:
    known = catalog.types.get(query.instance_type)
    if known is None or not known.ultraserver:
        return {"InstanceType": query.instance_type, "InstanceCount": query.count}
    ultraserver = ec2_facts.ultraserver_for(query.count)
    if ultraserver is None:
        raise SpecError(
            f"{query.instance_type} is sold in UltraServers: {query.count} is not a multiple of 9 or 18 instances"
        )
    suffix, size = ultraserver
    return {"UltraserverType": f"{known.ultraserver}{suffix}", "UltraserverCount": query.count // size}


def read_offer(record: Mapping[str, Any]) -> Offer:
    """Raises Unreadable."""
    return Offer(
        id=id_of(record, "CapacityBlockOfferingId", "cb-"),
        instance_type=string(record, "InstanceType"),
        zone=string(record, "AvailabilityZone"),
        count=_count(record),
        **_window(record, "StartDate", "EndDate"),
        fee_usd=fee_usd(record),
        ultraserver=bool(record.get("UltraserverType")),
    )


def _count(record: Mapping[str, Any]) -> int:
    """EC2 may give only the type of an UltraServer and not its number of instances."""
    if record.get("InstanceCount") is None and record.get("UltraserverType"):
        kind = string(record, "UltraserverType")
        size = next(
            (size for suffix, size in ec2_facts.ULTRASERVER_SIZES.items() if kind.endswith(suffix)), 0
        )
        return size * blocks_of(record) or integer(record, "InstanceCount", least=1)
    return integer(record, "InstanceCount", least=1)


def blocks_of(record: Mapping[str, Any]) -> int:
    """How many blocks its purchase makes: one, or one per UltraServer."""
    return integer(record, "UltraserverCount", least=1) if record.get("UltraserverType") else 1


def read_extension_offer(record: Mapping[str, Any], reservation_id: str) -> ExtensionOffer:
    """Raises Unreadable."""
    return ExtensionOffer(
        id=id_of(record, "CapacityBlockExtensionOfferingId", "cbe-"),
        reservation_id=reservation_id,
        **_window(record, "CapacityBlockExtensionStartDate", "CapacityBlockExtensionEndDate"),
        fee_usd=fee_usd(record),
    )


def read_extension(record: Mapping[str, Any]) -> Extension:
    """Raises Unreadable, also for an unknown status: neither "paid" nor "not paid" may be guessed."""
    status = record.get("CapacityBlockExtensionStatus")
    if not isinstance(status, str) or status not in _STATUSES:
        raise Unreadable(f"field CapacityBlockExtensionStatus: expected a known status, got {status!r}")
    return Extension(
        offer_id=id_of(record, "CapacityBlockExtensionOfferingId", "cbe-"),
        reservation_id=id_of(record, "CapacityReservationId", "cr-"),
        asked_at=instant(record, "CapacityBlockExtensionPurchaseDate"),
        end=instant(record, "CapacityBlockExtensionEndDate"),
        fee_usd=fee_usd(record),
        state=_STATUSES[status],
    )


def read_extensions(records: Iterable[Any], now: datetime, log: Callable[[str], None]) -> list[Extension]:
    """Every record of the history. One that cannot be read as a whole is an extension in doubt: pending, so that no
    other is bought for its block and a purchase that looks for it finds it. Without a block it says nothing."""
    found = []
    for record in records:
        try:
            if not isinstance(record, Mapping):
                raise Unreadable(f"expected a record, got {record!r}")
            found.append(read_extension(record))
        except Exception as why:  # Unreadable, or a surprise: one record never stops the others
            log(f"extension of {_named(record)} cannot be read, and counts as not paid yet: {why}")
            found += _partly(record, now) if isinstance(record, Mapping) else ()
    return found


def _partly(record: Mapping[str, Any], now: datetime) -> tuple[Extension, ...]:
    def either(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Unreadable:
            return otherwise

    block = either(lambda: id_of(record, "CapacityReservationId", "cr-"), "")
    if not block:
        return ()
    return (
        Extension(
            offer_id=either(lambda: id_of(record, "CapacityBlockExtensionOfferingId", "cbe-"), ""),
            reservation_id=block,
            asked_at=either(lambda: instant(record, "CapacityBlockExtensionPurchaseDate"), now),
            end=either(lambda: instant(record, "CapacityBlockExtensionEndDate"), UNKNOWN_START),
            fee_usd=either(lambda: fee_usd(record), 0),
            state=ExtensionState.PAYMENT_PENDING,
        ),
    )


def _named(record: Any) -> str:
    return str(record.get("CapacityReservationId")) if isinstance(record, Mapping) else "a block"


def _window(record: Mapping[str, Any], start_key: str, end_key: str) -> dict[str, datetime]:
    start, end = instant(record, start_key), instant(record, end_key)
    if end <= start:
        raise Unreadable(f"field {end_key}: expected a time after {start_key}, got {end:%Y-%m-%d %H:%M}")
    return {"start": start, "end": end}
