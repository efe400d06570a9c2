"""Whether an open purchase is still wanted: not expired, its demand is there and missing, its pool could use it.

Asked when deciding, when a person approves it and again at submit. What is not wanted is voided, and never bought.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidemill.decide.purchasing.approval import over_budget
from tidemill.decide.purchasing.coverage import still_missing
from tidemill.decide.purchasing.purchase_use import is_mostly_covered
from tidemill.decide.purchasing.usability import why_purchase_unusable
from tidemill.decide.purchasing.window_coverage import window_named
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseIntent, Spending
from tidemill.spec import Spec


def why_not_wanted(
    spec: Spec, intent: PurchaseIntent, held: Iterable[Reservation], now: datetime
) -> PurchaseReason | None:
    """`held`: what AWS shows, and what other purchases may have bought."""
    held = list(held)
    if now >= min(intent.envelope.expires_at, intent.envelope.latest_start):
        return PurchaseReason(ReasonKind.EXPIRED)
    plan = spec.plans.get(intent.plan)
    if intent.plan and (plan is None or not plan.spec.calendar) and window_named(plan, intent.window) is None:
        return PurchaseReason(ReasonKind.WINDOW_REMOVED)
    if still_missing(spec, held, intent, now) == 0:
        return PurchaseReason(ReasonKind.COVERED)
    if is_mostly_covered(spec, held, intent, now):
        return PurchaseReason(ReasonKind.MOSTLY_COVERED)
    return _block_to_extend_changed(intent, held) or why_purchase_unusable(spec, intent, held)


def _block_to_extend_changed(intent: PurchaseIntent, held: Iterable[Reservation]) -> PurchaseReason | None:
    if not intent.extends:
        return None
    block = next((one for one in held if one.id == intent.extends), None)
    if block is None or block.state not in SECURED_STATES:
        return PurchaseReason(ReasonKind.BLOCK_GONE)
    if block.end != intent.envelope.latest_start:
        return PurchaseReason(ReasonKind.BLOCK_END_MOVED)
    return None


def why_never_bought(
    spec: Spec, intent: PurchaseIntent, held: Iterable[Reservation], spending: Spending, now: datetime
) -> PurchaseReason | None:
    """Why an approval would lead to nothing: it is not wanted any more, or its fee is over a limit until it expires."""
    why = why_not_wanted(spec, intent, held, now)
    if why is not None:
        return why
    plan = spec.plans.get(intent.plan)
    fee_usd, window = intent.envelope.max_fee_usd, window_named(plan, intent.window)
    why = over_budget(spec.platform, plan, window, fee_usd, spending)
    last = min(intent.envelope.expires_at, intent.envelope.latest_start)
    if why is not None and why.kind is not ReasonKind.OVER_FEE_CEILING and _month(last) != _month(now):
        return None  # next month has a budget of its own
    return why


def _month(at: datetime) -> tuple[int, int]:
    return at.year, at.month
