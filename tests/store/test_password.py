"""A password in a file is read for every new connection, so that it can be changed while the engine runs."""

from __future__ import annotations

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


def test_a_changed_password_is_taken_up_without_a_restart(
    postgres: Server, rotating: tuple[str, Path], opened: Opener
) -> None:
    url, file = rotating
    ledger = opened(url)
    ledger.propose(intent())
    _change(postgres, url, "second")
    file.write_text("second")
    assert ledger.purchases() == (intent(),)


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
