"""Twenty seeds of the examples with Jobs that are held by suspension: no invariant breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load

ROOT = Path(__file__).parents[2]
LONG = ("two-months", "weekly-calendar")  # a minute each; what they add is purchases, not Jobs
PATHS = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if path.stem not in LONG]


@pytest.mark.slow
@pytest.mark.parametrize("path", [ROOT / "src/tidemill/cli/demo.yaml", *PATHS], ids=lambda path: path.stem)
@pytest.mark.parametrize("first", range(1, 21, 5))
def test_no_seed_breaks_an_invariant(path: Path, first: int) -> None:
    loaded = load([path])
    for seed in range(first, first + 5):
        Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), seed, suspended_jobs=True).run()
