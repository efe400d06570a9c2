"""A hundred seeds of the mixed-sources example, each with its own dozen faults: no invariant breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load

MIXED_SOURCES = Path(__file__).parents[2] / "examples" / "mixed-sources.yaml"
SEEDS, CHUNK = 100, 10  # a chunk is what one worker takes: small enough that two cores stay busy


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_of_mixed_sources_breaks_an_invariant(first: int) -> None:
    loaded = load([MIXED_SOURCES])
    spec, scenario = loaded.checked_spec(), loaded.checked_scenario()
    violations = []
    for seed in range(first, first + CHUNK):
        try:
            Rehearsal(spec, scenario, seed).run()
        except InvariantViolated as violated:
            violations.append(str(violated))
    assert not violations
