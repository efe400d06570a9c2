"""The watchdog raises one alert when the engine is silent, and resolves it when the engine is back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.decide.builders import NOW
from tests.engine.ports import Hands
from tests.notify.receiver import Receiver
from tests.notify.sample_alerts import hook, platform
from tidemill.model.errors import Retryable
from tidemill.notify.targets import senders
from tidemill.notify.watchdog import Watchdog
from tidemill.store.memory import MemoryAlerts


class Shelf(MemoryAlerts):
    """A book that can be away."""

    away = False

    def heartbeat(self) -> datetime | None:
        if self.away:
            raise Retryable("the ledger cannot be reached: connection refused")
        return super().heartbeat()


def watchdog(receiver: Receiver, book: MemoryAlerts, clock: Hands) -> Watchdog:
    of = platform(hook(receiver.url)).platform
    return Watchdog(of, senders(of), book, MemoryAlerts(), clock)


def told(receiver: Receiver) -> list[tuple[str, str]]:
    return [(body["event"], body["key"]) for body in receiver.bodies()]


@pytest.mark.requirement("CB-16")
@pytest.mark.requirement("NT-1")
def test_a_silent_engine_raises_one_alert_and_resolves_it_once(receiver: Receiver, clock: Hands):
    book = Shelf()
    book.beat(NOW)
    dog = watchdog(receiver, book, clock)
    clock.pass_time(minutes=14)
    assert not dog.look().is_silent
    assert receiver.got == []
    for _ in range(3):
        clock.pass_time(minutes=1)
        heard = dog.look()
        assert heard.is_silent
    assert (
        heard.sentence() == "the last heartbeat of the engine was at 2026-11-16T12:00:00Z, 17m ago: too long"
    )
    key = "engine-silent/2026-11-16T12:00:00Z"
    assert told(receiver) == [("raised", key)]
    # Another watchdog, started by cron, finds the same silence.
    watchdog(receiver, book, clock).look()
    assert told(receiver) == [("raised", key)]
    book.beat(clock.now())
    assert dog.look().sentence() == "the last heartbeat of the engine was 0s ago"
    assert told(receiver) == [("raised", key), ("resolved", key)]


@pytest.mark.requirement("CB-16")
def test_a_second_silence_raises_a_second_alert(receiver: Receiver, clock: Hands):
    book = Shelf()
    dog = watchdog(receiver, book, clock)
    for _ in range(2):
        book.beat(clock.now())
        clock.pass_time(minutes=15)
        dog.look()
    assert [event for event, _ in told(receiver)] == ["raised", "resolved", "raised"]


def test_without_any_heartbeat_the_watchdog_waits_silent_after(receiver: Receiver, clock: Hands):
    dog = watchdog(receiver, Shelf(), clock)
    assert dog.look().sentence() == "there is no heartbeat of the engine in this ledger yet"
    assert receiver.got == []
    clock.pass_time(minutes=15)
    assert dog.look().is_silent
    assert len(receiver.got) == 1


@pytest.mark.requirement("CB-16")
def test_an_unreachable_ledger_raises_an_alert_in_the_spare_book(receiver: Receiver, clock: Hands):
    book = Shelf()
    book.beat(NOW)
    dog = watchdog(receiver, book, clock)
    book.away = True
    heard = dog.look()
    assert not heard.is_silent
    assert heard.sentence() == "the ledger cannot be read: the ledger cannot be reached: connection refused"
    clock.pass_time(minutes=15)
    assert dog.look().is_silent
    dog.look()
    key = "engine-silent/the-ledger-is-away"
    assert told(receiver) == [("raised", key)]
    book.away = False
    book.beat(clock.now())
    dog.look()
    assert told(receiver) == [("raised", key), ("resolved", key)]


def test_the_watchdog_sends_what_a_dead_engine_left_unsent(receiver: Receiver, clock: Hands):
    from tests.notify.sample_alerts import GONE

    book = Shelf()
    book.beat(NOW)
    book.raise_alert(GONE, NOW, ["ops"])
    watchdog(receiver, book, clock).look()
    assert told(receiver) == [("raised", GONE.key)]


def test_silent_after_comes_from_the_platform(receiver: Receiver, clock: Hands):
    book: Any = Shelf()
    book.beat(NOW)
    of = platform(hook(receiver.url), alerts={"silentAfter": "30m"}).platform
    dog = Watchdog(of, senders(of), book, MemoryAlerts(), clock)
    clock.pass_time(minutes=29)
    assert not dog.look().is_silent
    clock.pass_time(minutes=1)
    assert dog.look().is_silent
