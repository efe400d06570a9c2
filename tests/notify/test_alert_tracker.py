"""From ticks to notifications: a real engine, a ledger that survives restarts, and a receiver that gets each
alert once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.decide.builders import NOW, block, world
from tests.decide.purchases import buying, intent
from tests.engine.ports import Hands, Outside
from tests.notify.receiver import Receiver
from tests.notify.sample_alerts import hook, postman
from tests.store.ledgers import Opener
from tidemill.engine.clock import WallClock
from tidemill.engine.loop import Tick
from tidemill.model.errors import Retryable
from tidemill.model.plan import Plan
from tidemill.model.purchases import PurchaseState
from tidemill.model.world import World
from tidemill.notify.alert_tracker import HEARTBEAT_EVERY, AlertTracker
from tidemill.notify.delivery import Alerting
from tidemill.spec import Spec
from tidemill.store.memory import FLICKERS, MemoryAlerts
from tidemill.store.sql import SqlLedger


def tick(seen: World) -> Tick:
    return Tick(seen, Plan(), (), seen.now)


def keys(book: MemoryAlerts, **which: bool) -> list[str]:
    return [alert.alert.key for alert in book.alerts(**which)]


class Days:
    """An engine on a SQLite ledger that can be stopped and started again, with its watch and a postman."""

    def __init__(self, of: Spec, path: Path, opened: Opener, clock: Hands) -> None:
        self.of, self._url, self._opened, self._clock = of, f"sqlite:///{path}", opened, clock
        self._outside = Outside(of)
        self._outside.clock = clock
        self._outside.cloud._clock = clock
        self.start()

    def start(self) -> None:
        """Everything in memory is gone; the ledger's file is not."""
        self.ledger: SqlLedger = self._opened(self._url)
        self._outside.books = self.ledger  # type: ignore[assignment]
        self._engine = self._outside.engine()
        self._watch = AlertTracker(self.of, self.ledger.alerts)
        self._postman = postman(self.of, self.ledger.alerts, self._clock)

    def restart(self) -> None:
        self.ledger.close()
        self.start()

    def tick(self) -> None:
        seen = self._engine.tick()
        assert seen is not None
        self._watch.after(seen)
        self._postman.deliver_due()
        self._clock.pass_time(minutes=1)


@pytest.mark.requirement("NT-1")
def test_each_alert_is_sent_once_over_restarts_of_the_engine(
    receiver: Receiver, tmp_path: Path, opened: Opener, clock: Hands
):
    of = buying(notifications=[hook(receiver.url)])
    days = Days(of, tmp_path / "ledger.db", opened, clock)
    days.ledger.propose(intent())
    for _ in range(3):
        days.tick()
        days.tick()
        days.restart()
    assert [(body["event"], body["kind"]) for body in receiver.bodies()] == [("raised", "approval-waiting")]
    (proposed,) = days.ledger.purchases()
    days.ledger.advance(proposed, replace(proposed, state=PurchaseState.REFUSED, state_at=clock.now()))
    for _ in range(3):
        days.tick()
        days.restart()
    assert [body["event"] for body in receiver.bodies()] == ["raised", "resolved"]
    (told,) = days.ledger.alerts.alerts()
    assert told.resolved_at is not None
    assert [delivery.sent_at is not None for delivery in told.deliveries] == [True, True]


@pytest.mark.requirement("NT-1")
def test_unsent_notifications_are_sent_after_a_restart(
    receiver: Receiver, tmp_path: Path, opened: Opener, clock: Hands
):
    receiver.answers = [(500, {})]
    days = Days(buying(notifications=[hook(receiver.url)]), tmp_path / "ledger.db", opened, clock)
    days.ledger.propose(intent())
    days.tick()
    days.restart()
    days.tick()
    assert len(receiver.got) == 2
    assert len({got.headers["idempotency-key"] for got in receiver.got}) == 1
    assert days.ledger.alerts.unsent() == ()


@pytest.mark.requirement("NT-1")
def test_only_targets_that_want_an_alert_get_it():
    targets: list[dict[str, Any]] = [
        hook("http://a", "all"),
        hook("http://b", "grave", minSeverity="critical"),
        hook("http://c", "purchases", only=["approval-waiting"]),
        hook("http://d", "blocks", only=["short-delivery"]),
    ]
    book = MemoryAlerts()
    AlertTracker(buying(notifications=targets), book).after(tick(world(intent())))
    assert [one.target for one in book.unsent()] == ["all", "purchases"]


def test_an_alert_without_targets_is_recorded():
    book = MemoryAlerts()
    assert AlertTracker(buying(), book).after(tick(world(intent())))
    assert len(book.alerts()) == 1


def test_no_alert_is_resolved_while_the_cloud_or_ledger_cannot_be_read():
    book = MemoryAlerts()
    watch = AlertTracker(buying(), book)
    watch.after(tick(world(intent())))
    for blind in ({"ledger_ok": False}, {"cloud_ok": False}):
        watch.after(tick(world(**blind)))
        assert len(book.alerts(open_only=True)) == 1
    watch.after(tick(world()))
    assert book.alerts(open_only=True) == ()


def test_a_flickering_alert_is_raised_again_only_if_it_stays():
    book = MemoryAlerts()
    watch = AlertTracker(buying(), book)
    at = NOW
    for _ in range(3):
        watch.after(tick(world(intent(), now=at)))
        watch.after(tick(world(now=at + timedelta(minutes=1))))
        at += timedelta(minutes=2)
    assert [alert.occasion for alert in book.alerts()] == [1]
    assert book.alerts(open_only=True) == ()
    for _ in range(20):
        watch.after(tick(world(intent(), now=at)))
        at += FLICKERS / 10
    assert [alert.occasion for alert in book.alerts(open_only=True)] == [2]


def test_an_unwritable_book_stops_no_tick_and_is_written_later(caplog: pytest.LogCaptureFixture):
    class Away(MemoryAlerts):
        away = True

        def raise_alert(self, *args: Any) -> bool:
            if self.away:
                raise Retryable("the ledger cannot be reached")
            return super().raise_alert(*args)

    book = Away()
    watch = AlertTracker(buying(), book)
    assert not watch.after(tick(world(intent())))
    assert "cannot record alerts" in caplog.text
    book.away = False
    assert watch.after(tick(world(intent())))


@pytest.mark.requirement("CB-16")
def test_a_heartbeat_is_written_but_not_at_every_tick():
    class Counts(MemoryAlerts):
        beats = 0

        def beat(self, at: Any) -> None:
            self.beats += 1
            super().beat(at)

    book = Counts()
    watch = AlertTracker(buying(), book)
    for second in range(61):
        watch.after(tick(world(block(), now=NOW + timedelta(seconds=second))))
    assert book.beats == 3
    assert book.heartbeat() == NOW + 2 * HEARTBEAT_EVERY


@pytest.mark.requirement("NT-1")
def test_alerting_records_and_delivers_for_a_run_loop(receiver: Receiver, tmp_path: Path, opened: Opener):
    of = buying(notifications=[hook(receiver.url)])
    book = opened(f"sqlite:///{tmp_path / 'ledger.db'}").alerts
    with Alerting(of, book, WallClock()) as alerting:
        now = WallClock().now()
        alerting.after(tick(world(intent(inside={"expires_at": now + timedelta(days=1)}), now=now)))
        receiver.wait()
        alerting.after(tick(world(now=WallClock().now())))
    assert [body["event"] for body in receiver.bodies()] == ["raised", "resolved"]
    assert book.unsent() == ()
    assert book.heartbeat() == now


def test_an_exception_in_the_alerts_stops_no_tick(caplog: pytest.LogCaptureFixture):
    class Broken(MemoryAlerts):
        def alerts(self, **which: bool) -> Any:
            raise ZeroDivisionError

    with Alerting(buying(), Broken(), WallClock()) as alerting:
        alerting.after(tick(world(intent())))
    assert "cannot compute the alerts" in caplog.text
