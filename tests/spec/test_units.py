from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.spec.units import (
    format_cpu,
    format_duration,
    format_instant,
    format_memory,
    parse_cpu,
    parse_duration,
    parse_instant,
    parse_memory,
)


@given(st.integers(0, 10**9).map(lambda seconds: timedelta(seconds=seconds)))
def test_a_duration_reads_back_as_it_was_printed(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, 10**9))
def test_a_cpu_quantity_reads_back_as_it_was_printed(milli: int) -> None:
    assert parse_cpu(format_cpu(milli)) == milli


@given(st.one_of(st.integers(0, 2**50), st.integers(0, 2**13).map(lambda gib: gib * 2**30)))
def test_a_memory_quantity_reads_back_as_it_was_printed(size: int) -> None:
    assert parse_memory(format_memory(size)) == size


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001
def test_an_instant_reads_back_as_it_was_printed(naive: datetime) -> None:
    instant = naive.replace(tzinfo=UTC)
    assert parse_instant(format_instant(instant)) == instant


@pytest.mark.parametrize("year", ["0001", "1999", "2201", "9999"])
def test_an_instant_near_the_end_of_the_calendar_is_refused(year: str) -> None:
    with pytest.raises(ValueError, match="is outside the years 2000 to 2200"):
        parse_instant(f"{year}-12-31T23:00:00-01:00")


@pytest.mark.parametrize("written", ["36501d", "999999999d", "99999999999999999d", "876001h"])
def test_a_duration_longer_than_100_years_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        parse_duration(written)
