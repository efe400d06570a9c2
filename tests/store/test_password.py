"""A password in a file is read for every new connection, so that it can be changed while the engine runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.decide.purchases import intent
from tests.store.ledgers import Opener
from tests.store.postgres import Server
from tidemill.model.errors import Retryable


@pytest.fixture
def rotating(postgres: Server, tmp_path: Path) -> tuple[str, Path]:
    user = f"user_{tmp_path.name.replace('-', '_')}"
    postgres.require_password(user, "first")
    file = tmp_path / "password"
    file.write_text("first\n")
    return postgres.new_database().replace("tidemill@", f"{user}@") + f"?password_file={file}", file


def _change(postgres: Server, url: str, password: str) -> None:
    user = url.split("//")[1].split("@")[0]
    postgres.execute(f"ALTER ROLE {user} PASSWORD '{password}'")
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'")


@pytest.mark.requirement("AE-5")
def test_a_changed_password_is_taken_up_without_a_restart(
    postgres: Server, rotating: tuple[str, Path], opened: Opener
) -> None:
    url, file = rotating
    ledger = opened(url)
    ledger.propose(intent())
    _change(postgres, url, "second")
    file.write_text("second")
    assert ledger.purchases() == (intent(),)


@pytest.mark.requirement("AE-5")
def test_nothing_is_lost_while_the_password_changes_under_a_writer(
    postgres: Server, rotating: tuple[str, Path], opened: Opener
) -> None:
    """A secret that is synced late leaves a gap: what is refused in it is tried again, and written once."""
    url, file = rotating
    ledger = opened(url)
    rotated, refused = threading.Event(), 0

    def rotate() -> None:
        _change(postgres, url, "second")
        time.sleep(0.3)
        file.write_text("second")
        rotated.set()

    thread = threading.Thread(target=rotate)
    thread.start()
    written = 0
    while written < 40 or not rotated.is_set():
        try:
            ledger.propose(intent(id=f"p-{written}"))
            written += 1
        except Retryable:
            refused += 1
            time.sleep(0.02)
    thread.join()
    assert refused > 0
    assert {one.id for one in ledger.purchases()} == {f"p-{number}" for number in range(written)}


def test_the_old_password_no_longer_works(
    postgres: Server, rotating: tuple[str, Path], opened: Opener
) -> None:
    url, _ = rotating
    ledger = opened(url)
    _change(postgres, url, "second")
    with pytest.raises(Retryable, match="cannot be reached"):
        ledger.purchases()


def test_a_missing_password_file_is_reported(rotating: tuple[str, Path], opened: Opener) -> None:
    url, file = rotating
    file.unlink()
    with pytest.raises(Retryable, match="password cannot be read from"):
        opened(url)
