"""The sample outcome, for every test of how a rehearsal is shown."""

from __future__ import annotations

import pytest

from tests.render import sample
from tidemill.sim.scenario.outcome import Outcome


@pytest.fixture
def outcome() -> Outcome:
    return sample.outcome()
