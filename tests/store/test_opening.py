"""Opening a ledger: by its address, as whose it is, and only if this version understands it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import text

from tests.decide.purchases import intent
from tests.engine.ports import Hands
from tests.store.ledgers import OURS, Opener
from tests.store.probes import inside
from tidemill.model.errors import Refused, Retryable, SpecError
from tidemill.spec.platform import Platform
from tidemill.store import database
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.memory import MemoryLedger
from tidemill.store.migrate import migrate
from tidemill.store.open_ledger import _database, existing_ledger, open_ledger, read_ledger
from tidemill.store.sql import SqlLedger


@pytest.mark.requirement("CB-4")
def test_what_was_written_is_there_when_it_is_opened_again(url: str, opened: Opener):
    opened(url).propose(intent("submitted", approved_by=("ana",)))
    assert opened(url).purchases() == (intent("submitted", approved_by=("ana",)),)


def test_memory_is_an_address_too(clock: Hands):
    assert isinstance(open_ledger("memory:", OURS, clock=clock), MemoryLedger)


def test_without_a_clock_the_ledger_uses_the_wall_clock(url: str):
    ledger = open_ledger(url, OURS)
    assert isinstance(ledger, SqlLedger)
    assert ledger.audit()[0].at.tzinfo is not None
    ledger.close()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ledger.db", "not the address of a ledger; write sqlite:///PATH"),
        ("mysql://root@db/ledger", "cannot be kept in mysql; write sqlite:///PATH"),
        ("sqlite://", "has no file"),
        ("sqlite:///:memory:", "memory: to have none"),
        ("sqlite:////no/such/folder/ledger.db", "there is no folder /no/such/folder"),
    ],
)
def test_an_invalid_address_is_refused_with_the_valid_forms(address: str, says: str):
    with pytest.raises(SpecError, match=says):
        open_ledger(address, OURS)


def test_odd_characters_in_a_path_are_escaped_as_in_any_address(tmp_path: Path, opened: Opener):
    path = tmp_path / "50% of #1?.db"
    opened(f"sqlite:///{quote(str(path))}")
    assert path.exists()


def test_a_server_that_cannot_be_reached_is_retryable():
    with pytest.raises(Retryable, match="cannot be reached"):
        open_ledger("postgresql://nobody@127.0.0.1:1/none", OURS)


def test_without_its_driver_postgresql_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SpecError, match=r"pip install 'tidemill\[postgres\]'"):
        open_ledger("postgresql://nobody@127.0.0.1:1/none", OURS)


# --- whose ---


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "other",
    [
        LedgerOwner("staging", OURS.account, OURS.region, OURS.cluster),
        LedgerOwner(OURS.deployment, "999999999999", OURS.region, OURS.cluster),
        LedgerOwner(OURS.deployment, OURS.account, "eu-north-1", OURS.cluster),
        LedgerOwner(OURS.deployment, OURS.account, OURS.region, "inference"),
    ],
    ids=["deployment", "account", "region", "cluster"],
)
def test_the_ledger_of_another_deployment_is_refused(
    url: str, opened: Opener, other: LedgerOwner, request: pytest.FixtureRequest
):
    ledger = opened(url)
    trail = ledger.audit()
    with pytest.raises(Refused, match=f"belongs to {request.node.callspec.id.rsplit('-', 1)[-1]}"):
        opened(url, owner=other)
    assert ledger.owner() == OURS
    assert ledger.audit() == trail


def test_an_owner_field_that_was_unknown_is_filled_in_once_and_then_kept(url: str, opened: Opener):
    opened(url, owner=LedgerOwner(OURS.deployment))
    ledger = opened(url)
    assert ledger.owner() == OURS
    opened(url, owner=LedgerOwner(OURS.deployment))
    assert ledger.owner() == OURS


def test_the_owner_of_a_ledger_comes_from_the_platform():
    spec = {"region": "us-west-2", "deployment": "tidemill-test", "cluster": {"name": "research"}}
    platform = Platform.model_validate(
        {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Platform", "metadata": {"name": "x"}, "spec": spec}
    )
    assert LedgerOwner.of(platform) == LedgerOwner("tidemill-test", "", "us-west-2", "research")


# --- versions ---


@pytest.mark.requirement("CB-4")
def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(url: str, opened: Opener):
    ledger = opened(url)
    with inside(ledger) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Refused, match=r"schema 9999, and this .* up to .*: upgrade"):
        opened(url)
    with inside(ledger) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"


def test_several_processes_may_open_a_new_ledger_at_once(url: str, opened: Opener):
    with ThreadPoolExecutor(8) as people:
        ledgers = list(people.map(lambda _: opened(url), range(8)))
    assert [line.what for line in ledgers[0].audit()] == ["ledger"]


def test_opening_a_ledger_again_takes_no_lock_from_the_one_that_is_open(tmp_path: Path, opened: Opener):
    """Locks of a file are of the process: if it opens and closes the file beside SQLite, they are gone, and the next
    process that closes the ledger takes itself for the last one and removes the log that this one still writes to."""
    file = tmp_path / "ledger.db"
    first = opened(f"sqlite:///{file}")
    opened(f"sqlite:///{file}").close()
    in_another_process(
        file, "db.execute('UPDATE alembic_version SET version_num = version_num'); db.commit()"
    )
    first.propose(intent())
    assert (
        in_another_process(file, "print(db.execute('SELECT count(*) FROM purchases').fetchone()[0])") == "1"
    )


def in_another_process(file: Path, does: str) -> str:
    code = f"import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); {does}; db.close()"
    return subprocess.check_output([sys.executable, "-c", code, str(file)], text=True).strip()


# --- durable, and quick to start without ---


def test_sqlite_has_a_commit_on_the_disk_before_it_returns(tmp_path: Path, opened: Opener):
    with inside(opened(f"sqlite:///{tmp_path / 'ledger.db'}")) as connection:
        ask = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in (
            "journal_mode", "synchronous", "busy_timeout", "foreign_keys")}  # fmt: skip
    assert ask == {
        "journal_mode": "wal", "synchronous": 2, "busy_timeout": database.WAIT_S * 1000, "foreign_keys": 1,
    }  # fmt: skip


def test_no_database_is_imported_before_one_is_opened():
    asked = (
        "import sys, tidemill.cli, tidemill.store.open_ledger, tidemill.sim.scenario.rehearsal\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'psycopg') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", asked], text=True) == "[]\n"


# --- looking in ---


def test_reading_a_ledger_changes_nothing(url: str, opened: Opener):
    opened(url).propose(intent())
    looked = read_ledger(url)
    assert looked.owner() == OURS
    assert looked.purchases() == (intent(),)
    with pytest.raises((Refused, Retryable)):
        looked.propose(intent(id="tp-2"))
    looked.close()


def test_reading_does_not_create_a_ledger(url: str, tmp_path: Path):
    with pytest.raises((Refused, SpecError), match="no ledger"):
        read_ledger(url)
    assert not list(tmp_path.iterdir())


def test_a_ledger_that_another_process_is_just_making_counts_as_none_yet(
    url: str, clock: Hands, opened: Opener
):
    """Its tables are there, and nobody owns them: whoever only looks must not fail."""
    where = _database(url)
    migrate(where)
    where.close()
    assert existing_ledger(url, OURS, clock=clock, writer="a") is None
    opened(url)
    found = existing_ledger(url, OURS, clock=clock, writer="a")
    assert found is not None
    found.close()
