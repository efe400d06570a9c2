"""Database rows <-> the records of `model.purchases`, and each of them as a JSON document for the audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import RowMapping

from tidemill.model.capacity import Source
from tidemill.model.purchase_reasons import PurchaseReason
from tidemill.model.purchases import (
    Adoption,
    BlockHours,
    CostLine,
    Envelope,
    LaunchIntent,
    Pause,
    PurchaseIntent,
    ShownReservation,
    Verdict,
)
from tidemill.store.months import by_month


def launch_row(intent: LaunchIntent) -> dict[str, Any]:
    row = _named(intent, without=("source",))
    return {**row, "source_kind": intent.source.kind, "source_id": intent.source.id}


def launch_of(row: RowMapping) -> LaunchIntent:
    source = Source(row["source_kind"], row["source_id"])
    return LaunchIntent(source=source, **_taken(LaunchIntent, row, without=("source",)))


def purchase_row(intent: PurchaseIntent) -> dict[str, Any]:
    row = {**_named(intent, without=("envelope", "verdicts", "reason")), **_named(intent.envelope)}
    return {**row, **reason_row(intent.reason)}


def purchase_of(row: RowMapping, verdicts: Iterable[Verdict]) -> PurchaseIntent:
    envelope = Envelope(**_taken(Envelope, row))
    own = _taken(PurchaseIntent, row, without=("envelope", "verdicts", "reason"))
    return PurchaseIntent(envelope=envelope, verdicts=tuple(verdicts), reason=reason_of(row), **own)


def pause_row(pause: Pause) -> dict[str, Any]:
    return _named(pause)


def pause_of(row: RowMapping) -> Pause:
    return Pause(**_taken(Pause, row))


def reason_row(reason: PurchaseReason | None) -> dict[str, Any]:
    """The kind in a column of its own, for queries; what else the reason says as a document."""
    if reason is None:
        return {"reason": None, "reason_data": None}
    data = {
        field.name: _plain(value)
        for field in fields(reason)
        if field.name != "kind" and (value := getattr(reason, field.name)) != field.default
    }
    return {"reason": reason.kind, "reason_data": data}


def reason_of(row: RowMapping) -> PurchaseReason | None:
    if row["reason"] is None:
        return None
    data = dict(row["reason_data"] or {})
    for name in data.keys() & {"reservation_ids", "zones", "usable_zones"}:
        data[name] = tuple(data[name])
    if "at" in data:
        data["at"] = datetime.fromisoformat(data["at"])
    return PurchaseReason(row["reason"], **data)


def verdict_of(row: RowMapping) -> Verdict:
    return Verdict(**_taken(Verdict, row))


def adoption_row(adoption: Adoption) -> dict[str, Any]:
    shown = adoption.shown
    seen = {
        field.name: None if shown is None else getattr(shown, field.name)
        for field in fields(ShownReservation)
    }
    return {**_named(adoption, without=("shown",)), **seen}


def adoption_of(row: RowMapping) -> Adoption:
    shown = None if row["kind"] is None else ShownReservation(**_taken(ShownReservation, row))
    return Adoption(shown=shown, **_taken(Adoption, row, without=("shown",)))


def block_hours_of(row: RowMapping) -> BlockHours:
    return BlockHours(**_taken(BlockHours, row))


def cost_row(line: CostLine) -> dict[str, Any]:
    usd = None if line.until is None else sum(part for _, part in by_month(line, line.until))
    return {**_named(line), "usd_millionths": None if usd is None else round(usd * 1_000_000)}


def cost_of(row: RowMapping) -> CostLine:
    return CostLine(**_taken(CostLine, row))


def document(record: Any) -> dict[str, Any]:
    """All fields of a record, readable without this program."""
    plain: dict[str, Any] = _plain(asdict(record))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def _named(record: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record) if field.name not in without}


def _taken(kind: type[Any], row: RowMapping, without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(kind) if field.name not in without}
