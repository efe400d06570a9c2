"""A ledger and its alerts in memory, for rehearsals and tests. It forgets on exit, so nothing real is bought from it.

The rules that both implementations share (transitions, caps, when an alert rises again) are here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from tidemill.decide.read_models import over_month
from tidemill.model.alerts import Alert, AlertEvent, Delivery, Raised
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import Refused
from tidemill.model.purchases import (
    MAY_COST,
    TRANSITIONS,
    Adoption,
    BlockHours,
    Caps,
    CostLine,
    LaunchIntent,
    LaunchState,
    Pause,
    PurchaseIntent,
    ShownReservation,
    Spending,
)
from tidemill.ports import Clock
from tidemill.store.months import Month, bounds, by_month, month_of, usd_between
from tidemill.wording.purchases import purchase_sentence

FAILURES_KEPT = timedelta(hours=1)
FAILED_STARTS_KEPT = timedelta(days=1)
SHORT_KEPT = timedelta(days=1)


class MemoryLedger:
    """`outlives_the_engine`: only in a rehearsal, whose world ends with the ledger. Then it may buy."""

    def __init__(self, clock: Clock, deployment: str = "", *, outlives_the_engine: bool = False) -> None:
        self._clock = clock
        self.deployment = deployment
        self.durable = outlives_the_engine
        self._adoptions: dict[str, Adoption] = {}
        self._pause: Pause | None = None
        self._block_hours: dict[tuple[str, str, str], BlockHours] = {}
        self._launches: dict[str, LaunchIntent] = {}
        self._purchases: dict[str, PurchaseIntent] = {}
        self._running: dict[str, CostLine] = {}
        self._ended: dict[str, CostLine] = {}
        self._sums: dict[Month, dict[tuple[str, SourceKind], float]] = {}  # of instances that ended
        self._fees: dict[Month, tuple[tuple[str, int], ...]] = {}  # by plan, computed when asked for
        self.alerts = MemoryAlerts()

    def launches(self) -> tuple[LaunchIntent, ...]:
        kept = {
            LaunchState.FAILED: FAILURES_KEPT,
            LaunchState.SHORT: SHORT_KEPT,
            LaunchState.NEVER_READY: FAILED_STARTS_KEPT,
        }
        for intent in [launch for launch in self._launches.values() if launch.state in kept]:
            if (intent.state_at or intent.written_at) < self._clock.now() - kept[intent.state]:
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
        self._fees.clear()

    def advance(self, before: PurchaseIntent, after: PurchaseIntent, *, caps: Caps | None = None) -> None:
        check_transition(self._purchases.get(before.id), before, after)
        if caps is not None:
            bought = [
                one.state_at for one in self._purchases.values() if one.state in MAY_COST and one.state_at
            ]
            check_clock(max(bought, default=None), self._clock.now())
            check_month_caps(self.spending(self._clock.now()), after, caps)
        self._purchases[before.id] = after
        self._fees.clear()

    def adopt(self, adoption: Adoption) -> None:
        self._adoptions[adoption.reservation_id] = adoption

    def adoptions(self) -> tuple[Adoption, ...]:
        return tuple(self._adoptions.values())

    def pause(self) -> Pause | None:
        return self._pause

    def write_pause(self, pause: Pause) -> None:
        self._pause = pause if pause.paused else None

    def remember(self, reservation_id: str, shown: ShownReservation) -> None:
        held = self._adoptions.get(reservation_id)
        if held is not None:
            self._adoptions[reservation_id] = replace(held, shown=shown)

    def write_block_hours(self, lines: tuple[BlockHours, ...]) -> None:
        self._block_hours |= {(line.reservation_id, line.pool, line.team): line for line in lines}

    def block_hours(self) -> tuple[BlockHours, ...]:
        return tuple(self._block_hours.values())

    def meter(self, line: CostLine) -> None:
        ended = self._ended.get(line.instance_id)
        if line.until is not None and ended is not None:
            return  # the first end that was reported is the nearest to the truth
        if line.until is None:
            if ended is not None:  # it was only missing from one answer of AWS: it has not ended
                del self._ended[line.instance_id]
                self._add(ended, -1)
            self._running[line.instance_id] = line
            return
        self._running.pop(line.instance_id, None)
        self._ended[line.instance_id] = line
        self._add(line, 1)

    def _add(self, line: CostLine, sign: int) -> None:
        assert line.until is not None
        for month, usd in by_month(line, line.until):
            sums = self._sums.setdefault(month, {})
            key = (line.pool, line.kind)
            sums[key] = sums.get(key, 0.0) + sign * usd

    def metered(self) -> tuple[CostLine, ...]:
        return tuple(self._running.values())

    def cost_lines(self) -> tuple[CostLine, ...]:
        """Of every instance, ended or not."""
        return (*self._ended.values(), *self._running.values())

    def spending(self, now: datetime) -> Spending:
        month = month_of(now)
        sums = dict(self._sums.get(month, {}))
        first = bounds(now)[0]
        for line in self._running.values():
            key = (line.pool, line.kind)
            sums[key] = sums.get(key, 0.0) + usd_between(line, first, now)
        if month not in self._fees:
            self._fees[month] = self._fees_of(month)
        fees = self._fees[month]
        return Spending(sum(usd for _, usd in fees), tuple(sorted(sums.items())), fees)

    def _fees_of(self, month: Month) -> tuple[tuple[str, int], ...]:
        fees: dict[str, int] = {}
        for purchase in self._purchases.values():
            if purchase.state in MAY_COST and purchase.state_at and month_of(purchase.state_at) == month:
                fees[purchase.plan] = fees.get(purchase.plan, 0) + purchase.fee_usd
        return tuple(sorted(fees.items()))


# Clocks of two machines differ by seconds. One that is set back by more could be in a month whose budget is unspent.
CLOCK_MAY_DIFFER = timedelta(minutes=5)


def check_clock(last_bought_at: datetime | None, now: datetime) -> None:
    if last_bought_at is not None and now < last_bought_at - CLOCK_MAY_DIFFER:
        raise Refused(
            f"the clock says {now:%Y-%m-%d %H:%M} UTC, and the last purchase was made {last_bought_at:%Y-%m-%d %H:%M}:"
            " set the clock right; until then nothing is bought",
            code="clock-stepped-back",
        )


def check_month_caps(spending: Spending, intent: PurchaseIntent, caps: Caps) -> None:
    over = over_month(caps, intent.plan, intent.fee_usd, spending)
    if over is not None:
        raise Refused(purchase_sentence(over), code=over.kind)


def check_transition(held: PurchaseIntent | None, before: PurchaseIntent, after: PurchaseIntent) -> None:
    """A caller that decided on an old state must read again; a verdict counts for one envelope only."""
    if after.id != before.id:
        raise Refused(f"purchase {before.id} cannot become {after.id}")
    if held is None:
        raise Refused(f"purchase {before.id} is not in this ledger; expected it to be {before.state.value}")
    if held.state is not before.state:
        raise Refused(f"purchase {before.id} is {held.state.value} by now, not {before.state.value}")
    if (before.state, after.state) not in TRANSITIONS:
        raise Refused(f"purchase {before.id} is {before.state.value} and cannot become {after.state.value}")
    if held.verdicts != before.verdicts:
        raise Refused(f"somebody decided on purchase {before.id} meanwhile; read it again")
    if after.envelope != held.envelope and any(verdict in held.verdicts for verdict in after.verdicts):
        raise Refused(f"the verdicts on purchase {before.id} are about another envelope; ask for new ones")


# --- alerts -------------------------------------------------------------------------------------------


# An alert that comes back sooner than this after it was resolved is the same alert, and is not sent again.
FLICKERS = timedelta(minutes=30)


class MemoryAlerts:
    def __init__(self) -> None:
        self._raised: dict[str, Raised] = {}  # without deliveries: those are below, oldest first
        self._words: list[Delivery] = []
        self._places: dict[str, list[int]] = {}  # of an alert's deliveries among all
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
        self._tell(
            Delivery(alert.key, raised.occasion, target, AlertEvent.RAISED, at, at) for target in targets
        )
        return True

    def _tell(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            self._places.setdefault(one.key, []).append(len(self._words))
            self._words.append(one)

    def _words_of(self, key: str) -> list[Delivery]:
        return [self._words[place] for place in self._places.get(key, ())]

    def resolve_alert(self, key: str, at: datetime) -> None:
        held = self._raised.get(key)
        if held is None or held.resolved_at is not None:
            return
        self._raised[key] = replace(held, resolved_at=at)
        self._tell(
            Delivery(key, held.occasion, one.target, AlertEvent.RESOLVED, at, at)
            for one in self._words_of(key)
            if one.occasion == held.occasion and not one.failure
        )

    def alerts(self, *, open_only: bool = False) -> tuple[Raised, ...]:
        wanted = [one for one in self._raised.values() if not open_only or is_open(one)]
        return tuple(self._whole(one) for one in wanted)

    def first_raised(self, after: int) -> list[Raised]:
        """Alerts in the order in which each was first raised, without the first so many, and without deliveries."""
        return list(islice(self._raised.values(), after, None))

    def _whole(self, raised: Raised) -> Raised:
        return replace(raised, deliveries=tuple(self._words_of(raised.alert.key)))

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
        for place in self._places.get(delivery.key, ()):
            one = self._words[place]
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
