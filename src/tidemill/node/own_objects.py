"""The few objects an agent looks at: listed, then watched, again and again, in a thread of their own.

What was seen last stays when the API server is away. A lost place means a new list, which is cheap: one node, or the
pods of one node.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Protocol

Params = Mapping[str, str | int]
Object = Mapping[str, Any]

# The server ends a watch after this time and a new one goes on from there, so that a connection that died without a
# word is noticed.
WATCH_S = 60
QUIET_S = 75.0
LIST_TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
_EXPIRED = 410


class NodeApi(Protocol):
    """What an agent needs of `kube.api.KubeApi`."""

    def get(self, path: str, params: Params | None = None, *, timeout_s: float = ...) -> bytes: ...

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = ...,
        params: Params | None = None,
        timeout_s: float = ...,
    ) -> bytes: ...

    def stream(
        self, path: str, params: Params | None = None, read_timeout_s: float = ...
    ) -> Iterator[bytes]: ...


class OwnObjects:
    def __init__(
        self, api: NodeApi, path: str, field: str, changed: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._api, self._path, self._field = api, path, field
        self._changed, self._say = changed, say
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}  # by uid
        self._version = ""
        self._random = Random()  # of the pauses: nodes that lost the server must not come back in step
        self.listed = False
        self.trouble = ""  # why it does not follow now

    def all(self) -> list[Object]:
        with self._lock:
            return list(self._objects.values())

    def follow(self, stop: threading.Event) -> None:
        pause_s = FIRST_PAUSE_S
        while not stop.is_set():
            try:
                if not self._version:
                    self._list()
                self._recovered()
                pause_s = FIRST_PAUSE_S
                self._watch(stop)
            except Exception as error:  # not only ours: what came may be anything, and nobody else would look
                self._version = ""
                if not self.trouble:
                    self._say(f"{error}; going on with what was known last")
                self.trouble = str(error) or type(error).__name__
                stop.wait(pause_s * (0.5 + self._random.random()))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _recovered(self) -> None:
        if self.trouble:
            self._say(f"{self._path} is followed again")
            self.trouble = ""

    def _list(self) -> None:
        answer = json.loads(
            self._api.get(self._path, {"fieldSelector": self._field}, timeout_s=LIST_TIMEOUT_S)
        )
        found = {str(one["metadata"]["uid"]): one for one in answer.get("items") or ()}
        with self._lock:
            self._objects = found
        self._version = str(answer["metadata"]["resourceVersion"])
        self.listed = True
        self._changed()

    def _watch(self, stop: threading.Event) -> None:
        params: Params = {
            "fieldSelector": self._field, "watch": "true", "allowWatchBookmarks": "true",
            "resourceVersion": self._version, "timeoutSeconds": WATCH_S,
        }  # fmt: skip
        for line in self._api.stream(self._path, params, read_timeout_s=QUIET_S):
            event = json.loads(line)
            kind, seen = event["type"], event["object"]
            if kind == "ERROR":
                if seen.get("code") != _EXPIRED:
                    raise ValueError(f"the watch of {self._path} ended: {seen.get('message', '')}")
                self._version = ""
                return
            self._version = str(seen["metadata"]["resourceVersion"])
            if kind != "BOOKMARK":
                self._take(kind, seen)
            if stop.is_set():
                return

    def _take(self, kind: str, seen: Object) -> None:
        uid = str(seen["metadata"]["uid"])
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = seen
        self._changed()
