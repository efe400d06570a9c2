"""An API server with one node and its pods, in memory: lists, watches, patches, deletes; it can be away."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.errors import Gone, NotAllowed, Retryable
from tidemill.spec import names
from tidemill.spec.units import format_instant


class OneNodeApi:
    def __init__(self, ends_at: datetime | None = None) -> None:
        self._changed = threading.Condition()
        self._versions = itertools.count(1)
        self.objects: dict[str, dict[str, Any]] = {}  # "nodes/n", "pods/default/a"
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self.writes: list[tuple[str, str, dict[str, Any]]] = []
        self.away = False
        self.forbidden: set[str] = set()  # ends of paths
        self.failing: set[str] = set()
        annotations = {names.ENDS_AT: format_instant(ends_at)} if ends_at else {}
        labels = {names.LABEL_SOURCE: "cr-1"}
        self.put(
            "nodes/n", {"metadata": {"name": "n", "annotations": annotations, "labels": labels}, "spec": {}}
        )

    # --- what a test does ---------------------------------------------------------------------------

    def add_pod(
        self, name: str, grace_s: int | None = 30, *, owner: str = "Job", phase: str = "Running"
    ) -> None:
        spec = {} if grace_s is None else {"terminationGracePeriodSeconds": grace_s}
        metadata = {"name": name, "namespace": "default", "ownerReferences": [{"kind": owner, "name": "x"}]}
        self.put(f"pods/default/{name}", {"metadata": metadata, "spec": spec, "status": {"phase": phase}})

    def annotate(self, key: str, value: str) -> None:
        node = json.loads(json.dumps(self.node))
        node["metadata"]["annotations"][key] = value
        self.put("nodes/n", node)

    def put(self, key: str, value: dict[str, Any], kind: str = "") -> None:
        with self._changed:
            version = next(self._versions)
            kind = kind or ("MODIFIED" if key in self.objects else "ADDED")
            value["metadata"].setdefault("uid", f"uid-{key}")
            value["metadata"]["resourceVersion"] = str(version)
            if kind == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = value
            self._log.append((version, key, kind, value))
            self._changed.notify_all()

    @property
    def node(self) -> dict[str, Any]:
        return self.objects["nodes/n"]

    def gone_away(self) -> None:
        with self._changed:
            self.away = True
            self._changed.notify_all()

    @property
    def stopped_pods(self) -> list[str]:
        return [path.rsplit("/", 1)[1] for method, path, _ in self.writes if method == "DELETE"]

    # --- what the agent calls -----------------------------------------------------------------------

    def get(self, path: str, params: Any = None, *, timeout_s: float = 1) -> bytes:
        self._reached()
        kind = path.rsplit("/", 1)[1]
        with self._changed:
            items = [value for key, value in self.objects.items() if key.startswith(f"{kind}/")]
            version = next(self._versions)
        return json.dumps({"metadata": {"resourceVersion": str(version)}, "items": items}).encode()

    def stream(self, path: str, params: Any = None, read_timeout_s: float = 1) -> Iterator[bytes]:
        kind, at = path.rsplit("/", 1)[1], int(params["resourceVersion"])
        ends = time.monotonic() + 0.5
        while time.monotonic() < ends:
            with self._changed:
                self._reached()
                new = [entry for entry in self._log if entry[0] > at and entry[1].startswith(f"{kind}/")]
                if not new:
                    self._changed.wait(0.1)
            for version, _, what, value in new:
                at = version
                yield json.dumps({"type": what, "object": value}).encode()

    def send(
        self, method: str, path: str, body: bytes | None = None, *, content_type: str = "", params: Any = None,
        timeout_s: float = 1,
    ) -> bytes:  # fmt: skip
        self._reached()
        if any(path.endswith(end) for end in self.failing):
            raise Retryable(f"{path} failed")
        if any(path.endswith(end) for end in self.forbidden):
            raise NotAllowed(f"{path} is forbidden")
        given = json.loads(body or b"{}")
        self.writes.append((method, path, given))
        key = path.removeprefix("/api/v1/").removeprefix("namespaces/").removesuffix("/status")
        key = key if key.startswith("nodes/") else "pods/" + key.replace("/pods/", "/")
        if key not in self.objects:
            raise Gone(f"there is no {key}")
        value = json.loads(json.dumps(self.objects[key]))
        if method == "DELETE":
            value["metadata"]["deletionTimestamp"] = "2026-11-20T11:00:00Z"
        elif path.endswith("/status"):
            value["status"]["conditions"] = given["status"]["conditions"]
        else:
            version = given["metadata"].pop("resourceVersion", None)
            if version not in (None, value["metadata"]["resourceVersion"]):
                raise Retryable("the object was changed since", code="conflict")
            for name, text in given["metadata"].get("annotations", {}).items():
                value["metadata"]["annotations"] |= {name: text}
                if text is None:
                    del value["metadata"]["annotations"][name]
            value["spec"] |= given.get("spec", {})
        self.put(key, value)
        return b"{}"

    def _reached(self) -> None:
        if self.away:
            raise Retryable("the API server is away")


class SetClock:
    """The test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def from_wall(self, instant: datetime) -> datetime:
        return instant

    def to_wall(self, instant: datetime) -> datetime:
        return instant

    def wall_seconds(self, duration: timedelta) -> float:
        return duration.total_seconds()


def wait_until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    ends = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.005)
