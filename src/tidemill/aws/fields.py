"""Reads one field of a record from AWS, and rejects what it should not be.

botocore turns XML and JSON into dictionaries and checks little: a field may be missing, have another type, or hold a
value of a newer API. A record that cannot be read raises `Unreadable`, and is left out or refused as a whole.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from tidemill.model.errors import Retryable
from tidemill.model.labels import Pairs

log = logging.getLogger("tidemill.aws")

T = TypeVar("T")
# Ids, types, zones and states of AWS: letters, digits and a few signs.
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}")
_LONGEST_LOG = 300
# EC2 has nothing older, and nothing that lasts longer.
_FIRST_YEAR, _LAST_YEAR = 2006, 2200
# A hostile answer must not fill the memory.
_MOST_REMEMBERED = 10_000


class Unreadable(ValueError):
    """A record without what it must have. The message names the field."""


def string(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise Unreadable(f"field {key}: expected an identifier, got {value!r}")
    return value


def id_of(record: Mapping[str, Any], key: str, prefix: str) -> str:
    value = string(record, key)
    if not value.startswith(prefix):
        raise Unreadable(f"field {key}: expected {prefix}…, got {value!r}")
    return value


def integer(record: Mapping[str, Any], key: str, *, least: int = 0) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Unreadable(f"field {key}: expected an integer of at least {least}, got {value!r}")
    return value


def instant(record: Mapping[str, Any], key: str) -> datetime:
    value = record.get(key)
    if not isinstance(value, datetime) or value.tzinfo is None or not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise Unreadable(f"field {key}: expected a time, got {value!r}")
    return value.astimezone(UTC)


def fee_usd(record: Mapping[str, Any], key: str = "UpfrontFee") -> int:
    """Whole dollars in a string. Cents are rounded up: a fee is never taken for less than it is."""
    value, currency = record.get(key), record.get("CurrencyCode")
    if currency != "USD":
        raise Unreadable(f"field CurrencyCode: expected USD, got {currency!r}")
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise Unreadable(f"field {key}: expected a number of dollars, got {value!r}") from None
    if not amount.is_finite() or not 0 <= amount < 10**12:
        raise Unreadable(f"field {key}: expected a number of dollars, got {value!r}")
    return int(amount.to_integral_value(rounding="ROUND_CEILING"))


def tags(record: Mapping[str, Any]) -> Pairs:
    pairs = []
    for tag in records(record, "Tags"):
        if not isinstance(tag.get("Key"), str):
            raise Unreadable(f"field Tags: expected a key and a value, got {tag!r}")
        value = tag.get("Value")
        pairs.append((tag["Key"], value if isinstance(value, str) else ""))
    return tuple(sorted(pairs))


# --- nested records: what may be missing, and what must be valid --------------------------------------


def optional_record(record: Any, *keys: str) -> Mapping[str, Any]:
    """The record at this path; an empty one where there is none or it is no record."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def optional_records(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """As `optional_record`, of a list; entries that are no records are skipped."""
    value = record.get(key)
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def nested_record(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The record in this field; an empty one where it is missing."""
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(f"field {key}: expected a record, got {value!r}")
    return value


def records(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """As `nested_record`, of a list; none where it is missing."""
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(entry, Mapping) for entry in value):
        raise Unreadable(f"field {key}: expected a list of records, got {value!r}")
    return list(value)


def listed(answer: Any, key: str) -> list[Mapping[str, Any]]:
    """As `records`, of an answer or of a list taken out of one. Retryable: AWS answered with something else."""
    try:
        return records(answer if isinstance(answer, Mapping) else {key: answer}, key)
    except Unreadable:
        raise Retryable(f"AWS did not answer with a list of {key}") from None


def strings(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(
        isinstance(entry, str) and _IDENTIFIER.fullmatch(entry) for entry in value
    ):
        raise Unreadable(f"field {key}: expected a list of identifiers, got {value!r}")
    return tuple(value)


def pairs(record: Mapping[str, Any], key: str) -> Pairs:
    """Names and values, as EKS writes labels and tags."""
    found: Iterable[tuple[Any, Any]] = nested_record(record, key).items()
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in found):
        raise Unreadable(f"field {key}: expected names and strings, got {record.get(key)!r}")
    return tuple(sorted(found))


class Reader:
    """Turns records into objects, leaves out those that cannot be read, and logs each of them once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def each(self, what: str, records: Iterable[Any], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        found = []
        for record in records:
            try:
                if not isinstance(record, Mapping):
                    raise Unreadable(f"expected a record, got {record!r}")
                found.append(read(record))
            except Exception as why:  # Unreadable, or a surprise: one record never stops the others
                self.log_once(f"{what} {_named(record)} cannot be read and is left out: {why}")
        return found

    def log_once(self, sentence: str) -> None:
        """What AWS sent may hold anything: only printable characters are logged."""
        printable = "".join(char if char.isprintable() else "?" for char in sentence)[:_LONGEST_LOG]
        if printable not in self._logged and len(self._logged) < _MOST_REMEMBERED:
            self._logged.add(printable)
            log.warning("%s", printable)


def _named(record: Any) -> str:
    if isinstance(record, Mapping):
        for key, value in record.items():
            if key in ("CapacityReservationId", "InstanceId") or str(key).endswith("OfferingId"):
                return str(value)
    return "without an id"
