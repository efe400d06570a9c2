"""A plain client of the API server for the tests' own use: JSON in, JSON out, over one kept connection per thread.

It shares nothing with `tidemill.kube`, so that a test can watch the adapter from outside.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """What the API server refused: `status` and `reason` are its own, such as 409 and `AlreadyExists`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """One user of one API server: a client certificate, or a bearer token."""

    def __init__(
        self, server: str, ca: Path, *, certificate: tuple[Path, Path] | None = None, token: str = "",
        timeout_s: float = 60.0, check: bool = True,
    ) -> None:  # fmt: skip
        self.server = server
        self._address = server.removeprefix("https://")
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context(cafile=str(ca))
        if not check:  # a server that made its certificate for itself
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            self._context.load_cert_chain(*certificate)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._kept = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def __del__(self) -> None:
        self.close()

    def get(self, path: str, **params: str) -> Any:
        return self.call("GET", path, params=params)

    def items(self, path: str, **params: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path, **params).get("items") or []
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Any, kind: str = MERGE, **params: str) -> Any:
        return self.call("PATCH", path, body, kind, params)

    def delete(self, path: str, **options: Any) -> bool:
        """False where it was not there. `options` are DeleteOptions: gracePeriodSeconds, propagationPolicy."""
        try:
            self.call("DELETE", path, options or None)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = JSON,
        params: Mapping[str, str] | None = None,
    ) -> Any:
        """One request. A connection that the server closed meanwhile is opened again once."""
        if params:
            path = f"{path}?{urlencode(params)}"
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | {"Accept": JSON} | ({"Content-Type": kind} if data is not None else {})
        fresh = not hasattr(self._kept, "connection")
        try:
            status, answer = self._exchange(method, path, data, headers)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            if fresh:
                raise
            status, answer = self._exchange(method, path, data, headers)
        if status >= 400:
            raise _error(status, answer)
        return _decoded(answer)

    def close(self) -> None:
        """The connections of all threads; another call opens a new one."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._kept = threading.local()

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        if not hasattr(self._kept, "connection"):
            self._kept.connection = http.client.HTTPSConnection(
                self._address, timeout=self._timeout_s, context=self._context
            )
            self._all.append(self._kept.connection)
        connection: http.client.HTTPSConnection = self._kept.connection
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except BaseException:
            connection.close()
            self._all.remove(connection)
            del self._kept.connection
            raise


def eventually(look: Callable[[], T], *, timeout_s: float = 30.0, every_s: float = 0.05, what: str = "") -> T:
    """The first true answer of `look`; a TimeoutError that says what did not happen. Refusals count as not yet."""
    until = time.monotonic() + timeout_s
    last: Exception | None = None
    while True:
        try:
            if answer := look():
                return answer
        except (ApiError, OSError, http.client.HTTPException) as error:
            last = error
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout_s:g} s: {what or 'what was waited for'}") from last
        time.sleep(every_s)


def _error(status: int, answer: bytes) -> ApiError:
    told = _decoded(answer)
    if isinstance(told, dict):
        return ApiError(status, str(told.get("reason", "")), str(told.get("message", "")))
    return ApiError(status, "", str(told))


def _decoded(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")
