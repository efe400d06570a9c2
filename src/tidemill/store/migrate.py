"""Brings the schema of a ledger up to what this version knows, under a lock; refuses one it does not know.

Whole or not at all: both databases undo half a migration, so an upgrade that dies leaves the old version.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from tidemill.model.errors import Refused
from tidemill.store.database import Database
from tidemill.store.schema import REVISIONS

HEAD = REVISIONS[-1]
MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(database: Database, to: str = HEAD) -> None:
    with database.read() as connection:
        if version_of(connection) == to:
            return
    with database.exclusive() as connection:
        if version_of(connection) != to:  # somebody else may have done it while we waited
            _upgrade(connection, to)


def version_of(connection: Connection) -> str | None:
    """None: there is no ledger yet. Refused: a newer Tidemill wrote it."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if version is not None and version not in REVISIONS:
        raise Refused(
            f"the ledger has schema {version}, and this Tidemill knows schemas up to {HEAD}: upgrade Tidemill"
        )
    return version


def _upgrade(connection: Connection, to: str) -> None:
    # Imported here: opening a ledger that is up to date does not need alembic.
    from alembic import command
    from alembic.config import Config

    config = Config()
    # A percent sign in the path would be read as an interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, to)
