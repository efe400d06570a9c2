"""More time on a block that is there, before a new one is bought: its nodes stay, so nothing boots and nothing moves.

EC2 sells it from 56 days to 1 hour before the end, in the lengths it sells blocks in, one at a time, and only if it
has the capacity; the end moves when it is paid.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.coverage import held_for
from tidemill.decide.purchasing.planner.calendar import Step
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.model.ec2_facts import (
    EXTENSION_CLOSES_BEFORE_END,
    EXTENSION_OPENS_BEFORE_END,
    LONGEST_BLOCK,
    round_up_duration,
)
from tidemill.model.offers import ExtensionOffer, ExtensionQuery, ExtensionSearch
from tidemill.model.plan import SearchExtensions
from tidemill.model.purchases import Envelope, PurchaseIntent, PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.platform import Platform

# Blocks end on the grid, and demand begins when people say: what ends within a day of it runs into it.
NEAR = timedelta(days=1)
# An answer older than this is asked for again; one that was empty, sooner than a search for blocks: the window closes.
EXTENSION_ANSWER_FRESH = timedelta(minutes=30)
EMPTY_ANSWER_FRESH = timedelta(hours=2)


def extendable(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    intents: list[PurchaseIntent],
) -> list[tuple[Reservation, timedelta]]:
    """Blocks that end where the gap begins and are large enough, with the time that would close it; the least first."""
    if plan.spec.extend.policy == "never":
        return []
    found = []
    for block in held_for(context.spec, context.world.reservations, plan.spec.pool, window):
        if block.end is None or not gap.start - NEAR <= block.end <= gap.start + NEAR:
            continue
        by = round_up_duration(gap.end - block.end)
        if by is None or block.count < gap.amount or _failed_before(block, intents):
            continue
        if _may_extend(context, block, by):
            found.append((block, by))
    return sorted(found, key=lambda pair: (pair[1], pair[0].end, pair[0].id))


def extension_envelope(
    platform: Platform, block: Reservation, offer: ExtensionOffer, max_fee_usd: int, now: datetime
) -> Envelope:
    """What somebody says yes to: this block, so much longer, and no later than EC2 sells it."""
    return Envelope(
        instance_type=block.instance_type,
        count=block.count,
        duration=offer.end - offer.start,
        earliest_start=offer.start,
        latest_start=offer.start,
        earliest_end=offer.end,
        zones=(block.zone,),
        max_fee_usd=max_fee_usd,
        expires_at=min(now + platform.spec.approval.expires_after, offer.start - EXTENSION_CLOSES_BEFORE_END),
    )


def _may_extend(context: DecisionContext, block: Reservation, by: timedelta) -> bool:
    if block.end is None or by <= timedelta(0) or block.extension_pending_to is not None:
        return False
    if block.state not in SECURED_STATES:
        return False
    opens, closes = block.end - EXTENSION_OPENS_BEFORE_END, block.end - EXTENSION_CLOSES_BEFORE_END
    if context.now < opens:
        context.wake(opens)
        return False
    return context.now <= closes and block.end + by - block.start <= LONGEST_BLOCK


def _failed_before(block: Reservation, intents: list[PurchaseIntent]) -> bool:
    """Its payment failed once: what it would cover is bought as a new block."""
    return any(one.extends == block.id and one.state is PurchaseState.FAILED for one in intents)


def extension_offer(
    context: DecisionContext, block: Reservation, by: timedelta, reason: str
) -> ExtensionOffer | bool:
    """The offer; True: it was asked for and is not answered yet; False: EC2 has none."""
    search = _latest(context, ExtensionQuery(block.id, by))
    fresh = EXTENSION_ANSWER_FRESH if search is not None and search.offers else EMPTY_ANSWER_FRESH
    if search is None or context.now - search.at >= fresh:
        context.do(SearchExtensions(ExtensionQuery(block.id, by), reason))
        return True
    offers = [offer for offer in search.offers if offer.start == block.end]
    context.wake(search.at + fresh)
    return min(offers, key=lambda offer: (offer.fee_usd, offer.id)) if offers else False


def _latest(context: DecisionContext, query: ExtensionQuery) -> ExtensionSearch | None:
    same = [one for one in context.world.extension_searches if one.query == query]
    return max(same, key=lambda one: one.at, default=None)
