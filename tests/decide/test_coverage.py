"""What a window misses at every hour, against a reading by hand: the windows before it are served first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.builders import NOW, block, pool, spec
from tidemill.decide.purchasing.coverage import first_gap, missing_instance_hours, missing_instances
from tidemill.spec.capacity_plan import CapacityPlan

HOUR = timedelta(hours=1)
windows = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=4
)
blocks = st.lists(st.tuples(st.integers(-40, 80), st.integers(1, 80), st.integers(1, 6)), max_size=4)


def plan_with(drawn: list[tuple[int, int, int]]) -> CapacityPlan:
    demand: list[dict[str, Any]] = [
        {
            "name": f"w{number}", "from": NOW + start * HOUR, "to": NOW + (start + hours) * HOUR,
            "instanceType": "p5.48xlarge", "instances": count,
        }
        for number, (start, hours, count) in enumerate(drawn)
    ]  # fmt: skip
    return CapacityPlan.model_validate({"metadata": {"name": "w"}, "spec": {"pool": "p5", "demand": demand}})


@settings(max_examples=150, deadline=None)
@given(windows, blocks)
def test_a_window_misses_what_is_left_after_the_windows_before_it(drawn, bought):
    documents = spec(pool(), plan_with(drawn))
    held = [
        replace(
            block(f"cr-{n}", count=count, pool="p5"),
            start=NOW + start * HOUR,
            end=NOW + (start + hours) * HOUR,
        )
        for n, (start, hours, count) in enumerate(bought)
    ]
    *earlier, window = documents.plans["w"].spec.demand
    steps = missing_instances(documents, held, "p5", window, NOW)
    total = 0
    at = window.start
    while at < window.end:
        there = sum(one.count for one in held if one.start <= at < one.end)
        taken = sum(one.instances for one in earlier if one.start <= at < one.end)
        expected = max(0, window.instances - max(0, there - taken))
        assert sum(step.amount for step in steps if step.start <= at < step.end) == expected
        total += expected
        at += HOUR
    assert missing_instance_hours(documents, held, "p5", window, NOW) == total
    gap = first_gap(documents, held, "p5", window, NOW)
    assert (gap is None) == (total == 0)
