"""Runs the purchase planner beside the ticks: a round that is due and answered becomes dated advice in the world.

The planner takes seconds and a tick may not. In a rehearsal it runs at once, in virtual time, so that the same seed
gives the same advice; in a live loop beside the ticks, and the next tick finds what came out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import FRESH, answer, extension_answer
from tidemill.decide.purchasing.planner import plan as cheapest_cover
from tidemill.decide.purchasing.planner.demand import demand_of, planned, prices
from tidemill.decide.purchasing.planner.inputs import (
    Ceilings,
    ExtensionOffer,
    Policy,
    PoolDemand,
    Prices,
    SeenOffer,
)
from tidemill.decide.purchasing.planner.mip_solver import without_solver
from tidemill.decide.purchasing.planner.result import PurchasePlan
from tidemill.decide.purchasing.replan_schedule import (
    Round,
    basis,
    held_and_promised,
    next_round_at,
    questions,
)
from tidemill.model.capacity import Reservation
from tidemill.model.offers import ExtensionOffer as MoreTime
from tidemill.model.offers import Offer
from tidemill.model.planner_result import Advice, Choice
from tidemill.model.purchases import PurchaseState
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.platform import Budget

# A budget that is missing allows no purchase at all, but what would be bought may still be told.
_UNLIMITED_USD = 10**9


class Beside(Protocol):
    """Where planning happens: one piece of work at a time."""

    @property
    def busy(self) -> bool: ...

    def begin(self, work: Callable[[], Advice], otherwise: Advice) -> None:
        """`otherwise` stands in for work that failed: drains and admissions must not fail with it."""
        ...

    def take(self) -> Advice | None:
        """What came out, once; None: nothing yet."""
        ...


class AtOnce:
    """Here and now: the caller waits, and hears of failures."""

    busy = False

    def __init__(self) -> None:
        self._done: Advice | None = None

    def begin(self, work: Callable[[], Advice], otherwise: Advice) -> None:
        self._done = work()

    def take(self) -> Advice | None:
        done, self._done = self._done, None
        return done


class Advisor:
    """Its advice is lost in a restart, and then made again."""

    def __init__(self, spec: Spec, beside: Beside | None = None) -> None:
        self._spec, self._beside = spec, beside or AtOnce()
        self._unable = without_solver() if planned(spec) else ""
        self._advice: Advice | None = None

    @property
    def busy(self) -> bool:
        return self._beside.busy

    def attend(self, world: World) -> World:
        """The world with the newest advice in it. Begins to plan where a round is due and everything is answered."""
        if not planned(self._spec):
            return world
        self._advice = self._beside.take() or self._advice
        world = replace(world, advice=self._advice)
        due = next_round_at(self._spec, world)
        if due is None or world.now < due or self.busy or not (world.cloud_ok and world.ledger_ok):
            return world
        self._begin(world)
        self._advice = self._beside.take() or self._advice
        return replace(world, advice=self._advice)

    def _begin(self, world: World) -> None:
        if self._unable:
            self._advice = Advice(world.now, _basis(self._spec, world), unable=self._unable)
            return
        learned = learned_gpus(self._spec, world)
        wanted = questions(self._spec, world, learned)
        if not wanted.unanswered(world):
            failed = Advice(world.now, _basis(self._spec, world), unable="planning failed; the log says why")
            self._beside.begin(lambda: advise(self._spec, world, wanted, learned), failed)


def advise(spec: Spec, world: World, wanted: Round, learned: Mapping[str, int]) -> Advice:
    """Pure: the same documents and world give the same advice."""
    demand = {plan.name: demand_of(spec, plan.name, learned.get(plan.name, 0)) for plan in planned(spec)}
    horizons = [plan.spec.calendar.horizon for plan in planned(spec) if plan.spec.calendar is not None]
    question = cover_question(spec, world, wanted, demand, world.now + max(horizons))
    return advice_of(spec, world, wanted, learned, cheapest_cover(*question))


Question = tuple[
    tuple[PoolDemand, ...],
    tuple[Reservation, ...],
    tuple[SeenOffer, ...],
    tuple[ExtensionOffer, ...],
    Prices,
    Policy,
]


def cover_question(
    spec: Spec, world: World, wanted: Round, demand: Mapping[str, PoolDemand], until: datetime
) -> Question:
    """All that the planner is asked, from what is held and what EC2 answered."""
    answers = [found for query in wanted.offers if (found := answer(world, query)) is not None]
    longer = [more for query in wanted.extensions if (more := extension_answer(world, query)) is not None]
    policy = Policy(
        world.now,
        until,
        _ceilings(spec, world),
        offers_fresh=FRESH,
        held_elsewhere=_held_elsewhere(spec, world),
    )
    return (
        tuple(demand.values()),
        held_and_promised(spec, world.reservations, world.purchases, world.now),
        tuple(SeenOffer(offer, found.at) for found in answers for offer in found.offers),
        tuple(
            ExtensionOffer(one.id, one.reservation_id, one.end, one.fee_usd, more.at)
            for more in longer
            for one in more.offers
        ),
        prices(spec, demand),
        policy,
    )


def _ceilings(spec: Spec, world: World) -> Ceilings:
    """What is proposed and not yet bought counts as spent: somebody may say yes to it."""
    budget: Budget = spec.platform.spec.budget
    asked = [one for one in world.purchases if one.state in (PurchaseState.PROPOSED, PurchaseState.APPROVED)]
    spent_for_usd = {
        plan.spec.pool: world.spending.fees_of(plan.name)
        + sum(one.envelope.max_fee_usd for one in asked if one.plan == plan.name)
        for plan in spec.plans.values()
    }
    return Ceilings(
        budget.per_purchase_usd or _UNLIMITED_USD,
        budget.monthly_usd or _UNLIMITED_USD,
        world.spending.total_usd + sum(one.envelope.max_fee_usd for one in asked),
        spent_for_usd=tuple(sorted(spent_for_usd.items())),
    )


def _held_elsewhere(spec: Spec, world: World) -> int:
    owner = spec.platform.spec.deployment
    return sum(
        one.count
        for one in world.reservations
        if one.owner != owner and (one.end is None or one.end > world.now)
    )


# --- the plan as advice -------------------------------------------------------------------------------


def advice_of(
    spec: Spec, world: World, wanted: Round, learned: Mapping[str, int], found: PurchasePlan
) -> Advice:
    cost, second = found.cover.cost, found.runner_up
    return Advice(
        at=world.now,
        basis=_basis(spec, world),
        choices=tuple(_choices(spec, world, wanted, found)),
        learned_gpus=tuple(sorted(learned.items())),
        fees_usd=cost.fees_usd,
        on_demand_usd=cost.on_demand_usd,
        penalty_usd=cost.penalty_usd,
        bound_usd=found.bound_usd,
        usd_per_gpu_h=found.usd_per_gpu_h_used,
        uncovered_gpu_h=sum(one.gpu_hours for one in found.cover.uncovered),
        runner_up=f"${second.dearer_usd:,.0f} dearer: {second.why}" if second is not None else "",
        changes=found.sensitivity.words,
    )


def _choices(spec: Spec, world: World, wanted: Round, found: PurchasePlan) -> Iterable[Choice]:
    saves = {one.id: one.saves_usd for one in found.sensitivity.worths}
    plans = {plan.spec.pool: plan for plan in planned(spec)}
    asked_for = {
        offer.id: query.duration
        for query in wanted.offers
        if (search := answer(world, query)) is not None
        for offer in search.offers
    }
    more_time = {
        more.id: more
        for query in wanted.extensions
        if (told := extension_answer(world, query)) is not None
        for more in told.offers
    }
    blocks = {one.id: one for one in world.reservations}

    def choice(pool: str, offer: Offer | MoreTime, duration: timedelta) -> Choice:
        plan = plans[pool]
        assert plan.spec.calendar is not None
        why = f"it saves ${saves.get(offer.id, 0):,.0f} over going without it"
        return Choice(plan.name, pool, offer, duration, offer.start - plan.spec.calendar.buy_ahead, why)

    for one in found.cover.extends:
        longer = more_time[one.id]
        yield choice(blocks[one.block].pool or next(iter(plans)), longer, longer.end - longer.start)
    for buy in found.cover.buys:
        yield choice(buy.pool, buy.offer, asked_for[buy.offer.id])


def _basis(spec: Spec, world: World) -> tuple[str, ...]:
    return basis(spec, world.reservations, world.purchases, world.now)
