"""Whether a purchase may be made: approvals and ceilings. Asked when deciding and again at submit.

Fail closed: no approval policy, no budget or no approval means no. Ceilings come from the platform; a plan and a
window can only lower them.
"""

from __future__ import annotations

from tidemill.model.purchases import PurchaseIntent, Spending
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.platform import Approval, Platform, principal

# Head-room of an envelope over the offer seen: prices move between proposal and approval.
FEE_HEADROOM_PERCENT = 10
_NOTHING_SPENT = Spending()


def not_granted(
    platform: Platform, intent: PurchaseIntent, spending: Spending = _NOTHING_SPENT
) -> str | None:
    """Why nobody has said yes to it, or None."""
    policy, fee_usd = platform.spec.approval, intent.envelope.max_fee_usd
    if policy.mode == "propose":
        return "the platform only proposes: set approval.mode to buy"
    if policy.mode == "auto" and _is_small(policy, fee_usd, spending):
        return None
    yes = {
        principal(verdict.who, sessions_are_proved=policy.sessions_are_proved)
        for verdict in intent.verdicts
        if verdict.approved and (not policy.approvers or verdict.who in policy.approvers)
    }
    yes.discard(principal(intent.proposer, sessions_are_proved=policy.sessions_are_proved))
    needed = approvals_needed(policy, fee_usd)
    return f"it waits for approval ({len(yes)} of {needed})" if len(yes) < needed else None


def approvals_needed(policy: Approval, fee_usd: int) -> int:
    """How many people; two also where one or none would do for less money."""
    dear = policy.two_above_usd is not None and fee_usd > policy.two_above_usd
    return 2 if policy.mode == "two" or dear else 1


def _is_small(policy: Approval, fee_usd: int, spending: Spending) -> bool:
    """Below the cap of one fee, which is 0 unless it is set, and of all fees of the month, where there is one."""
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
) -> str | None:
    """Why this fee is too much, or None. A budget that is missing on the platform allows nothing.

    The platform's month counts everything; a plan's own month counts the fees of what was bought for it.
    """
    one = highest_fee_usd(platform, plan, window)
    month, spent_usd = platform.spec.budget.monthly_usd, spending.total_usd
    if fee_usd > one:
        return f"up to ${fee_usd:,} is over the ceiling of ${one:,} for one purchase"
    if plan is not None and plan.spec.budget is not None and (own := plan.spec.budget.monthly_usd):
        served_usd = spending.fees_of(plan.name)
        if served_usd + fee_usd > own:
            return f"up to ${fee_usd:,} on top of ${served_usd:,} is over the ${own:,} a month of plan {plan.name}"
    if spent_usd + fee_usd > month:
        return f"up to ${fee_usd:,} on top of ${spent_usd:,.0f} is over the monthly budget of ${month:,}"
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
    """What an approval may bind: the fee and a little more, but never over a ceiling that the fee itself keeps."""
    headroom_usd = fee_usd * (100 + FEE_HEADROOM_PERCENT) // 100
    ceiling_usd = highest_fee_usd(platform, plan, window)
    return min(headroom_usd, ceiling_usd) if ceiling_usd >= fee_usd else headroom_usd


def lowest(ceiling_usd: int, *others_usd: int) -> int:
    """Of ceilings that can only lower the first; 0 says nothing."""
    return min(ceiling_usd, ceiling_usd, *(other for other in others_usd if other))
