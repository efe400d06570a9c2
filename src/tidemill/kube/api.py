"""Calls of an API server: raw bytes out, raw bytes in, our errors, bounds on everything.

Thread-safe. Every call is recorded as RBAC sees it (`calls`), so that the rights that are asked for are the rights that
are used. Before a write `may_begin` is asked, which refuses while too little of a lease is left.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2

from tidemill.kube.errors import Asked, error_of, transport_error
from tidemill.model.errors import Retryable

Params = Mapping[str, str | int]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML

# A page of 500 pods is about 2 MB; an object has at most 1.5 MB in etcd. Above these something is very wrong.
MAX_BODY_BYTES = 256 << 20
MAX_LINE_BYTES = 32 << 20
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
WRITE_TIMEOUT_S = 10.0

_GUARDED = "tidemill.guarded"  # of a request: may it begin?
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A call as an RBAC rule names it."""

    verb: str
    group: str
    resource: str
    subresource: str = ""

    @property
    def what(self) -> str:
        plain = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{plain}.{self.group}" if self.group else plain


def call_of(method: str, path: str, params: Params | None = None) -> Call | None:
    """None: the path names no resource (`/version`, `/apis`), which everybody may read."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    named, subresource = len(rest) > 1, rest[2] if len(rest) > 2 else ""
    if method == "GET":
        verb = "get" if named else "watch" if params and params.get("watch") else "list"
    else:
        verb = _VERBS[method]
        if method == "DELETE" and not named:
            verb = "deletecollection"
    return Call(verb, group, rest[0], subresource)


class LineStream:
    """An iterator of lines that another thread can end at once."""

    def __init__(
        self,
        begin: Callable[[Callable[[httpx2.Response], None]], Generator[bytes, None, None]],
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        self._lines = begin(self._begun)
        self._opened = opened
        self._socket: socket.socket | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._lines)
        except StopIteration:
            self._socket = None  # its connection may serve another call by now
            raise

    def close(self) -> None:
        """For the thread that reads: the connection goes with it, unless the stream came to its end."""
        self.cancel()
        self._lines.close()

    def cancel(self) -> None:
        """For another thread. Idempotent. A reader that waits gets the end of the stream, or Retryable."""
        self._cancelled = True
        taken, self._socket = self._socket, None
        if taken is not None:
            with suppress(OSError, ValueError):
                taken.shutdown(socket.SHUT_RDWR)

    def _begun(self, response: httpx2.Response) -> None:
        stream = response.extensions.get("network_stream")
        self._socket = stream.get_extra_info("socket") if stream is not None else None
        if self._cancelled:
            self.cancel()
        self._opened()


class KubeApi:
    """Raises only the kinds of `model.errors`."""

    def __init__(
        self,
        client: httpx2.Client,
        *,
        server: str,
        name: str,
        identity: str = "",
        namespace: str = "",
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = client
        self._extensions = dict(extensions or {})
        self.server = server
        self.name = name  # the cluster, as the kubeconfig calls it
        self.identity = identity
        self.namespace = namespace or "default"  # of the context, or of the pod we run in
        self.calls: set[Call] = set()
        self.may_begin: Callable[[float], None] = lambda timeout_s: None
        self.write_timeout_s = WRITE_TIMEOUT_S
        client.event_hooks = {"request": [self._ask_again]}

    def get(self, path: str, params: Params | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> bytes:
        return self._exchange("GET", path, None, JSON, params, timeout_s)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        params: Params | None = None,
        timeout_s: float | None = None,
        unguarded: bool = False,
    ) -> bytes:
        """A write. `timeout_s`: None: `write_timeout_s`. `unguarded`: without asking `may_begin`, which only the lease
        itself may do."""
        timeout_s = self.write_timeout_s if timeout_s is None else timeout_s
        if not unguarded:
            self.may_begin(timeout_s)
        return self._exchange(method, path, body, content_type, params, timeout_s, guarded=not unguarded)

    def stream(
        self,
        path: str,
        params: Params | None = None,
        read_timeout_s: float = 60.0,
        *,
        opened: Callable[[], None] = lambda: None,
    ) -> LineStream:
        """The lines of a watch, as they come. It ends when the server ends it; silence is Retryable.

        `opened` is called when the server has accepted it, which may be long before the first line.
        """
        return LineStream(lambda begun: self._stream(path, params, read_timeout_s, begun), opened)

    def _stream(
        self,
        path: str,
        params: Params | None,
        read_timeout_s: float,
        opened: Callable[[httpx2.Response], None],
    ) -> Generator[bytes, None, None]:
        timeout = httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)
        asked = self._asked("GET", path, params)
        try:
            with self._begin("GET", path, None, JSON, params, timeout) as response:
                if response.status_code != 200:
                    raise self._error(response, asked, time.monotonic() + READ_TIMEOUT_S)
                opened(response)
                yield from self._lines(response, asked)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise transport_error(_plain(error), asked) from None

    def close(self) -> None:
        self._client.close()

    # --- one exchange -------------------------------------------------------------------------------

    def _asked(self, method: str, path: str, params: Params | None) -> Asked:
        call = call_of(method, path, params)
        if call is None:
            return Asked("get", path, self.server, self.identity)
        self.calls.add(call)
        return Asked(call.verb, call.what, self.server, self.identity)

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: Params | None,
        timeout_s: float,
        *,
        guarded: bool = False,
    ) -> bytes:
        asked = self._asked(method, path, params)
        deadline = time.monotonic() + timeout_s
        # A free connection, a new one, the request: together they take no longer than was promised for the call.
        part_s = timeout_s / 4
        timeout = httpx2.Timeout(timeout_s / 2, connect=min(CONNECT_TIMEOUT_S, part_s), pool=part_s)
        try:
            with self._begin(method, path, body, content_type, params, timeout, guarded) as response:
                if not 200 <= response.status_code < 300:
                    raise self._error(response, asked, deadline)
                return self._body(response, asked, deadline)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise transport_error(_plain(error), asked) from None

    def _begin(
        self, method: str, path: str, body: bytes | None, content_type: str, params: Params | None,
        timeout: httpx2.Timeout, guarded: bool = False,
    ) -> Any:  # fmt: skip
        headers = {"Accept": JSON}
        if body is not None:
            headers["Content-Type"] = content_type
        return self._client.stream(
            method, path, content=body, params=dict(params or {}), headers=headers, timeout=timeout,
            extensions={**self._extensions, _GUARDED: guarded},
        )  # fmt: skip

    def _ask_again(self, request: httpx2.Request) -> None:
        """With the token in hand: a plugin may take a while, and a process that was frozen meanwhile leads no more."""
        if request.extensions.get(_GUARDED):
            self.may_begin(4 * request.extensions["timeout"]["pool"])

    def _error(self, response: httpx2.Response, asked: Asked, deadline: float) -> Exception:
        body = self._body(response, asked, deadline)
        return error_of(response.status_code, body, asked, response.headers.get("Retry-After", ""))

    def _body(self, response: httpx2.Response, asked: Asked, deadline: float) -> bytes:
        chunks, size = [], 0
        for chunk in response.iter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise Retryable(
                    f"{self.server} sent more than {MAX_BODY_BYTES >> 20} MiB ({asked})", code="size"
                )
            if time.monotonic() > deadline:
                raise Retryable(f"{self.server} sent its answer too slowly ({asked})", code="time-out")
        return b"".join(chunks)

    def _lines(self, response: httpx2.Response, asked: Asked) -> Iterator[bytes]:
        held: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            *whole, rest = chunk.split(b"\n")
            for part in whole:
                line = b"".join((*held, part)) if held else part
                held, size = [], 0
                if line:
                    yield line
            if rest:
                held.append(rest)
                size += len(rest)
                if size > MAX_LINE_BYTES:
                    raise Retryable(
                        f"{self.server} sent an object of more than {MAX_LINE_BYTES >> 20} MiB ({asked})",
                        code="size",
                    )


def _plain(error: Exception) -> httpx2.HTTPError | OSError:
    """A stream that was closed under its reader is a broken connection."""
    return error if isinstance(error, httpx2.HTTPError | OSError) else OSError(str(error))
