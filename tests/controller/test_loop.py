"""When the process ticks: woken, due, or after a failure; and that no failure ends it."""

from __future__ import annotations

import pytest

from tests.controller.running import Running
from tests.decide.builders import hourly_pool, pod, spec
from tidemill.controller.documents import Version
from tidemill.controller.loop import FIRST_RETRY_S, LONGEST_RETRY_S, TickReport
from tidemill.engine.loop import RESYNC
from tidemill.model.errors import Refused, Retryable

POOL = hourly_pool("g6", "g6.xlarge")


@pytest.fixture
def running() -> Running:
    return Running(spec(POOL))


def test_it_ticks_at_once_then_when_the_engine_wants_to_look_again(running: Running):
    reports = running.run_for(2 * RESYNC.total_seconds() + 5)
    assert [report.woken_by for report in reports] == [("start",), ("due",), ("due",)]
    assert running.wakes.at_s >= 2 * RESYNC.total_seconds()


def test_an_event_is_followed_by_a_tick_at_once(running: Running):
    running.wakes.coming = [(40.0, "pod made")]
    reports = running.run_for(60)
    assert [report.woken_by for report in reports] == [("start",), ("pod made",)]


@pytest.mark.requirement("PE-3")
def test_a_pod_that_an_event_tells_of_is_launched_for_within_the_batch_window(running: Running):
    running.wakes.coming = [(40.0, "pod made")]
    running.outside.cluster.pods = [pod(gpus=1, created_at=running.outside.clock.now())]
    running.run_for(5)
    assert len(running.outside.cloud.running) == 1


def test_a_tick_that_sees_nothing_is_tried_again_after_longer_and_longer_pauses(running: Running):
    running.outside.cluster.away = True
    reports = running.run_for(200)
    assert all(report.tick is None for report in reports)
    pauses = [FIRST_RETRY_S * 2**number for number in range(6)]
    at_s, expected = 0.0, [0.0]
    for pause in (*pauses, *[LONGEST_RETRY_S] * 10):
        at_s += pause
        expected.append(at_s)
    assert len(reports) == sum(at < 200 for at in expected)


@pytest.mark.parametrize("error", [Retryable("away"), Refused("no"), ZeroDivisionError("a bug")])
def test_one_failing_tick_never_ends_the_process(running: Running, error: Exception):
    running.fail_with = [error]
    reports = running.run_for(10)
    assert reports[0].error is error
    assert reports[1].tick is not None
    assert len(running.engines) == (2 if isinstance(error, ZeroDivisionError) else 1)


def test_events_do_not_shorten_the_pause_after_a_failure(running: Running):
    running.fail_with = [Retryable("away")] * 3
    running.wakes.coming = [(at / 10, "storm") for at in range(1, 60)]
    reports = running.run_for(6.5)
    assert sum(report.error is not None for report in reports) == 3  # at 0, 1 and 3 s


def test_a_reporter_that_fails_stops_nobody():
    class Broken:
        def report(self, report: TickReport) -> None:
            raise RuntimeError("a bug")

    running = Running(spec(POOL), Broken())
    assert running.run_for(5)[0].tick is not None


def test_new_documents_are_used_from_the_next_tick_on_with_a_new_engine(running: Running):
    running.run_for(5)
    running.version = Version(2, spec(hourly_pool("p5", "p5.48xlarge")))
    running.loop.tick(lambda: True)
    assert running.reports.all[-1].spec is running.version.spec
    assert len(running.engines) == 2
    running.loop.tick(lambda: True)
    assert len(running.engines) == 2


def test_a_term_begins_with_an_engine_that_remembers_nothing(running: Running):
    running.run_for(1)
    running.run_for(1)
    assert len(running.engines) == 2


@pytest.mark.requirement("CB-4")
def test_the_rest_of_a_plan_is_not_begun_when_the_term_ends(running: Running):
    running.outside.cluster.pods = [pod(gpus=1)]
    report = running.loop.tick(lambda: False)
    assert report.tick is not None
    assert report.tick.plan.actions
    assert report.tick.outcomes == ()
    assert not running.outside.cloud.running


def test_the_clock_of_the_engine_may_be_away():
    running = Running(spec(POOL))
    running.outside.cluster.pods = [pod(gpus=1)]
    running.run_for(1)
    clock = running.loop._clock

    def away() -> None:
        raise Retryable("the simulated AWS does not answer")

    clock.now = away
    assert running.loop._left_s(running.wakes.at_s) >= FIRST_RETRY_S
