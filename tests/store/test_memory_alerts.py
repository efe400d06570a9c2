"""The alert book in memory finds an alert's deliveries without a look at all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

from tests.decide.builders import NOW
from tidemill.model.alerts import Alert, AlertEvent, AlertKind, Delivery, Severity
from tidemill.store.memory import MemoryAlerts

MINUTE = timedelta(minutes=1)
KEYS = [f"offer-gone/tp-{number}" for number in range(6)]


def alert(key: str) -> Alert:
    return Alert(key, AlertKind.OFFER_GONE, Severity.ERROR, key, "Nothing is offered", "Widen it.", ())


def test_an_alert_has_the_deliveries_that_a_look_at_all_of_them_would_find():
    """Raised, resolved, sent and failed in any order; a plain list of all messages tells what each alert has."""
    random, book, told = Random(5), MemoryAlerts(), list[Delivery]()
    for turn in range(400):
        key, at = random.choice(KEYS), NOW + turn * 7 * MINUTE
        open_keys = {one.alert.key for one in book.alerts(open_only=True)}
        step = random.randrange(3)
        if step == 0 and book.raise_alert(alert(key), at, ["ops", "pager"]):
            (occasion,) = (one.occasion for one in book.alerts() if one.alert.key == key)
            told += [Delivery(key, occasion, to, AlertEvent.RAISED, at, at) for to in ("ops", "pager")]
        elif step == 1 and key in open_keys:
            (held,) = (one for one in book.alerts() if one.alert.key == key)
            book.resolve_alert(key, at)
            told += [
                Delivery(key, held.occasion, one.target, AlertEvent.RESOLVED, at, at)
                for one in held.deliveries
                if one.occasion == held.occasion and not one.failure
            ]
        elif step == 2 and (claimed := book.claim("ops", at, at + MINUTE)) is not None:
            done = replace(claimed[1], due_at=None, sent_at=at)
            book.mark(done)
            told = [
                done if (one.id, one.target) == (done.id, done.target) and one.due_at is not None else one
                for one in told
            ]
        for one in book.alerts():
            assert one.deliveries == tuple(word for word in told if word.key == one.alert.key)
    assert len(told) > 50


def test_only_alerts_that_were_never_raised_before_are_new():
    book = MemoryAlerts()
    for key in KEYS[:3]:
        book.raise_alert(alert(key), NOW, ["ops"])
    known = len(book.first_raised(0))
    book.resolve_alert(KEYS[0], NOW + MINUTE)
    book.raise_alert(alert(KEYS[0]), NOW + 60 * MINUTE, ["ops"])  # again
    book.raise_alert(alert(KEYS[3]), NOW + 60 * MINUTE, ["ops"])
    assert [one.alert.key for one in book.first_raised(known)] == [KEYS[3]]
