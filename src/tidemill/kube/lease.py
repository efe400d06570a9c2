"""Who leads: one holder of a Lease (coordination.k8s.io/v1) at a time.

The holder counts what is left from before its last renewal was sent; everybody else counts a whole lease from when
they saw that renewal, which is later. So nobody takes over before the holder has stopped, whatever their wall clocks
say. The clock is CLOCK_BOOTTIME: it runs on while a process is frozen and while a machine is suspended.
"""

from __future__ import annotations

import logging
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from tidemill.kube.api import KubeApi
from tidemill.kube.errors import ALREADY_EXISTS, CONFLICT, NOT_SERVED
from tidemill.model.errors import Gone, TidemillError

_LOG = logging.getLogger(__name__)
_RENEW_SHARE = 3  # renewed after this share of the lease ...
_RETRY_SHARE = 12  # ... and tried again after this share where that failed
_LOOK_EVERY_S = (
    0.5  # a candidate, or a tenth of a short lease: so much later than the lease it takes over; one small GET
)
_LOOK_SHARE = 10


def boot_seconds() -> float:
    """Seconds since boot, those of a suspended machine included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def unique_identity() -> str:
    """Of this process: a container that restarts under the name of its pod is another one."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A record of somebody, when this process first saw it, and how long it holds from then."""

    resource_version: str
    at_s: float
    lasts_s: float

    @property
    def until_s(self) -> float:
        return self.at_s + self.lasts_s


class LeaseElector:
    """Runs in a thread of its own. Its writes do not ask `may_begin`: that would ask this lease.

    `on_lead` is called in that thread at the beginning of every term, `on_lost` at its end: both return at once.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str = "tidemill",
        identity: str = "",
        lease_s: int = 15,
        on_lead: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = boot_seconds,
    ) -> None:
        self.identity = identity or unique_identity()
        self.holder = ""  # as last seen, possibly ourselves
        self.holder_changed_at = ""  # its acquireTime, for people
        self.trouble = ""  # why the last try failed, in one sentence; empty: it did not
        self.error: TidemillError | None = None  # the same as data; None also for a fault of ours
        self._api, self._namespace, self._name = api, namespace, name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease_s = lease_s
        self._on_lead, self._on_lost, self._monotonic = on_lead, on_lost, monotonic
        self._held_until_s = float("-inf")
        self._leads = False  # as last told to the callbacks
        self._seen = _Seen("", 0.0, 0.0)
        self._written: _Lease | None = None  # as we last wrote it; None: look first
        self._stopping, self._release = threading.Event(), True
        self._thread: threading.Thread | None = None

    # --- what others ask ----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.left_s() > 0

    def left_s(self) -> float:
        """How long nobody else can lead, in seconds; 0: we do not lead."""
        return max(0.0, self._held_until_s - self._monotonic())

    @property
    def other_holder(self) -> str:
        """Who else leads, as last seen; empty: nobody does."""
        return "" if self.holder == self.identity else self.holder

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self, *, release: bool = True, timeout_s: float = 10.0) -> None:
        """Lead no more. `release`: give the Lease back, so that another takes over at once."""
        self._release = release
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self.step())
        held = self.is_leader
        self._held_until_s = float("-inf")
        self._tell()
        if held and self._release:
            self._give_back()

    def step(self) -> float:
        """Look, take or renew once; how many seconds to wait before the next."""
        began_s = self._monotonic()
        self._tell()  # whoever was frozen learns first that its term is over
        try:
            self._take_or_renew()
            self.trouble, self.error = "", None
        except TidemillError as error:
            self._failed(str(error))
            self.error = error
        except Exception as error:  # a thread that dies silently would look like a quiet candidate
            self._failed(f"{type(error).__name__}: {error}")
        self._tell()
        return self._wait_s(began_s)

    def _failed(self, why: str) -> None:
        if why != self.trouble:
            _LOG.warning("lease %s/%s: %s", self._namespace, self._name, why)
        self.trouble = why

    def _tell(self) -> None:
        if (leads := self.is_leader) != self._leads:
            self._leads = leads
            ended = "no longer needed" if self._stopping.is_set() else "lost"
            _LOG.info("lease %s/%s: %s", self._namespace, self._name, "held" if leads else ended)
            (self._on_lead if leads else self._on_lost)()

    def _wait_s(self, began_s: float) -> float:
        now_s = self._monotonic()
        if self.is_leader:
            share = _RETRY_SHARE if self.trouble else _RENEW_SHARE
            due_s = (began_s if not self.trouble else now_s) + self._lease_s / share
            # Wake at the end of the lease at the latest: whoever waits for `on_lost` is told then.
            return max(0.05, (min(due_s, self._held_until_s) - now_s) * random.uniform(0.8, 1.0))
        look_s = min(_LOOK_EVERY_S, self._lease_s / _LOOK_SHARE) * random.uniform(0.8, 1.2)
        over_s = self._seen.until_s - now_s  # of two candidates the second finds a fresh record
        return min(look_s, over_s) if over_s > 0 else look_s

    def _timeout_s(self) -> float:
        return max(1.0, self._lease_s / 3)

    # --- one request --------------------------------------------------------------------------------

    def _take_or_renew(self) -> None:
        if self.is_leader and self._written is not None:
            self._write("PUT", f"{self._path}/{self._name}", self._written)
            return
        try:
            lease = self._read()
        except Gone as gone:
            if gone.code == NOT_SERVED:
                raise
            if self.other_holder and self._monotonic() < self._seen.until_s:
                return  # somebody deleted it; the holder does not know yet
            self._create()
            return
        holder = lease.spec.holder_identity or ""
        self.holder, self.holder_changed_at = holder, lease.spec.acquire_time or ""
        if self.other_holder:
            self._held_until_s = float("-inf")  # taken from us: the Lease was deleted, or changed by hand
        now_s = self._monotonic()
        if lease.metadata.resource_version != self._seen.resource_version:
            lasts_s = lease.spec.lease_duration_seconds or self._lease_s
            self._seen = _Seen(lease.metadata.resource_version, now_s, lasts_s)
        if holder in ("", self.identity) or now_s >= self._seen.until_s:
            self._write("PUT", f"{self._path}/{self._name}", lease)

    def _create(self) -> None:
        try:
            self._write("POST", self._path, _Lease(metadata=_Meta(self._name, self._namespace)))
        except Gone as gone:
            raise Gone(
                f"there is no namespace {self._namespace}: kubectl create namespace {self._namespace}, or name another "
                f"with --lease-namespace ({gone})",
                code=gone.code,
            ) from None

    def _read(self) -> _Lease:
        answer = self._api.get(f"{self._path}/{self._name}", timeout_s=self._timeout_s())
        return msgspec.json.decode(answer, type=_Lease)

    def _write(self, method: str, path: str, lease: _Lease) -> None:
        """Take it or renew it. Somebody was faster: a conflict, and the next look says who."""
        before, now = lease.spec, datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        ours = before.holder_identity == self.identity
        lease.spec = _Spec(
            holder_identity=self.identity,
            lease_duration_seconds=self._lease_s,
            acquire_time=before.acquire_time if ours else now,
            renew_time=now,
            lease_transitions=(before.lease_transitions or 0) + (0 if ours else 1),
        )
        self._written = None  # if this fails, look before the next try
        sent_s = self._monotonic()
        try:
            answer = self._send(method, path, lease)
        except TidemillError as error:
            if error.code in (CONFLICT, ALREADY_EXISTS):
                return
            raise
        self._written = written = msgspec.json.decode(answer, type=_Lease)
        self._seen = _Seen(written.metadata.resource_version, self._monotonic(), self._lease_s)
        self.holder, self.holder_changed_at = self.identity, lease.spec.acquire_time or ""
        self._held_until_s = sent_s + self._lease_s

    def _send(self, method: str, path: str, lease: _Lease) -> bytes:
        body, timeout_s = msgspec.json.encode(lease), self._timeout_s()
        return self._api.send(method, path, body, timeout_s=timeout_s, unguarded=True)

    def _give_back(self) -> None:
        """Best effort: whoever waits takes over when the lease has run out, at the latest."""
        try:
            lease = self._read()
            if lease.spec.holder_identity == self.identity:
                lease.spec.holder_identity, lease.spec.lease_duration_seconds = "", 1
                self._send("PUT", f"{self._path}/{self._name}", lease)
                self.holder = ""
        except TidemillError as error:
            _LOG.warning("lease %s/%s was not given back: %s", self._namespace, self._name, error)
