"""Extensions of blocks for a demand window: which blocks could be extended, and what EC2 asks for it.

An extension keeps the nodes: nothing boots and nothing moves. EC2 sells it from 56 days to 1 hour before the end, in
the lengths it sells blocks in, one at a time, and only if it has the capacity; the end moves when it is paid.
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.usability import why_block_unusable
from tidemill.decide.purchasing.window_coverage import held_for
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import LONGEST_BLOCK, round_up_duration
from tidemill.model.offers import ExtensionOffer, ExtensionQuery, ExtensionSearch
from tidemill.model.plan import SearchExtensions
from tidemill.model.purchase_reasons import SearchKind, SearchReason
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

# Blocks end on the grid, and demand begins at any time: a block that ends within a day of it can be extended for it.
NEAR = timedelta(days=1)
# An older answer is not used; after an empty one EC2 is asked sooner than for blocks, because extensions close.
EXTENSION_ANSWER_FRESH = timedelta(minutes=30)
EMPTY_ANSWER_FRESH = timedelta(hours=2)


def extension_offers(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    intents: list[PurchaseIntent],
) -> list[tuple[Reservation, ExtensionOffer]] | None:
    """The cheapest first; None: EC2 is asked and has not answered yet."""
    offers = []
    reason = SearchReason(SearchKind.WINDOW_OUTLASTS_BLOCK, plan.name, window.name)
    for block, by in _extendable(context, plan, window, gap, intents):
        found = _extension_offer(context, block, by, reason)
        if isinstance(found, ExtensionOffer):
            offers.append((block, found))
        elif found:
            return None
    return sorted(offers, key=lambda pair: (pair[1].fee_usd, pair[0].id))


def _extendable(
    context: DecisionContext,
    plan: CapacityPlan,
    window: DemandWindow,
    gap: Step,
    intents: list[PurchaseIntent],
) -> list[tuple[Reservation, timedelta]]:
    """Blocks that end where the gap begins and are large enough, each with the time that would close it; the shortest
    first."""
    if plan.spec.extend.policy == "never":
        return []
    found = []
    for block in held_for(context.spec, context.world.reservations, plan.spec.pool, window):
        if block.end is None or not gap.start - NEAR <= block.end <= gap.start + NEAR:
            continue
        by = round_up_duration(gap.end - block.end)
        if by is None or block.count < gap.amount or _failed_before(block, intents):
            continue
        if why_block_unusable(context.spec, plan.spec.pool, block) is not None:
            continue
        if _may_extend(context, block, by):
            found.append((block, by))
    return sorted(found, key=lambda pair: (pair[1], pair[0].end, pair[0].id))


def _may_extend(context: DecisionContext, block: Reservation, by: timedelta) -> bool:
    if block.extension_window is None or block.end is None or by <= timedelta(0):
        return False
    opens, closes = block.extension_window
    if context.now < opens:
        context.wake(opens)
        return False
    return context.now <= closes and block.end + by - block.start <= LONGEST_BLOCK


def _failed_before(block: Reservation, intents: list[PurchaseIntent]) -> bool:
    """A payment for an extension of it failed once: a new block is bought instead."""
    return any(intent.extends == block.id and intent.state is PurchaseState.FAILED for intent in intents)


def _extension_offer(
    context: DecisionContext, block: Reservation, by: timedelta, reason: SearchReason
) -> ExtensionOffer | bool:
    """The offer; True: EC2 is asked and has not answered yet; False: EC2 has none."""
    search = _latest_extension_search(context, ExtensionQuery(block.id, by))
    fresh = EXTENSION_ANSWER_FRESH if search is not None and search.offers else EMPTY_ANSWER_FRESH
    if search is None or context.now - search.at >= fresh:
        context.do(SearchExtensions(ExtensionQuery(block.id, by), reason))
        return True
    offers = [offer for offer in search.offers if offer.start == block.end]
    context.wake(search.at + fresh)
    return min(offers, key=lambda offer: (offer.fee_usd, offer.id)) if offers else False


def _latest_extension_search(context: DecisionContext, query: ExtensionQuery) -> ExtensionSearch | None:
    same = [
        extension_search
        for extension_search in context.world.extension_searches
        if extension_search.query == query
    ]
    return max(same, key=lambda one: one.at, default=None)
