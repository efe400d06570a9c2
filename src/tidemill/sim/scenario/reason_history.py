"""The reasons an engine gave in its plans: why pods waited and for how long, and what it warned of.

Recorded while a rehearsal runs, because the last plan only says why pods wait at the end: when the last block has
expired, every pod waits for capacity, whatever held it all the days before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta

from tidemill.model.capacity import ReservationState
from tidemill.model.changes import changed
from tidemill.model.nodes import INSTANCE_UP_STATES
from tidemill.model.plan import Plan, Unmet, UnmetCode, Warning
from tidemill.model.reasons import HoldReason
from tidemill.model.warning_reasons import AnyWarning, ProvisionerMessage
from tidemill.model.world import World

ON_ITS_WAY: tuple[UnmetCode, ...] = ("starting", "launching")
# A pod that was held less than this while there was capacity came shortly before that capacity ended.
_SAYS_SOMETHING = timedelta(hours=1)
_NOTHING = timedelta(0)


def topic(reason: HoldReason | AnyWarning) -> tuple[object, ...]:
    """The reason without its figures: no capacity until 12:03 and no capacity until 12:05 are one topic."""
    match reason:
        case HoldReason():
            return reason.kind, reason.pool, reason.name
        case ProvisionerMessage():
            return "provisioner", _FIGURES.sub("#", reason.text)
        case _:
            return type(reason).__name__, *_without_figures(reason)


_FIGURES = re.compile(r"[0-9]+")


def _without_figures(value: object) -> tuple[object, ...]:
    """Names and kinds only: another block, requirement or remedy is another topic, another price or instant is not."""
    if isinstance(value, datetime | timedelta | int | float):
        return ()
    if isinstance(value, tuple):
        return tuple(_without_figures(entry) for entry in value)
    if is_dataclass(value):
        return tuple(_without_figures(getattr(value, one.name)) for one in fields(value))
    return (value,)


@dataclass(frozen=True, slots=True)
class WarningSpan:
    about: str
    reason: AnyWarning
    first: datetime
    last: datetime


@dataclass(slots=True)
class HeldFor:
    """One reason of a pod over all the times it was given."""

    unmet: Unmet
    with_capacity: timedelta = _NOTHING
    without_capacity: timedelta = _NOTHING

    @property
    def weight(self) -> tuple[timedelta, timedelta]:
        """Reasons given while there was no capacity at all count only where no other reason held for long."""
        has_capacity = self.with_capacity if self.with_capacity >= _SAYS_SOMETHING else _NOTHING
        return has_capacity, self.with_capacity + self.without_capacity

    def add(self, other: HeldFor) -> None:
        """Of reasons that differ only in their figures, the last one given while there was capacity is kept."""
        if other.with_capacity or not self.with_capacity:
            self.unmet = other.unmet
        self.with_capacity += other.with_capacity
        self.without_capacity += other.without_capacity


@dataclass(slots=True)
class _Wait:
    """One reason of one pod, for one span of time."""

    unmet: Unmet
    since: datetime
    has_capacity: bool  # there was some capacity meanwhile

    def until(self, now: datetime) -> HeldFor:
        length = now - self.since
        return (
            HeldFor(self.unmet, length, _NOTHING)
            if self.has_capacity
            else HeldFor(self.unmet, _NOTHING, length)
        )


@dataclass(slots=True)
class ReasonHistory:
    warned: dict[tuple[object, ...], WarningSpan] = field(default_factory=dict)
    _waits: dict[str, _Wait] = field(default_factory=dict)
    _held: dict[str, dict[tuple[object, ...], HeldFor]] = field(default_factory=dict)
    _unmet: tuple[Unmet, ...] = ()  # of the last plan
    _has_capacity: bool = False

    def record(self, world: World, plan: Plan) -> list[Warning]:
        """Returns the warnings that are new."""
        if not (plan.unmet or plan.warnings or self._waits):
            return []
        self._record_waits(world.now, plan.unmet, _has_capacity(world))
        now = world.now
        news = []
        for warning in plan.warnings:
            key = (warning.about, *topic(warning.reason))
            known = self.warned.get(key)
            if known is None:
                news.append(warning)
            first = known.first if known is not None else now
            self.warned[key] = WarningSpan(warning.about, warning.reason, first, now)
        return news

    def _record_waits(self, now: datetime, unmet: tuple[Unmet, ...], has_capacity: bool) -> None:
        """What was said of a pod before, in the very same object, need not be looked at."""
        gone, said = changed(self._unmet, unmet)
        if has_capacity != self._has_capacity:
            said = list(unmet)
        self._unmet, self._has_capacity = unmet, has_capacity
        still = {one.pod for one in said}
        for one in gone:
            if one.pod not in still:
                self._close(self._waits.pop(one.pod), now)
        for one in said:
            wait = self._waits.get(one.pod)
            if wait is not None and wait.has_capacity == has_capacity and wait.unmet == one:
                continue
            if wait is not None:
                self._close(wait, now)
            self._waits[one.pod] = _Wait(one, now, has_capacity)

    def reason(self, pod: str) -> HoldReason | None:
        """The last one it waited for; None where it never waited."""
        if pod in self._waits:
            return self._waits[pod].unmet.reason
        return next((held.unmet.reason for held in reversed(self._held.get(pod, {}).values())), None)

    def waiting_now(self, pods: Iterable[str]) -> list[Unmet]:
        return [self._waits[pod].unmet for pod in pods if pod in self._waits]

    def held_longest(self, pods: Iterable[str], now: datetime) -> Unmet | None:
        """The reason that held one of these pods longest; waiting for a node that starts does not count."""
        reasons: list[HeldFor] = []
        for pod in pods:
            sums: dict[tuple[object, ...], HeldFor] = {}
            for held in self._reasons(pod, now):
                if held.unmet.code not in ON_ITS_WAY:
                    sums.setdefault(topic(held.unmet.reason), HeldFor(held.unmet)).add(held)
            reasons += sums.values()
        return max(reasons, key=lambda held: held.weight).unmet if reasons else None

    def _reasons(self, pod: str, now: datetime) -> Iterable[HeldFor]:
        yield from self._held.get(pod, {}).values()
        if pod in self._waits:
            yield self._waits[pod].until(now)

    def _close(self, wait: _Wait, now: datetime) -> None:
        reasons = self._held.setdefault(wait.unmet.pod, {})
        key = topic(wait.unmet.reason)
        held = reasons.pop(key, None) or HeldFor(wait.unmet)
        held.add(wait.until(now))
        reasons[key] = held  # at the end: the last one given


def _has_capacity(world: World) -> bool:
    """A reservation is active or an instance is up: pods that wait now wait for another reason than no capacity."""
    return any(reservation.state is ReservationState.ACTIVE for reservation in world.reservations) or any(
        node.instance is not None and node.instance.state in INSTANCE_UP_STATES for node in world.nodes
    )
