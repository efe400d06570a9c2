"""Whether a purchase may be made: approvals and ceilings. Asked when deciding and again at submit.

Fail closed: no approval policy, no budget or no approval means no. Ceilings come from the platform; a plan and a
window can only lower them.
"""

from __future__ import annotations

from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import NOTHING_SPENT, Caps, PurchaseIntent, Spending
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.platform import Approval, Platform, principal

# An envelope allows a fee so much above the offer that was seen: prices move between proposal and approval.
FEE_HEADROOM_PERCENT = 10


def not_granted(
    platform: Platform, intent: PurchaseIntent, spending: Spending = NOTHING_SPENT
) -> PurchaseReason | None:
    """Why it is not approved, or None."""
    policy, fee_usd = platform.spec.approval, intent.envelope.max_fee_usd
    if policy.mode == "propose":
        return PurchaseReason(ReasonKind.PROPOSE_ONLY)
    if policy.mode == "auto" and _is_small(policy, fee_usd, spending):
        return None
    yes = {
        principal(verdict.who, sessions_are_proved=policy.sessions_are_proved)
        for verdict in intent.verdicts
        if verdict.approved and (not policy.approvers or verdict.who in policy.approvers)
    }
    yes.discard(principal(intent.proposer, sessions_are_proved=policy.sessions_are_proved))
    needed = approvals_needed(policy, fee_usd)
    if len(yes) >= needed:
        return None
    return PurchaseReason(ReasonKind.WAITS_FOR_APPROVAL, approvals=len(yes), approvals_needed=needed)


def approvals_needed(policy: Approval, fee_usd: int) -> int:
    """How many people must approve. A high fee needs two, whatever the mode."""
    dear = policy.two_above_usd is not None and fee_usd > policy.two_above_usd
    return 2 if policy.mode == "two" or dear else 1


def _is_small(policy: Approval, fee_usd: int, spending: Spending) -> bool:
    """Below the cap for one fee (0 unless it is set), and below the cap for all fees of the month, if there is one."""
    month_usd = spending.fees_usd + fee_usd
    within_month = policy.auto_monthly_usd is None or month_usd <= policy.auto_monthly_usd
    wants_two = policy.two_above_usd is not None and fee_usd > policy.two_above_usd
    return fee_usd <= policy.auto_max_fee_usd and within_month and not wants_two


def over_budget(
    platform: Platform,
    plan: CapacityPlan | None,
    window: DemandWindow | None,
    fee_usd: int,
    spending: Spending,
) -> PurchaseReason | None:
    """Why this fee is too much, or None. A budget that is missing on the platform allows nothing.

    The platform's month counts everything; a plan's own month counts the fees of what was bought for it.
    """
    ceiling_usd = highest_fee_usd(platform, plan, window)
    if fee_usd > ceiling_usd:
        return PurchaseReason(ReasonKind.OVER_FEE_CEILING, fee_usd=fee_usd, limit_usd=ceiling_usd)
    own = plan.spec.budget.monthly_usd if plan is not None and plan.spec.budget is not None else 0
    caps = Caps(platform.spec.budget.monthly_usd, plan_month_usd=own or None)
    return over_month(caps, plan.name if plan is not None else "", fee_usd, spending)


def over_month(caps: Caps, plan: str, fee_usd: int, spending: Spending) -> PurchaseReason | None:
    """Which cap of this calendar month the fee would break, or None. The ledger checks it again as it writes."""
    plan_usd = spending.fees_of(plan)
    if caps.plan_month_usd is not None and plan_usd + fee_usd > caps.plan_month_usd:
        return PurchaseReason(
            ReasonKind.OVER_PLAN_MONTH,
            fee_usd=fee_usd, spent_usd=plan_usd, limit_usd=caps.plan_month_usd, name=plan,
        )  # fmt: skip
    if spending.total_usd + fee_usd > caps.month_usd:
        by_pool: dict[str, float] = {}
        for (pool, _), usd in spending.hourly_usd:
            by_pool[pool] = by_pool.get(pool, 0.0) + usd
        return PurchaseReason(
            ReasonKind.OVER_MONTH,
            fee_usd=fee_usd, spent_usd=round(spending.total_usd), limit_usd=caps.month_usd,
            hourly_usd=round(sum(by_pool.values())), name=max(sorted(by_pool), key=by_pool.__getitem__, default=""),
        )  # fmt: skip
    if caps.auto_month_usd is not None and spending.fees_usd + fee_usd > caps.auto_month_usd:
        return PurchaseReason(ReasonKind.OVER_AUTO_MONTH, fee_usd=fee_usd, limit_usd=caps.auto_month_usd)
    return None


def highest_fee_usd(platform: Platform, plan: CapacityPlan | None, window: DemandWindow | None) -> int:
    own = plan.spec.budget if plan is not None else None
    return lowest(
        platform.spec.budget.per_purchase_usd,
        own.per_purchase_usd if own else 0,
        window.max_fee_usd if window else 0,
    )


def fee_to_approve_usd(
    platform: Platform, plan: CapacityPlan | None, window: DemandWindow | None, fee_usd: int
) -> int:
    """The highest fee an approval allows: the fee and a little more, but not over a ceiling that the fee keeps."""
    headroom_usd = fee_usd * (100 + FEE_HEADROOM_PERCENT) // 100
    ceiling_usd = highest_fee_usd(platform, plan, window)
    return min(headroom_usd, ceiling_usd) if ceiling_usd >= fee_usd else headroom_usd


def lowest(ceiling_usd: int, *others_usd: int) -> int:
    """The lowest of several ceilings; 0 means that there is none, except for the first."""
    return min(ceiling_usd, ceiling_usd, *(other for other in others_usd if other))
