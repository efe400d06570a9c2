"""Ten seeds of eight weeks that a calendar buys by itself: no invariant breaks, and no simple rule is cheaper."""

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
    assert ours.total_usd < windows.total_usd  # written by hand for the working days alone: they come close
