"""The way that can be cut: bytes pass, connections break on demand, and a silence ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from controlplane.api import eventually
from controlplane.proxy import CuttableProxy


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(one: socket.socket) -> None:
        with one:
            while data := one.recv(100):
                one.sendall(data)

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(one,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def dialled(proxy: CuttableProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def test_bytes_pass_until_the_connection_is_cut_and_a_new_one_works(echo: int):
    with CuttableProxy(echo) as proxy:
        with dialled(proxy) as one:
            one.sendall(b"hello")
            assert one.recv(5) == b"hello"
            assert proxy.cut() == 1
            assert one.recv(5) == b""
        with dialled(proxy) as another:
            another.sendall(b"again")
            assert another.recv(5) == b"again"


def test_connections_are_cut_again_and_again(echo: int):
    with CuttableProxy(echo) as proxy, proxy.cut_every(0.05):
        for _ in range(3):
            with dialled(proxy) as one:
                one.sendall(b"x")
                while one.recv(5):
                    pass
        eventually(lambda: proxy.cuts >= 3)


def test_nothing_passes_while_it_is_held_and_all_of_it_afterwards(echo: int):
    with CuttableProxy(echo) as proxy, dialled(proxy) as one:
        one.settimeout(0.2)
        with proxy.held():
            one.sendall(b"hello")
            with pytest.raises(TimeoutError):
                one.recv(5)
        one.settimeout(5)
        assert one.recv(5) == b"hello"
