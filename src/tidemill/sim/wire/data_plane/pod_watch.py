"""One watch for the pods that have a node: a list in pages, then changes, a new list where the place is lost.

After a new list whatever is not in it was deleted meanwhile, and is told as that.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import urlencode

from tidemill.sim.wire.data_plane.api_client import ApiClient, ApiError, Unreachable

log = logging.getLogger(__name__)
Change = tuple[str, Mapping[str, Any]]  # ADDED, MODIFIED or DELETED, and the pod
_PATH = "/api/v1/pods"
_BOUND = "spec.nodeName!="
_PAGE = 500
_SERVER_ENDS_S = 240  # the API server ends a watch that is older
_READ_TIMEOUT_S = 90.0  # bookmarks come every minute
_PAUSE_S = (0.2, 1.0)
_CHUNK = 1 << 18


class PodWatch:
    def __init__(self, client: ApiClient, tell: Callable[[list[Change]], None]) -> None:
        """`tell` gets changes in the order they happened, many at once when many came."""
        self._client, self._tell = client, tell
        self._known: dict[str, Mapping[str, Any]] = {}  # by uid: name and node, enough to tell of a deletion
        self._stopping = threading.Event()
        self._jitter = Random(1)
        self.lists = 0
        self._thread = threading.Thread(target=self._run, name="tidemill-pod-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """It ends as soon as its stream does."""
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._watch(version)
            except ApiError as error:
                if error.status == 410:
                    version = ""
                    continue
                log.warning("the pod watch: %s", error)
            except Unreachable as error:
                log.info("the pod watch: %s", error)
            except Exception:
                log.exception("the pod watch failed; it lists again")
                version = ""
            self._stopping.wait(self._jitter.uniform(*_PAUSE_S))

    def _list(self) -> str:
        pods: list[Mapping[str, Any]] = []
        params = {"fieldSelector": _BOUND, "limit": str(_PAGE)}
        while True:
            page = json.loads(self._client.send("GET", f"{_PATH}?{urlencode(params)}"))
            pods += page["items"]
            params["continue"] = page["metadata"].get("continue") or ""
            if not params["continue"]:
                break
        self.lists += 1
        there = {pod["metadata"]["uid"] for pod in pods}
        gone = [("DELETED", pod) for uid, pod in self._known.items() if uid not in there]
        self._pass_on([*gone, *(("MODIFIED", pod) for pod in pods)])
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """The version to go on from; empty: the place is lost."""
        params = {
            "watch": "1", "fieldSelector": _BOUND, "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_SERVER_ENDS_S),
        }  # fmt: skip
        with self._client.stream(f"{_PATH}?{urlencode(params)}", _READ_TIMEOUT_S) as response:
            try:
                for lines in _lines(response):
                    changes: list[Change] = []
                    for event in map(json.loads, lines):
                        if event["type"] == "ERROR":
                            self._pass_on(changes)
                            raise ApiError(
                                event["object"].get("code", 500), str(event["object"].get("message"))
                            )
                        if event["type"] != "BOOKMARK":
                            changes.append((event["type"], event["object"]))
                        version = event["object"]["metadata"]["resourceVersion"]
                    self._pass_on(changes)
                    if self._stopping.is_set():
                        break
            except OSError as error:  # cut, or silent for too long: it goes on from where it was
                log.info("the pod watch: %s", error)
        return version

    def _pass_on(self, changes: list[Change]) -> None:
        for kind, pod in changes:
            meta = pod["metadata"]
            if kind == "DELETED":
                self._known.pop(meta["uid"], None)
            elif meta["uid"] not in self._known:
                brief = {key: meta[key] for key in ("uid", "namespace", "name")}
                self._known[meta["uid"]] = {
                    "metadata": brief, "spec": {"nodeName": pod["spec"].get("nodeName", "")},
                }  # fmt: skip
        if changes:
            self._tell(changes)


def _lines(response: Any) -> Iterator[list[bytes]]:
    """Whole lines, as many as have come."""
    rest = b""
    while chunk := response.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
