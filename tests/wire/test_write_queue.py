"""The queue between kubelets and the API server: the newest of each object, one at a time, until it is answered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from tests.wire.kube_stand_in import eventually
from tidemill.sim.wire.data_plane.api_client import ApiError, Unreachable
from tidemill.sim.wire.data_plane.write_queue import WriteQueue


@pytest.fixture
def writes() -> Iterator[WriteQueue]:
    made = WriteQueue("test", workers=3)
    yield made
    made.close()


def test_what_waits_is_replaced_by_what_is_newer(writes: WriteQueue):
    started, go, sent = threading.Event(), threading.Event(), []

    def first() -> None:
        started.set()
        go.wait(5)
        sent.append("first")

    writes.submit("pod", first)
    assert started.wait(5)
    for number in range(5):
        writes.submit("pod", lambda number=number: sent.append(number))  # type: ignore[misc]
    go.set()
    assert writes.flush(5)
    assert sent == ["first", 4]


def test_two_writes_about_one_object_never_run_at_once(writes: WriteQueue):
    running, most = [0], [0]

    def write() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.002)
        running[0] -= 1

    for _ in range(100):
        writes.submit("pod", write)
        time.sleep(0.001)
    assert writes.flush(5)
    assert most == [1]


@pytest.mark.parametrize("error", [Unreachable("away"), ApiError(503, "busy"), ApiError(409, "changed")])
def test_what_was_not_answered_is_tried_again_until_it_is(writes: WriteQueue, error: Exception):
    tries = []

    def write() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise error

    writes.submit("pod", write)
    assert writes.flush(10)
    assert len(tries) == 4


def test_a_refusal_is_logged_and_not_repeated(writes: WriteQueue, caplog: pytest.LogCaptureFixture):
    tries = []

    def write() -> None:
        tries.append(1)
        raise ApiError(403, "forbidden")

    with caplog.at_level(logging.WARNING):
        writes.submit("pod default/train", write)
        assert writes.flush(5)
    assert tries == [1]
    assert "pod default/train: 403 forbidden" in caplog.text


def test_a_mistake_about_one_object_does_not_stop_the_others(writes: WriteQueue):
    sent: list[int] = []

    def mistaken() -> None:
        raise ZeroDivisionError

    for number in range(6):
        writes.submit(f"bad-{number}", mistaken)
    for number in range(20):
        writes.submit(f"good-{number}", lambda: sent.append(1))
    eventually(lambda: len(sent) == 20)
    assert len(sent) == 20


def test_closing_drops_what_cannot_be_sent():
    writes = WriteQueue("test", workers=1)

    def never() -> None:
        raise Unreachable("away")

    writes.submit("pod", never)
    began = time.monotonic()
    assert not writes.flush(0.3)
    writes.close()
    assert time.monotonic() - began < 3
