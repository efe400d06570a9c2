"""The watchdog: a separate process that raises an alert when the engine's heartbeat is too old.

The engine writes a heartbeat after each tick in which it could read the world; an engine that cannot is silent too. A
ledger that cannot be read also counts as silence: without it the engine cannot buy or launch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from tidemill.model.alerts import AlertKind
from tidemill.model.errors import PortError, Refused
from tidemill.notify.alert_tracker import Heartbeat, engine_silent_alert, targets_for
from tidemill.notify.delivery import TargetDelivery
from tidemill.notify.targets import Send
from tidemill.ports import AlertBook, Clock
from tidemill.spec.platform import Platform

log = logging.getLogger("tidemill.notify")


class Watchdog:
    """`spare` is a second book, for alerts while the ledger's book cannot be reached."""

    def __init__(
        self, platform: Platform, targets: Mapping[str, Send], book: AlertBook, spare: AlertBook, clock: Clock
    ) -> None:
        self._platform, self._book, self._spare, self._clock = platform, book, spare, clock
        self._deliveries = {
            id(each): [TargetDelivery(name, send, platform, each, clock) for name, send in targets.items()]
            for each in (book, spare)
        }
        self._started = clock.now()
        self._unreadable_since: datetime | None = None

    def look(self) -> Heartbeat:
        """Read the heartbeat, raise or resolve the alert, and send what is due, including the engine's own alerts."""
        now = self._clock.now()
        try:
            heartbeat = self._read(now)
            self._raise_or_resolve(self._book, heartbeat)
            self._resolve_spare(now)
        except (PortError, Refused) as error:
            self._unreadable_since = self._unreadable_since or now
            heartbeat = Heartbeat(now, None, self._is_long(self._unreadable_since, now), str(error))
            self._raise_or_resolve(self._spare, heartbeat)
        return heartbeat

    def _read(self, now: datetime) -> Heartbeat:
        last = self._book.heartbeat()
        return Heartbeat(now, last, self._is_long(last or self._started, now))

    def _is_long(self, since: datetime, now: datetime) -> bool:
        return now - since >= self._platform.spec.alerts.silent_after

    def _raise_or_resolve(self, book: AlertBook, heartbeat: Heartbeat) -> None:
        alert = engine_silent_alert(self._platform, heartbeat, self._started) if heartbeat.is_silent else None
        for raised in book.alerts(open_only=True):
            is_silence = raised.alert.kind is AlertKind.ENGINE_SILENT
            over = is_silence and (alert is None or raised.alert.key != alert.key)
            if over and not heartbeat.trouble:
                book.resolve_alert(raised.alert.key, heartbeat.at)
        if alert is not None:
            book.raise_alert(alert, heartbeat.at, targets_for(self._platform.spec.notifications, alert))
        self._send(book)

    def _resolve_spare(self, now: datetime) -> None:
        self._unreadable_since = None
        for raised in self._spare.alerts(open_only=True):
            self._spare.resolve_alert(raised.alert.key, now)
        self._send(self._spare)

    def _send(self, book: AlertBook) -> None:
        for delivery in self._deliveries[id(book)]:
            delivery.deliver_due()
