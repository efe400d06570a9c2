"""A capacity reservation of EC2 -> `Reservation`: a pure function of the record and the catalog.

A block in an unknown state must look neither absent nor usable: it is read as payment-pending, which counts as bought
and takes no launch. A record that lacks more than that is still a reservation: `read_partly` keeps its id, its tags and
whatever else can be read. EC2's records have no fee: it is read from a tag that the purchase wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from tidemill.aws.fields import Unreadable, id_of, instant, integer, string, tags
from tidemill.catalog import Catalog
from tidemill.model.capacity import (
    NOT_STARTED_STATES,
    OVER_STATES,
    UNKNOWN_START,
    Reservation,
    ReservationState,
    SourceKind,
)
from tidemill.model.ec2_facts import TAG_BOUGHT_COUNT
from tidemill.model.labels import Pairs
from tidemill.model.offers import Extension, ExtensionState
from tidemill.spec import names

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
T = TypeVar("T")


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
        count=max(total, _number(tag.get(TAG_BOUGHT_COUNT, ""))) if state in NOT_STARTED_STATES else total,
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


def read_each(records: Iterable[Any], catalog: Catalog, log: Log) -> list[Reservation]:
    """Every record: what cannot be read as a whole is read as far as it can, and said so."""
    found = []
    for number, record in enumerate(records):
        try:
            if not isinstance(record, Mapping):
                raise Unreadable(f"expected a record, got {record!r}")
            found.append(read_reservation(record, catalog, log))
        except Exception as why:  # Unreadable, or a surprise: one record never stops the others
            partly = read_partly(record if isinstance(record, Mapping) else {}, str(why)[:200], number)
            log(f"reservation {partly.id} cannot be read, and nothing is bought while it may be ours: {why}")
            found.append(partly)
    return found


def read_partly(record: Mapping[str, Any], why: str, number: int) -> Reservation:
    """Never raises: the id and the tags are enough to know that it is there."""
    own, all_known = _readable_tags(record)
    tag, state = dict(own), record.get("State")
    return Reservation(
        id=_or(lambda: id_of(record, "CapacityReservationId", "cr-"), f"record-{number + 1}-without-an-id"),
        kind=_or(lambda: _kind(record), SourceKind.BLOCK),
        instance_type=_or(lambda: string(record, "InstanceType"), ""),
        zone=_or(lambda: string(record, "AvailabilityZone"), ""),
        count=_or(lambda: integer(record, "TotalInstanceCount"), 0),
        available=0,
        state=_STATES.get(state, ReservationState.PAYMENT_PENDING) if isinstance(state, str)
        else ReservationState.PAYMENT_PENDING,
        start=_or(lambda: instant(record, "StartDate"), UNKNOWN_START),
        end=_or(lambda: instant(record, "EndDate"), None),
        owner=tag.get(names.TAG_OWNER, ""),
        pool=tag.get(names.TAG_POOL, ""),
        intent_id=tag.get(names.TAG_INTENT, ""),
        fee_usd=_number(tag.get(names.TAG_FEE, "")),
        tags=own,
        unread=why or "its record",
        tags_known=all_known,
    )  # fmt: skip


def _readable_tags(record: Mapping[str, Any]) -> tuple[Pairs, bool]:
    """The tags that can be read, and whether those are all. A record without the field has none."""
    listed = record.get("Tags", [])
    entries = listed if isinstance(listed, list) else []
    pairs = {
        entry["Key"]: entry["Value"]
        for entry in entries
        if isinstance(entry, Mapping)
        and isinstance(entry.get("Key"), str)
        and isinstance(entry.get("Value"), str)
    }
    return tuple(sorted(pairs.items())), isinstance(listed, list) and len(pairs) == len(entries)


def _or(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except Unreadable:
        return otherwise


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
