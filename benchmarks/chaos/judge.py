"""Compares what was sold with what was allowed and what the ledger knows. It shares no rule with the engine.

The simulated EC2 knows what was bought, when and for how much; the ledger's verdicts say what people decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.chaos.demand_check import was_covered, was_wasteful
from benchmarks.chaos.drawn_run import DrawnRun
from benchmarks.chaos.sales import ManualPurchases, Sale, held_capacity, sales
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.ports import Ledger
from tidemill.sim.cloud.cloud import SimCloud

KINDS = ("double", "unapproved", "over_budget", "lost")


@dataclass(slots=True)
class Mistakes:
    """A sentence for each mistake."""

    double: list[str] = field(default_factory=list)
    unapproved: list[str] = field(default_factory=list)
    over_budget: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [sentence for kind in KINDS for sentence in getattr(self, kind)]


def judge(drawn: DrawnRun, cloud: SimCloud, ledger: Ledger, by_hand: ManualPurchases) -> Mistakes:
    known = {intent.id: intent for intent in ledger.purchases()}
    sold = sales(cloud, known, by_hand)
    there = held_capacity(cloud, ledger, sold, by_hand)
    mistakes = Mistakes()
    for tag, times in Counter(sale.tag for sale in sold if sale.tag).items():
        if times > 1:
            mistakes.double.append(f"{tag} was bought {times} times")
    for sale in sold:
        if was_covered(drawn, sale, there):
            mistakes.double.append(f"all that is needed was there when {sale.name} was bought")
        elif was_wasteful(drawn, sale, there):
            mistakes.double.append(f"{sale.name} bought more than twice what was missing")
        mistakes.lost += _forgotten(sale)
        if sale.intent is not None:
            mistakes.unapproved += _not_allowed(drawn, sale, sale.intent, sold)
    mistakes.over_budget += _too_much(drawn, sold)
    return mistakes


def _forgotten(sale: Sale) -> Iterator[str]:
    intent = sale.intent
    if intent is None:
        yield f"{sale.name} was bought at {sale.at} and the ledger does not know it"
    elif not _is_remembered(sale, intent):
        yield f"{intent.id} was bought at {sale.at}; the ledger says {intent.state.value}"


def _is_remembered(sale: Sale, intent: PurchaseIntent) -> bool:
    if sale.unpaid_at is not None:
        return intent.state is PurchaseState.FAILED
    return intent.state is PurchaseState.CONFIRMED and tuple(sorted(intent.reservation_ids)) == sale.ids


# --- what was allowed -----------------------------------------------------------------------------------


def _not_allowed(drawn: DrawnRun, sale: Sale, intent: PurchaseIntent, sold: list[Sale]) -> Iterator[str]:
    said = [verdict for verdict in intent.verdicts if verdict.at <= sale.at]
    approvers = drawn.spec.platform.spec.approval.approvers
    yes = {v.who for v in said if v.approved and v.who != intent.proposer and v.who in approvers}
    needed = _needed(drawn, sale, intent, sold)
    if len(yes) < needed:
        yield f"{intent.id} was bought with {len(yes)} of {needed} approvals"
    if any(not verdict.approved for verdict in said):
        yield f"{intent.id} was bought although somebody said no"
    envelope = intent.envelope
    inside = (
        sale.fee_usd <= envelope.max_fee_usd
        and sale.count == envelope.count
        and sale.zone in envelope.zones
        and envelope.earliest_start <= sale.start <= envelope.latest_start
        and sale.end >= envelope.earliest_end
        and sale.at < envelope.expires_at
    )
    if not inside:
        yield f"{intent.id} bought something outside its envelope"


def _needed(drawn: DrawnRun, sale: Sale, intent: PurchaseIntent, sold: list[Sale]) -> int:
    """How many people. Above `twoAboveUsd` two, in every mode: also where the policy buys small things by itself."""
    policy, most_usd = drawn.spec.platform.spec.approval, intent.envelope.max_fee_usd
    if policy.mode == "propose":
        return 99
    if policy.two_above_usd is not None and most_usd > policy.two_above_usd:
        return 2
    if policy.mode == "auto":
        cap_usd = policy.auto_monthly_usd
        within_month = cap_usd is None or _spent(sold, sale) + sale.fee_usd <= cap_usd
        return 0 if most_usd <= policy.auto_max_fee_usd and within_month else 1
    return 2 if policy.mode == "two" else 1


def _too_much(drawn: DrawnRun, sold: list[Sale]) -> Iterator[str]:
    budget = drawn.spec.platform.spec.budget
    for sale in sold:
        if sale.fee_usd > budget.per_purchase_usd:
            yield f"{sale.name} cost {sale.fee_usd}, over {budget.per_purchase_usd}"
        month = _spent(sold, sale) + sale.fee_usd
        if month > budget.monthly_usd:
            yield f"{sale.name} brought the month to {month}, over {budget.monthly_usd}"


def _spent(sold: list[Sale], now: Sale) -> int:
    """Fees of the same month before this sale, of what was not known to be unpaid by then. Two sales of one second are
    told apart by which was made first."""
    before = sold[: next(place for place, sale in enumerate(sold) if sale is now)]
    return sum(
        sale.fee_usd
        for sale in before
        if (sale.at.year, sale.at.month) == (now.at.year, now.at.month) and sale.counted_at(now.at)
    )
