"""A ledger in memory, for rehearsals and tests. It forgets on exit, so nothing real may be bought from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.errors import Refused
from tidemill.ports import Clock
from tidemill.world import (
    CostLine,
    LaunchIntent,
    LaunchState,
    PurchaseIntent,
    PurchaseState,
    SourceKind,
    Spending,
)

_MAY_COST = (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN, PurchaseState.CONFIRMED)
FAILURES_KEPT = timedelta(hours=1)


class MemoryLedger:
    durable = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._launches: dict[str, LaunchIntent] = {}
        self._purchases: dict[str, PurchaseIntent] = {}
        self._running: dict[str, CostLine] = {}
        self._ended: dict[tuple[int, int], dict[tuple[str, SourceKind], float]] = {}
        self._seen_ended: set[str] = set()

    def launches(self) -> tuple[LaunchIntent, ...]:
        old = self._clock.now() - FAILURES_KEPT
        for intent in [one for one in self._launches.values() if one.state is LaunchState.FAILED]:
            if (intent.state_at or intent.written_at) < old:
                del self._launches[intent.id]
        return tuple(self._launches.values())

    def write_launch(self, intent: LaunchIntent) -> None:
        if intent.state is LaunchState.SETTLED:
            self._launches.pop(intent.id, None)
        else:
            self._launches[intent.id] = intent

    def purchases(self) -> tuple[PurchaseIntent, ...]:
        return tuple(self._purchases.values())

    def propose(self, intent: PurchaseIntent) -> None:
        self._purchases.setdefault(intent.id, intent)

    def advance(self, before: PurchaseIntent, after: PurchaseIntent) -> None:
        held = self._purchases.get(before.id)
        if held is None or (held.state, held.verdicts) != (before.state, before.verdicts):
            state = held.state.value if held else "unknown here"
            raise Refused(f"purchase {before.id} is {state} by now, not {before.state.value}")
        self._purchases[before.id] = after

    def meter(self, line: CostLine) -> None:
        if line.until is None:
            self._running[line.instance_id] = line
            return
        self._running.pop(line.instance_id, None)
        if line.instance_id in self._seen_ended:
            return
        self._seen_ended.add(line.instance_id)
        for month, usd in _by_month(line, line.until):
            sums = self._ended.setdefault(month, {})
            key = (line.pool, line.kind)
            sums[key] = sums.get(key, 0.0) + usd

    def metered(self) -> tuple[CostLine, ...]:
        return tuple(self._running.values())

    def spending(self, now: datetime) -> Spending:
        month = (now.year, now.month)
        sums = dict(self._ended.get(month, {}))
        for line in self._running.values():
            usd = dict(_by_month(replace(line, until=now), now)).get(month, 0.0)
            sums[(line.pool, line.kind)] = sums.get((line.pool, line.kind), 0.0) + usd
        # What may have been bought counts as bought until it is certain that it was not.
        fees = sum(
            one.fee_usd
            for one in self._purchases.values()
            if one.state in _MAY_COST and one.state_at and (one.state_at.year, one.state_at.month) == month
        )
        return Spending(fees, tuple(sorted(sums.items())))


def _by_month(line: CostLine, until: datetime) -> list[tuple[tuple[int, int], float]]:
    """A line's dollars, split where a calendar month begins."""
    parts = []
    start = line.since
    while start < until:
        turn = (start.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=32)).replace(
            day=1
        )
        stop = min(turn, until)
        hours = (stop - start).total_seconds() / 3600
        parts.append(((start.year, start.month), hours * line.usd_per_hour))
        start = stop
    return parts
