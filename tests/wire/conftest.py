"""A stand for each test: a fresh account, a fresh server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.server_builder import Stand


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.stop()
