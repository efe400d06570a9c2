"""Ways into a ledger's database that no program of ours has: for looking behind it, and for doing it harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from tidemill.store.sql import SqlLedger


def engine_of(ledger: SqlLedger) -> Engine:
    return ledger._database._engine


@contextmanager
def inside(ledger: SqlLedger) -> Iterator[Connection]:
    """A transaction beside the ledger's own, committed at the end."""
    with engine_of(ledger).begin() as connection:
        yield connection
