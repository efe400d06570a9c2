"""A database whose errors say what became of a transaction: committed, not begun, or unknown.

Writes take their lock before they read, so what a write decides on cannot change under it. Knows nothing of
what is in the tables.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.pool import QueuePool

from tidemill.model.errors import OutcomeUnknown, Refused, Retryable, SpecError

# How long a write waits for another one. Ours take milliseconds; a longer wait means that a process hangs.
WAIT_S = 10
# A transaction of ours never waits for its own process. One that does belongs to a process that was frozen or cut off,
# and its lock would keep every other process from leading: PostgreSQL ends it.
IDLE_S = 5
# Any number will do, as long as every Tidemill uses the same one: "tide" in ASCII.
_ADVISORY_LOCK = 0x74696465
# postgresql://USER@HOST/NAME?password_file=/run/secrets/ledger
PASSWORD_FILE = "password_file"
_OUR_MISTAKES = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
# What reading a row raises whose content nobody wrote: an unknown word, half a document, a date that is none.
_NOT_AS_WRITTEN = (ArithmeticError, LookupError, TypeError, ValueError)
_LOOKS_AT_EMPTY, _LOOK_AGAIN_S = 20, 0.05
_DAMAGED_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Database:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One snapshot, however many statements."""
        snapshot = {} if self._engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        try:
            with self._connected(**snapshot) as connection, connection.begin():
                yield connection
        except _NOT_AS_WRITTEN as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Committed when the block is left, undone if it raises. OutcomeUnknown: the commit was not answered."""
        with self._connected(writes=True) as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                with suppress(DBAPIError):  # a lost connection has rolled back already
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                raise OutcomeUnknown(f"the ledger did not answer a commit: {_sentence(error)}") from error

    @contextmanager
    def exclusive(self) -> Iterator[Connection]:
        """A write under a lock of the whole database, for changing tables: there may be no row to lock yet."""
        with self.write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connected(self, **options: Any) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.execution_options(**options)
                yield connection
        except _OUR_MISTAKES:
            raise
        except (DBAPIError, NoConnectionFree) as error:
            if _is_damage(getattr(error, "orig", None)):
                raise _damaged(_sentence(error)) from error
            raise Retryable(f"the ledger cannot be reached: {_sentence(error)}") from error


def _is_damage(error: object) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    # Text that is no text has no code of its own.
    return code in _DAMAGED_CODES or (code is None and isinstance(error, sqlite3.OperationalError))


def _damaged(what: str) -> Refused:
    """Nothing is bought from a ledger that cannot be read, and nobody mends one by hand."""
    return Refused(
        f"the ledger is damaged ({what}): restore a copy of it; or move it away and run `tidemill ledger rebuild`, to"
        " make it anew from AWS",
        code="ledger-damaged",
    )


def _sentence(error: Exception) -> str:
    """The first line of the message of the database, without the statement."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def sqlite(path: Path, *, read_only: bool = False, must_exist: bool = False) -> Database:
    """A file, which may be new unless it must exist. Read-only: it stays as it is."""
    if not path.parent.is_dir():
        raise SpecError(f"the ledger cannot be at {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise SpecError(f"the ledger cannot be at {path}: it is a folder; name a file in it")
    if (read_only or must_exist) and not path.is_file():
        raise SpecError(f"there is no ledger at {path}; name the address of one that exists")
    if path.is_file() and _stays_empty(path):
        raise SpecError(
            f"{path} is empty: a ledger that was there is lost. Restore a copy of it; or remove the file, and run"
            " `tidemill ledger rebuild` if anything was ever bought"
        )
    address = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"

    def connect() -> sqlite3.Connection:
        # The driver would begin transactions late; `_begin` does it at once.
        connection = sqlite3.connect(
            address, uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
        _check_it_is_sqlite(connection, path)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "connect", _set_up_sqlite_read_only if read_only else _set_up_sqlite)
    event.listen(engine, "begin", _begin)
    return Database(engine)


def _stays_empty(path: Path) -> bool:
    """A file that another process makes just now is empty for a moment; a new one until its log is written back."""
    log = path.with_name(f"{path.name}-wal")
    for _ in range(_LOOKS_AT_EMPTY):
        if path.stat().st_size or (log.is_file() and log.stat().st_size):
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _check_it_is_sqlite(connection: sqlite3.Connection, path: Path) -> None:
    """A file of another kind is a typing error, not a ledger that cannot be reached.

    SQLite itself looks: the locks of a file belong to the process, and a process that opens and closes the file
    beside SQLite loses those of its other connections.
    """
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            connection.close()
            raise SpecError(f"{path} is not a ledger: it is no SQLite file; name another file") from None
        if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT:
            connection.close()
            raise _damaged(str(error)) from None
        # Locked, or on a disk that fails: what comes next says so.


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # WAL: readers and the writer do not wait for each other. It stays with the file.
    mode = _write_ahead(connection)
    if mode != "wal":
        raise SpecError(
            f"SQLite cannot keep a write-ahead log there (journal mode {mode}): use a local disk, not a network disk"
        )
    # FULL: a commit is on the disk when it returns. WAL alone could lose the last ones in a power cut.
    connection.execute("PRAGMA synchronous = FULL")
    _set_up_sqlite_read_only(connection, _record)


def _write_ahead(connection: Any) -> str:
    """The journal mode after asking for the write-ahead log.

    Of several processes that open a new file at once, SQLite refuses all but one without waiting for its
    time-out: a connection that reads the old mode cannot wait for another that does. Asking again is the way out.
    """
    until = time.monotonic() + WAIT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _set_up_sqlite_read_only(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    # Deferred, two writers would both read and then one would fail in the middle.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def postgresql(url: URL, *, read_only: bool = False) -> Database:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise SpecError("a ledger on PostgreSQL needs its driver: pip install 'tidemill[postgres]'") from None
    settings = {
        "lock_timeout": f"{WAIT_S}s",
        "statement_timeout": f"{3 * WAIT_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_S}s",
        "synchronous_commit": "on",  # whatever the server's default: a commit is on its disk when it returns
        "default_transaction_read_only": "on" if read_only else "off",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    arguments = {"connect_timeout": WAIT_S, "options": options, "application_name": "tidemill"}
    secret = url.query.get(PASSWORD_FILE)
    address = url.set(drivername="postgresql+psycopg").difference_update_query([PASSWORD_FILE])
    # A connection that died in the pool is replaced, not reported.
    engine = create_engine(address, connect_args=arguments, pool_pre_ping=True)
    if secret is not None:
        event.listen(engine, "do_connect", _with_password_of(Path(str(secret))))
    return Database(engine)


def _with_password_of(file: Path) -> Callable[..., None]:
    def connect(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
        """Read for every new connection: a rotated password needs no restart."""
        try:
            parameters["password"] = file.read_text(encoding="utf-8").rstrip("\n")
        except OSError as error:
            raise Retryable(f"the ledger's password cannot be read from {file}: {error.strerror}") from error

    return connect
