"""The summary of a purchase that a person decides on.

What and when, the fee, the price compared with on-demand, what is left of the budget, who must approve, and that it
cannot be cancelled.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidemill.catalog.price_comparison import BlockPrice, block_price
from tidemill.decide.read_models import approvals_needed, not_granted
from tidemill.model.purchases import PurchaseIntent, Spending
from tidemill.spec import Spec
from tidemill.spec.units import format_duration
from tidemill.store.rows import document as plain

BLOCK_IS_FINAL = "A Capacity Block cannot be cancelled, moved, changed or refunded once it is bought."
EXTENSION_IS_FINAL = "An extension cannot be cancelled or refunded once it is bought."


def price(spec: Spec, intent: PurchaseIntent, fee_usd: int) -> BlockPrice:
    """Per GPU-hour of the time that is certain: from the latest start to the earliest end."""
    envelope = intent.envelope
    kind = spec.catalog.types[envelope.instance_type]
    return block_price(kind, envelope.count, envelope.earliest_end - envelope.latest_start, fee_usd)


def summary_lines(spec: Spec, intent: PurchaseIntent, fee_usd: int | None, spending: Spending) -> list[str]:
    """`fee_usd` None: the fee is known only when EC2 is searched again; the highest possible fee is shown."""
    envelope = intent.envelope
    rows = [
        f"  from      {_start(intent)}",
        f"  until     {_at(envelope.earliest_end)} ({format_duration(envelope.duration)})",
        f"  zone      {', '.join(envelope.zones) or 'any'}",
        f"  fee       {_fee(intent, fee_usd)}",
        f"  price     {_price(spec, intent, fee_usd)}",
        f"  budget    {_budget(spec, intent, fee_usd, spending)}",
        f"  approval  {approval(spec, intent, spending)}",
    ]
    return [heading(intent), *rows, EXTENSION_IS_FINAL if intent.extends else BLOCK_IS_FINAL]


def heading(intent: PurchaseIntent) -> str:
    envelope = intent.envelope
    what = f"{envelope.count} x {envelope.instance_type}"
    for_pool = f" for pool {intent.pool}" if intent.pool else ""
    return f"{intent.id}: {f'more time on {intent.extends}, ' if intent.extends else ''}{what}{for_pool}"


def _start(intent: PurchaseIntent) -> str:
    first, last = intent.envelope.earliest_start, intent.envelope.latest_start
    return _at(first) if first == last else f"{_at(first)}, at the latest {_at(last)}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def _fee(intent: PurchaseIntent, fee_usd: int | None) -> str:
    most = intent.envelope.max_fee_usd
    if fee_usd is None:
        return f"at most ${most:,}, up front"
    return f"${fee_usd:,} up front" + (f"; at most ${most:,} if it changes" if most > fee_usd else "")


def _price(spec: Spec, intent: PurchaseIntent, fee_usd: int | None) -> str:
    most = intent.envelope.max_fee_usd if fee_usd is None else fee_usd
    block = price(spec, intent, most)
    text = f"{'at most ' if fee_usd is None else ''}${block.usd_per_gpu_h:.2f} per GPU-hour"
    share, on_demand = block.against_on_demand, block.on_demand_usd_per_gpu_h
    if share is None or on_demand is None:
        return f"{text}; no on-demand price is known for {intent.envelope.instance_type}"
    side = "below" if share < 0 else "above"
    return f"{text}, {abs(share):.0%} {side} on demand (${on_demand:.2f})"


def _budget(spec: Spec, intent: PurchaseIntent, fee_usd: int | None, spending: Spending) -> str:
    month = spec.platform.spec.budget.monthly_usd
    spent = spending.total_usd
    after = month - spent - (intent.envelope.max_fee_usd if fee_usd is None else fee_usd)
    return f"${month:,} a month, ${spent:,.0f} spent, ${after:,.0f} left after this"


def approval(spec: Spec, intent: PurchaseIntent, spending: Spending) -> str:
    policy = spec.platform.spec.approval
    why_not = not_granted(spec.platform, intent, spending)
    if why_not is None and not intent.verdicts:
        return "not needed: the Platform buys up to this amount without approval"
    if why_not is None:
        return f"given by {', '.join(verdict.who for verdict in intent.verdicts if verdict.approved)}"
    needed = approvals_needed(policy, intent.envelope.max_fee_usd)
    people = "one person" if needed == 1 else f"{needed} people"
    among = f", of {', '.join(policy.approvers)}" if policy.approvers else ""
    return f"by {people} other than {intent.proposer}{among}"


def purchase_document(spec: Spec, intent: PurchaseIntent, fee_usd: int | None) -> dict[str, Any]:
    """For --json: the intent as the ledger has it, and its price."""
    found = price(spec, intent, intent.envelope.max_fee_usd if fee_usd is None else fee_usd)
    return {
        "intent": plain(intent),
        "state": intent.state.value,
        "reservation_ids": list(intent.reservation_ids),
        "fee_usd": intent.fee_usd or fee_usd,
        "usd_per_gpu_h": round(found.usd_per_gpu_h, 4),
        "against_on_demand": None if found.against_on_demand is None else round(found.against_on_demand, 4),
    }
