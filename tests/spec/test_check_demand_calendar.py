"""Checks of demand calendars: each error has a position and says what to write instead."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, joined, messages, plan, pool, window
from tidemill.spec.capacity_plan import CapacityPlan

BLOCK_POOL = pool("sources: [{type: block}]")
ALWAYS = "{name: always, constant: {instances: 2}}"


def calendar(
    *entries: str, types: str = "[p5.48xlarge]", pool: str = "training", name: str = "rolling", **fields: str
) -> str:
    lines = [
        "kind: CapacityPlan", f"metadata: {{name: {name}}}", "spec:", f"  pool: {pool}", "  calendar:",
        f"    instanceTypes: {types}", *(f"    {key}: {value}" for key, value in fields.items()), "    entries:",
        *(f"      - {entry}" for entry in entries),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_a_valid_calendar_is_read(read: Reader) -> None:
    week = "{name: office, weekly: {days: [mon, fri], from: '08:00', to: '20:00', gpus: 16}}"
    loaded = read(joined(PLATFORM, NODE_CLASS, BLOCK_POOL, calendar(ALWAYS, week)))
    assert messages(loaded) == []
    spec = loaded.checked_spec().plans["rolling"].spec
    assert spec.calendar is not None
    assert [entry.name for entry in spec.calendar.entries] == ["always", "office"]


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("{name: a, constant: {instances: 2, gpus: 8}}", "either 'instances' or 'gpus'"),
        ("{name: a, constant: {}}", "either 'instances' or 'gpus'"),
        ("{name: a}", "exactly one of 'constant', 'weekly', 'window' and 'learned'"),
        ("{name: a, weekly: {days: [], instances: 1}}", "days"),
        ("{name: a, weekly: {days: [monday], instances: 1}}", "mon"),
        ("{name: a, weekly: {days: [mon], from: 8am, instances: 1}}", "not a time of day"),
        ("{name: a, weekly: {days: [mon], from: 20:30, instances: 1}}", "base 60"),
        (
            "{name: a, window: {from: 2026-11-16T11:30:00Z, to: 2026-11-16T11:30:00Z, gpus: 8}}",
            "'to' must be after 'from'",
        ),
        ("{name: a, constant: {instances: 300}}", "256 instances"),
        ("{name: a, learned: {mostInstances: 300}}", "256 instances"),
    ],
)
def test_refuses_an_invalid_calendar_entry(read: Reader, entry: str, sentence: str) -> None:
    assert sentence in " ".join(messages(read(joined(NODE_CLASS, BLOCK_POOL, calendar(entry)))))


def test_a_plan_has_windows_or_a_calendar(read: Reader) -> None:
    both = plan(window()) + "  calendar: {instanceTypes: [p5.48xlarge], entries: [" + ALWAYS + "]}\n"
    assert (
        "either 'demand' (windows) or a 'calendar'" in messages(read(joined(NODE_CLASS, BLOCK_POOL, both)))[0]
    )
    neither = "kind: CapacityPlan\nmetadata: {name: p}\nspec: {pool: training}\n"
    assert "either 'demand'" in messages(read(joined(NODE_CLASS, BLOCK_POOL, neither)))[0]


def test_types_must_be_sold_as_blocks_and_used_by_the_pool(read: Reader) -> None:
    problems = " ".join(
        messages(
            read(joined(NODE_CLASS, BLOCK_POOL, calendar(ALWAYS, types="[g6.48xlarge, p4d.24xlarge, p9]")))
        )
    )
    assert "EC2 does not sell g6.48xlarge as Capacity Blocks" in problems
    assert "the requirements of pool 'training' exclude p4d.24xlarge" in problems
    assert "unknown instance type 'p9'" in problems


def test_refuses_a_second_calendar_or_windows_for_a_pool_with_a_calendar(read: Reader) -> None:
    twice = joined(NODE_CLASS, BLOCK_POOL, calendar(ALWAYS), calendar(ALWAYS, name="other"))
    assert "already has a calendar in plan 'rolling'" in messages(read(twice))[0]
    beside = joined(NODE_CLASS, BLOCK_POOL, calendar(ALWAYS), plan(window()))
    assert "write these windows as entries of that calendar" in messages(read(beside))[0]


def test_refuses_on_demand_hours_without_an_on_demand_source(read: Reader) -> None:
    allowed = calendar(ALWAYS, onDemand="allowed")
    assert "no source of type 'on-demand'" in messages(read(joined(NODE_CLASS, BLOCK_POOL, allowed)))[0]
    capped = pool("sources: [{type: block}, {type: on-demand, maxHourlyUsd: 100, maxMonthlyUsd: 900}]")
    assert messages(read(joined(NODE_CLASS, capped, allowed))) == []


def test_refuses_zones_without_subnets_and_replans_that_are_too_frequent(read: Reader) -> None:
    away = joined(PLATFORM, NODE_CLASS, BLOCK_POOL, calendar(ALWAYS, zones="[us-east-1f]"))
    assert "no subnets in 'us-east-1f'" in messages(read(away))[0]
    hasty = joined(NODE_CLASS, BLOCK_POOL, calendar(ALWAYS, replanEvery="5m"))
    assert "at least 1h" in messages(read(hasty))[0]
    late = calendar(ALWAYS) + "  proposeBefore: 7d\n"
    assert "'buyAhead'" in messages(read(joined(NODE_CLASS, BLOCK_POOL, late)))[0]


def test_times_of_day_are_written_as_they_were_read() -> None:
    entry = {"name": "night", "weekly": {"days": ["sun"], "from": "22:00", "to": "06:30", "gpus": 8}}
    document = {"pool": "p", "calendar": {"instanceTypes": ["p5.48xlarge"], "entries": [entry]}}
    plan = CapacityPlan.model_validate({"metadata": {"name": "p"}, "spec": document})
    written = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["spec"]["calendar"]["entries"] == [entry]
