"""How fast we ask."""

from __future__ import annotations

import threading

import pytest

from tidemill.aws.session import LONGEST_WAIT_S, RateLimits, rate_limit_of
from tidemill.model.errors import Throttled


class Wall:
    """A clock that moves by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    def sleep(self, time_s: float) -> None:
        self.slept_s.append(time_s)
        self.now_s += time_s


def rate_limits(wall: Wall) -> RateLimits:
    return RateLimits(now_s=lambda: wall.now_s, sleep=wall.sleep)


def test_a_burst_goes_through_and_then_calls_wait_their_turn():
    wall, rate = Wall(), rate_limit_of("RunInstances")
    made = rate_limits(wall)
    for _ in range(rate.burst):
        made.take("RunInstances")
    assert not wall.slept_s
    made.take("RunInstances")
    made.take("RunInstances")
    assert wall.slept_s == pytest.approx([1 / rate.per_s, 1 / rate.per_s])


def test_actions_do_not_wait_for_each_other():
    wall = Wall()
    made = rate_limits(wall)
    for _ in range(rate_limit_of("RunInstances").burst):
        made.take("RunInstances")
    made.take("DescribeInstances")
    made.take("TerminateInstances")
    assert not wall.slept_s
    assert made.calls == {"RunInstances": 5, "DescribeInstances": 1, "TerminateInstances": 1}


def test_a_bucket_fills_up_again_and_no_further():
    wall, rate = Wall(), rate_limit_of("RunInstances")
    made = rate_limits(wall)
    for _ in range(rate.burst):
        made.take("RunInstances")
    wall.now_s += 1000
    for _ in range(rate.burst):
        made.take("RunInstances")
    assert not wall.slept_s
    made.take("RunInstances")
    assert wall.slept_s


def test_a_call_that_would_wait_too_long_is_throttled_and_not_counted():
    wall = Wall()
    waits: list[float] = []
    made = RateLimits(now_s=lambda: wall.now_s, sleep=waits.append)  # time stands still: the queue only grows
    for _ in range(
        rate_limit_of("RunInstances").burst + int(LONGEST_WAIT_S * rate_limit_of("RunInstances").per_s)
    ):
        made.take("RunInstances")
    with pytest.raises(Throttled, match="RunInstances: our own rate limit is reached"):
        made.take("RunInstances")
    assert max(waits) <= LONGEST_WAIT_S
    assert made.calls["RunInstances"] == rate_limit_of("RunInstances").burst + len(waits)


def test_threads_share_one_bucket():
    wall, waits = Wall(), []
    made = RateLimits(now_s=lambda: wall.now_s, sleep=waits.append)
    threads = [threading.Thread(target=made.take, args=("DescribeInstances",)) for _ in range(60)]
    for thread in threads:
        thread.start()
    for one in threads:
        one.join()
    assert len(waits) == 60 - rate_limit_of("DescribeInstances").burst


def test_a_caller_without_patience_is_throttled_at_once_and_others_are_not():
    wall = Wall()
    made = RateLimits(now_s=lambda: wall.now_s, sleep=wall.sleep, patience_s=0)
    for _ in range(rate_limit_of("DescribeCapacityBlockOfferings").burst):
        made.take("DescribeCapacityBlockOfferings")
    with pytest.raises(Throttled):
        made.take("DescribeCapacityBlockOfferings")
    made.take("TerminateInstances")
    assert not wall.slept_s
