"""Notifications reach their targets: retried, each once, in order, and without delaying ticks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW
from tests.engine.ports import Hands
from tests.notify.receiver import Receiver, receiving
from tests.notify.sample_alerts import GONE, hook, platform, postman
from tidemill.engine.clock import WallClock
from tidemill.model.errors import Retryable
from tidemill.notify.delivery import CLAIMED_FOR, DeliveryThreads, abandon_unknown
from tidemill.notify.targets import senders
from tidemill.spec import Spec
from tidemill.store.memory import MemoryAlerts

QUICK = timedelta(seconds=20)


@pytest.fixture
def book() -> MemoryAlerts:
    return MemoryAlerts()


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        ([(500, {}), (503, {})], (10, 20)),
        ([(429, {"Retry-After": "90"})], (90,)),
        ([(503, {"Retry-After": "120"})], (120,)),
    ],
)
def test_a_failed_delivery_is_tried_again_and_sent_once(
    receiver: Receiver, book: MemoryAlerts, clock: Hands, answers: list, waits: tuple[int, ...]
):
    receiver.answers = list(answers)
    one = postman(platform(hook(receiver.url)), book, clock)
    book.raise_alert(GONE, NOW, ["ops"])
    assert one.deliver_due() == 1
    for wait_s in waits:
        assert one.deliver_due() == 0
        clock.pass_time(seconds=wait_s)
        assert one.deliver_due() == 1
    clock.pass_time(days=3)
    assert one.deliver_due() == 0
    (sent,) = book.alerts()[0].deliveries
    assert (sent.attempts, sent.answer, sent.failure) == (len(answers) + 1, "200 ok", "")
    assert len({got.headers["idempotency-key"] for got in receiver.got}) == 1


@pytest.mark.requirement("NT-1")
def test_a_receiver_that_comes_up_later_gets_the_notification(book: MemoryAlerts, clock: Hands):
    with receiving() as gone:
        pass
    of = platform(hook(gone.url))
    book.raise_alert(GONE, NOW, ["ops"])
    assert postman(of, book, clock).deliver_due() == 1
    assert book.unsent()[0].answer == "cannot be reached: Connection refused"
    with receiving() as up:
        clock.pass_time(seconds=10)
        assert postman(platform(hook(up.url)), book, clock).deliver_due() == 1
        assert len(up.got) == 1
    assert book.unsent() == ()


@pytest.mark.requirement("NT-1")
def test_a_refused_delivery_is_misconfigured_and_not_tried_again(
    receiver: Receiver, book: MemoryAlerts, clock: Hands, caplog: pytest.LogCaptureFixture
):
    receiver.answers, receiver.says = [(404, {})], b"no_service"
    book.raise_alert(GONE, NOW, ["ops"])
    one = postman(platform(hook(receiver.url)), book, clock)
    one.deliver_due()
    clock.pass_time(hours=1)
    one.deliver_due()
    (failed,) = book.alerts()[0].deliveries
    assert (failed.failure, failed.answer, failed.attempts) == ("misconfigured", "404 no_service", 1)
    assert "will not try again: 404 no_service" in caplog.text


@pytest.mark.requirement("NT-1")
def test_delivery_gives_up_after_give_up_after(
    receiver: Receiver, book: MemoryAlerts, clock: Hands, caplog: pytest.LogCaptureFixture
):
    receiver.answers = [(500, {})] * 50
    of = platform(hook(receiver.url), alerts={"giveUpAfter": "1m"})
    book.raise_alert(GONE, NOW, ["ops"])
    one = postman(of, book, clock)
    for _ in range(50):
        one.deliver_due()
        clock.pass_time(seconds=5)
    (failed,) = book.alerts()[0].deliveries
    assert failed.failure == "gave-up"
    assert 3 <= failed.attempts <= 6
    assert "gave up sending offer-gone/tp-1#1/raised to ops" in caplog.text


@pytest.mark.requirement("NT-1")
def test_a_resolved_alert_is_sent(receiver: Receiver, book: MemoryAlerts, clock: Hands):
    of = platform(hook(receiver.url))
    book.raise_alert(GONE, NOW, ["ops"])
    book.resolve_alert(GONE.key, NOW)
    postman(of, book, clock).deliver_due()
    assert [body["event"] for body in receiver.bodies()] == ["raised", "resolved"]


def test_a_crash_between_sending_and_marking_sends_again_with_the_same_id(receiver: Receiver, clock: Hands):
    class Dies(MemoryAlerts):
        def mark(self, delivery: object) -> None:
            raise KeyboardInterrupt

    book = Dies()
    book.raise_alert(GONE, NOW, ["ops"])
    of = platform(hook(receiver.url))
    with pytest.raises(KeyboardInterrupt):
        postman(of, book, clock).deliver_due()
    book.__class__ = MemoryAlerts  # type: ignore[assignment]
    assert postman(of, book, clock).deliver_due() == 0  # still claimed by who died
    clock.pass_time(seconds=CLAIMED_FOR.total_seconds())
    assert postman(of, book, clock).deliver_due() == 1
    assert len({got.headers["idempotency-key"] for got in receiver.got}) == 1
    assert len(receiver.got) == 2


def test_notifications_for_a_removed_target_are_given_up(
    book: MemoryAlerts, caplog: pytest.LogCaptureFixture
):
    book.raise_alert(GONE, NOW, ["ops", "former"])
    assert abandon_unknown(book, senders(platform(hook("http://127.0.0.1/")).platform)) == 1
    assert [one.target for one in book.unsent()] == ["ops"]
    assert "have no target former" in caplog.text


def test_an_exception_while_sending_does_not_stop_the_next_notification(receiver: Receiver, clock: Hands):
    book = MemoryAlerts()
    of = platform(hook(receiver.url))
    good = senders(of.platform)["ops"]

    def send(message, now):
        if message.alert.key == GONE.key:
            raise ZeroDivisionError
        return good(message, now)

    one = postman(of, book, clock)
    one._send = send
    book.raise_alert(GONE, NOW, ["ops"])
    book.raise_alert(replace(GONE, key="other"), NOW, ["ops"])
    assert one.deliver_due() == 2
    assert [body["key"] for body in receiver.bodies()] == ["other"]


# --- threads ------------------------------------------------------------------------------------------


@pytest.fixture
def two() -> Iterator[tuple[Receiver, Receiver]]:
    with receiving() as one, receiving() as other:
        yield one, other


def courier(of: Spec, book: MemoryAlerts) -> DeliveryThreads:
    return DeliveryThreads(of.platform, senders(of.platform), book, WallClock())


@pytest.mark.requirement("NT-1")
def test_a_target_that_hangs_delays_neither_ticks_nor_other_targets(
    two: tuple[Receiver, Receiver], book: MemoryAlerts
):
    hangs, answers = two
    hangs.hold = threading.Event()
    of = platform(hook(hangs.url, "hangs"), hook(answers.url, "answers"))
    with courier(of, book) as carrier:
        began = time.monotonic()
        book.raise_alert(GONE, WallClock().now(), ["hangs", "answers"])
        carrier.wake()
        assert time.monotonic() - began < 0.5
        answers.wait()
        hangs.wait()
        hangs.hold.set()
    assert book.unsent() == ()


@pytest.mark.requirement("NT-1")
def test_notifications_that_are_due_are_sent_at_shutdown(receiver: Receiver, book: MemoryAlerts):
    of = platform(hook(receiver.url))
    carrier = courier(of, book)
    carrier.start()
    time.sleep(0.05)  # it has found nothing and sleeps
    book.raise_alert(GONE, WallClock().now(), ["ops"])
    assert carrier.stop(QUICK) == 0
    assert len(receiver.got) == 1


@pytest.mark.requirement("NT-1")
def test_a_shutdown_waits_for_a_limited_time(
    receiver: Receiver, book: MemoryAlerts, caplog: pytest.LogCaptureFixture
):
    receiver.hold = threading.Event()
    of = platform(hook(receiver.url))
    carrier = courier(of, book)
    book.raise_alert(GONE, WallClock().now(), ["ops"])
    carrier.start()
    receiver.wait()
    began = time.monotonic()
    assert carrier.stop(timedelta(seconds=0.2)) == 1
    assert time.monotonic() - began < 2
    assert "not sent yet" in caplog.text
    receiver.hold.set()
    time.sleep(0.1)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (Retryable("the ledger cannot be reached"), "the alert book cannot be used"),
        (ZeroDivisionError("a bug"), "delivery to ops failed, will try again"),
    ],
)
def test_delivery_goes_on_when_the_alert_book_is_back(
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: Exception,
    says: str,
):
    monkeypatch.setattr("tidemill.notify.delivery.PAUSE_AFTER_ERROR_S", 0.05)

    class Away(MemoryAlerts):
        tries = 0

        def claim(self, *args):
            self.tries += 1
            if self.tries <= 2:
                raise trouble
            return super().claim(*args)

    book = Away()
    book.raise_alert(GONE, WallClock().now(), ["ops"])
    with caplog.at_level(logging.WARNING), courier(platform(hook(receiver.url)), book):
        receiver.wait()
    assert book.unsent() == ()
    assert says in caplog.text
