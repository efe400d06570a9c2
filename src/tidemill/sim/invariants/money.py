"""3: one purchase per intent, never without approval, never over a ceiling; overflow inside its caps.

What AWS sold is compared with what people said and with the documents; the engine's own sums are not used.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import islice

from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import PurchaseIntent
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cloud.purchases import Purchase
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import SourceSpec
from tidemill.store.months import bounds

HOURLY = (SourceKind.SPOT, SourceKind.ON_DEMAND)
CENT = 0.01  # sums of floats
# An engine that was absent or throttled cannot stop what runs: what that cost in the last hours does not count.
FORGIVEN_OVER = timedelta(hours=3)


def check_purchases(truth: Truth) -> Findings:
    """Over everything bought for us so far; looked at when something was bought."""
    bought = [purchase for purchase in truth.cloud.purchases if purchase.intent_id]
    intents = {intent.id: intent for intent in truth.ledger.purchases()}
    for intent_id, count in Counter(purchase.intent_id for purchase in bought).items():
        if count > 1:
            yield 3, (intent_id, f"bought {count} times")
    for purchase in bought:
        intent = intents.get(purchase.intent_id)
        if intent is None:
            yield 3, (purchase.intent_id, "nobody had written it down")
        elif not _approved(truth, purchase, intent):
            yield 3, (purchase.intent_id, *purchase.reservation_ids, "nobody had approved it")
        elif why := _outside(truth, purchase, intent):
            yield 3, (purchase.intent_id, *purchase.reservation_ids, why)
    now = truth.now()
    spent = spent_usd(truth, now)
    if bought and bought[-1].at == now and spent > truth.spec.platform.spec.budget.monthly_usd + CENT:
        yield 3, (bought[-1].intent_id, f"${spent:,.0f} this month")


def _approved(truth: Truth, purchase: Purchase, intent: PurchaseIntent) -> bool:
    policy = truth.spec.platform.spec.approval
    if any(not verdict.approved and verdict.at <= purchase.at for verdict in intent.verdicts):
        return False
    yes = {
        verdict.who
        for verdict in intent.verdicts
        if verdict.approved
        and verdict.at <= purchase.at
        and verdict.who != intent.proposer
        and (not policy.approvers or verdict.who in policy.approvers)
    }
    if policy.mode == "auto" and purchase.fee_usd <= policy.auto_max_fee_usd:
        return True
    return policy.mode != "propose" and len(yes) >= (2 if policy.mode == "two" else 1)


def _outside(truth: Truth, purchase: Purchase, intent: PurchaseIntent) -> str:
    """What about the purchase the approval did not cover; empty: nothing."""
    envelope, offer = intent.envelope, purchase.offer
    plan = truth.spec.plans.get(intent.plan)
    # A plan or a window can only lower the platform's ceiling, and 0 there says nothing.
    lower = [plan.spec.budget.per_purchase_usd] if plan and plan.spec.budget else []
    lower += [
        window.max_fee_usd for window in (plan.spec.demand if plan else ()) if window.name == intent.window
    ]
    ceilings = [truth.spec.platform.spec.budget.per_purchase_usd, *(usd for usd in lower if usd)]
    if purchase.fee_usd > min(ceilings):
        return f"${purchase.fee_usd:,} is over the ceiling of one purchase"
    if purchase.fee_usd > envelope.max_fee_usd:
        return f"${purchase.fee_usd:,} is over the approved ${envelope.max_fee_usd:,}"
    if purchase.at > envelope.expires_at:
        return "its approval had expired"
    if (offer.instance_type, offer.count) != (envelope.instance_type, envelope.count):
        return f"{offer.count} x {offer.instance_type} was not what was approved"
    if (
        not envelope.earliest_start <= offer.start <= envelope.latest_start
        or offer.end < envelope.earliest_end
    ):
        return "its dates are not the approved ones"
    return ""


# --- by the hour --------------------------------------------------------------------------------------


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


def _forgiven(truth: Truth, rate: float, now: datetime) -> float:
    """What is spent while nobody can act."""
    helpless = FORGIVEN_OVER - truth.able_for(now - FORGIVEN_OVER, now)
    return CENT + rate * helpless.total_seconds() / 3600


def spent_usd(truth: Truth, now: datetime) -> float:
    """Fees of blocks bought for us and hourly money of our instances, this calendar month. What could not be paid is
    no money spent."""
    fees = sum(
        purchase.fee_usd
        for purchase in truth.cloud.purchases
        if purchase.intent_id
        and (purchase.at.year, purchase.at.month) == (now.year, now.month)
        and (purchase.paid or purchase.settled_at is None)
    )
    return fees + sum(
        _usd(history, now) for history in _this_month(truth, now) if history.now.owner == truth.owner
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
