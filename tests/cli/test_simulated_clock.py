"""The clock of a simulated AWS in another process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tidemill.cli import simulated_clock
from tidemill.cli.simulated_clock import SimulatedClock
from tidemill.model.errors import Retryable

START = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)


class Simulator:
    """Answers like `GET /tidemill/clock`; `jumps` is what somebody advanced the time by."""

    def __init__(self, speed: float) -> None:
        self.speed, self.jumps, self.asked, self.since = speed, timedelta(0), 0, datetime.now(UTC)

    def answer(self) -> dict[str, object]:
        self.asked += 1
        wall = datetime.now(UTC)
        exactly = START + self.jumps + (wall - self.since) * self.speed
        whole = exactly.replace(microsecond=0)
        return {
            "now": whole.isoformat(), "speed": self.speed, "exactly": exactly.isoformat(), "wall": wall.isoformat(),
        }  # fmt: skip


@pytest.fixture
def simulator(request: pytest.FixtureRequest) -> Iterator[tuple[Simulator, str]]:
    simulated = Simulator(request.param)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(simulated.answer()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield simulated, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("simulator", [60.0], indirect=True)
def test_one_answer_serves_many_questions(simulator: tuple[Simulator, str]) -> None:
    simulated, endpoint = simulator
    clock = SimulatedClock(endpoint)
    seen = [clock.now() for _ in range(100)]
    assert seen == sorted(seen)
    assert simulated.asked == 1
    assert START <= seen[-1] < START + timedelta(minutes=5)
    assert clock.wall_seconds(timedelta(hours=1)) == 60


@pytest.mark.parametrize("simulator", [60.0], indirect=True)
def test_an_answer_that_says_the_same_changes_no_instant_and_a_jump_moves_the_anchor(
    simulator: tuple[Simulator, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated_clock, "_ASK_EVERY_S", 0.0)
    simulated, endpoint = simulator
    clock, wall = SimulatedClock(endpoint), datetime.now(UTC)
    assert len({clock.from_wall(wall) for _ in range(20)}) == 1
    simulated.jumps = timedelta(days=1)
    assert clock.now() >= START + timedelta(days=1)
    simulated.jumps = timedelta(0)
    assert clock.now() >= START + timedelta(days=1), "it never runs backwards"


@pytest.mark.parametrize("simulator", [0.0], indirect=True)
def test_time_that_stands_still_is_asked_for_every_time(simulator: tuple[Simulator, str]) -> None:
    simulated, endpoint = simulator
    clock = SimulatedClock(endpoint)
    assert clock.now() == START
    simulated.jumps = timedelta(minutes=10)
    assert clock.now() == START + timedelta(minutes=10)
    with pytest.raises(Retryable, match="stands still"):
        clock.to_wall(START)


def test_nobody_there_is_retryable() -> None:
    with pytest.raises(Retryable, match="does not answer"):
        SimulatedClock("http://127.0.0.1:9").now()
