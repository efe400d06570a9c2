"""What a window misses at every hour, against a reading by hand: blocks serve the window they were bought for, and what
is left the windows in their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.builders import NOW, block, pool, spec
from tests.decide.purchases import intent
from tidemill.decide.purchasing.coverage import still_missing, with_expected
from tidemill.decide.purchasing.purchase_use import is_mostly_covered, missing_changes_at
from tidemill.decide.purchasing.window_coverage import first_gap, missing_instance_time, missing_instances
from tidemill.spec.capacity_plan import CapacityPlan

HOUR = timedelta(hours=1)
windows = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=4
)
long_windows = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 400), st.integers(1, 3)), min_size=1, max_size=2
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
    assert missing_instance_time(documents, held, "p5", window, NOW) == total * HOUR
    gap = first_gap(documents, held, "p5", window, NOW)
    assert (gap is None) == (total == 0)


@settings(max_examples=150, deadline=None)
@given(
    windows,
    st.lists(
        st.tuples(st.integers(-40, 80), st.integers(1, 80), st.integers(1, 6), st.integers(0, 4)), max_size=5
    ),
)
def test_every_instance_serves_one_window_and_those_it_was_bought_for_before_others(drawn, bought):
    documents = spec(pool(), plan_with(drawn))
    demand = documents.plans["w"].spec.demand
    held = [
        replace(
            block(f"cr-{n}", count=count, pool="p5"),
            start=NOW + start * HOUR,
            end=NOW + (start + hours) * HOUR,
            bought_for=((NOW + start * HOUR, f"w{window}"),),
        )
        for n, (start, hours, count, window) in enumerate(bought)
    ]
    missing = [missing_instances(documents, held, "p5", window, NOW) for window in demand]
    for hour in range(1, 121):
        at = NOW + hour * HOUR
        there = [one for one in held if one.start <= at < one.end]
        wanted = served = 0
        for window, steps in zip(demand, missing, strict=True):
            if not window.start <= at < window.end:
                continue
            short = sum(step.amount for step in steps if step.start <= at < step.end)
            own = sum(one.count for one in there if one.bought_for[0][1] == window.name)
            assert short <= max(0, window.instances - own)
            wanted, served = wanted + window.instances, served + window.instances - short
        assert served == min(wanted, sum(one.count for one in there))


def test_an_extension_serves_the_window_it_was_bought_for_from_the_old_end_on():
    """The block was bought for the first window; the second one paid for its second day."""
    documents = spec(pool(), plan_with([(0, 48, 2), (0, 48, 2)]))
    first, second = documents.plans["w"].spec.demand
    held = with_expected(
        [replace(block("cr-1", count=2, pool="p5", intent_id="tp-0"), start=NOW, end=NOW + 24 * HOUR)],
        [
            intent("confirmed", id="tp-1", plan="w", window="w1", extends="cr-1", reservation_ids=("cr-1",),
                   inside={"latest_start": NOW + 24 * HOUR, "earliest_end": NOW + 48 * HOUR}),
            intent("confirmed", id="tp-0", plan="w", window="w0", reservation_ids=("cr-1",)),
        ],
        documents.platform.spec.deployment,
    )  # fmt: skip
    short = [
        [(step.start, step.end) for step in missing_instances(documents, held, "p5", window, NOW)]
        for window in (first, second)
    ]
    assert short == [[(NOW + 24 * HOUR, NOW + 48 * HOUR)], [(NOW, NOW + 24 * HOUR)]]


def test_an_offer_that_the_first_window_takes_whole_is_not_bought_for_the_second():
    """The same shortage, cut at other instants, added up to a little less as floating-point hours."""
    start, minute = NOW + timedelta(days=3), timedelta(minutes=1)
    for late in range(10, 1440, 10):
        demand = [
            {"name": name, "from": start + late * minute, "to": end, "instanceType": "p5.48xlarge", "instances": count}
            for name, end, count in (
                ("first", start + timedelta(days=7), 8),
                ("second", start + timedelta(days=7) + late * minute, 1),
            )
        ]  # fmt: skip
        plan = CapacityPlan.model_validate(
            {"metadata": {"name": "w"}, "spec": {"pool": "p5", "demand": demand}}
        )
        documents = spec(pool(), plan)
        window = plan.spec.demand[1]
        bought = replace(
            block("cr-1", count=1, pool="p5"),
            start=start + timedelta(days=1),
            end=start + timedelta(days=4),
        )
        before, after = (missing_instance_time(documents, held, "p5", window, NOW) for held in ([], [bought]))
        assert after == before


@settings(max_examples=300, deadline=None)
@given(long_windows, blocks, st.integers(0, 200), st.integers(1, 20), st.integers(1, 4), st.floats(0, 1))
def test_what_is_missing_stays_the_same_until_an_instant_that_was_named(
    drawn, bought, hours, days, count, part
):
    """A plan without actions is kept until it said that it may differ: a purchase that is covered by then, because a
    block starts within a day or because little of its window is left, would wait for some other event."""
    documents = spec(pool(), plan_with(drawn))
    held = [
        replace(
            block(f"cr-{n}", count=size, pool="p5"), start=NOW + start * HOUR, end=NOW + (start + long) * HOUR
        )
        for n, (start, long, size) in enumerate(bought)
    ]
    window = documents.plans["w"].spec.demand[-1]
    wanted = intent(plan="w", window=window.name, inside={"count": count, "duration": timedelta(days=days)})
    now = NOW + hours * HOUR

    def answers(at):
        gap = first_gap(documents, held, "p5", window, at)
        missing = still_missing(documents, held, wanted, at)
        return missing, is_mostly_covered(documents, held, wanted, at), gap and (gap.amount, gap.end)

    named = [at for at in missing_changes_at(documents, held, wanted, now) if at > now]
    until = min(named, default=now + timedelta(days=30))
    # The last second before it may already differ: what follows after an instant is named a second later.
    last = max(now, until - timedelta(seconds=2))
    for at in (now + part * (last - now), last):
        assert answers(at) == answers(now)
