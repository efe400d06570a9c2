"""What the kubelet and Prometheus are answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.kube.scripted_server import scripted_server
from tidemill.controller.health import (
    LONGEST_SILENCE_S,
    LONGEST_TICK_S,
    Health,
    HealthServer,
    Threads,
    parse_address,
)
from tidemill.controller.metrics import Metrics
from tidemill.engine.clock import WallClock
from tidemill.kube.cluster_view import KINDS
from tidemill.kube.events import EventRecorder
from tidemill.kube.lease import LeaseElector
from tidemill.kube.node_phases import NodePhasePublisher
from tidemill.kube.reflector import Reflector
from tidemill.model.errors import SpecError


class Loop:
    now_s = 1000.0
    beat_s = 1000.0
    ticking_since_s: float | None = None
    alive = True
    waits_for = "the cluster was not seen whole yet"
    refreshed = 0


class Nobody:
    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        pass


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def server(loop: Loop) -> Iterator[HealthServer]:
    threads = Threads()
    threads.must_live("lease", loop)
    health = Health(
        beat_s=lambda: loop.beat_s,
        ticking_since_s=lambda: loop.ticking_since_s,
        threads=threads,
        is_ready=lambda: loop.waits_for,
        now_s=lambda: loop.now_s,
    )

    def refresh() -> None:
        loop.refreshed += 1

    server = HealthServer("127.0.0.1:0", health, Metrics().registry, refresh)
    server.start()
    yield server
    server.stop()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_loop_that_goes_on_is_healthy_and_one_that_stands_still_is_not(server: HealthServer, loop: Loop):
    assert get(server, "healthz") == (200, "ok\n")
    loop.now_s += LONGEST_SILENCE_S + 1
    assert get(server, "healthz")[0] == 503
    loop.ticking_since_s = loop.now_s - LONGEST_TICK_S + 10  # a slow tick is no silence
    assert get(server, "healthz")[0] == 200
    loop.now_s += 20
    assert get(server, "healthz") == (503, "a tick has taken 610 s\n")


def test_a_thread_that_ended_is_named(server: HealthServer, loop: Loop):
    loop.alive = False
    assert get(server, "healthz") == (503, "the lease thread has ended\n")


def test_a_thread_that_an_exception_ended_is_named_with_it_whoever_started_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    threads, health = Threads(), Health(beat_s=lambda: 0.0, now_s=lambda: 0.0)
    health.threads = threads
    threads.install()

    def run() -> None:
        raise ValueError("a bug")

    thread = threading.Thread(target=run, name="alerts-pager")
    thread.start()
    thread.join()
    assert health.problems() == ["the alerts-pager thread has ended: ValueError: a bug"]


def test_every_thread_beside_the_ticks_says_whether_it_lives():
    """Of a real one that met a fault that it does not survive."""

    class Broken(LeaseElector):
        def _run(self) -> None:
            pass

    threads = Threads()
    with scripted_server() as (_, api):
        elector = Broken(api, namespace="n")
        recorder = EventRecorder(api, instance="i")
        phases = NodePhasePublisher(api, WallClock())
        reflector = Reflector(api, KINDS[0], Nobody())
        started: dict[str, Any] = {
            "lease": elector, "events": recorder, "node-phases": phases, "watch-Node": reflector,
        }  # fmt: skip
        for name, one in started.items():
            one.start()
            threads.must_live(name, one)
        elector.stop()
        assert threads.problems() == ["the lease thread has ended"]
        for one in started.values():
            one.stop()
        assert reflector.join(5)


def test_it_is_ready_once_the_cluster_was_seen_whole(server: HealthServer, loop: Loop):
    assert get(server, "readyz") == (503, "the cluster was not seen whole yet\n")
    loop.waits_for = ""
    assert get(server, "readyz") == (200, "ok\n")


def test_metrics_are_renewed_before_they_are_shown(server: HealthServer, loop: Loop):
    status, text = get(server, "metrics")
    assert status == 200
    assert "tidemill_build_info{version=" in text
    assert loop.refreshed == 1


def test_other_paths_are_not_found(server: HealthServer):
    assert get(server, "debug")[0] == 404


@pytest.mark.parametrize(
    ("written", "meant"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), (":9000", ("0.0.0.0", 9000)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(written: str, meant: tuple[str, int]):
    assert parse_address(written) == meant


@pytest.mark.parametrize("written", ["8080", "host:", "host:port", ":99999"])
def test_what_is_no_address_is_said(written: str):
    with pytest.raises(SpecError, match="is not an address"):
        parse_address(written)


def test_an_address_that_is_taken_is_one_sentence(server: HealthServer):
    with pytest.raises(SpecError, match="cannot listen on"):
        HealthServer(f"127.0.0.1:{server.port}", Health(lambda: 0.0), Metrics().registry, lambda: None)
