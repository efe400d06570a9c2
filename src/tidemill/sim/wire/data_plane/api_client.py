"""Plain HTTP to a Kubernetes API server: one kept connection a thread, bytes in and out.

A kubelet's worth of calls, made thousands of times: no models, no retries but that of a connection that the server had
closed meanwhile.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

WAIT_S = 10.0
_SAID = 300  # of an error's body: enough for its message
_PEM = "-----BEGIN"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class KubeApi:
    """An API server and what is shown to it. `ca`, `certificate` and `key` are files, or PEM as it is written in them.

    Without a `ca` the system's own count.
    """

    url: str
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


class ApiError(Exception):
    """The API server answered, and not with success."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status} {said}")
        self.status = status


class Unreachable(Exception):
    """No answer came."""


class ApiClient:
    def __init__(self, api: KubeApi) -> None:
        self._api = api
        where = urlsplit(api.url)
        self._host, self._port = where.hostname or "", where.port
        self._prefix = where.path.rstrip("/")
        self._context = _context(api) if where.scheme == "https" else None
        self._kept = threading.local()
        self._open: set[HTTPConnection] = set()
        self._streams: set[HTTPConnection] = set()
        self._headers = {"Accept": JSON, "User-Agent": "tidemill-sim"}
        if api.token:
            self._headers["Authorization"] = f"Bearer {api.token}"

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = JSON) -> bytes:
        """The body of the answer. ApiError: it was refused. Unreachable: nobody knows."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": kind}
        for last_try in (False, True):
            kept, connection = self._connection()
            try:
                connection.request(method, self._prefix + path, data, headers)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, HTTPException) as error:
                self._drop()
                if kept and not last_try:  # closed while it was idle
                    continue
                raise Unreachable(f"{type(error).__name__}: {error}") from error
            if response.status >= 400:
                raise ApiError(response.status, answer[:_SAID].decode(errors="replace"))
            return answer
        raise AssertionError("unreachable")

    @contextmanager
    def stream(self, path: str, read_timeout_s: float) -> Iterator[HTTPResponse]:
        """A watch: on a connection of its own, which is closed afterwards."""
        connection = self._connect(read_timeout_s)
        self._streams.add(connection)
        try:
            connection.request("GET", self._prefix + path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, response.read(_SAID).decode(errors="replace"))
            yield response
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        finally:
            self._streams.discard(connection)
            connection.close()

    def close(self) -> None:
        """The kept connections; their threads have ended."""
        for connection in list(self._open):
            connection.close()

    def end_streams(self) -> None:
        """Whoever reads them."""
        for connection in list(self._streams):
            sock = connection.sock
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _connection(self) -> tuple[bool, HTTPConnection]:
        """Whether it was used before, and it."""
        kept: HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            return True, kept
        self._kept.connection = made = self._connect(WAIT_S)
        self._open.add(made)
        return False, made

    def _connect(self, timeout_s: float) -> HTTPConnection:
        if self._context is None:
            return HTTPConnection(self._host, self._port, timeout=timeout_s)
        return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)

    def _drop(self) -> None:
        self._open.discard(self._kept.connection)
        self._kept.connection.close()
        self._kept.connection = None


def _context(api: KubeApi) -> ssl.SSLContext:
    written = api.ca.startswith(_PEM)
    context = ssl.create_default_context(
        cafile=None if written else api.ca or None, cadata=api.ca if written else None
    )
    if not api.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if api.certificate:
        with TemporaryDirectory(prefix="tidemill-") as folder:
            context.load_cert_chain(_file(folder, "crt", api.certificate), _file(folder, "key", api.key))
    return context


def _file(folder: str, name: str, given: str) -> str:
    """ssl reads files only; what is not in one is put there for that moment."""
    if not given.startswith(_PEM):
        return given
    made = Path(folder) / name
    made.touch(mode=0o600)
    made.write_text(given, encoding="ascii")
    return str(made)
