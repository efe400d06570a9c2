"""A small API server over HTTP for one path: lists in pages, watches, and faults on demand.

It keeps resourceVersions, a history that can be compacted, and continue tokens that can expire. It knows no kind.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tidemill.kube.api import KubeApi

Act = Callable[["Handler", dict[str, str]], None]
# Which requests it is for, and what it does instead of answering.
Fault = tuple[Callable[[dict[str, str]], bool], Act]


class Store:
    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 100
        self.compacted = 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.snapshots: dict[str, tuple[int, list[dict[str, Any]], int]] = {}
        self.faults: list[Fault] = []  # each is for the next request of its kind
        self.requests: list[dict[str, str]] = []
        self.bookmarks = True
        self.closing = False

    def put(self, one: dict[str, Any]) -> None:
        with self.lock:
            self.version += 1
            uid = one["metadata"]["uid"]
            kind = "MODIFIED" if uid in self.objects else "ADDED"
            one = {**one, "metadata": {**one["metadata"], "resourceVersion": str(self.version)}}
            self.objects[uid] = one
            self.history.append((self.version, kind, one))
            self.lock.notify_all()

    def delete(self, uid: str) -> None:
        with self.lock:
            self.version += 1
            one = self.objects.pop(uid)
            one = {**one, "metadata": {**one["metadata"], "resourceVersion": str(self.version)}}
            self.history.append((self.version, "DELETED", one))
            self.lock.notify_all()

    def compact(self) -> None:
        """Nothing before this instant can be watched from any more, and no list continued."""
        with self.lock:
            self.compacted = self.version
            self.history.clear()
            self.snapshots.clear()
            self.lock.notify_all()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        params = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        store = self.store
        with store.lock:
            store.requests.append(params)
            fault = next((one for one in store.faults if one[0](params)), None)
            if fault is not None:
                store.faults.remove(fault)
        try:
            if fault is not None:
                fault[1](self, params)
                return
            if params.get("watch"):
                self._watch(params)
            else:
                self._list(params)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status: int, reason: str, message: str) -> None:
        body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
        self.answer(status, json.dumps(body).encode())

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, kind: str, one: dict[str, Any]) -> None:
        self.chunk(json.dumps({"type": kind, "object": one}).encode() + b"\n")

    def _list(self, params: dict[str, str]) -> None:
        store, limit = self.store, int(params.get("limit", "500"))
        with store.lock:
            token = params.get("continue", "")
            if token and token not in store.snapshots:
                self.fail(410, "Expired", "the provided continue parameter is too old")
                return
            version, objects, start = store.snapshots.get(
                token, (store.version, list(store.objects.values()), 0)
            )
            page, rest = objects[start : start + limit], len(objects) - start - limit
            meta: dict[str, str] = {"resourceVersion": str(version)}
            if rest > 0:
                meta["continue"] = f"{version}-{start + limit}"
                store.snapshots[meta["continue"]] = (version, objects, start + limit)
        self.answer(200, json.dumps({"kind": "List", "metadata": meta, "items": page}).encode())

    def _watch(self, params: dict[str, str]) -> None:
        store, seen = self.store, int(params["resourceVersion"])
        ends = time.monotonic() + float(params.get("timeoutSeconds", "60"))
        if seen < store.compacted:
            self.fail(410, "Expired", "too old resource version")
            return
        self.begin_stream()
        while time.monotonic() < ends:
            with store.lock:
                if store.compacted > seen:
                    body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                    self.event("ERROR", body)
                    break
                news = [one for one in store.history if one[0] > seen]
                version = store.version
                if not news:
                    store.lock.wait(0.05)
                if store.closing:
                    break
            for at, kind, one in news:
                self.event(kind, one)
                seen = at
            if not news and store.bookmarks and version > seen:
                seen = version
                self.event("BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})
        self.wfile.write(b"0\r\n\r\n")


@contextmanager
def scripted_server() -> Iterator[tuple[Store, KubeApi]]:
    store = Store()
    handler = type("OneHandler", (Handler,), {"store": store})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    client = httpx2.Client(base_url=address, trust_env=False)
    try:
        yield store, KubeApi(client, server=address, name="scripted", identity="user 'tester'")
    finally:
        store.closing = True
        client.close()
        server.shutdown()
        server.server_close()
        thread.join()


def on_watch(act: Act) -> Fault:
    """For the next watch."""
    return (lambda params: "watch" in params), act


def on_list(act: Act, *, continued: bool = False) -> Fault:
    """For the next list, or the next page of one."""
    return (lambda params: "watch" not in params and ("continue" in params) is continued), act
