"""A capacity reservation of EC2 -> `Reservation`: a pure function of the record and the catalog.

A block in an unknown state must look neither absent nor usable: it is read as payment-pending, which counts as bought
and takes no launch. EC2's records have no fee: it is read from a tag that the purchase wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from tidemill.aws.fields import Unreadable, id_of, instant, integer, string, tags
from tidemill.catalog import Catalog
from tidemill.model.capacity import NOT_STARTED_STATES, OVER_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.offers import Extension, ExtensionState
from tidemill.spec import names

# The count of a reservation that has not started.
_COUNT_TO_COME = "aws:ec2capacityreservation:incrementalRequestedQuantity"
# On-demand reservations have states that blocks do not have.
_STATES = {
    **{state.value: state for state in ReservationState},
    "pending": ReservationState.SCHEDULED,
    "delayed": ReservationState.SCHEDULED,
    "assessing": ReservationState.PAYMENT_PENDING,  # asked for, not granted
    "unsupported": ReservationState.FAILED,
    "cancelling": ReservationState.CANCELLED,
}
_KINDS: Mapping[str, Literal[SourceKind.BLOCK, SourceKind.ODCR]] = {
    "capacity-block": SourceKind.BLOCK,
    "default": SourceKind.ODCR,
}
# The platform of our images. A reservation for another one takes none of our instances.
PLATFORM = "Linux/UNIX"
_LISTED_FOR = timedelta(days=1)

Log = Callable[[str], None]


def read_reservation(record: Mapping[str, Any], catalog: Catalog, log: Log) -> Reservation:
    """Raises Unreadable."""
    id_ = id_of(record, "CapacityReservationId", "cr-")
    kind = _kind(record)
    state = _state(record, id_, log)
    instance_type, own = string(record, "InstanceType"), tags(record)
    tag = dict(own)
    total = integer(record, "TotalInstanceCount")
    known = catalog.types.get(instance_type)
    return Reservation(
        id=id_,
        kind=kind,
        instance_type=instance_type,
        zone=string(record, "AvailabilityZone"),
        count=max(total, _number(tag.get(_COUNT_TO_COME, ""))) if state in NOT_STARTED_STATES else total,
        available=_available(record, state, id_, log),
        state=state,
        start=instant(record, "StartDate" if record.get("StartDate") is not None else "CreateDate"),
        end=_end(record, kind),
        owner=tag.get(names.TAG_OWNER, ""),
        pool=tag.get(names.TAG_POOL, ""),
        intent_id=tag.get(names.TAG_INTENT, ""),
        fee_usd=_number(tag.get(names.TAG_FEE, "")),
        ultraserver=kind is SourceKind.BLOCK and known is not None and bool(known.ultraserver),
        tags=own,
    )


def with_extensions(found: Iterable[Reservation], extensions: Iterable[Extension]) -> tuple[Reservation, ...]:
    """With their extensions from the history: the pending one, and the fees of those that were paid."""
    by_block: dict[str, list[Extension]] = {}
    for extension in extensions:
        by_block.setdefault(extension.reservation_id, []).append(extension)
    return tuple(_extended(reservation, by_block.get(reservation.id, [])) for reservation in found)


def recently_listed(found: Iterable[Reservation], now: datetime) -> tuple[Reservation, ...]:
    """Without those that ended more than a day ago."""
    since = now - _LISTED_FOR
    return tuple(
        reservation
        for reservation in found
        if reservation.state not in OVER_STATES or reservation.end is None or reservation.end > since
    )


def _extended(reservation: Reservation, extensions: list[Extension]) -> Reservation:
    if not extensions:
        return reservation
    waiting = [extension.end for extension in extensions if extension.state is ExtensionState.PAYMENT_PENDING]
    paid_usd = sum(
        extension.fee_usd for extension in extensions if extension.state is ExtensionState.PAYMENT_SUCCEEDED
    )
    fee_usd = reservation.fee_usd + paid_usd if reservation.fee_usd else 0
    return replace(reservation, extension_pending_to=max(waiting, default=None), fee_usd=fee_usd)


def _kind(record: Mapping[str, Any]) -> Literal[SourceKind.BLOCK, SourceKind.ODCR]:
    """Some records of ordinary reservations have no type."""
    written = record.get("ReservationType") or "default"
    if not isinstance(written, str) or written not in _KINDS:
        raise Unreadable(f"field ReservationType: expected a known type, got {written!r}")
    return _KINDS[written]


def _state(record: Mapping[str, Any], id_: str, log: Log) -> ReservationState:
    written = record.get("State")
    if isinstance(written, str) and written in _STATES:
        return _STATES[written]
    log(f"{id_} is in the unknown state {written!r}: it counts as bought, and nothing is launched there")
    return ReservationState.PAYMENT_PENDING


def _available(record: Mapping[str, Any], state: ReservationState, id_: str, log: Log) -> int:
    if state is not ReservationState.ACTIVE or record.get("LaunchStatus") == "unlaunchable":
        return 0
    if record.get("InstancePlatform") != PLATFORM:
        log(
            f"{id_} is for {record.get('InstancePlatform')!r}: nothing is launched there, our nodes need {PLATFORM}"
        )
        return 0
    return min(integer(record, "AvailableInstanceCount"), integer(record, "TotalInstanceCount"))


def _end(record: Mapping[str, Any], kind: SourceKind) -> datetime | None:
    if kind is SourceKind.ODCR and (
        record.get("EndDateType") == "unlimited" or record.get("EndDate") is None
    ):
        return None
    return instant(record, "EndDate")


def _number(written: str) -> int:
    return int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0


def tag_list(tags: Pairs) -> list[dict[str, str]]:
    """Tags in the form of EC2's requests."""
    return [{"Key": key, "Value": value} for key, value in tags]
