"""Ten seeds of eight weeks that a calendar buys by itself: no invariant breaks, and it is cheaper than a block a week."""

from __future__ import annotations

import pytest

from benchmarks.calendars import EXAMPLE, by_windows, play, without_solver
from tidemill.spec.read import load

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_planned_calendar_breaks_nothing_and_costs_no_more_than_simple_rules(seed: int) -> None:
    loaded = load([EXAMPLE])
    spec, scenario = loaded.checked_spec(), loaded.checked_scenario()
    ours = play(spec, scenario, seed, spec)
    weekly = without_solver(spec, scenario, seed)
    windows = play(by_windows(spec, scenario), scenario, seed, spec)
    assert ours.total_usd < 0.9 * weekly.total_usd
    # Windows written by hand for the working days alone come close, and cover hours the planner leaves out as too dear.
    assert ours.total_usd < 1.05 * windows.total_usd
