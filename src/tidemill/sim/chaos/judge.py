"""What was sold, against what was allowed and what is known. Shares no rule with the engine it judges.

The simulated EC2 is the truth of what was bought, when and for how much; the ledger's verdicts are what people said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.ports import Ledger
from tidemill.sim.chaos.story import Story
from tidemill.sim.cloud import SimCloud
from tidemill.world import PurchaseIntent, PurchaseState, ReservationState


@dataclass(slots=True)
class Count:
    """Sentences, so that a run that went wrong says how."""

    double: list[str] = field(default_factory=list)
    unapproved: list[str] = field(default_factory=list)
    over_budget: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [*self.double, *self.unapproved, *self.over_budget, *self.lost]


@dataclass(frozen=True, slots=True)
class _Sale:
    intent: str
    at: datetime
    fee_usd: int
    count: int
    zone: str
    start: datetime
    end: datetime
    ids: tuple[str, ...]
    unpaid_at: datetime | None  # when EC2 gave up on its payment


def judge(story: Story, cloud: SimCloud, ledger: Ledger) -> Count:
    known = {intent.id: intent for intent in ledger.purchases()}
    sales = sorted(_sales(cloud, known), key=lambda sale: sale.at)
    count = Count()
    _find_double(story, sales, known, _held(cloud, ledger, known, sales), count)
    for sale in sales:
        intent = known.get(sale.intent)
        if intent is None:
            count.lost.append(f"{sale.intent} was bought and the ledger does not know it")
            continue
        count.unapproved += _not_allowed(story, sale, intent, sales)
        if not _is_remembered(sale, intent):
            count.lost.append(f"{sale.intent} was bought at {sale.at}; the ledger says {intent.state.value}")
    count.over_budget += _too_much(story, sales)
    return count


def _sales(cloud: SimCloud, known: dict[str, PurchaseIntent]) -> Iterator[_Sale]:
    for one in cloud.purchases:
        if one.intent_id:
            unpaid = one.settled_at if one.settled_at and not one.paid else None
            offer = one.offer
            yield _Sale(
                one.intent_id, one.at, one.fee_usd, offer.count, offer.zone, offer.start, offer.end,
                tuple(sorted(one.reservation_ids)), unpaid,
            )  # fmt: skip
    by_offer = {intent.offer_id: intent for intent in known.values() if intent.extends and intent.offer_id}
    for more in cloud.bought_extensions:
        intent = by_offer.get(more.offer_id)
        if intent is not None:  # the others were made by hand
            block = cloud.reservation(more.reservation_id)
            assert block is not None
            unpaid = more.settled_at if more.settled_at and not more.paid else None
            start = intent.envelope.latest_start
            yield _Sale(
                intent.id, more.at, more.fee_usd, block.count, block.zone, start, more.to,
                (more.reservation_id,), unpaid,
            )  # fmt: skip


def _find_double(
    story: Story, sales: list[_Sale], known: dict[str, PurchaseIntent], held: list[_Held], count: Count
) -> None:
    for id_, times in Counter(sale.intent for sale in sales).items():
        if times > 1:
            count.double.append(f"{id_} was bought {times} times")
    for sale in sales:
        intent = known.get(sale.intent)
        if intent is not None and _was_covered(story, sale, intent, held):
            count.double.append(f"{intent.window} had all it needs when {sale.intent} was bought for it")


@dataclass(frozen=True, slots=True)
class _Held:
    """Capacity the engine could count on, and from when on it knew of it."""

    type_: str
    count: int
    start: datetime
    end: datetime
    since: datetime
    until: datetime | None  # no longer: its payment failed


def _held(
    cloud: SimCloud, ledger: Ledger, known: dict[str, PurchaseIntent], sales: list[_Sale]
) -> list[_Held]:
    adopted = {one.reservation_id: one.at for one in ledger.adoptions()}
    owned = []
    for one in cloud.all_reservations():
        if one.id in adopted and one.end is not None and one.state is not ReservationState.PAYMENT_FAILED:
            longer = [more for more in cloud.bought_extensions if more.reservation_id == one.id and more.paid]
            end = min((more.start for more in longer), default=one.end)
            owned.append(_Held(one.instance_type, one.count, one.start, end, adopted[one.id], None))
            owned += [
                _Held(one.instance_type, one.count, more.start, more.to, more.settled_at or more.at, None)
                for more in longer
                if not _is_ours(more.offer_id, known)
            ]
    bought = [
        _Held(
            known[sale.intent].envelope.instance_type,
            sale.count,
            sale.start,
            sale.end,
            sale.at,
            sale.unpaid_at,
        )
        for sale in sales
        if sale.intent in known
    ]
    return owned + bought


def _is_ours(offer_id: str, known: dict[str, PurchaseIntent]) -> bool:
    return any(intent.offer_id == offer_id for intent in known.values())


def _was_covered(story: Story, sale: _Sale, intent: PurchaseIntent, held: list[_Held]) -> bool:
    """All windows of the type had what they need from this sale's start to the end of the window it was for."""
    (plan,) = story.spec.plans.values()
    windows = [one for one in plan.spec.demand if one.instance_type == intent.envelope.instance_type]
    mine = next(one for one in windows if one.name == intent.window)
    there = [
        one
        for one in held
        if one.type_ == mine.instance_type
        and one.since < sale.at
        and (one.until is None or one.until > sale.at)
    ]
    first = max(mine.start, sale.start)
    turns = {first, *(at for one in there for at in (one.start, one.end)), *(one.start for one in windows)}
    return all(
        sum(one.count for one in there if one.start <= at < one.end)
        >= sum(one.instances for one in windows if one.start <= at < one.end)
        for at in turns
        if first <= at < mine.end
    )


def _not_allowed(story: Story, sale: _Sale, intent: PurchaseIntent, sales: list[_Sale]) -> Iterator[str]:
    policy, envelope = story.spec.platform.spec.approval, intent.envelope
    said = [verdict for verdict in intent.verdicts if verdict.at <= sale.at]
    yes = {v.who for v in said if v.approved and v.who != intent.proposer and v.who in policy.approvers}
    needed = {"propose": 99, "one": 1, "two": 2, "auto": 1}[policy.mode]
    if policy.two_above_usd is not None and envelope.max_fee_usd > policy.two_above_usd:
        needed = max(needed, 2)
    month = _spent(sales, sale)
    caps = policy.auto_monthly_usd
    small = envelope.max_fee_usd <= policy.auto_max_fee_usd and (caps is None or month + sale.fee_usd <= caps)
    if len(yes) < needed and not (policy.mode == "auto" and small):
        yield f"{intent.id} was bought with {len(yes)} of {needed} approvals"
    if any(not verdict.approved for verdict in said):
        yield f"{intent.id} was bought although somebody said no"
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


def _too_much(story: Story, sales: list[_Sale]) -> Iterator[str]:
    budget = story.spec.platform.spec.budget
    for sale in sales:
        if sale.fee_usd > budget.per_purchase_usd:
            yield f"{sale.intent} cost {sale.fee_usd}, over {budget.per_purchase_usd}"
        month = _spent(sales, sale) + sale.fee_usd
        if month > budget.monthly_usd:
            yield f"{sale.intent} brought the month to {month}, over {budget.monthly_usd}"


def _spent(sales: list[_Sale], now: _Sale) -> int:
    """Fees of the same month before this sale, of what was not known to be unpaid by then."""
    return sum(
        sale.fee_usd
        for sale in sales
        if sale is not now
        and sale.at <= now.at
        and (sale.at.year, sale.at.month) == (now.at.year, now.at.month)
        and (sale.unpaid_at is None or sale.unpaid_at > now.at)
    )


def _is_remembered(sale: _Sale, intent: PurchaseIntent) -> bool:
    if sale.unpaid_at is not None:
        return intent.state is PurchaseState.FAILED
    return intent.state is PurchaseState.CONFIRMED and tuple(sorted(intent.reservation_ids)) == sale.ids
