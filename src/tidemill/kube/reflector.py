"""One kind of object, kept as an API server has it: a paged list, a watch, a list again when the place is lost.

A list after the first is compared with what is held, so a delete that no watch told of is seen. Objects are known by
uid: one that was deleted and made again under its name is another one. What the reader does with objects is the sink's
business; it is told all changes of a list at once.
"""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import msgspec

from tidemill.kube.api import KubeApi, LineStream
from tidemill.kube.codec import AnyObject, BadAnswer, Codec, Unreadable, read_event
from tidemill.kube.errors import EXPIRED, NOT_SERVED, Asked, error_of
from tidemill.model.errors import Gone, NotAllowed, Retryable, Throttled, TidemillError

log = logging.getLogger("tidemill.kube.reflector")

PAGE = 500
# How long the server keeps a watch. It is a lottery so that not all kinds come back at once.
WATCH_S = (180, 300)
# Above the server's own, so that silence is a dead connection and not a quiet cluster.
WATCH_SPARE_S = 30
BACKOFF_S = (0.5, 30.0)
# A kind whose CRD is not installed is looked for again; so is one that we may not read, or no longer.
ABSENT_S = 180.0
_LIST_TIMEOUT_S = 60.0
# A watch that fails so often in a row, with an answer, is begun anew by a list: after etcd was restored from a backup
# our place lies in the future, and an event that nobody can read comes again and again.
_LIST_AFTER = 4
_NO_ANSWER = ("unreachable", "connection", "time-out", "too-many-requests")
_MAX_PAGES = 10_000


@dataclass(frozen=True)
class Kind(Generic[AnyObject]):
    name: str  # "Pod"
    path: str  # "/api/v1/pods"
    codec: Codec[AnyObject]
    optional: bool = False  # its CRD may not be installed


class Sink(Protocol):
    """Called from the reflector's thread. What it raises is logged, and the kind is listed and told again."""

    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        """`changed`: objects, or Unreadable; `removed`: uids; `listed`: all of the kind has been seen."""
        ...


class _Expired(Exception):
    """The place is lost: list again."""


class Reflector(Generic[AnyObject]):
    def __init__(
        self,
        api: KubeApi,
        kind: Kind[AnyObject],
        sink: Sink,
        *,
        page: int = PAGE,
        watch_s: tuple[int, int] = WATCH_S,
        spare_s: float = WATCH_SPARE_S,
        backoff_s: tuple[float, float] = BACKOFF_S,
        absent_s: float = ABSENT_S,
        begin_list: Callable[[str], Collection[str]] = lambda kind: (),
    ) -> None:
        """`begin_list` is called before each list: uids that the sink is told of whether they changed or not."""
        self._api, self.kind, self._sink = api, kind, sink
        self._page, self._watch_s, self._spare_s = page, watch_s, spare_s
        self._backoff_s, self._absent_s = backoff_s, absent_s
        self._begin_list = begin_list
        self._stop = threading.Event()
        self._stream: LineStream | None = None
        self._thread: threading.Thread | None = None
        self._held: dict[str, str] = {}  # uid -> resourceVersion
        self._version = ""
        self._failures = 0
        self._heard_at = time.monotonic()
        self.synced = False  # listed once, or known not to be served
        self.served = True
        self.error: TidemillError | None = None  # why it cannot be read now
        self.lists = 0  # how often it was listed

    # --- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._heard_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.kind.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; `join` waits."""
        self._stop.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def join(self, timeout_s: float) -> bool:
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    @property
    def lag_s(self) -> float:
        """Since the API server last said anything about this kind; 0 for a kind that is not served."""
        return time.monotonic() - self._heard_at if self.served else 0.0

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception as error:
                # A fault of ours must not leave the engine with an old view and no word about it.
                log.exception("reading %s failed", self.kind.name)
                self._version = ""
                self._failed(Retryable(f"reading {self.kind.name} failed: {error}", code="internal"))

    def _step(self) -> None:
        try:
            if not self._version:
                self._list()
            began = time.monotonic()
            self._watch()
            self._failures = 0
            if time.monotonic() - began < self._backoff_s[0]:  # ended at once: do not ask in a loop
                self._stop.wait(self._backoff_s[0])
        except _Expired:
            self._version = ""
        except TidemillError as error:
            self._failed(error)

    def _failed(self, error: TidemillError) -> None:
        if self._stop.is_set():
            return
        absent = isinstance(error, Gone) and error.code == NOT_SERVED
        if not absent and self.error is None:
            log.warning("cannot read %s: %s", self.kind.name, error)
        # Who may not read a kind is not told whether it is installed. What was read does not go at the first such word:
        # an API server that starts forbids everything until it has read its roles.
        forbidden = isinstance(error, NotAllowed) and (not self._held or self._failures >= _LIST_AFTER)
        if self.kind.optional and (absent or forbidden):
            self._absent(None if absent else error)
            return
        self._failures += 1
        self.error = error
        if self._failures % _LIST_AFTER == 0 and not error.code.startswith(_NO_ANSWER):
            self._version = ""
        self._stop.wait(self._backoff(error))

    def _absent(self, error: TidemillError | None) -> None:
        """No such kind here; or no longer: its objects went with the CRD."""
        if self._held or not self.synced:
            self._sink.apply(self.kind.name, (), tuple(self._held), listed=True)
            self._held = {}
        self.synced, self.served, self.error, self._version = True, False, error, ""
        self._stop.wait(self._absent_s * random.uniform(0.8, 1.2))

    def _backoff(self, error: TidemillError) -> float:
        first, most = self._backoff_s
        wait_s = min(most, first * 2.0 ** min(self._failures - 1, 16)) * random.uniform(0.5, 1.0)
        asked_s = error.retry_after_s if isinstance(error, Throttled) else 0.0
        return max(wait_s, min(asked_s, 2 * most))

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self.served = True
        if self.error is not None:
            log.info("%s can be read again", self.kind.name)
            self.error = None

    # --- list ---------------------------------------------------------------------------------------

    def _list(self) -> None:
        with _quiet_collector():
            unsure = self._begin_list(self.kind.name)
            objects, version = self._all_pages()
            self._note_list(objects, unsure)
        self._version = version
        self.lists += 1
        self.synced = True

    def _all_pages(self) -> tuple[list[AnyObject | Unreadable], str]:
        """Raises _Expired if a continue token expired before the last page: the list begins anew."""
        objects: list[AnyObject | Unreadable] = []
        token = ""
        for _ in range(_MAX_PAGES):
            params: dict[str, str | int] = {"limit": self._page}
            if token:
                params["continue"] = token
            try:
                body = self._api.get(self.kind.path, params, timeout_s=_LIST_TIMEOUT_S)
                items, meta = self.kind.codec.page(body)
            except Retryable as error:
                if token and error.code == EXPIRED:
                    raise _Expired from None
                raise
            except BadAnswer as error:
                raise Retryable(f"{self._api.server} answered {error}", code="answer") from None
            self._heard()
            objects.extend(items)
            token = meta.continue_
            if not token:
                if not meta.resource_version:
                    raise Retryable(f"{self._api.server} sent a list without resourceVersion", code="answer")
                return objects, meta.resource_version
            if self._stop.is_set():
                raise Retryable("stopping", code="stopped")
        raise Retryable(
            f"{self._api.server} sent more than {_MAX_PAGES} pages of {self.kind.name}", code="size"
        )

    def _note_list(self, objects: list[AnyObject | Unreadable], unsure: Collection[str]) -> None:
        now = {one.metadata.uid: one.metadata.resource_version for one in objects}
        changed = [
            one
            for one in objects
            if self._held.get(one.metadata.uid) != one.metadata.resource_version or one.metadata.uid in unsure
        ]
        removed = tuple(uid for uid in self._held if uid not in now)
        self._sink.apply(self.kind.name, changed, removed, listed=True)
        self._held = now

    # --- watch --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        wait_s = random.randint(*self._watch_s)
        params: dict[str, str | int] = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": wait_s,
        }
        self._stream = stream = self._api.stream(
            self.kind.path, params, wait_s + self._spare_s, opened=self._heard
        )
        try:
            if self._stop.is_set():
                return
            for line in stream:
                self._heard()
                self._note_event(line)
                self._failures = 0
                if self._stop.is_set():
                    return
        except Retryable as error:
            if error.code == EXPIRED:
                raise _Expired from None
            raise
        except BadAnswer as error:
            raise Retryable(f"{self._api.server} sent {error}", code="answer") from None
        finally:
            self._stream = None
            stream.close()

    def _note_event(self, line: bytes) -> None:
        event = read_event(line)
        if event.type == "ERROR":
            raise self._error_event(bytes(event.object))
        if event.type == "BOOKMARK":
            self._version = _version_of(event.object) or self._version
            return
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            log.warning("an unknown watch event of %s: %s", self.kind.name, event.type[:40])
            return
        one = self.kind.codec.one(event.object)
        uid, version = one.metadata.uid, one.metadata.resource_version
        if not uid or not version:
            raise BadAnswer("an event whose object has no uid or resourceVersion")
        if event.type == "DELETED":
            self._sink.apply(self.kind.name, (), (uid,), listed=False)
            self._held.pop(uid, None)
        elif self._held.get(uid) != version:
            self._sink.apply(self.kind.name, (one,), (), listed=False)
            self._held[uid] = version
        self._version = version

    def _error_event(self, body: bytes) -> Exception:
        code: Any = msgspec.json.decode(body, type=dict).get("code") if body else 0
        asked = Asked("watch", self.kind.name, self._api.server, self._api.identity)
        error = error_of(code if isinstance(code, int) and code >= 400 else 500, body, asked)
        return _Expired() if error.code == EXPIRED else error


def _version_of(raw: Any) -> str:
    try:
        version = msgspec.json.decode(raw)["metadata"]["resourceVersion"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    return version if isinstance(version, str) else ""


_collector = threading.Lock()
_lists_under_way = 0


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """The cyclic collector is most of the cost of decoding a long list, and there are no cycles in it."""
    global _lists_under_way  # noqa: PLW0603 - one collector for all threads
    with _collector:
        _lists_under_way += 1
        gc.disable()
    try:
        yield
    finally:
        with _collector:
            _lists_under_way -= 1
            if not _lists_under_way:
                gc.enable()
