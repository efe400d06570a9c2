"""3, by the hour: overflow keeps its caps and the month's budget. What was bought is judged in `bought`.

What AWS charges is compared with the documents; the engine's own sums are not used.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from math import inf

from tidemill.model.capacity import SourceKind
from tidemill.sim.cloud.extensions import ExtensionPurchase
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cloud.purchases import Purchase
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import SourceSpec
from tidemill.store.months import bounds

HOURLY = (SourceKind.SPOT, SourceKind.ON_DEMAND)
CENT = 0.01  # sums of floats
# An engine that was absent or throttled cannot stop what runs: what that cost in the last hours does not count.
FORGIVEN_OVER = timedelta(hours=3)


class Overflow:
    """Checks what is paid by the hour. It keeps a list of the instances of this month."""

    def __init__(self) -> None:
        self._lives: list[InstanceHistory] = []
        self._seen = 0

    def check(self, truth: Truth) -> Findings:
        now = truth.now()
        self._note(truth, bounds(now)[0])
        by_source: dict[tuple[str, str], list[InstanceHistory]] = {}
        for history in self._lives:
            by_source.setdefault((history.now.pool, history.now.source.kind.value), []).append(history)
        for (name, kind), histories in by_source.items():
            pool = truth.spec.pools.get(name)
            if pool is None:
                continue
            overflow = any(source.type in ("block", "odcr") for source in pool.spec.sources)
            for source in pool.spec.sources:
                if source.type == kind and overflow:
                    yield from _cap_held(truth, name, source, histories, now)
                if source.type == kind and (overflow or truth.spec.platform.spec.budget.monthly_usd):
                    yield from _month_held(truth, name, histories, now)

    def _note(self, truth: Truth, month: datetime) -> None:
        new = islice(truth.cloud.instance_histories.values(), self._seen, None)
        self._seen = len(truth.cloud.instance_histories)
        self._lives += [history for history in new if history.now.source.kind in HOURLY]
        self._lives = [history for history in self._lives if _is_of(history, month)]


def _cap_held(
    truth: Truth, pool: str, source: SourceSpec, histories: list[InstanceHistory], now: datetime
) -> Findings:
    rate = sum(history.usd_h for history in histories if history.shutting_down_at is None)
    if rate > (source.max_hourly_usd or 0) + CENT:
        yield 3, (pool, f"{source.type} at ${rate:,.2f}/h of ${source.max_hourly_usd or 0:,.2f}/h")
    spent = sum(_usd(history, now) for history in histories)
    if spent > (source.max_monthly_usd or 0) + _forgiven(truth, rate, now):
        yield 3, (pool, f"{source.type} cost ${spent:,.2f} this month of ${source.max_monthly_usd or 0:,.2f}")


def _month_held(truth: Truth, pool: str, histories: list[InstanceHistory], now: datetime) -> Findings:
    """Of pools that have nothing else, too: what they spend is missing for blocks."""
    rate = sum(history.usd_h for history in histories if history.shutting_down_at is None)
    budget = truth.spec.platform.spec.budget.monthly_usd
    if rate and (total := spent_usd(truth, now)) > budget + _forgiven(truth, rate, now):
        yield 3, (pool, f"nodes by the hour run with ${total:,.2f} spent this month of ${budget:,}")


def ends_with_its_money(truth: Truth, history: InstanceHistory, within: timedelta) -> bool:
    """Whether what is left for its pool and source would be spent so soon, by all that ran there until now."""
    now, kind = truth.now(), history.now.source.kind
    pool = truth.spec.pools.get(history.now.pool)
    if pool is None or kind not in HOURLY:
        return False
    source = next((one for one in pool.spec.sources if one.type == kind.value), None)
    if source is None:
        return False
    beside = [
        one
        for one in _this_month(truth, now)
        if one.now.pool == history.now.pool and one.now.source.kind is kind
    ]
    ran = (one for one in beside if one.shutting_down_at is None or one.shutting_down_at > now - within)
    budget, left = truth.spec.platform.spec.budget.monthly_usd, inf
    if budget or any(one.type in ("block", "odcr") for one in pool.spec.sources):
        left = budget - spent_usd(truth, now)  # else nothing is bought, and nothing limits it
    if source.max_monthly_usd is not None:
        left = min(left, source.max_monthly_usd - sum(_usd(one, now) for one in beside))
    return left < sum(one.usd_h for one in ran) * (within / timedelta(hours=1))


def _forgiven(truth: Truth, rate: float, now: datetime) -> float:
    """What is spent while nobody can act."""
    helpless = FORGIVEN_OVER - truth.able_for(now - FORGIVEN_OVER, now)
    return CENT + rate * helpless.total_seconds() / 3600


def spent_usd(truth: Truth, now: datetime) -> float:
    """Fees of what the engine bought and hourly money of our instances, this calendar month."""
    return fees_usd(truth, now) + sum(
        _usd(history, now) for history in _this_month(truth, now) if history.now.owner == truth.owner
    )


def fees_usd(truth: Truth, now: datetime) -> int:
    """Of blocks and of extensions, this calendar month. What could not be paid is no money spent."""
    sold: list[Purchase | ExtensionPurchase] = [*truth.cloud.purchases]
    sold += [extension for extension in truth.cloud.bought_extensions if not extension.by_hand]
    return sum(
        one.fee_usd
        for one in sold
        if (one.at.year, one.at.month) == (now.year, now.month) and (one.paid or one.settled_at is None)
    )


def _this_month(truth: Truth, now: datetime) -> list[InstanceHistory]:
    """Paid by the hour, and not over before the month began."""
    month = bounds(now)[0]
    histories = truth.cloud.instance_histories.values()
    return [history for history in histories if history.now.source.kind in HOURLY and _is_of(history, month)]


def _is_of(history: InstanceHistory, month: datetime) -> bool:
    return history.shutting_down_at is None or history.shutting_down_at > month


def _usd(history: InstanceHistory, now: datetime) -> float:
    if history.running_at is None:
        return 0.0
    seconds = ((history.shutting_down_at or now) - max(bounds(now)[0], history.running_at)).total_seconds()
    return history.usd_h * max(0.0, seconds) / 3600
