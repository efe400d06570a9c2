"""Is the engine there? Asked from outside: a dead engine cannot say that it is dead.

The engine writes a heartbeat after each tick that saw the world: one that runs and sees nothing is silent too.
A ledger that cannot be read is silence as well: nobody knows, and the engine cannot buy or launch without it either.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from tidemill.model.alerts import AlertKind
from tidemill.model.errors import PortError, Refused
from tidemill.notify.delivery import Postman
from tidemill.notify.targets import Send
from tidemill.notify.watch import told
from tidemill.ports import AlertBook, Clock
from tidemill.report.engine_heartbeat import Heard, engine_silent
from tidemill.spec.platform import Platform

log = logging.getLogger("tidemill.notify")


class Watchdog:
    """`spare` is a book for the time in which the other cannot be reached: what it must say is said all the same."""

    def __init__(
        self, platform: Platform, targets: Mapping[str, Send], book: AlertBook, spare: AlertBook, clock: Clock
    ) -> None:
        self._platform, self._book, self._spare, self._clock = platform, book, spare, clock
        self._postmen = {
            id(one): [Postman(name, send, platform, one, clock) for name, send in targets.items()]
            for one in (book, spare)
        }
        self._started = clock.now()
        self._unreadable_since: datetime | None = None

    def look(self) -> Heard:
        """Read the heartbeat, raise or end the alert, and send what is due, the engine's own words too."""
        now = self._clock.now()
        try:
            heard = self._listen(now)
            self._settle(self._book, heard)
            self._spare_is_over(now)
        except (PortError, Refused) as error:
            self._unreadable_since = self._unreadable_since or now
            heard = Heard(now, None, self._is_long(self._unreadable_since, now), str(error))
            self._settle(self._spare, heard)
        return heard

    def _listen(self, now: datetime) -> Heard:
        last = self._book.heartbeat()
        return Heard(now, last, self._is_long(last or self._started, now))

    def _is_long(self, since: datetime, now: datetime) -> bool:
        return now - since >= self._platform.spec.alerts.silent_after

    def _settle(self, book: AlertBook, heard: Heard) -> None:
        alert = engine_silent(self._platform, heard, self._started) if heard.is_silent else None
        for one in book.alerts(open_only=True):
            over = one.alert.kind is AlertKind.ENGINE_SILENT and (alert is None or one.alert.key != alert.key)
            if over and not heard.trouble:
                book.resolve_alert(one.alert.key, heard.at)
        if alert is not None:
            book.raise_alert(alert, heard.at, told(self._platform.spec.notifications, alert))
        self._send(book)

    def _spare_is_over(self, now: datetime) -> None:
        self._unreadable_since = None
        for one in self._spare.alerts(open_only=True):
            self._spare.resolve_alert(one.alert.key, now)
        self._send(self._spare)

    def _send(self, book: AlertBook) -> None:
        for postman in self._postmen[id(book)]:
            postman.deliver_due()
