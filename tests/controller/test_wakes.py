"""A burst of wake-ups is one."""

from __future__ import annotations

import threading
import time

from tidemill.controller.wakes import GATHER_S, MOST_QUEUED, MOST_REASONS, Wakes


def test_a_burst_is_gathered_and_nothing_is_left_of_it():
    wakes = Wakes()
    for number in range(50):
        wakes(f"pod-{number % 3}")
    assert wakes.wait(5) == ("pod-0", "pod-1", "pod-2")
    assert wakes.wait(0) == ()


def test_what_comes_within_the_gathering_time_belongs_to_it():
    wakes = Wakes()
    wakes("first")
    timer = threading.Timer(GATHER_S / 3, wakes, ["second"])
    timer.start()
    assert wakes.wait(5) == ("first", "second")


def test_a_stream_without_end_is_cut():
    wakes, ends_s = Wakes(), time.monotonic() + 1

    def stream() -> None:
        while time.monotonic() < ends_s:
            wakes("again")
            time.sleep(0.005)

    thread = threading.Thread(target=stream)
    thread.start()
    began_s = time.monotonic()
    assert wakes.wait(5) == ("again",)
    assert time.monotonic() - began_s < 0.7
    thread.join()


def test_nobody_wakes_it_and_the_time_is_over():
    began_s = time.monotonic()
    assert Wakes().wait(0.05) == ()
    assert time.monotonic() - began_s >= 0.04


def test_a_flood_is_bounded():
    wakes = Wakes()
    for number in range(10 * MOST_QUEUED):
        wakes(f"pod-{number}")
    assert len(wakes.wait(0, gather_s=0.5)) == MOST_REASONS
