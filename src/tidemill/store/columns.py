"""Column types: how instants, durations and enums are stored, so that what is read equals what was written.

Instants are aware and UTC on the way in and out; a naive one is refused, since nobody could say when it was.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, String, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB

# SQLite numbers rows by itself only in a column that is spelled INTEGER.
RowNumber = BigInteger().with_variant(Integer, "sqlite")
Document = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

_MICROSECOND = timedelta(microseconds=1)
E = TypeVar("E", bound=StrEnum)


class Instant(TypeDecorator[datetime]):
    """timestamptz in PostgreSQL; in SQLite, which has no such type, text that sorts by time."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        kind = String(32) if dialect.name == "sqlite" else DateTime(timezone=True)
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        value = value.astimezone(UTC)
        return value.isoformat(timespec="microseconds") if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        return None if value is None else value.astimezone(UTC)


class Span(TypeDecorator[timedelta]):
    """A duration in whole microseconds: exact, and the same in both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> int | None:
        return None if value is None else value // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:
        return None if value is None else value * _MICROSECOND


class Names(TypeDecorator[tuple[str, ...]]):
    """A few names in their order: zones, instance ids."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(JSONB() if dialect.name == "postgresql" else JSON())

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> list[str] | None:
        return None if value is None else list(value)

    def process_result_value(self, value: list[str] | None, dialect: Dialect) -> tuple[str, ...] | None:
        return None if value is None else tuple(value)


class OneOf(TypeDecorator[E], Generic[E]):
    """A member of an enum, stored as text: a new member needs no migration, an unknown one is an error."""

    impl = String
    cache_ok = True

    def __init__(self, words: type[E]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else self.words(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        return None if value is None else self.words(value)
