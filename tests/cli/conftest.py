"""A purchaser: documents, a simulated account and a ledger in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.purchaser import Purchaser


@pytest.fixture
def purchaser(tmp_path: Path) -> Purchaser:
    return Purchaser(tmp_path)
