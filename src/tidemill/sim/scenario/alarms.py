"""What people would have been told in a rehearsal: the engine's own watch, a watchdog beside it, and nothing sent."""

from __future__ import annotations

from datetime import datetime

from tidemill.engine.loop import Tick
from tidemill.notify.watch import Watch
from tidemill.ports import AlertBook
from tidemill.report.engine_heartbeat import Heard, engine_silent
from tidemill.sim.scenario.outcome import AlertRow
from tidemill.spec import Spec


class Alarms:
    def __init__(self, spec: Spec, book: AlertBook, start: datetime) -> None:
        self._book, self._heard_at = book, start
        self.engine_starts(spec)

    def engine_starts(self, spec: Spec) -> None:
        """What the last one remembered is gone; the book is not."""
        self._spec, self._watch = spec, Watch(spec, self._book)

    def after(self, tick: Tick) -> None:
        self.listen(tick.world.now)
        self._heard_at = tick.world.now
        self._watch.after(tick)

    def listen(self, now: datetime) -> None:
        """Was it silent for too long until now? Told as of the instant at which a watchdog would have."""
        rules, last = self._spec.platform.spec.alerts, self._heard_at
        told_at = last + rules.silent_after
        if now < told_at:
            return
        alert = engine_silent(self._spec.platform, Heard(told_at, last, is_silent=True), last)
        self._book.raise_alert(alert, told_at, self._watch.told(alert))

    def rows(self, end: datetime) -> tuple[AlertRow, ...]:
        self.listen(end)
        return tuple(
            AlertRow(
                key=one.alert.key,
                kind=one.alert.kind.value,
                severity=one.alert.severity.value,
                about=one.alert.about,
                title=one.alert.title,
                text=one.alert.text,
                facts=one.alert.facts,
                raised_at=one.raised_at,
                resolved_at=one.resolved_at,
                times=one.occasion,
                targets=tuple(dict.fromkeys(word.target for word in one.deliveries)),
            )
            for one in sorted(self._book.alerts(), key=lambda one: (one.raised_at, one.alert.key))
        )
