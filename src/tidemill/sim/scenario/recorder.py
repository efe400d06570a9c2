"""What is recorded while a rehearsal runs: GPUs over time, and the alerts people would have got."""

from __future__ import annotations

from datetime import datetime

from tidemill.catalog import Catalog
from tidemill.engine.loop import Tick
from tidemill.model.capacity import ReservationState
from tidemill.model.nodes import InstanceState
from tidemill.notify.alert_tracker import AlertTracker, Heartbeat, engine_silent_alert
from tidemill.ports import AlertBook
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.scenario.outcome import AlertRow, Series
from tidemill.spec import Spec


class GpuRecorder:
    """GPUs paid, ready and used over time, sampled after every instant at which anything happened.

    Each value holds until the next change, so the integrals are exact.
    """

    def __init__(self, cloud: SimCloud, cluster: SimCluster, catalog: Catalog, start: datetime) -> None:
        self._cloud, self._cluster, self._catalog = cloud, cluster, catalog
        self._at = start
        self._paid, self._ready, self._used = 0, 0, 0
        self._used_by_source: dict[str, int] = {}
        self._seen: tuple[object, object] = (None, None)  # changes of GPUs, and of money
        self._points: list[tuple[datetime, int, int, int]] = []
        self._hours = {"paid": 0.0, "ready": 0.0, "used": 0.0}
        self._used_hours: dict[str, float] = {}  # by source

    def sample(self, now: datetime) -> None:
        gpus, money = self._cluster.changes, self._cloud.changes
        if (gpus, money) == self._seen:
            return
        self._hours, self._used_hours = self.hours_until(now), self.used_hours_until(now)
        self._at = now
        if gpus != self._seen[0]:
            self._ready, self._used = self._cluster.gpus_ready(), self._cluster.gpus_used()
            self._used_by_source = self._cluster.gpus_used_by_source()
        if money != self._seen[1]:
            self._paid = self._count_paid()
        self._seen = gpus, money
        point = (now, self._paid, self._ready, self._used)
        if not self._points or point[1:] != self._points[-1][1:]:
            self._points.append(point)

    def hours_until(self, now: datetime) -> dict[str, float]:
        """GPU-hours paid, ready and used, up to an instant at which nothing has happened since the last sample."""
        hours = max(0.0, (now - self._at).total_seconds() / 3600)
        rates = {"paid": self._paid, "ready": self._ready, "used": self._used}
        return {name: self._hours[name] + hours * gpus for name, gpus in rates.items()}

    def used_hours_until(self, now: datetime) -> dict[str, float]:
        """Those used, by source."""
        hours = max(0.0, (now - self._at).total_seconds() / 3600)
        return {
            source: self._used_hours.get(source, 0.0) + hours * self._used_by_source.get(source, 0)
            for source in {**self._used_hours, **self._used_by_source}
        }

    def _count_paid(self) -> int:
        """Our reservations are paid whole while they are active, other instances while they run."""
        paid = sum(
            reservation.count * self._catalog.types[reservation.instance_type].gpus
            for reservation in self._cloud.all_reservations()
            if reservation.state is ReservationState.ACTIVE and reservation.owner
        )
        return paid + sum(
            self._catalog.types[history.now.instance_type].gpus
            for history in self._cloud.alive()
            if history.by_the_hour and history.now.state is InstanceState.RUNNING
        )

    def series(self) -> Series:
        columns = list(zip(*self._points, strict=True)) if self._points else [(), (), (), ()]
        return Series(*(tuple(column) for column in columns))


class AlertRecorder:
    """What people would have been told: by the engine's own watch, and by a watchdog beside it. Nothing is sent."""

    def __init__(self, spec: Spec, book: AlertBook, start: datetime) -> None:
        self._book, self._heard_at = book, start
        self.engine_starts(spec)

    def engine_starts(self, spec: Spec) -> None:
        """A new engine has lost the memory of the last one; the alert book is kept."""
        self._spec, self._watch = spec, AlertTracker(spec, self._book)

    def after(self, tick: Tick) -> None:
        self.listen(tick.world.now)
        self._heard_at = tick.world.now
        self._watch.after(tick)

    def listen(self, now: datetime) -> None:
        """Raise the alert of a silent engine, as of the instant at which a watchdog would have."""
        rules, last = self._spec.platform.spec.alerts, self._heard_at
        told_at = last + rules.silent_after
        if now < told_at:
            return
        alert = engine_silent_alert(self._spec.platform, Heartbeat(told_at, last, is_silent=True), last)
        self._book.raise_alert(alert, told_at, self._watch.targets_for(alert))

    def rows(self, end: datetime) -> tuple[AlertRow, ...]:
        self.listen(end)
        return tuple(
            AlertRow(
                key=record.alert.key,
                kind=record.alert.kind.value,
                severity=record.alert.severity.value,
                about=record.alert.about,
                title=record.alert.title,
                text=record.alert.text,
                facts=record.alert.facts,
                raised_at=record.raised_at,
                resolved_at=record.resolved_at,
                times=record.occasion,
                targets=tuple(dict.fromkeys(delivery.target for delivery in record.deliveries)),
            )
            for record in sorted(self._book.alerts(), key=lambda record: (record.raised_at, record.alert.key))
        )
