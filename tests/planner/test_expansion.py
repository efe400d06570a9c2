"""Calendars as people write them, against a slow reading of the same words, hour by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.builders import block, pool, spec
from tidemill.decide.purchasing.coverage import missing_gpus
from tidemill.decide.purchasing.planner.demand import calendar_demand
from tidemill.decide.purchasing.planner.inputs import levels
from tidemill.model.capacity import Reservation
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import DAYS, CapacityPlan

START = datetime(2026, 11, 16, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURS = 24 * 16  # more than two weeks, so that a week comes round

hours = st.integers(0, 24)
amounts = st.one_of(
    st.builds(lambda n: {"instances": n}, st.integers(1, 6)),
    st.builds(lambda n: {"gpus": n}, st.integers(1, 40)),
)


def moment(hour: int) -> datetime:
    return START + hour * HOUR


@st.composite
def weekly(draw: Any) -> dict[str, Any]:
    first, last = draw(hours.filter(lambda h: h < 24)), draw(hours)
    days = draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=7))
    return {"weekly": {"days": days, "from": f"{first:02}:00", "to": f"{last:02}:00", **draw(amounts)}}


@st.composite
def window(draw: Any) -> dict[str, Any]:
    first = draw(st.integers(-48, HOURS))
    return {
        "window": {"from": moment(first), "to": moment(first + draw(st.integers(1, 200))), **draw(amounts)}
    }


@st.composite
def constant(draw: Any) -> dict[str, Any]:
    first, lasts = draw(st.none() | st.integers(-48, HOURS)), draw(st.none() | st.integers(1, 300))
    given_ = {"from": moment(first)} if first is not None else {}
    given_ |= {"to": moment((first or 0) + lasts)} if lasts is not None else {}
    return {"constant": {**given_, **draw(amounts)}}


entries = st.lists(st.one_of(weekly(), window(), constant()), min_size=1, max_size=5)


def documents(drawn: list[dict[str, Any]], **fields: Any) -> Spec:
    named = [{"name": f"e{number}", **one} for number, one in enumerate(drawn)]
    inside = {"instanceTypes": ["p5.48xlarge"], "entries": named, "warmUp": "0s", **fields}
    document = {"pool": "p5", "calendar": inside}
    return spec(pool(), CapacityPlan.model_validate({"metadata": {"name": "c"}, "spec": document}))


def by_hand(entry: dict[str, Any], hour: int) -> int:
    """What one entry asks for in an hour, read off the words alone."""
    (kind, said), at = next(iter(entry.items())), moment(hour)
    amount: int = said["gpus"] if "gpus" in said else 8 * said["instances"]
    if kind != "weekly":
        inside = said.get("from", at) <= at < said.get("to", at + HOUR)
        return amount if inside else 0
    first, last = int(said["from"][:2]), int(said["to"][:2])
    today, yesterday = DAYS[at.weekday()], DAYS[(at.weekday() - 1) % 7]
    if first < last:
        return amount if today in said["days"] and first <= at.hour < last else 0
    late = today in said["days"] and at.hour >= first
    early = yesterday in said["days"] and at.hour < last
    return amount * (late + early)


@settings(max_examples=150, deadline=None)
@given(entries)
def test_every_hour_needs_what_the_entries_say(drawn):
    demand = calendar_demand(documents(drawn), "c", 0)
    steps = levels(demand.calendar, START, moment(HOURS))
    assert steps[0].start == START
    assert steps[-1].end == moment(HOURS)
    for step in steps:
        hour = int((step.start - START) / HOUR)
        while moment(hour) < step.end:
            assert step.amount == sum(by_hand(one, hour) for one in drawn)
            hour += 1


blocks = st.lists(
    st.tuples(st.integers(-48, HOURS), st.integers(1, 12), st.integers(1, 4), st.sampled_from("ab")),
    max_size=5,
)


def held(drawn: list[tuple[int, int, int, str]]) -> list[Reservation]:
    return [
        Reservation(
            **{
                **{name: getattr(block(), name) for name in Reservation.__slots__},
                "id": f"cr-{number}", "start": moment(start), "end": moment(start + 24 * days) + HOUR / 2,
                "count": count, "zone": f"us-west-2{zone}", "pool": "p5",
            }
        )
        for number, (start, days, count, zone) in enumerate(drawn)
    ]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(entries, blocks, st.booleans())
def test_missing_gpus_are_what_is_needed_and_not_served(drawn, bought, one_zone):
    asked = documents(drawn, oneZone=one_zone)
    demand, there = calendar_demand(asked, "c", 0), held(bought)
    found = missing_gpus(asked, demand, there, START, moment(HOURS))
    assert all(step.amount > 0 for step in found)
    for hour in range(HOURS):
        at = moment(hour)
        zones: dict[str, int] = {}
        for one in there:
            if one.start <= at < one.end - HOUR / 2:
                zones[one.zone] = zones.get(one.zone, 0) + 8 * one.count
        served = max(zones.values(), default=0) if one_zone else sum(zones.values())
        missing = max(0, sum(by_hand(one, hour) for one in drawn) - served)
        assert sum(step.amount for step in found if step.start <= at < step.end) == missing
