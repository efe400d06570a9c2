"""What the purchase planner would buy at one instant: the choice, the runner-up, the prices, the hand-overs.

Asks what is for sale and buys nothing. Plans with windows are planned too, as if they were calendars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.decide.read_models import (
    MOST_SEARCHES,
    Cover,
    HandOver,
    OnDemand,
    OutlookQuestion,
    PlanningRound,
    PurchasePlan,
    Uncovered,
    next_searches,
    outlook_question,
    plan_outlook,
)
from tidemill.model.errors import NotAllowed, Refused
from tidemill.model.offers import ExtensionQuery, ExtensionSearch, OfferQuery, OfferSearch
from tidemill.model.world import World
from tidemill.ports import Cloud
from tidemill.report.rows import plain
from tidemill.spec import Spec
from tidemill.wording.planning import mitigation_sentence, offer_refusal_sentence

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class PurchaseChoice:
    """Something to buy. `extends` is the block an extension is for; empty: it is a new one."""

    offer: str
    pool: str
    type: str
    count: int
    zone: str
    start: datetime
    end: datetime
    fee_usd: int
    usd_per_gpu_h: float
    propose_from: datetime  # before that it may still change
    saves_usd: float  # over going without it, with all other purchases the same
    extends: str = ""


@dataclass(frozen=True, slots=True)
class MitigationRow:
    means: str
    usd: float | None
    offer: str
    words: str


@dataclass(frozen=True, slots=True)
class HandOverRow:
    pool: str
    before: str
    after: str
    at: datetime
    gpus: int
    gap_s: int
    gap_back_to_back_s: int
    ways: tuple[MitigationRow, ...]


@dataclass(frozen=True, slots=True)
class PurchaseOutlook:
    at: datetime
    until: datetime
    plans: tuple[str, ...]
    searches: int
    demand_gpu_h: float
    choices: tuple[PurchaseChoice, ...]
    on_demand: tuple[OnDemand, ...]
    uncovered: tuple[Uncovered, ...]
    fees_usd: int
    on_demand_usd: float
    penalty_usd: float
    total_usd: float
    bound_usd: float  # nothing can cost less, of all that EC2 could sell at the rates it showed
    bound_asked_usd: float  # ... of the offers that were asked for
    without_usd: float  # without any purchase: on demand where that is allowed, else uncovered
    usd_per_gpu_h_bought: float | None
    usd_per_gpu_h_used: float | None
    runner_up: str
    runner_up_dearer_usd: float | None
    changes: tuple[str, ...]
    hand_overs: tuple[HandOverRow, ...]
    left_out: tuple[tuple[str, int], ...]  # why offers were not considered, and how many

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = plain(self)
        return document


def outlook(
    spec: Spec, world: World, cloud: Cloud, progress: Callable[[float], None] | None = None
) -> PurchaseOutlook:
    """Raises SpecError where there is no plan, or no solver."""
    question = outlook_question(spec, world)
    world = replace(world, searches=(), extension_searches=())
    while True:
        world = _asked(world, question.round, cloud, progress)
        asked, question = question, next_searches(spec, world, question)
        if question.round == asked.round:
            break
    found, nothing = plan_outlook(spec, world, question)
    return _told(spec, found, nothing, question)


def _asked(
    world: World, wanted: PlanningRound, cloud: Cloud, progress: Callable[[float], None] | None
) -> World:
    """The world with the answers that it does not have yet."""
    for query in wanted.unanswered(world):
        if isinstance(query, OfferQuery):
            offers = OfferSearch(query, world.now, tuple(cloud.search_offers(query)))
            world = replace(world, searches=(*world.searches, offers))
        else:
            extensions = _extension_search(cloud, query, world.now)
            world = replace(world, extension_searches=(*world.extension_searches, extensions))
        if progress is not None:
            progress((len(world.searches) + len(world.extension_searches)) / MOST_SEARCHES)
    return world


def _extension_search(cloud: Cloud, query: ExtensionQuery, now: datetime) -> ExtensionSearch:
    try:
        return ExtensionSearch(query, now, tuple(cloud.search_extensions(query)))
    except NotAllowed:
        raise
    except Refused as no:
        return ExtensionSearch(query, now, (), str(no))


# --- rows ---------------------------------------------------------------------------------------------


def _told(spec: Spec, found: PurchasePlan, nothing: Cover, question: OutlookQuestion) -> PurchaseOutlook:
    cost, second = found.cover.cost, found.runner_up
    bound_usd = min(question.bound_usd, cost.total_usd)
    return PurchaseOutlook(
        at=found.at,
        until=found.until,
        plans=question.plans,
        searches=question.searches,
        demand_gpu_h=found.demand_gpu_hours,
        choices=tuple(sorted(_choices(spec, found), key=lambda one: (one.start, one.offer))),
        on_demand=found.cover.on_demand,
        uncovered=found.cover.uncovered,
        fees_usd=cost.fees_usd,
        on_demand_usd=cost.on_demand_usd,
        penalty_usd=cost.penalty_usd,
        total_usd=cost.total_usd,
        bound_usd=bound_usd,
        bound_asked_usd=max(found.bound_usd, bound_usd),
        without_usd=nothing.cost.total_usd,
        usd_per_gpu_h_bought=found.usd_per_gpu_h_bought,
        usd_per_gpu_h_used=found.usd_per_gpu_h_used,
        runner_up=second.why if second is not None else "",
        runner_up_dearer_usd=second.dearer_usd if second is not None else None,
        changes=found.sensitivity.words,
        hand_overs=tuple(_hand_over(hand_over) for hand_over in found.hand_overs),
        left_out=tuple(Counter(offer_refusal_sentence(one.why) for one in found.left_out).most_common()),
    )


def _choices(spec: Spec, found: PurchasePlan) -> Iterable[PurchaseChoice]:
    saves = {worth.id: worth.saves_usd for worth in found.sensitivity.worths}
    for buy in found.cover.buys:
        offer = buy.offer
        gpu_h = (
            offer.count * spec.catalog.types[offer.instance_type].gpus * ((offer.end - offer.start) / _HOUR)
        )
        yield PurchaseChoice(
            offer.id, buy.pool, offer.instance_type, offer.count, offer.zone, offer.start, offer.end,
            offer.fee_usd, offer.fee_usd / gpu_h, max(found.at, offer.start - _ahead(spec, buy.pool)), saves[offer.id],
        )  # fmt: skip
    for one, block in zip(found.cover.extends, found.extended, strict=True):
        assert block.end is not None
        gpu_h = block.count * spec.catalog.types[block.instance_type].gpus * ((one.end - block.end) / _HOUR)
        yield PurchaseChoice(
            one.id, block.pool, block.instance_type, block.count, block.zone, block.end, one.end,
            one.fee_usd, one.fee_usd / gpu_h, max(found.at, block.end - _ahead(spec, block.pool)), saves[one.id],
            extends=block.id,
        )  # fmt: skip


def _ahead(spec: Spec, pool: str) -> timedelta:
    for plan in spec.plans.values():
        if plan.spec.pool == pool:
            return plan.spec.calendar.buy_ahead if plan.spec.calendar else plan.spec.propose_before
    return timedelta(0)


def _hand_over(one: HandOver) -> HandOverRow:
    return HandOverRow(
        one.pool, one.before, one.after, one.at, one.gpus,
        int(one.gap.total_seconds()), int(one.gap_back_to_back.total_seconds()),
        tuple(MitigationRow(way.means, way.usd, way.offer, mitigation_sentence(way.note)) for way in one.ways),
    )  # fmt: skip
