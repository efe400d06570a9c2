"""Kubernetes Events on pods, Jobs and nodes: why the engine did something, in one sentence, without flooding.

An Event is for people: it is told once for an object and a reason, counted when it repeats, and dropped when there are
too many or the API server is away. Nothing here raises or waits: a thread of its own sends them.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidemill.kube.api import MERGE_PATCH, KubeApi
from tidemill.model.errors import Gone

_LOG = logging.getLogger(__name__)
CONTROLLER = "tidemill.dev/engine"
WAITING = "Waiting"  # what the reasons of Events on what waits begin with
REPEAT_S = 600.0  # the same reason for the same object is not told again sooner
_BURST, _PER_S = (
    50,
    1.0,
)  # as client-go's: 25 at once and one in 5 min for each object; ours is for all objects
_WAITING = 500  # Events; more than that, and the oldest news is too old to be told
_REMEMBERED = 5_000  # objects and reasons
_MAX_NOTE = 1_000  # the API allows 1 kB


@dataclass(frozen=True, slots=True)
class Subject:
    """The object an Event is about."""

    kind: str  # "Pod", "Node", "Job"
    name: str
    namespace: str = ""  # empty: the object has none
    uid: str = ""
    api_version: str = "v1"

    @property
    def path(self) -> str:
        """Where its Events are. Those of objects without a namespace are in `default`."""
        return f"/apis/events.k8s.io/v1/namespaces/{self.namespace or 'default'}/events"


@dataclass(slots=True)
class _Told:
    """The Event that stands for an object and a reason."""

    name: str
    note: str
    last_sent_s: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class _Event:
    subject: Subject
    reason: str
    note: str
    action: str
    warning: bool
    at: datetime
    told: _Told
    count: int
    facts: Mapping[str, str] = field(default_factory=dict)


class TokenBucket:
    """So many at once, and so many a second after that."""

    def __init__(self, burst: int, per_s: float, monotonic: Callable[[], float]) -> None:
        self._burst, self._per_s, self._monotonic = burst, per_s, monotonic
        self._tokens, self._at_s = float(burst), monotonic()

    def take(self) -> bool:
        now_s = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class EventRecorder:
    def __init__(
        self, api: KubeApi, *, instance: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.sent = self.dropped = 0
        self._api, self._instance, self._monotonic = api, instance, monotonic
        self._bucket = TokenBucket(_BURST, _PER_S, monotonic)
        self._told: OrderedDict[tuple[Subject, str], _Told] = OrderedDict()
        self._queue: queue.Queue[_Event | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Send what waits, for a little while."""
        if self._thread is not None:
            try:
                self._queue.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._thread.join(timeout_s)

    def tell(
        self, subject: Subject, reason: str, note: str, *, action: str, warning: bool = False,
        facts: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`reason` and `action` are single words for programs ("NodeDrains"), `note` is the sentence. `facts` become
        annotations of the Event: what a program would otherwise have to read out of the sentence."""
        note, now_s = note[:_MAX_NOTE], self._monotonic()
        key = subject, reason
        told = self._told.get(key)
        if told is not None and now_s - told.last_sent_s < REPEAT_S:
            told.count += 1
            return
        if not self._bucket.take():
            self.dropped += 1
            return
        if told is None or told.note != note:
            told = self._told[key] = _Told(f"{subject.name[:200]}.{secrets.token_hex(6)}", note, now_s)
        else:
            told.count += 1
            told.last_sent_s = now_s
        self._told.move_to_end(key)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        try:
            self._queue.put_nowait(
                _Event(
                    subject, reason, note, action, warning, datetime.now(UTC), told, told.count, facts or {}
                )
            )
        except queue.Full:
            self.dropped += 1

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._send(event)
                self.sent += 1
            except Exception as error:  # an Event is not worth an engine
                self.dropped += 1
                _LOG.debug("an Event on %s was not sent: %s", event.subject.name, error)

    def _send(self, event: _Event) -> None:
        if event.count > 1:
            series = {"count": event.count, "lastObservedTime": _micro_time(event.at)}
            facts = {"metadata": {"annotations": dict(event.facts)}} if event.facts else {}
            body = msgspec.json.encode({"series": series, **facts})
            try:
                path = f"{event.subject.path}/{event.told.name}"
                self._api.send("PATCH", path, body, content_type=MERGE_PATCH)
                return
            except Gone:  # Events live for an hour
                pass
        self._api.send("POST", event.subject.path, msgspec.json.encode(self._manifest(event)))

    def _manifest(self, event: _Event) -> dict[str, Any]:
        subject = event.subject
        regarding = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
        }
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": event.told.name,
                "namespace": subject.namespace or "default",
                **({"annotations": dict(event.facts)} if event.facts else {}),
            },
            "eventTime": _micro_time(event.at),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "note": event.note,
            "type": "Warning" if event.warning else "Normal",
            "regarding": {key: value for key, value in regarding.items() if value},
        }


def _micro_time(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")
