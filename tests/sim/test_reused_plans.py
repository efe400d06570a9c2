"""Invariant 6 at every tick, and not at one in a hundred: small budgets, and money that is spent by the hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.sim.invariants import plans
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.read import load

MIXED_SOURCES = Path(__file__).parents[2] / "examples" / "mixed-sources.yaml"


@pytest.mark.parametrize(
    "approval", ["mode: one", "mode: auto\n    autoMaxFeeUsd: 30000"], ids=["one", "auto"]
)
def test_a_purchase_that_the_budget_keeps_waiting_is_decided_on_what_is_spent_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approval: str
) -> None:
    """The engine used the plan of an earlier tick, whose warning said what was spent then."""
    monkeypatch.setattr(plans, "DECIDE_TWICE_EVERY", 1)
    text = MIXED_SOURCES.read_text().replace("monthlyUsd: 60000", "monthlyUsd: 3000")
    path = tmp_path / "small-budget.yaml"
    path.write_text(text.replace("mode: one", approval).replace("duration: 4d", "duration: 14h"))
    loaded = load([path])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    rehearsal = Rehearsal(loaded.spec, loaded.scenario, seed=1)
    rehearsal.run()
    assert not rehearsal.cloud.purchases
