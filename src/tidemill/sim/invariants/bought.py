"""3, up front: one purchase per intent, written down before, approved by those who must, inside its envelope and every
ceiling. Blocks and extensions alike.

What AWS sold is compared with what people said and with the documents, at the instant of the sale; the engine's own
sums are not used. In a rehearsal nobody but the engine calls EC2's purchase; what people extend in the console is
theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidemill.model.purchases import PurchaseIntent
from tidemill.sim.cloud.extensions import ExtensionPurchase
from tidemill.sim.cloud.purchases import Purchase
from tidemill.sim.invariants.money import CENT, fees_usd, spent_usd
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.platform import principal


@dataclass(frozen=True, slots=True)
class _Sale:
    """A block that was sold, or more time on one."""

    at: datetime
    intent_id: str  # empty: it belongs to none
    ids: tuple[str, ...]
    fee_usd: int
    instance_type: str
    count: int
    zone: str
    start: datetime
    end: datetime


class Bought:
    def __init__(self) -> None:
        self._purchases = self._extensions = 0
        self._sold: Counter[str] = Counter()  # by intent
        self._plan_fees: dict[str, list[tuple[datetime, int, Purchase | ExtensionPurchase]]] = {}

    def check(self, truth: Truth) -> Findings:
        """Every sale once, at the instant at which it was made."""
        purchases, extensions = truth.cloud.purchases, truth.cloud.bought_extensions
        if len(purchases) == self._purchases and len(extensions) == self._extensions:
            return
        new: list[Purchase | ExtensionPurchase] = [*purchases[self._purchases :]]
        new += [extension for extension in extensions[self._extensions :] if not extension.by_hand]
        self._purchases, self._extensions = len(purchases), len(extensions)
        intents = truth.ledger.purchases()
        sales = [
            _of_block(one) if isinstance(one, Purchase) else _of_extension(truth, one, intents) for one in new
        ]
        asked = {intent.id for intent in intents if any(verdict.approved for verdict in intent.verdicts)}
        for one, sale in zip(new, sales, strict=True):
            # What people approved at the same instant may have come after it.
            later_usd = sum(
                other.fee_usd for other in sales if other is not sale and other.intent_id in asked
            )
            fees = fees_usd(truth, sale.at) - later_usd
            yield from self._judge(truth, sale, one, intents, fees)
        if new and (spent := spent_usd(truth, truth.now())) > _monthly_usd(truth) + CENT:
            yield 3, (_last_id(new), f"${spent:,.0f} this month")

    def _judge(
        self,
        truth: Truth,
        sale: _Sale,
        sold: Purchase | ExtensionPurchase,
        intents: Iterable[PurchaseIntent],
        fees: int,
    ) -> Findings:
        intent = next((one for one in intents if one.id == sale.intent_id), None)
        if not sale.intent_id or intent is None:
            yield 3, (sale.intent_id or "no intent", *sale.ids, "nobody had written it down")
            return
        self._sold[intent.id] += 1
        if self._sold[intent.id] > 1:
            yield 3, (intent.id, *sale.ids, f"bought {self._sold[intent.id]} times")
        if not _approved(truth, sale, intent, fees):
            yield 3, (intent.id, *sale.ids, "nobody had approved it")
        if why := _outside(truth, sale, intent):
            yield 3, (intent.id, *sale.ids, why)
        yield from self._plan_month(truth, sale, sold, intent)

    def _plan_month(
        self, truth: Truth, sale: _Sale, sold: Purchase | ExtensionPurchase, intent: PurchaseIntent
    ) -> Findings:
        """A plan's own month counts the fees of what was bought for it."""
        plan = truth.spec.plans.get(intent.plan)
        cap = plan.spec.budget.monthly_usd if plan is not None and plan.spec.budget is not None else 0
        rows = self._plan_fees.setdefault(intent.plan, [])
        rows.append((sale.at, sale.fee_usd, sold))
        month = (sale.at.year, sale.at.month)
        fees = sum(
            fee
            for at, fee, one in rows
            if (at.year, at.month) == month and (one.paid or one.settled_at is None)
        )
        if cap and fees > cap:
            yield 3, (intent.id, *sale.ids, f"${fees:,} this month for {intent.plan}, of ${cap:,}")


def _of_block(purchase: Purchase) -> _Sale:
    offer = purchase.offer
    return _Sale(
        purchase.at,
        purchase.intent_id,
        purchase.reservation_ids,
        purchase.fee_usd,
        offer.instance_type,
        offer.count,
        offer.zone,
        offer.start,
        offer.end,
    )


def _of_extension(truth: Truth, extension: ExtensionPurchase, intents: Iterable[PurchaseIntent]) -> _Sale:
    """It takes no tags: its intent is the one that was written with its offer."""
    block = truth.cloud.reservation(extension.reservation_id)
    assert block is not None, "AWS sells time on blocks that it has"
    written = (
        intent.id
        for intent in intents
        if (intent.extends, intent.offer_id) == (extension.reservation_id, extension.offer_id)
    )
    return _Sale(
        extension.at,
        next(written, ""),
        (extension.reservation_id,),
        extension.fee_usd,
        block.instance_type,
        block.count,
        block.zone,
        extension.start,
        extension.to,
    )


def _last_id(new: list[Purchase | ExtensionPurchase]) -> str:
    last = new[-1]
    return last.intent_id if isinstance(last, Purchase) else last.reservation_id


def _monthly_usd(truth: Truth) -> int:
    return truth.spec.platform.spec.budget.monthly_usd


def _approved(truth: Truth, sale: _Sale, intent: PurchaseIntent, fees: int) -> bool:
    """`fees`: of this month, with this one."""
    policy = truth.spec.platform.spec.approval
    told = [verdict for verdict in intent.verdicts if verdict.at <= sale.at]
    if policy.mode == "propose" or any(not verdict.approved for verdict in told):
        return False
    yes = {
        principal(verdict.who, sessions_are_proved=policy.sessions_are_proved)
        for verdict in told
        if not policy.approvers or verdict.who in policy.approvers
    }
    yes.discard(principal(intent.proposer, sessions_are_proved=policy.sessions_are_proved))
    dear = policy.two_above_usd is not None and sale.fee_usd > policy.two_above_usd
    small = not dear and sale.fee_usd <= policy.auto_max_fee_usd
    if (
        policy.mode == "auto"
        and small
        and (policy.auto_monthly_usd is None or fees <= policy.auto_monthly_usd)
    ):
        return True
    return len(yes) >= (2 if policy.mode == "two" or dear else 1)


def _outside(truth: Truth, sale: _Sale, intent: PurchaseIntent) -> str:
    """What about the sale the approval did not cover; empty: nothing."""
    envelope, plan = intent.envelope, truth.spec.plans.get(intent.plan)
    # A plan or a window can only lower the platform's ceiling, and 0 there says nothing.
    lower = [plan.spec.budget.per_purchase_usd] if plan and plan.spec.budget else []
    lower += [
        window.max_fee_usd for window in (plan.spec.demand if plan else ()) if window.name == intent.window
    ]
    ceilings = [truth.spec.platform.spec.budget.per_purchase_usd, *(usd for usd in lower if usd)]
    if sale.fee_usd > min(ceilings):
        return f"${sale.fee_usd:,} is over the ceiling of one purchase"
    if sale.fee_usd > envelope.max_fee_usd:
        return f"${sale.fee_usd:,} is over the approved ${envelope.max_fee_usd:,}"
    if sale.at > envelope.expires_at:
        return "its approval had expired"
    if (sale.instance_type, sale.count) != (envelope.instance_type, envelope.count):
        return f"{sale.count} x {sale.instance_type} was not what was approved"
    if envelope.zones and sale.zone not in envelope.zones:
        return f"{sale.zone} is none of the approved zones"
    if not envelope.earliest_start <= sale.start <= envelope.latest_start or sale.end < envelope.earliest_end:
        return "its dates are not the approved ones"
    return ""
