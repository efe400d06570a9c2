"""Alerts in memory, for rehearsals and tests, and for a watchdog whose ledger cannot be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.model.alerts import Alert, AlertEvent, Delivery, Raised

# An alert that comes back sooner than this after it was resolved is the same alert, and is not sent again.
FLICKERS = timedelta(minutes=30)


class MemoryAlerts:
    def __init__(self) -> None:
        self._raised: dict[str, Raised] = {}  # without deliveries: those are below, oldest first
        self._words: list[Delivery] = []
        self._beat_at: datetime | None = None

    def raise_alert(self, alert: Alert, at: datetime, targets: Sequence[str]) -> bool:
        held = self._raised.get(alert.key)
        if held is None:
            raised = Raised(alert, at, at)
        elif may_rise_again(held, at):
            raised = replace(held, alert=alert, raised_at=at, occasion=held.occasion + 1, resolved_at=None)
        else:
            return False
        self._raised[alert.key] = raised
        self._words += [
            Delivery(alert.key, raised.occasion, target, AlertEvent.RAISED, at, at) for target in targets
        ]
        return True

    def resolve_alert(self, key: str, at: datetime) -> None:
        held = self._raised.get(key)
        if held is None or held.resolved_at is not None:
            return
        self._raised[key] = replace(held, resolved_at=at)
        told = [word for word in self._words if (word.key, word.occasion) == (key, held.occasion)]
        self._words += [
            Delivery(key, held.occasion, one.target, AlertEvent.RESOLVED, at, at)
            for one in told
            if not one.failure
        ]

    def alerts(self, *, open_only: bool = False) -> tuple[Raised, ...]:
        wanted = [one for one in self._raised.values() if not open_only or is_open(one)]
        return tuple(self._whole(one) for one in wanted)

    def _whole(self, raised: Raised) -> Raised:
        return replace(raised, deliveries=tuple(word for word in self._words if word.key == raised.alert.key))

    def claim(self, target: str, at: datetime, until: datetime) -> tuple[Raised, Delivery] | None:
        held_back: set[str] = set()
        for place, one in enumerate(self._words):
            if one.target != target or one.due_at is None or one.key in held_back:
                continue
            held_back.add(one.key)
            if one.due_at <= at:
                claimed = self._words[place] = replace(one, due_at=until, attempts=one.attempts + 1)
                return self._whole(self._raised[one.key]), claimed
        return None

    def mark(self, delivery: Delivery) -> None:
        for place, one in enumerate(self._words):
            if (one.id, one.target) == (delivery.id, delivery.target):
                self._words[place] = delivery
            elif delivery.failure and follows(one, delivery) and one.due_at is not None:
                self._words[place] = replace(one, due_at=None, failure=delivery.failure, answer=NEVER_TOLD)

    def unsent(self) -> tuple[Delivery, ...]:
        return tuple(word for word in self._words if word.due_at is not None)

    def beat(self, at: datetime) -> None:
        self._beat_at = at

    def heartbeat(self) -> datetime | None:
        return self._beat_at


NEVER_TOLD = "not sent: the message that it was raised could not be sent either"


def is_open(raised: Raised) -> bool:
    """An alert about a single event is never open: nothing can be resolved."""
    return raised.resolved_at is None and raised.alert.lasts


def may_rise_again(held: Raised, at: datetime) -> bool:
    return held.resolved_at is not None and at - held.resolved_at >= FLICKERS


def follows(later: Delivery, first: Delivery) -> bool:
    """Whether it is the "resolved" message after the "raised" one, to the same target."""
    same = (later.key, later.occasion, later.target) == (first.key, first.occasion, first.target)
    return same and later.word is AlertEvent.RESOLVED and first.word is AlertEvent.RAISED
