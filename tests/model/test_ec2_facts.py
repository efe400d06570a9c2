import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model import ec2_facts
from tidemill.model.ec2_facts import DAY

SOURCE = Path(__file__).parents[2] / "src" / "tidemill"
any_instant = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
any_length = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400))


@pytest.mark.requirement("CB-2")
def test_ec2_sells_days_up_to_two_weeks_then_weeks_up_to_26() -> None:
    days = [length.days for length in ec2_facts.LEGAL_DURATIONS]
    assert days == [*range(1, 15), *(7 * weeks for weeks in range(3, 27))]


@pytest.mark.requirement("TR-1")
def test_180_days_lies_between_175_and_182() -> None:
    assert not ec2_facts.is_legal_duration(timedelta(days=180))
    assert ec2_facts.nearest_legal_durations(timedelta(days=180)) == (
        timedelta(days=175),
        timedelta(days=182),
    )


def test_there_is_one_nearest_length_beyond_either_end() -> None:
    assert ec2_facts.nearest_legal_durations(timedelta(hours=1)) == (timedelta(days=1),)
    assert ec2_facts.nearest_legal_durations(timedelta(days=365)) == (ec2_facts.LONGEST_BLOCK,)


@given(any_length)
def test_the_nearest_lengths_are_legal_and_enclose_what_was_asked(length: timedelta) -> None:
    nearest = ec2_facts.nearest_legal_durations(length)
    assert all(ec2_facts.is_legal_duration(each) for each in nearest)
    if ec2_facts.is_legal_duration(length):
        assert nearest == (length,)
    elif len(nearest) == 2:
        assert nearest[0] < length < nearest[1]
        assert not any(nearest[0] < each < nearest[1] for each in ec2_facts.LEGAL_DURATIONS)


@given(any_length)
def test_rounding_up_gives_the_shortest_length_that_covers(length: timedelta) -> None:
    covering = [each for each in ec2_facts.LEGAL_DURATIONS if each >= length]
    assert ec2_facts.round_up_duration(length) == (covering[0] if covering else None)


@given(any_instant)
def test_the_grid_instants_around_any_instant_are_at_11_30_and_less_than_a_day_away(
    instant: datetime,
) -> None:
    before, after = ec2_facts.grid_at_or_before(instant), ec2_facts.grid_at_or_after(instant)
    assert {(each.hour, each.minute, each.second) for each in (before, after)} == {(11, 30, 0)}
    assert instant - DAY < before <= instant <= after < instant + DAY
    assert ec2_facts.is_on_grid(instant) == (before == after)
    assert ec2_facts.nearest_on_grid(instant) in (before, after)
    assert abs(ec2_facts.nearest_on_grid(instant) - instant) <= DAY / 2


@pytest.mark.parametrize(
    ("instances", "ultraserver"),
    [(9, ("x36", 9)), (18, ("x72", 18)), (27, ("x36", 9)), (36, ("x72", 18)), (4, None)],
)
def test_instances_fill_the_largest_ultraserver_that_divides_them(
    instances: int, ultraserver: tuple[str, int] | None
) -> None:
    assert ec2_facts.ultraserver_for(instances) == ultraserver
    assert dict([ultraserver or ("x36", 9)]).items() <= ec2_facts.ULTRASERVER_SIZES.items()


# How a fact looks where somebody wrote it again.
RESPELLED = re.compile(
    r"hour=11|hours=11, minutes=30|timedelta\(days=(56|182)\)|timedelta\(weeks=8\)|Node Group Capacity Scaledown"
    r"|TERMINATES\w* = timedelta|minutes=(40|35)\)"
)


def test_a_fact_of_ec2_is_written_in_one_file_only() -> None:
    found = {
        str(path.relative_to(SOURCE)): match.group(0)
        for path in SOURCE.rglob("*.py")
        if path.name != "ec2_facts.py" and (match := RESPELLED.search(path.read_text()))
    }
    assert found == {}
