"""The mapping between the engine's time and wall time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.clock import FasterClock, WallClock

WALL = datetime(2026, 11, 16, 6, 40, 0, 123_457, tzinfo=UTC)
CLOUD = datetime(2026, 12, 1, 11, 30, 0, 654_321, tzinfo=UTC)


def test_wall_time_is_the_engines_time_in_production() -> None:
    clock = WallClock()
    assert clock.from_wall(WALL) == clock.to_wall(WALL) == WALL
    assert clock.wall_seconds(timedelta(minutes=2)) == 120
    assert clock.now().tzinfo is UTC


def test_a_faster_clock_runs_from_its_anchor_in_both_directions() -> None:
    clock = FasterClock(CLOUD, WALL, 60, wall=lambda: WALL + timedelta(seconds=2))
    assert clock.now() == CLOUD + timedelta(minutes=2)
    assert clock.to_wall(CLOUD - timedelta(minutes=5)) == WALL - timedelta(seconds=5)
    assert clock.wall_seconds(timedelta(minutes=30)) == 30
    near = clock.from_wall(WALL - timedelta(seconds=5))
    assert abs(near - (CLOUD - timedelta(minutes=5))) <= timedelta(milliseconds=1)


@given(
    st.floats(0.001, 10_000),
    st.integers(-40_000_000, 40_000_000),
    st.timedeltas(timedelta(0), timedelta(days=400)),
)
def test_an_end_that_was_announced_is_read_back_as_it_was(
    speed: float, second: int, apart: timedelta
) -> None:
    clock = FasterClock(CLOUD, WALL + apart, speed)
    end = CLOUD.replace(microsecond=0) + timedelta(seconds=second)
    assert clock.from_wall(clock.to_wall(end)) == end


def test_a_clock_that_stands_still_maps_nothing() -> None:
    with pytest.raises(ValueError, match="maps nothing"):
        FasterClock(CLOUD, WALL, 0)
