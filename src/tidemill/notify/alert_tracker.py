"""After each tick: record in the alert book which alerts are open, which are over, and the engine's heartbeat.

The tracker sends nothing: `delivery` reads what is due from the book. A rehearsal uses the tracker without
delivery. If the book cannot be written, it logs a warning and the engine goes on. `Alerting` is both together, for a
run loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.alerts import Alert, AlertKind, Severity
from tidemill.model.errors import PortError, Refused
from tidemill.ports import AlertBook
from tidemill.report.alerts import alerts
from tidemill.spec import Spec
from tidemill.spec.platform import Notification, Platform
from tidemill.spec.units import format_duration, format_instant

log = logging.getLogger("tidemill.notify")

# The book does not raise an alert again right after it was over; the tracker tries again this much later.
RAISE_AGAIN_AFTER = timedelta(minutes=1)
# A busy engine ticks every second; it need not write a heartbeat that often.
HEARTBEAT_EVERY = timedelta(seconds=30)


class AlertTracker:
    """Keeps the open alerts only to save a read: a new tracker reads them from the book."""

    def __init__(self, spec: Spec, book: AlertBook) -> None:
        self._spec, self._book = spec, book
        self._open: set[str] | None = None
        self._raise_again_at: dict[
            str, datetime
        ] = {}  # key -> when to try to raise an alert that was just over
        self._beat_at: datetime | None = None

    def after(self, tick: Tick) -> bool:
        """True: there is something new to send."""
        holding = alerts(self._spec, tick.world, tick.plan, tick.outcomes)
        try:
            news = self._write(holding, tick.world.now, sees_all=tick.world.ledger_ok and tick.world.cloud_ok)
            self._beat(tick.world.now)
        except (PortError, Refused) as error:
            self._open = None  # some may have been written: read them again
            log.warning("cannot record alerts, will try at the next tick: %s", error)
            return False
        return news

    def _write(self, holding: Iterable[Alert], now: datetime, *, sees_all: bool) -> bool:
        news = False
        if self._open is None:
            # Includes the watchdog's alert: a tick proves that it is over.
            self._open = {raised.alert.key for raised in self._book.alerts(open_only=True)}
        held = set()
        for alert in holding:
            held.add(alert.key)
            if alert.key not in self._open and self._raise_again_at.get(alert.key, now) <= now:
                news |= self._raise(alert, now)
        # When the cloud or the ledger could not be read, an alert that is missing may still hold.
        for key in sorted(self._open - held) if sees_all else ():
            self._book.resolve_alert(key, now)
            self._open.discard(key)
            news = True
        return news

    def _raise(self, alert: Alert, now: datetime) -> bool:
        assert self._open is not None
        if not self._book.raise_alert(alert, now, self.targets_for(alert)):
            self._raise_again_at[alert.key] = now + RAISE_AGAIN_AFTER
            return False
        self._raise_again_at.pop(alert.key, None)
        if alert.lasts:
            self._open.add(alert.key)
        return True

    def targets_for(self, alert: Alert) -> list[str]:
        return targets_for(self._spec.platform.spec.notifications, alert)

    def _beat(self, now: datetime) -> None:
        if self._beat_at is None or now - self._beat_at >= HEARTBEAT_EVERY:
            self._book.beat(now)
            self._beat_at = now


def targets_for(targets: Iterable[Notification], alert: Alert) -> list[str]:
    """Names of the targets that want this alert."""
    return [target.name for target in targets if target.wants(alert.kind, alert.severity)]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`last` is the last heartbeat; None: there was none, or it cannot be read and `trouble` says why."""

    at: datetime
    last: datetime | None
    is_silent: bool
    trouble: str = ""

    def sentence(self) -> str:
        if self.trouble:
            return f"the ledger cannot be read: {self.trouble}"
        if self.last is None:
            return "there is no heartbeat of the engine in this ledger yet"
        ago = format_duration(self.at - self.last)
        if self.is_silent:
            return f"the last heartbeat of the engine was at {format_instant(self.last)}, {ago} ago: too long"
        return f"the last heartbeat of the engine was {ago} ago"


def engine_silent_alert(platform: Platform, heartbeat: Heartbeat, since: datetime) -> Alert:
    """The key has the time of the last heartbeat: one silence, one alert. Without any heartbeat: `since`."""
    occasion = "the-ledger-is-away" if heartbeat.trouble else format_instant(heartbeat.last or since)
    title = (
        "The ledger cannot be read, so nobody knows whether the engine runs"
        if heartbeat.trouble
        else f"The engine has written no heartbeat since {occasion}"
    )
    return Alert(
        f"engine-silent/{occasion}",
        AlertKind.ENGINE_SILENT,
        Severity.CRITICAL,
        platform.spec.deployment,
        title,
        "Check that its pod runs, read its log, and check that it can reach AWS, the API server and the ledger. Until"
        " it is back it buys, launches and drains nothing.",
        (
            ("last heartbeat", format_instant(heartbeat.last) if heartbeat.last else "never"),
            ("now", heartbeat.sentence()),
        ),
    )
