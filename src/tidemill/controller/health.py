"""`/healthz`, `/readyz` and `/metrics` over HTTP, for the kubelet and Prometheus.

Healthy: the loop goes on and its threads live; a tick may take minutes when AWS is slow, not forever. Ready: the
cluster was seen whole once; a replica that waits for the lease is ready too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidemill.model.errors import SpecError

# One tick: 200 pages of AWS's slowest lists, and every action waiting for its time-out once.
LONGEST_TICK_S = 600.0
# The loop beats every second while it waits.
LONGEST_SILENCE_S = 60.0
_REQUEST_TIMEOUT_S = 10

log = structlog.stdlib.get_logger("tidemill.controller")


class Living(Protocol):
    """A thread that starts and stops with the process."""

    @property
    def alive(self) -> bool: ...


class Threads:
    """What runs beside the ticks. One that has ended is told of, with the exception that ended it."""

    def __init__(self) -> None:
        self._must_live: dict[str, Living] = {}
        self._ended_by: dict[str, str] = {}  # by the thread's name, whoever started it

    def install(self) -> None:
        threading.excepthook = self.note

    def must_live(self, name: str, thread: Living) -> None:
        """From now on. `name` is also the thread's own."""
        self._must_live[name] = thread

    def note(self, end: threading.ExceptHookArgs) -> None:
        name = end.thread.name if end.thread is not None else "unknown"
        error = end.exc_value if end.exc_value is not None else end.exc_type()
        self._ended_by[name] = f"{type(error).__name__}: {error}"
        log.error("a thread has ended", thread=name, exc_info=error)

    def problems(self) -> list[str]:
        ended_by = dict(self._ended_by)
        dead = [name for name, thread in list(self._must_live.items()) if not thread.alive]
        found = [f"the {name} thread has ended" for name in dead if name not in ended_by]
        return found + [f"the {name} thread has ended: {why}" for name, why in ended_by.items()]


@dataclass(slots=True)
class Health:
    """What the answers are read from."""

    beat_s: Callable[[], float]
    ticking_since_s: Callable[[], float | None] = lambda: None
    threads: Threads = field(default_factory=Threads)
    is_ready: Callable[[], str] = lambda: ""  # empty: ready; else why not
    now_s: Callable[[], float] = time.monotonic

    def problems(self) -> list[str]:
        found = self.threads.problems()
        now_s, since_s = self.now_s(), self.ticking_since_s()
        if since_s is not None:
            if now_s - since_s > LONGEST_TICK_S:
                found.append(f"a tick has taken {now_s - since_s:.0f} s")
        elif now_s - self.beat_s() > LONGEST_SILENCE_S:
            found.append(f"the loop has been still for {now_s - self.beat_s():.0f} s")
        return found


class HealthServer:
    """Serves in threads of its own until `stop`."""

    def __init__(
        self, address: str, health: Health, registry: CollectorRegistry, refresh: Callable[[], None]
    ) -> None:
        """`address`: HOST:PORT, or :PORT for every address. `refresh` renews what is not read off a tick."""
        host, port = parse_address(address)
        handler = _handler(health, registry, refresh)
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise SpecError(
                f"cannot listen on {address}: {error.strerror or error}; name another with --metrics-addr"
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def parse_address(written: str) -> tuple[str, int]:
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SpecError(f"--metrics-addr: '{written}' is not an address; write HOST:PORT, or :PORT for all")
    return host.strip("[]") or "0.0.0.0", int(port)


def _handler(
    health: Health, registry: CollectorRegistry, refresh: Callable[[], None]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S
        server_version = "tidemill"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/healthz":
                self._say("; ".join(health.problems()))
            elif path == "/readyz":
                self._say(health.is_ready())
            elif path == "/metrics":
                self._metrics()
            else:
                self._answer(404, b"healthz, readyz, metrics\n", "text/plain; charset=utf-8")

        def _say(self, problem: str) -> None:
            text = f"{problem or 'ok'}\n".encode()
            self._answer(503 if problem else 200, text, "text/plain; charset=utf-8")

        def _metrics(self) -> None:
            refresh()
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(registry), content_type)

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every few seconds: no line for them."""

    return Handler
