"""For each test a fresh account and a fresh server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.server_builder import SimulatedAws


@pytest.fixture
def aws() -> Iterator[SimulatedAws]:
    aws = SimulatedAws()
    yield aws
    aws.stop()
