from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.ec2_facts import (
    LEGAL_DURATIONS,
    LONGEST_BLOCK,
    is_legal_duration,
    nearest_legal_durations,
    round_up_duration,
)

any_length = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400))


@pytest.mark.requirement("CB-2")
def test_ec2_sells_days_up_to_two_weeks_then_weeks_up_to_26() -> None:
    days = [length.days for length in LEGAL_DURATIONS]
    assert days == [*range(1, 15), *(7 * weeks for weeks in range(3, 27))]


@pytest.mark.requirement("TR-1")
def test_180_days_lies_between_175_and_182() -> None:
    assert not is_legal_duration(timedelta(days=180))
    assert nearest_legal_durations(timedelta(days=180)) == (timedelta(days=175), timedelta(days=182))


def test_there_is_one_nearest_length_beyond_either_end() -> None:
    assert nearest_legal_durations(timedelta(hours=1)) == (timedelta(days=1),)
    assert nearest_legal_durations(timedelta(days=365)) == (LONGEST_BLOCK,)


@given(any_length)
def test_the_nearest_lengths_are_legal_and_enclose_what_was_asked(length: timedelta) -> None:
    nearest = nearest_legal_durations(length)
    assert all(is_legal_duration(each) for each in nearest)
    if is_legal_duration(length):
        assert nearest == (length,)
    elif len(nearest) == 2:
        assert nearest[0] < length < nearest[1]
        assert not any(nearest[0] < each < nearest[1] for each in LEGAL_DURATIONS)


@given(any_length)
def test_rounding_up_gives_the_shortest_length_that_covers(length: timedelta) -> None:
    covering = [each for each in LEGAL_DURATIONS if each >= length]
    assert round_up_duration(length) == (covering[0] if covering else None)
