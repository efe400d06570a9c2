"""After each tick: write down which alerts hold, which are over, and that the engine is there.

Sends nothing itself: whoever carries the words (`courier`) reads them from the book. A rehearsal uses the same watch
and no courier. A book that cannot be written costs a line in the log, never a tick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.alerts import Alert
from tidemill.model.errors import PortError, Refused
from tidemill.ports import AlertBook
from tidemill.report.alerts import alerts
from tidemill.spec import Spec
from tidemill.spec.platform import Notification

log = logging.getLogger("tidemill.notify")

# One that was over a moment ago is not raised at once by the book; it is asked again this much later.
ASK_AGAIN = timedelta(minutes=1)
# Ticks come every second when there is much to do; a durable write that often says nothing more.
BEAT_EVERY = timedelta(seconds=30)


class Watch:
    """Remembers which alerts are open only to save a read: a new watch reads it from the book."""

    def __init__(self, spec: Spec, book: AlertBook) -> None:
        self._spec, self._book = spec, book
        self._open: set[str] | None = None
        self._again: dict[str, datetime] = {}  # holds, but was over a moment ago: when to try to raise it
        self._beat_at: datetime | None = None

    def after(self, tick: Tick) -> bool:
        """True: there is something new to tell."""
        holding = alerts(self._spec, tick.world, tick.plan, tick.outcomes)
        try:
            news = self._write(holding, tick.world.now, sees_all=tick.world.ledger_ok and tick.world.cloud_ok)
            self._beat(tick.world.now)
        except (PortError, Refused) as error:
            self._open = None  # some of it may have been written: read again
            log.warning("cannot write down alerts, next tick again: %s", error)
            return False
        return news

    def _write(self, holding: Iterable[Alert], now: datetime, *, sees_all: bool) -> bool:
        news = False
        if self._open is None:
            # The watchdog's own alert is not ours to end, but a tick proves that it is over.
            self._open = {one.alert.key for one in self._book.alerts(open_only=True)}
        held = set()
        for alert in holding:
            held.add(alert.key)
            if alert.key not in self._open and self._again.get(alert.key, now) <= now:
                news |= self._raise(alert, now)
        # With half the world unseen, what does not show may still be so.
        for key in sorted(self._open - held) if sees_all else ():
            self._book.resolve_alert(key, now)
            self._open.discard(key)
            news = True
        return news

    def _raise(self, alert: Alert, now: datetime) -> bool:
        assert self._open is not None
        if not self._book.raise_alert(alert, now, self.told(alert)):
            self._again[alert.key] = now + ASK_AGAIN
            return False
        self._again.pop(alert.key, None)
        if alert.lasts:
            self._open.add(alert.key)
        return True

    def told(self, alert: Alert) -> list[str]:
        return told(self._spec.platform.spec.notifications, alert)

    def _beat(self, now: datetime) -> None:
        if self._beat_at is None or now - self._beat_at >= BEAT_EVERY:
            self._book.beat(now)
            self._beat_at = now


def told(targets: Iterable[Notification], alert: Alert) -> list[str]:
    """The targets that want to hear of it."""
    return [one.name for one in targets if one.wants(alert.kind, alert.severity)]
