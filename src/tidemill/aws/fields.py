"""Reading one field of a record that AWS sent, and refusing what is not what it should be.

botocore turns XML and JSON into dictionaries and checks nothing: a missing key, a string for a number and a word from
next year's API all arrive. A record that cannot be read whole raises `Unreadable` and is dealt with as one.
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
# Ids, types, zones and states of AWS: letters, digits and a few signs. Whatever else stands there is not one.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}")
_LONGEST_LOG = 300
# Nothing of EC2's is older, or lasts longer; and half an hour before the first of all days there is no instant.
_FIRST_YEAR, _LAST_YEAR = 2006, 2200
# So many different complaints are remembered; a hostile answer must not fill the memory.
_MOST_REMEMBERED = 10_000


class Unreadable(ValueError):
    """A record that does not say what it must. The message names the field."""


def word(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise Unreadable(f"{key} is {value!r}")
    return value


def id_of(record: Mapping[str, Any], key: str, prefix: str) -> str:
    value = word(record, key)
    if not value.startswith(prefix):
        raise Unreadable(f"{key} is {value!r}, which is no {prefix}…")
    return value


def whole(record: Mapping[str, Any], key: str, *, least: int = 0) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Unreadable(f"{key} is {value!r}")
    return value


def instant(record: Mapping[str, Any], key: str) -> datetime:
    value = record.get(key)
    if not isinstance(value, datetime) or value.tzinfo is None or not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise Unreadable(f"{key} is {value!r}")
    return value.astimezone(UTC)


def fee_usd(record: Mapping[str, Any], key: str = "UpfrontFee") -> int:
    """Whole dollars in a string; cents are rounded up, so that a fee is never taken for less than it is."""
    value, currency = record.get(key), record.get("CurrencyCode")
    if currency != "USD":
        raise Unreadable(f"CurrencyCode is {currency!r}")
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise Unreadable(f"{key} is {value!r}") from None
    if not amount.is_finite() or not 0 <= amount < 10**12:
        raise Unreadable(f"{key} is {value!r}")
    return int(amount.to_integral_value(rounding="ROUND_CEILING"))


def tags(record: Mapping[str, Any]) -> Pairs:
    pairs = []
    for one in records(record, "Tags"):
        if not isinstance(one.get("Key"), str):
            raise Unreadable(f"a tag is {one!r}")
        value = one.get("Value")
        pairs.append((one["Key"], value if isinstance(value, str) else ""))
    return tuple(sorted(pairs))


# --- records within: what may be left out, and what must be whole -------------------------------------


def part(record: Any, *keys: str) -> Mapping[str, Any]:
    """A record inside a record inside …; where there is none, an empty one: for what may be left out."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def parts(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """As `part`, of a list: what is no record in it is passed over."""
    found = record.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def inner(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A record within; absent: an empty one."""
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(f"{key} is {value!r}")
    return value


def records(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """As `inner`, of a list; absent: none."""
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        raise Unreadable(f"{key} is {value!r}")
    return list(value)


def listed(answer: Any, key: str) -> list[Mapping[str, Any]]:
    """As `records`, of a whole answer, or of its list where that was taken out already. Retryable: ask again."""
    try:
        return records(answer if isinstance(answer, Mapping) else {key: answer}, key)
    except Unreadable:
        raise Retryable(f"AWS answered with something that is not a list of {key}") from None


def words(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) and _WORD.fullmatch(one) for one in value):
        raise Unreadable(f"{key} is {value!r}")
    return tuple(value)


def pairs(record: Mapping[str, Any], key: str) -> Pairs:
    """Names and texts, as EKS writes labels and tags."""
    found: Iterable[tuple[Any, Any]] = inner(record, key).items()
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in found):
        raise Unreadable(f"{key} is {record.get(key)!r}")
    return tuple(sorted(found))


class Reader:
    """Turns records into objects, leaves out what cannot be read, and says so once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def each(self, what: str, records: Iterable[Any], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        found = []
        for record in records:
            try:
                if not isinstance(record, Mapping):
                    raise Unreadable(f"it is {record!r}")
                found.append(read(record))
            except (
                Exception
            ) as why:  # Unreadable, or what no reader thought of: one record never stops the others
                self.say(f"{what} {_named(record)} cannot be understood and is left out: {why}")
        return found

    def say(self, sentence: str) -> None:
        """Log it, the first time. What AWS sent may hold anything: only printable characters get through."""
        printable = "".join(one if one.isprintable() else "?" for one in sentence)[:_LONGEST_LOG]
        if printable not in self._said and len(self._said) < _MOST_REMEMBERED:
            self._said.add(printable)
            log.warning("%s", printable)


def _named(record: Any) -> str:
    if isinstance(record, Mapping):
        for key, value in record.items():
            if key in ("CapacityReservationId", "InstanceId") or str(key).endswith("OfferingId"):
                return str(value)
    return "without an id"
