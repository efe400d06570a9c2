"""Carries words from the book to their targets: one thread a target, beside the ticks and never in their way.

A target that is slow or away holds up nobody else. Each try is claimed in the book first and marked after: a crash in
between means that it is tried again, once the claim has run out. So a receiver may hear a word twice, never not at all,
and knows a repetition by its id.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from tidemill.model.alerts import Delivery
from tidemill.model.errors import PortError, Refused
from tidemill.notify.bodies import Message
from tidemill.notify.delivery_result import Answer, next_try
from tidemill.notify.targets import Send
from tidemill.ports import AlertBook, Clock
from tidemill.spec.platform import Platform

log = logging.getLogger("tidemill.notify")

# Longer than any try may take (to resolve, connect and read, ten seconds each), so that two never hold one word.
CLAIMED_FOR = timedelta(minutes=2)
# Something may be due that nobody told us of: a claim that ran out, a word written by another process.
LOOK_EVERY_S = 15.0
AFTER_FAILING_S = 5.0


class Postman:
    """One target: everything that is due to it, one after the other. Has no thread of its own."""

    def __init__(self, name: str, send: Send, platform: Platform, book: AlertBook, clock: Clock) -> None:
        self.name = name
        self._send, self._platform, self._book, self._clock = send, platform, book, clock

    def deliver_due(self) -> int:
        """How many words were tried."""
        tried = 0
        while self.deliver_one() is not None:
            tried += 1
        return tried

    def deliver_one(self) -> Delivery | None:
        """None: nothing is due."""
        now = self._clock.now()
        claimed = self._book.claim(self.name, now, now + CLAIMED_FOR)
        if claimed is None:
            return None
        raised, delivery = claimed
        try:
            answer = self._send(Message.of(raised, delivery, self._platform), now)
        except Exception as error:  # a bug of ours must not stop the other words
            log.exception("cannot send %s to %s", delivery.id, self.name)
            answer = Answer("retry", f"{type(error).__name__} on our side; see the log")
        after = self._came_of(delivery, answer)
        self._book.mark(after)
        return after

    def _came_of(self, delivery: Delivery, answer: Answer) -> Delivery:
        now, what = self._clock.now(), f"{delivery.id} to {self.name}"
        tried = replace(delivery, answer=answer.words, due_at=None)
        if answer.outcome == "sent":
            log.info("sent %s: %s", what, answer.words)
            return replace(tried, sent_at=now)
        if answer.outcome == "misconfigured":
            log.error("cannot send %s, and will not try again: %s", what, answer.words)
            return replace(tried, failure="misconfigured")
        again = next_try(delivery.id, self.name, delivery.attempts, answer, now)
        last = delivery.made_at + self._platform.spec.alerts.give_up_after
        if again > last:
            log.error("gave up sending %s after %d tries: %s", what, delivery.attempts, answer.words)
            return replace(tried, failure="gave-up")
        log.warning("cannot send %s, next try at %s: %s", what, f"{again:%H:%M:%S}", answer.words)
        return replace(tried, due_at=again)


def abandon_unknown(book: AlertBook, known: Mapping[str, Send]) -> int:
    """Words to targets that the documents no longer name: nobody will ever send them."""
    lost = [one for one in book.unsent() if one.target not in known]
    for one in lost:
        log.error("cannot send %s: the documents name no target %s", one.id, one.target)
        words = "the documents name no such target any more"
        book.mark(replace(one, due_at=None, failure="misconfigured", answer=words))
    return len(lost)


class Courier:
    """The threads. `with Courier(…) as courier:` starts them and, at the end, sends what is due within a bound."""

    def __init__(
        self, platform: Platform, targets: Mapping[str, Send], book: AlertBook, clock: Clock
    ) -> None:
        self._targets, self._book, self._clock = targets, book, clock
        self._postmen = [Postman(name, send, platform, book, clock) for name, send in targets.items()]
        self._bells = {one.name: threading.Event() for one in self._postmen}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Courier:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        try:
            abandon_unknown(self._book, self._targets)
        except (PortError, Refused) as error:
            log.warning("cannot look through what is unsent: %s", error)
        for one in self._postmen:
            # Daemons: a receiver that hangs must not keep the process from ending.
            thread = threading.Thread(target=self._walk, args=(one,), name=f"alerts-{one.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def ring(self) -> None:
        """There is something new to send."""
        for bell in self._bells.values():
            bell.set()

    def stop(self, within: timedelta = timedelta(seconds=15)) -> int:
        """Send what is due, for no longer than this. What is left stays in the book; returns how many words."""
        self._stopping.set()
        self.ring()
        give_up_at = time.monotonic() + within.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
        self._threads.clear()
        try:
            left = len(self._book.unsent())
        except PortError:
            return 0
        if left:
            log.warning("%d words about alerts are left unsent; the next start goes on with them", left)
        return left

    def _walk(self, postman: Postman) -> None:
        bell = self._bells[postman.name]
        while True:
            bell.clear()  # before looking whether to stop: a ring in between must not be lost
            stopping = self._stopping.is_set()
            wait_s = LOOK_EVERY_S
            try:
                postman.deliver_due()
                wait_s = self._until_next(postman)
            except (PortError, Refused) as error:
                log.warning("the book of alerts cannot be used, %s waits: %s", postman.name, error)
                wait_s = AFTER_FAILING_S
            except Exception:  # a bug of ours: say so, and go on with what else there is to send
                log.exception("delivery to %s failed, and is tried again", postman.name)
                wait_s = AFTER_FAILING_S
            if stopping:
                return
            bell.wait(wait_s)

    def _until_next(self, postman: Postman) -> float:
        due = [one.due_at for one in self._book.unsent() if one.target == postman.name and one.due_at]
        if not due:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, max(0.05, (min(due) - self._clock.now()).total_seconds()))
