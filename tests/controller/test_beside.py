"""What runs beside the ticks: the queue of AWS's events, alerts, the planner."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.controller.running import Running
from tests.decide.builders import NOW, block, hourly_pool, node, pod, spec, world
from tidemill.controller.beside import (
    FIRST_RETRY_S,
    IDLE_S,
    LONGEST_RETRY_S,
    AlertReporter,
    KnownIds,
    QueueThread,
    TimedExecutor,
)
from tidemill.decide.read_models import planning_basis
from tidemill.engine.planner_runner import InlineExecutor
from tidemill.model.errors import NotAllowed, Retryable
from tidemill.model.planner_result import PlannerResult


class Queue:
    def __init__(self) -> None:
        self.leads = True
        self.failing: list[Exception] = []
        self.polls = 0
        self.slept: list[float] = []
        self.thread = QueueThread(self._poll, lambda: self.leads, sleep=self.slept.append)

    def _poll(self) -> None:
        self.polls += 1
        if self.failing:
            raise self.failing.pop(0)


def test_a_standby_leaves_the_queue_to_the_leader():
    queue = Queue()
    queue.leads = False
    queue.thread.step()
    assert (queue.polls, queue.slept) == (0, [IDLE_S])


@pytest.mark.parametrize("error", [Retryable("away"), NotAllowed("sqs:ReceiveMessage"), KeyError("a bug")])
def test_a_queue_that_fails_is_asked_again_after_longer_and_longer_pauses(error: Exception):
    queue = Queue()
    queue.failing = [error] * 8
    for _ in range(10):
        queue.thread.step()
    assert queue.slept == [min(FIRST_RETRY_S * 2**number, LONGEST_RETRY_S) for number in range(8)]
    assert queue.thread.trouble == ""


def test_the_ids_of_our_instances_and_blocks_are_known_after_a_tick():
    known = KnownIds()
    running = Running(spec(hourly_pool("g6", "g6.xlarge")), known)
    running.outside.has(node("i-0a"))
    running.outside.cloud.held = [block()]
    assert "i-0a" not in known()
    running.run_for(0.5)
    assert "i-0a" in known()
    assert block().id in known()
    assert "i-99" not in known()


@pytest.mark.requirement("NT-1")
def test_the_heartbeat_is_written_after_a_tick_that_saw_the_world():
    running = Running(spec(hourly_pool("g6", "g6.xlarge")))
    alerts = AlertReporter(running.outside.books.alerts, running.outside.clock)
    running.loop._reporters = (alerts,)
    running.outside.cluster.away = True
    running.run_for(0.5)
    assert running.outside.books.alerts.heartbeat() is None
    running.outside.cluster.away = False
    running.outside.cluster.pods = [pod(gpus=1)]
    began = running.outside.clock.now()
    running.run_for(0.5)
    assert running.outside.books.alerts.heartbeat() == began
    alerts.stop(timedelta(seconds=1))


def test_the_planner_is_timed_and_wakes_the_loop_when_it_is_done():
    took: list[float] = []
    woken: list[str] = []
    at_s = iter([10.0, 13.5])
    executor = TimedExecutor(InlineExecutor(), took.append, woken.append, now_s=lambda: next(at_s))
    result = PlannerResult(NOW, planning_basis(spec(), world()))
    executor.begin(lambda: result, result)
    assert (took, woken) == ([3.5], ["planner"])
    assert executor.take() is result
