"""Sends notifications from the alert book to their targets, with one thread for each target, outside the engine's
ticks.

A slow target delays no other. Each attempt is claimed in the book before and marked after it. After a crash in
between it is tried again when the claim has expired. So a receiver may get a notification twice, but never not at
all; the id shows a repetition.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b
from types import TracebackType

from tidemill.engine.loop import Tick
from tidemill.model.alerts import Delivery
from tidemill.model.errors import PortError, Refused
from tidemill.notify.alert_tracker import AlertTracker
from tidemill.notify.bodies import Message
from tidemill.notify.targets import Send, senders
from tidemill.notify.transports import SendResult
from tidemill.ports import AlertBook, Clock
from tidemill.spec import Spec
from tidemill.spec.platform import Platform

log = logging.getLogger("tidemill.notify")

# Longer than any attempt (resolve, connect and read take ten seconds each), so that two processes never send the same.
CLAIMED_FOR = timedelta(minutes=2)
# Something may become due without a wake-up: an expired claim, or a notification from another process.
POLL_INTERVAL_S = 15.0
PAUSE_AFTER_ERROR_S = 5.0
FIRST_RETRY = timedelta(seconds=5)
LONGEST_RETRY = timedelta(minutes=15)


def next_try(id: str, target: str, attempts: int, result: SendResult, now: datetime) -> datetime:
    """When to try again. Never sooner than the receiver asked for.

    Back-off is exponential. The jitter is derived from the id, so that the alerts of one outage are not all sent at
    the same second and tests can compute it.
    """
    backoff = min(FIRST_RETRY * (1 << min(max(attempts - 1, 0), 20)), LONGEST_RETRY)
    digest = blake2b(f"{id}|{target}|{attempts}".encode(), digest_size=8).digest()
    jitter = int.from_bytes(digest) / 2**64
    return now + max(backoff * (0.5 + jitter / 2), result.retry_after or timedelta(0))


class TargetDelivery:
    """Sends what is due to one target, one after the other. Has no thread of its own."""

    def __init__(self, name: str, send: Send, platform: Platform, book: AlertBook, clock: Clock) -> None:
        self.name = name
        self._send, self._platform, self._book, self._clock = send, platform, book, clock

    def deliver_due(self) -> int:
        """Send everything that is due; returns the number of attempts."""
        tried = 0
        while self.deliver_one() is not None:
            tried += 1
        return tried

    def deliver_one(self) -> Delivery | None:
        """Send one notification; None: nothing is due."""
        now = self._clock.now()
        claimed = self._book.claim(self.name, now, now + CLAIMED_FOR)
        if claimed is None:
            return None
        raised, delivery = claimed
        try:
            result = self._send(Message.of(raised, delivery, self._platform), now)
        except Exception as error:  # a bug must not stop the other notifications
            log.exception("cannot send %s to %s", delivery.id, self.name)
            result = SendResult("retry", f"{type(error).__name__} in Tidemill; see the log")
        after = self._after_attempt(delivery, result)
        self._book.mark(after)
        return after

    def _after_attempt(self, delivery: Delivery, result: SendResult) -> Delivery:
        now, what = self._clock.now(), f"{delivery.id} to {self.name}"
        attempted = replace(delivery, answer=result.detail, due_at=None)
        if result.outcome == "sent":
            log.info("sent %s: %s", what, result.detail)
            return replace(attempted, sent_at=now)
        if result.outcome == "misconfigured":
            log.error("cannot send %s, and will not try again: %s", what, result.detail)
            return replace(attempted, failure="misconfigured")
        again = next_try(delivery.id, self.name, delivery.attempts, result, now)
        last = delivery.made_at + self._platform.spec.alerts.give_up_after
        if again > last:
            log.error("gave up sending %s after %d tries: %s", what, delivery.attempts, result.detail)
            return replace(attempted, failure="gave-up")
        log.warning("cannot send %s, next try at %s: %s", what, f"{again:%H:%M:%S}", result.detail)
        return replace(attempted, due_at=again)


def abandon_unknown(book: AlertBook, known: Mapping[str, Send]) -> int:
    """Give up notifications for targets that the documents no longer have; returns how many."""
    lost = [delivery for delivery in book.unsent() if delivery.target not in known]
    for delivery in lost:
        log.error("cannot send %s: the documents have no target %s", delivery.id, delivery.target)
        text = "the documents no longer have this target"
        book.mark(replace(delivery, due_at=None, failure="misconfigured", answer=text))
    return len(lost)


class DeliveryThreads:
    """The threads. `with Courier(…) as courier:` starts them and, at the end, sends what is due within a bound."""

    def __init__(
        self, platform: Platform, targets: Mapping[str, Send], book: AlertBook, clock: Clock
    ) -> None:
        self._targets, self._book, self._clock = targets, book, clock
        self._deliveries = [
            TargetDelivery(name, send, platform, book, clock) for name, send in targets.items()
        ]
        self._wake_events = {target.name: threading.Event() for target in self._deliveries}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> DeliveryThreads:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        try:
            abandon_unknown(self._book, self._targets)
        except (PortError, Refused) as error:
            log.warning("cannot read the unsent notifications: %s", error)
        for target in self._deliveries:
            # Daemon threads: a receiver that hangs must not keep the process alive.
            thread = threading.Thread(
                target=self._run, args=(target,), name=f"alerts-{target.name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Tell the threads that there is something new to send."""
        for wake_event in self._wake_events.values():
            wake_event.set()

    def stop(self, within: timedelta = timedelta(seconds=15)) -> int:
        """Send what is due, for at most this long. The rest stays in the book; returns how many."""
        self._stopping.set()
        self.wake()
        give_up_at = time.monotonic() + within.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
        self._threads.clear()
        try:
            left = len(self._book.unsent())
        except PortError:
            return 0
        if left:
            log.warning("%d alert notifications are not sent yet; the next start sends them", left)
        return left

    def _run(self, target: TargetDelivery) -> None:
        wake_event = self._wake_events[target.name]
        while True:
            wake_event.clear()  # before the check of `stopping`: a wake-up in between must not be lost
            stopping = self._stopping.is_set()
            wait_s = POLL_INTERVAL_S
            try:
                target.deliver_due()
                wait_s = self._until_next(target)
            except (PortError, Refused) as error:
                log.warning("the alert book cannot be used, %s waits: %s", target.name, error)
                wait_s = PAUSE_AFTER_ERROR_S
            except Exception:  # a bug: log it and continue with the next notification
                log.exception("delivery to %s failed, will try again", target.name)
                wait_s = PAUSE_AFTER_ERROR_S
            if stopping:
                return
            wake_event.wait(wait_s)

    def _until_next(self, target: TargetDelivery) -> float:
        due = [
            delivery.due_at
            for delivery in self._book.unsent()
            if delivery.target == target.name and delivery.due_at
        ]
        if not due:
            return POLL_INTERVAL_S
        return min(POLL_INTERVAL_S, max(0.05, (min(due) - self._clock.now()).total_seconds()))


# A terminating pod has thirty seconds by default. What is not sent by then stays in the ledger.
STOP_WITHIN = timedelta(seconds=15)


class Alerting:
    """Tracker and delivery together for a run loop: `with Alerting(spec, ledger.alerts, clock) as alerting:`, and
    `after` each tick. `after` costs a tick one look at the world, and a write where something changed."""

    def __init__(self, spec: Spec, book: AlertBook, clock: Clock) -> None:
        self._tracker = AlertTracker(spec, book)
        self._threads = DeliveryThreads(spec.platform, senders(spec.platform), book, clock)

    def __enter__(self) -> Alerting:
        self._threads.start()
        return self

    def after(self, tick: Tick) -> None:
        """Never raises: the engine's next tick matters more than an alert."""
        try:
            news = self._tracker.after(tick)
        except Exception:
            log.exception("cannot compute the alerts")
            return
        if news:
            self._threads.wake()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, within: timedelta = STOP_WITHIN) -> None:
        """Send what is due, for at most this long."""
        self._threads.stop(within)
