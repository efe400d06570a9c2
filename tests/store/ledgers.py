"""Fixtures: fresh ledgers of every kind, for whoever tests one. Loaded by the root `conftest`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.ports import Hands
from tests.store.postgres import HOW_TO_GET_IT, Server, programs
from tidemill.ports import Ledger
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.open_ledger import open_durable
from tidemill.store.sql import SqlLedger

OURS = LedgerOwner("tidemill-test", "123456789012", "us-west-2", "research")
DURABLE = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    found = programs()
    if found is None:
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(HOW_TO_GET_IT)
        pytest.skip(HOW_TO_GET_IT)
    server = Server(found)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Server]:
    """The server of the session. The databases a test asks for are empty, and are emptied after it."""
    yield postgres_server
    postgres_server.take_back()


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture(params=DURABLE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger could be, in each of the databases. Nothing is there yet."""
    return new_url(request.param, request, tmp_path)


def new_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Server = request.getfixturevalue("postgres")  # only who asks for it waits for it
    return server.new_database()


class Opener:
    """Opens ledgers of ours and closes them all at the end."""

    def __init__(self, clock: Hands) -> None:
        self._clock = clock
        self._opened: list[SqlLedger] = []

    def __call__(
        self, url: str, *, owner: LedgerOwner = OURS, writer: str = "tidemill-engine", process: str = "engine"
    ) -> SqlLedger:
        self._opened.append(open_durable(url, owner, clock=self._clock, writer=writer, process=process))
        return self._opened[-1]

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def opened(clock: Hands) -> Iterator[Opener]:
    opener = Opener(clock)
    yield opener
    opener.close()


@pytest.fixture
def durable(url: str, opened: Opener) -> SqlLedger:
    return opened(url)


@pytest.fixture(params=("memory", *DURABLE))
def ledger(request: pytest.FixtureRequest, clock: Hands, tmp_path: Path, opened: Opener) -> Ledger:
    """One of each kind."""
    from tidemill.store.memory import MemoryLedger

    if request.param == "memory":
        return MemoryLedger(clock, OURS.deployment)
    return opened(new_url(request.param, request, tmp_path))
