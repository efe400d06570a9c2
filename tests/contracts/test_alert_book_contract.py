"""What every implementation of `ports.AlertBook` must do: raise once, send in order, give a delivery to one sender."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.decide.builders import NOW
from tests.store.ledgers import DURABLE, Opener, new_url
from tidemill.model.alerts import Alert, AlertEvent, AlertKind, Delivery, Raised, Severity
from tidemill.ports import AlertBook
from tidemill.store.memory import FLICKERS, MemoryAlerts

GONE = Alert(
    "offer-gone/tp-1", AlertKind.OFFER_GONE, Severity.ERROR, "tp-1", "Nothing is offered", "Widen the fée.",
    (("pool", "p5"), ("pool", "a name twice")),
)  # fmt: skip
FORCED = replace(GONE, key="forced-eviction/cr-1", kind=AlertKind.FORCED_EVICTION, lasts=False)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=("memory", *DURABLE))
def book(request: pytest.FixtureRequest, tmp_path: Path, opened: Opener) -> AlertBook:
    if request.param == "memory":
        return MemoryAlerts()
    return opened(new_url(request.param, request, tmp_path)).alerts


def claim(book: AlertBook, target: str = "ops", at: datetime = NOW) -> Delivery | None:
    found = book.claim(target, at, at + MINUTE)
    return None if found is None else found[1]


def sent(delivery: Delivery | None, at: datetime = NOW) -> Delivery:
    assert delivery is not None
    return replace(delivery, due_at=None, sent_at=at, answer="200 ok")


def failed(delivery: Delivery | None) -> Delivery:
    assert delivery is not None
    return replace(delivery, due_at=None, failure="misconfigured", answer="404 no such hook")


@pytest.mark.requirement("NT-1")
def test_an_alert_is_raised_once_and_comes_back_whole(book: AlertBook):
    assert book.raise_alert(GONE, NOW, ["ops", "pager"])
    assert not book.raise_alert(replace(GONE, title="seen again"), NOW + MINUTE, ["ops", "pager"])
    words = tuple(Delivery(GONE.key, 1, target, AlertEvent.RAISED, NOW, NOW) for target in ("ops", "pager"))
    assert book.alerts() == (Raised(GONE, NOW, NOW, 1, None, words),)
    assert book.unsent() == words


@pytest.mark.requirement("NT-1")
def test_a_delivery_is_claimed_by_one_sender_until_its_claim_expires(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    first = claim(book)
    assert first is not None
    assert (first.attempts, first.due_at) == (1, NOW + MINUTE)
    assert claim(book) is None
    again = claim(book, at=NOW + MINUTE)  # who had it died
    assert again is not None
    assert (again.id, again.attempts) == (first.id, 2)


def test_another_target_has_its_own_deliveries(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    assert claim(book, "pager") is None
    assert claim(book, "ops") is not None


@pytest.mark.requirement("NT-1")
def test_a_delivery_that_was_sent_is_not_sent_again(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    book.mark(sent(claim(book)))
    assert claim(book, at=NOW + timedelta(days=1)) is None
    assert book.unsent() == ()
    assert book.alerts()[0].deliveries[0].answer == "200 ok"


def test_a_delivery_that_failed_is_due_again_at_its_retry_time(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    tried = claim(book)
    assert tried is not None
    book.mark(replace(tried, due_at=NOW + 5 * MINUTE, answer="503"))
    assert claim(book, at=NOW + 4 * MINUTE) is None
    assert claim(book, at=NOW + 5 * MINUTE) is not None


@pytest.mark.requirement("NT-1")
def test_the_end_of_an_alert_is_sent_after_its_start(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    book.resolve_alert(GONE.key, NOW + MINUTE)
    book.resolve_alert(GONE.key, NOW + 2 * MINUTE)
    first = claim(book, at=NOW + MINUTE)
    assert first is not None
    assert first.word is AlertEvent.RAISED
    assert claim(book, at=NOW + MINUTE) is None
    book.mark(sent(first))
    found = book.claim("ops", NOW + MINUTE, NOW + 2 * MINUTE)
    assert found is not None
    assert (found[0].resolved_at, found[1].word) == (NOW + MINUTE, AlertEvent.RESOLVED)
    book.mark(sent(found[1]))
    assert claim(book, at=NOW + timedelta(days=1)) is None


@pytest.mark.parametrize("resolved_first", [True, False])
def test_a_target_that_never_got_an_alert_does_not_get_its_end(book: AlertBook, resolved_first: bool):
    book.raise_alert(GONE, NOW, ["ops"])
    tried = claim(book)
    if resolved_first:
        book.resolve_alert(GONE.key, NOW)
    book.mark(failed(tried))
    book.resolve_alert(GONE.key, NOW)
    assert book.unsent() == ()


def test_an_alert_that_was_not_raised_cannot_be_resolved(book: AlertBook):
    book.resolve_alert("offer-gone/tp-9", NOW)
    assert book.alerts() == ()


@pytest.mark.requirement("NT-1")
def test_an_alert_that_flickers_is_sent_once_and_one_that_comes_back_is_sent_again(book: AlertBook):
    book.raise_alert(GONE, NOW, ["ops"])
    book.mark(sent(claim(book)))
    over = NOW + MINUTE
    book.resolve_alert(GONE.key, over)
    book.mark(sent(claim(book, at=over)))
    assert not book.raise_alert(GONE, over + FLICKERS - MINUTE, ["ops"])
    back = over + FLICKERS
    assert book.raise_alert(replace(GONE, title="Again"), back, ["ops"])
    (raised,) = book.alerts(open_only=True)
    assert (raised.first_at, raised.raised_at, raised.occasion, raised.alert.title) == (NOW, back, 2, "Again")
    assert [delivery.id for delivery in raised.deliveries] == [
        "offer-gone/tp-1#1/raised", "offer-gone/tp-1#1/resolved", "offer-gone/tp-1#2/raised",
    ]  # fmt: skip


def test_an_alert_about_a_single_event_is_not_open(book: AlertBook):
    book.raise_alert(FORCED, NOW, [])
    book.raise_alert(GONE, NOW, [])
    assert [alert.alert.key for alert in book.alerts(open_only=True)] == [GONE.key]
    assert [alert.alert.key for alert in book.alerts()] == [FORCED.key, GONE.key]


@pytest.mark.requirement("CB-16")
def test_the_last_heartbeat_is_remembered(book: AlertBook):
    assert book.heartbeat() is None
    book.beat(NOW)
    book.beat(NOW + MINUTE)
    assert book.heartbeat() == NOW + MINUTE
