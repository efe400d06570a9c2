"""Alerts in the database of the ledger: an alert and the messages due about it are one transaction.

Rules that both implementations share are in `memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from tidemill.model.alerts import Alert, AlertEvent, Delivery, Raised
from tidemill.store import schema
from tidemill.store.database import Database
from tidemill.store.memory import NEVER_TOLD, follows, may_rise_again

ENGINE = "engine"
_words = schema.alert_words


class SqlAlerts:
    """`writing` opens a transaction in which only the leader may write."""

    def __init__(self, database: Database, writing: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._database, self._writing = database, writing

    def raise_alert(self, alert: Alert, at: datetime, targets: Sequence[str]) -> bool:
        table = schema.alerts
        with self._writing() as connection:
            row, held = _held(connection, alert.key)
            if held is None:
                occasion = 1
                values = {**_columns(alert), "first_at": at, "raised_at": at, "occasion": occasion}
                connection.execute(insert(table).values(**values))
            elif may_rise_again(held, at):
                occasion = held.occasion + 1
                values = {**_columns(alert), "raised_at": at, "occasion": occasion, "resolved_at": None}
                connection.execute(update(table).where(table.c.seq == row["seq"]).values(**values))
            else:
                return False
            for target in targets:
                _add(connection, Delivery(alert.key, occasion, target, AlertEvent.RAISED, at, at))
            return True

    def resolve_alert(self, key: str, at: datetime) -> None:
        table = schema.alerts
        with self._writing() as connection:
            row, held = _held(connection, key)
            if held is None or held.resolved_at is not None:
                return
            connection.execute(update(table).where(table.c.seq == row["seq"]).values(resolved_at=at))
            for one in _of(connection, key):
                if one.occasion == held.occasion and not one.failure:
                    _add(connection, Delivery(key, held.occasion, one.target, AlertEvent.RESOLVED, at, at))

    def alerts(self, *, open_only: bool = False) -> tuple[Raised, ...]:
        table = schema.alerts
        query = select(table).order_by(table.c.seq)
        if open_only:
            query = query.where(table.c.resolved_at.is_(None), table.c.lasts)
        with self._database.read() as connection:
            deliveries: dict[str, list[Delivery]] = {}
            for row in connection.execute(select(_words).order_by(_words.c.seq)).mappings():
                deliveries.setdefault(row["key"], []).append(_delivery(row))
            rows = connection.execute(query).mappings().all()
            return tuple(_raised(row, deliveries.get(row["key"], ())) for row in rows)

    # --- the outbox ---

    def claim(self, target: str, at: datetime, until: datetime) -> tuple[Raised, Delivery] | None:
        waiting = select(_words).where(_words.c.target == target, _words.c.due_at.is_not(None))
        with self._database.read() as connection:  # usually nothing is due, and reading needs no lock
            if _due(connection.execute(waiting.order_by(_words.c.seq)).mappings().all(), at) is None:
                return None
        with self._writing() as connection:
            row = _due(connection.execute(waiting.order_by(_words.c.seq)).mappings().all(), at)
            if row is None:
                return None
            claimed = replace(_delivery(row), due_at=until, attempts=row["attempts"] + 1)
            _put(connection, row["seq"], claimed)
            _, held = _held(connection, claimed.key)
            assert held is not None
            return replace(held, deliveries=tuple(_of(connection, claimed.key))), claimed

    def mark(self, delivery: Delivery) -> None:
        """Not only the leader may write this: a message that was sent must not be sent again by the next leader."""
        with self._locked() as connection:
            mine = select(_words).where(_words.c.key == delivery.key, _words.c.target == delivery.target)
            for row in connection.execute(mine).mappings().all():
                one = _delivery(row)
                if one.id == delivery.id:
                    _put(connection, row["seq"], delivery)
                elif delivery.failure and follows(one, delivery) and one.due_at is not None:
                    left = replace(one, due_at=None, failure=delivery.failure, answer=NEVER_TOLD)
                    _put(connection, row["seq"], left)

    def unsent(self) -> tuple[Delivery, ...]:
        query = select(_words).where(_words.c.due_at.is_not(None)).order_by(_words.c.seq)
        with self._database.read() as connection:
            return tuple(_delivery(row) for row in connection.execute(query).mappings())

    # --- the heartbeat ---

    def beat(self, at: datetime) -> None:
        table = schema.heartbeats
        with self._writing() as connection:
            changed = connection.execute(update(table).where(table.c.who == ENGINE).values(at=at))
            if changed.rowcount == 0:
                connection.execute(insert(table).values(who=ENGINE, at=at))

    def heartbeat(self) -> datetime | None:
        table = schema.heartbeats
        with self._database.read() as connection:
            at: datetime | None = connection.execute(select(table.c.at).where(table.c.who == ENGINE)).scalar()
            return at

    @contextmanager
    def _locked(self) -> Iterator[Connection]:
        with self._database.write() as connection:
            connection.execute(select(schema.ledger.c.id).with_for_update())
            yield connection


def _due(rows: Sequence[RowMapping], at: datetime) -> RowMapping | None:
    """The first message that is due and does not wait for an earlier one about the same alert."""
    held_back: set[str] = set()
    for row in rows:
        if row["key"] not in held_back and row["due_at"] <= at:
            return row
        held_back.add(row["key"])
    return None


def _held(connection: Connection, key: str) -> tuple[Any, Raised | None]:
    query = select(schema.alerts).where(schema.alerts.c.key == key)
    row = connection.execute(query).mappings().one_or_none()
    return row, None if row is None else _raised(row, ())


def _of(connection: Connection, key: str) -> list[Delivery]:
    rows = connection.execute(select(_words).where(_words.c.key == key).order_by(_words.c.seq)).mappings()
    return [_delivery(row) for row in rows.all()]


def _add(connection: Connection, delivery: Delivery) -> None:
    connection.execute(insert(_words).values(**_columns(delivery)))


def _put(connection: Connection, seq: int, delivery: Delivery) -> None:
    connection.execute(update(_words).where(_words.c.seq == seq).values(**_columns(delivery)))


def _columns(record: Alert | Delivery) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _delivery(row: RowMapping) -> Delivery:
    return Delivery(**{field.name: row[field.name] for field in fields(Delivery)})


def _raised(row: RowMapping, deliveries: Sequence[Delivery]) -> Raised:
    named = {field.name: row[field.name] for field in fields(Alert) if field.name != "facts"}
    alert = Alert(facts=tuple((name, value) for name, value in row["facts"]), **named)
    return Raised(
        alert, row["first_at"], row["raised_at"], row["occasion"], row["resolved_at"], tuple(deliveries)
    )
