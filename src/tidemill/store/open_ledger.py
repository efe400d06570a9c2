"""Opens a ledger by its address: `sqlite:////var/lib/tidemill/ledger.db`, `postgresql://…`, or `memory:`.

`postgresql://…?password_file=PATH` keeps the password in a file, which is read for every new connection. The
databases are imported only when one is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.engine.clock import WallClock
from tidemill.model.errors import NotYet, Refused, SpecError
from tidemill.ports import Clock, Ledger
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.memory import MemoryLedger

if TYPE_CHECKING:
    from tidemill.store.database import Database
    from tidemill.store.sql import SqlLedger

MEMORY = "memory:"
_KNOWN = "sqlite:///PATH or postgresql://USER@HOST/NAME"


def open_ledger(
    url: str, owner: LedgerOwner, *, clock: Clock | None = None, writer: str = "tidemill-engine"
) -> Ledger:
    """The ledger of this deployment, made or brought up to date if need be. `writer` is the name in its audit trail.

    Refused: it belongs to somebody else, or a newer Tidemill wrote it. Retryable: it cannot be reached.
    """
    clock = clock or WallClock()
    if url == MEMORY:
        return MemoryLedger(clock, owner.deployment)
    return open_durable(url, owner, clock=clock, writer=writer)


def open_durable(
    url: str,
    owner: LedgerOwner,
    *,
    clock: Clock,
    writer: str,
    must_exist: bool = False,
    process: str = "engine",
) -> SqlLedger:
    """`must_exist`: for commands about the ledger of an engine, where a new file would hide a typing error. `process`:
    what would lead there, an engine or a purchaser."""
    from tidemill.store.migrate import migrate
    from tidemill.store.sql import SqlLedger

    database = _database(url, must_exist=must_exist)
    try:
        migrate(database)
        ledger = SqlLedger(database, clock, writer=writer, process=process)
        ledger.claim(owner)
    except BaseException:
        database.close()
        raise
    return ledger


def existing_ledger(url: str, owner: LedgerOwner, *, clock: Clock, writer: str) -> SqlLedger | None:
    """The ledger of this deployment, for who looks: neither made nor bound, whatever the documents say. None: there is
    none. Refused: it belongs to somebody else."""
    from tidemill.store.migrate import migrate, version_of
    from tidemill.store.sql import SqlLedger

    file = sqlite_file(url)
    if file is not None and not file.exists():
        return None
    database = _database(url)
    try:
        with database.read() as connection:
            if version_of(connection) is None:
                database.close()
                return None
        migrate(database)
        ledger = SqlLedger(database, clock, writer=writer)
        ledger.owner().agreed_with(owner)
    except NotYet:
        database.close()
        return None
    except BaseException:
        database.close()
        raise
    return ledger


def read_ledger(url: str, clock: Clock | None = None) -> SqlLedger:
    """A ledger of any deployment, read only. Nothing is created, migrated or written."""
    from tidemill.store.migrate import HEAD, version_of
    from tidemill.store.sql import SqlLedger

    if url == MEMORY:
        raise SpecError("a ledger in memory cannot be read by another process; name one in a database")
    database = _database(url, read_only=True, must_exist=True)
    try:
        with database.read() as connection:
            version = version_of(connection)
    except BaseException:
        database.close()
        raise
    if version != HEAD:
        database.close()
        state = (
            "holds no ledger" if version is None else f"has the older schema {version}; the engine updates it"
        )
        raise Refused(f"{redacted(url)} {state}")
    return SqlLedger(database, clock or WallClock(), writer="")


def redacted(url: str) -> str:
    """The address without its password."""
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)


def _database(url: str, *, read_only: bool = False, must_exist: bool = False) -> Database:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from tidemill.store import database

    try:
        parsed = make_url(url)
    except ArgumentError:
        meant = f"sqlite:///{url}" if Path(url).is_file() else _KNOWN
        raise SpecError(f"'{url}' is not the address of a ledger; write {meant}") from None
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return database.postgresql(parsed, read_only=read_only)
    if parsed.drivername != "sqlite":
        raise SpecError(f"a ledger cannot be kept in {parsed.drivername}; write {_KNOWN}")
    if parsed.database in (None, "", ":memory:"):
        raise SpecError("this ledger has no file; write sqlite:///PATH, or memory: to have none")
    return database.sqlite(Path(str(parsed.database)), read_only=read_only, must_exist=must_exist)


def sqlite_file(url: str) -> Path | None:
    """The file of a ledger on SQLite; None: it is elsewhere."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        return None
    return Path(parsed.database) if parsed.drivername == "sqlite" and parsed.database else None
