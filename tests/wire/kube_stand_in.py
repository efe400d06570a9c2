"""As much of an API server as kubelets speak to: nodes, leases and pods, a watch, and failures on demand."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"


class StandIn:
    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.renewals = 0
        self.pods: dict[str, dict[str, Any]] = {}  # by namespace/name
        self.tokens: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.connections = 0
        self.refuses = 0  # a status: every write is answered with it
        self.slow_s = 0.0
        self._version = 0
        self._watchers: list[queue.Queue[dict[str, Any] | None]] = []
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._forgotten = 0
        self._lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.cut_watches()
        self.server.shutdown()
        self.server.server_close()

    # --- what a test does -----------------------------------------------------------------------------

    def add_pod(
        self, name: str, node: str, *, gpus: int = 0, grace_s: int = 30, owner: str = "", restarts: str = "Never",
        uid: str = "", **annotations: str,
    ) -> str:  # fmt: skip
        """Bound by name, as the scheduler binds. `_` in an annotation's name is `-`, sim.tidemill.dev its prefix."""
        asked = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        notes = {key if "/" in key else f"sim.tidemill.dev/{key.replace('_', '-')}": value
                 for key, value in annotations.items()}  # fmt: skip
        kind, _, of = owner.partition("/")
        owners = [{"kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}] if owner else []
        with self._lock:
            self._version += 1
            uid = uid or f"uid-{name}-{self._version}"
            meta = {"name": name, "namespace": "default", "uid": uid, "annotations": notes}
            container = {"name": "main", "image": "work", "resources": {"requests": asked}}
            spec = {"nodeName": node, "restartPolicy": restarts, "containers": [container],
                    "terminationGracePeriodSeconds": grace_s}  # fmt: skip
            pod = {
                "metadata": meta | {"ownerReferences": owners},
                "spec": spec,
                "status": {"phase": "Pending"},
            }
            self.pods[f"default/{name}"] = pod
            self._changed("ADDED", pod)
        return uid

    def annotate(self, name: str, key: str, value: str) -> None:
        with self._lock:
            pod = self.pods[f"default/{name}"]
            pod["metadata"]["annotations"][key] = value
            self._changed("MODIFIED", pod)

    def delete_pod(self, name: str, grace_s: int) -> None:
        """As a user or the engine asks for it; with no grace the object goes at once."""
        with self._lock:
            pod = self.pods[f"default/{name}"]
            if not grace_s:
                self._drop(pod)
                return
            pod["metadata"] |= {
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": grace_s,
            }
            self._changed("MODIFIED", pod)

    def cut_watches(self) -> None:
        with self._lock:
            for watcher in self._watchers:
                watcher.put(None)
            self._watchers.clear()

    def forget_history(self) -> None:
        """As after a compaction: watches from before are answered with 410."""
        with self._lock:
            self._history.clear()
            self._forgotten = self._version

    # --- what kubelets do -----------------------------------------------------------------------------

    def take(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.calls.append((method, path))
            if path == "/version":
                return 200, {"gitVersion": "v1.37.1"}
            if method == "GET" and path == _PODS:
                pods = [json.loads(json.dumps(pod)) for pod in self.pods.values()]
                return 200, {"metadata": {"resourceVersion": str(self._version)}, "items": pods}
            if self.refuses and method != "GET":
                return self.refuses, {"message": "refused"}
            kind, name, sub = _split(path)
            match kind:
                case "nodes":
                    return self._node(method, name, body)
                case "leases":
                    return self._lease(method, name, body)
                case _:
                    return self._pod(method, name, sub, body)

    def _node(self, method: str, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.nodes:
                return 409, {}
            body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
            self.nodes[name] = body
            return 201, body
        if name not in self.nodes:
            return 404, {}
        if method == "DELETE":
            del self.nodes[name]
            return 200, {}
        for part in ("spec", "status"):
            self.nodes[name][part] |= body.get(part, {})
        return 200, self.nodes[name]

    def _lease(self, method: str, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method == "POST":
            self.leases[body["metadata"]["name"]] = body
            return 201, body
        if method == "PUT":
            self.renewals += 1
            self.leases[name] = body
        return 200, self.leases[name]

    def _pod(self, method: str, name: str, sub: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        pod = self.pods.get(name)
        if pod is None:
            return 404, {}
        uid = body.get("metadata", {}).get("uid") or body.get("preconditions", {}).get("uid")
        if uid != pod["metadata"]["uid"]:
            return 409, {"message": "the UID in the precondition differs"}
        if method == "DELETE":
            self._drop(pod)
            return 200, {}
        if sub == "status":
            pod["status"] |= body["status"]
        else:
            pod["metadata"]["annotations"] |= body["metadata"].get("annotations", {})
        self._changed("MODIFIED", pod)
        return 200, {}

    def _drop(self, pod: Mapping[str, Any]) -> None:
        del self.pods[f"default/{pod['metadata']['name']}"]
        self._changed("DELETED", pod)

    def _changed(self, kind: str, pod: Mapping[str, Any]) -> None:
        self._version += 1
        copied = json.loads(json.dumps(pod))
        copied["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, {"type": kind, "object": copied}))
        for watcher in self._watchers:
            watcher.put({"type": kind, "object": copied})

    def watch(self, since: int) -> queue.Queue[dict[str, Any] | None]:
        with self._lock:
            watcher: queue.Queue[dict[str, Any] | None] = queue.Queue()
            if since < self._forgotten:
                watcher.put({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
                watcher.put(None)
                return watcher
            for version, event in self._history:
                if version > since:
                    watcher.put(event)
            self._watchers.append(watcher)
            return watcher


def _split(path: str) -> tuple[str, str, str]:
    """nodes, leases or pods; the name, with its namespace for pods; a subresource."""
    words = path.strip("/").split("/")
    if words[:3] == ["api", "v1", "nodes"]:
        return "nodes", "/".join(words[3:4]), "/".join(words[4:])
    if words[0] == "apis":
        return "leases", "/".join(words[6:7]), ""
    return "pods", f"{words[3]}/{words[5]}", "/".join(words[6:])


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            stand_in.connections += 1

        def _take(self) -> None:
            written = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            stand_in.tokens.add(self.headers.get("Authorization", ""))
            where = urlsplit(self.path)
            asked = parse_qs(where.query)
            if "watch" in asked:
                self._watch(int(asked["resourceVersion"][0]))
                return
            time.sleep(stand_in.slow_s)
            status, answer = stand_in.take(self.command, where.path, json.loads(written or b"{}"))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _watch(self, since: int) -> None:
            watcher = stand_in.watch(since)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while (event := watcher.get()) is not None:
                line = json.dumps(event).encode() + b"\n"
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
                except OSError:
                    break
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _take  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def eventually(holds: Callable[[], Any], within_s: float = 5.0) -> Any:
    until = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
    return found
