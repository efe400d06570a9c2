"""A way to the API server that can be cut: connections break, or nothing passes, while the server runs on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType

_CHUNK = 65536


class CuttableProxy:
    """Listens on a free loopback port and passes bytes to `port`. TLS goes through: certificates are as before.

    `cut()` breaks every connection that is open; `cut_every` does so again and again; while `held()` nothing passes
    in either direction and nothing is refused, as behind a firewall that drops packets.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> CuttableProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._flowing.set()
        # A thread that waits for a connection does not notice that its socket was closed: it is woken by one.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """Break every open connection; how many there were, counted from the client's side."""
        with self._lock:
            broken = len(self._open) // 2
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self.cuts += broken
        return broken

    @contextlib.contextmanager
    def cut_every(self, seconds: float) -> Iterator[None]:
        over = threading.Event()

        def again() -> None:
            while not over.wait(seconds):
                self.cut()

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                server.settimeout(None)
            except OSError:  # the server is away: so is this
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            ends = [False, False]
            for number, pair in enumerate(((client, server), (server, client))):
                threading.Thread(target=self._pass, args=(*pair, ends, number), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, ends: list[bool], number: int) -> None:
        """Until one side ends; the second of the two threads to notice closes both."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            ends[number] = True
            if all(ends):
                self._open -= {source, sink}
                source.close()
                sink.close()
