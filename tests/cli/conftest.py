"""An office for the verbs of buying: documents, a simulated account and a ledger in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.purchaser import Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)
