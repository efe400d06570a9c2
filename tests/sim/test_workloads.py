"""The arithmetic: work done, saved and lost; seconds below a service's minimum."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.simulated_cluster import START, job_stream, seconds
from tidemill.sim.cluster.workloads import Progress, ServiceTruth, shape_of, terms_of
from tidemill.spec import names
from tidemill.spec.scenario import Service

HOUR = timedelta(hours=1)


def test_work_saved_at_whole_intervals_survives_an_interruption() -> None:
    progress = Progress(10 * HOUR, every=HOUR)
    assert progress.begin(START) == START + 10 * HOUR
    assert progress.interrupt(START + 3.5 * HOUR) == 0.5 * HOUR
    assert progress.begin(START + 5 * HOUR) == START + 12 * HOUR


def test_work_that_is_never_saved_starts_again_from_nothing() -> None:
    progress = Progress(10 * HOUR)
    progress.begin(START)
    assert progress.interrupt(START + 3 * HOUR) == 3 * HOUR
    assert progress.begin(START + 4 * HOUR) == START + 14 * HOUR


def test_nothing_is_done_while_loading() -> None:
    progress = Progress(2 * HOUR, every=HOUR)
    progress.begin(START + HOUR)
    assert progress.interrupt(START + 0.5 * HOUR) == timedelta(0)


def test_an_asked_for_checkpoint_keeps_what_was_done_when_it_was_asked() -> None:
    progress = Progress(10 * HOUR, every=HOUR)
    progress.begin(START)
    progress.save(as_of=START + 1.5 * HOUR, now=START + 1.6 * HOUR)
    assert progress.saved == 1.5 * HOUR
    assert progress.interrupt(START + 1.75 * HOUR) == 0.25 * HOUR


def test_a_periodic_checkpoint_later_than_the_asked_one_counts() -> None:
    progress = Progress(10 * HOUR, every=HOUR)
    progress.begin(START)
    progress.save(as_of=START + 0.9 * HOUR, now=START + 1.1 * HOUR)
    assert progress.saved == HOUR


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=12), st.integers(1, 900))
def test_all_work_is_either_saved_or_lost(runs: list[tuple[int, bool]], every_s: int) -> None:
    progress = Progress(seconds(10**9), every=seconds(every_s))
    now, worked = START, timedelta(0)
    for length_s, asked in runs:
        progress.begin(now)
        now += seconds(length_s)
        if asked:
            progress.save(as_of=now - seconds(length_s // 2), now=now)
        progress.interrupt(now)
        worked += seconds(length_s)
    assert progress.saved + progress.lost == worked
    assert progress.lost < seconds(every_s) * max(1, len(runs))


def test_a_job_declares_its_true_length_another_one_or_none() -> None:
    assert terms_of(job_stream(), HOUR).expected == HOUR
    assert terms_of(job_stream(expected="3h"), HOUR).expected == 3 * HOUR
    assert terms_of(job_stream(saysNothing=True), HOUR).expected is None


def test_a_template_becomes_requests_selector_and_tolerations() -> None:
    shape = shape_of(job_stream(gpus=8, efa=4, memory="1Gi", nodeSelector={"tier": "train"}, tolerate=["a"]))
    assert dict(shape.requests) == {names.CPU: 8000, names.MEMORY: 2**30, names.NVIDIA_GPU: 8, names.EFA: 4}
    assert shape.node_selector == (("tier", "train"),)
    assert [(t.key, t.operator) for t in shape.tolerations] == [("a", "Exists")]


def service(**fields: Any) -> ServiceTruth:
    made = Service.model_validate({"name": "chat", "replicas": 3, **fields})
    return ServiceTruth(made, shape_of(made), terms_of(made), START)


@pytest.mark.parametrize(
    ("counts", "min_available", "down_s", "lowest"),
    [
        ([(0, 0), (100, 2), (200, 1), (260, 2)], 2, 60, 1),
        ([(0, 0), (100, 1)], 2, 0, 0),  # never reached: it was not up, so it was not down
        (
            [(0, 0), (100, 3), (900, 0)],
            0,
            100,
            0,
        ),  # without a budget one replica is the minimum; until the end
        ([(0, 0), (100, 2), (200, 1), (200, 2)], 2, 0, 2),  # a dip within one instant is no dip
    ],
)
def test_downtime_is_the_time_below_the_minimum_once_it_was_reached(
    counts: list[tuple[int, int]], min_available: int, down_s: int, lowest: int
) -> None:
    truth = service(minAvailable=min_available)
    for at_s, ready in counts:
        truth.record(START + seconds(at_s), ready)
    assert truth.downtime_s(START + seconds(1000)) == down_s
    assert truth.lowest_ready() == lowest


def test_downtime_ends_with_the_service() -> None:
    truth = service()
    for at_s, ready in [(0, 3), (100, 0)]:
        truth.record(START + seconds(at_s), ready)
    truth.stopped = START + seconds(150)
    assert truth.downtime_s(START + seconds(1000)) == 50
