from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aws.wired import Wired
from tests.aws.wired import wired as open_wired


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wired]:
    with open_wired(monkeypatch) as there:
        yield there
