"""Runs the purchase planner: when a round is due and its queries are answered, the world gets a dated result.

The planner takes seconds and a tick may not. In a rehearsal it runs at once, in virtual time, so that the same seed
gives the same result; in a live loop it runs in a thread, and a later tick finds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import ANSWER_FRESH, fresh_answer, fresh_extension_answer
from tidemill.decide.purchasing.planner import plan as cheapest_cover
from tidemill.decide.purchasing.planner.demand import calendar_demand, plans_with_calendar, prices
from tidemill.decide.purchasing.planner.inputs import (
    Ceilings,
    DatedOffer,
    ExtensionOffer,
    Policy,
    PoolDemand,
    Prices,
)
from tidemill.decide.purchasing.planner.mip_solver import why_no_solver
from tidemill.decide.purchasing.planner.result import PurchasePlan
from tidemill.decide.purchasing.replan_schedule import (
    PlanningRound,
    basis,
    held_and_expected,
    next_round_at,
    planning_round,
)
from tidemill.model import offers as ec2
from tidemill.model.capacity import Reservation
from tidemill.model.planner_result import PlannedPurchase, PlannerResult
from tidemill.model.purchases import NOT_SUBMITTED
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.platform import Budget

# Without a budget nothing may be bought, but the planner may still say what it would buy.
_UNLIMITED_USD = 10**9


class PlannerExecutor(Protocol):
    """Where the planner runs: one piece of work at a time."""

    @property
    def busy(self) -> bool: ...

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        """`otherwise` is the result if the work fails: drains and admissions must go on."""
        ...

    def take(self) -> PlannerResult | None:
        """The result, once; None: there is none yet."""
        ...


class InlineExecutor:
    """Runs in the caller's thread: the caller waits, and gets the exceptions."""

    busy = False

    def __init__(self) -> None:
        self._done: PlannerResult | None = None

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        self._done = work()

    def take(self) -> PlannerResult | None:
        done, self._done = self._done, None
        return done


class PlannerRunner:
    """The result is lost in a restart, and then computed again."""

    def __init__(self, spec: Spec, executor: PlannerExecutor | None = None) -> None:
        self._spec, self._executor = spec, executor or InlineExecutor()
        self._unable = why_no_solver() if plans_with_calendar(spec) else ""
        self._result: PlannerResult | None = None

    @property
    def busy(self) -> bool:
        return self._executor.busy

    def with_result(self, world: World) -> World:
        """The world with the newest result in it. Starts the planner if a round is due and every query is answered."""
        if not plans_with_calendar(self._spec):
            return world
        self._result = self._executor.take() or self._result
        world = replace(world, planner_result=self._result)
        due = next_round_at(self._spec, world)
        if due is None or world.now < due or self.busy or not (world.cloud_ok and world.ledger_ok):
            return world
        self._begin(world)
        self._result = self._executor.take() or self._result
        return replace(world, planner_result=self._result)

    def _begin(self, world: World) -> None:
        if self._unable:
            self._result = PlannerResult(world.now, _basis(self._spec, world), unable=self._unable)
            return
        learned = learned_gpus(self._spec, world)
        wanted = planning_round(self._spec, world, learned)
        if not wanted.unanswered(world):
            failed = PlannerResult(
                world.now, _basis(self._spec, world), unable="planning failed; the log says why"
            )
            self._executor.begin(lambda: run_planner(self._spec, world, wanted, learned), failed)


def run_planner(spec: Spec, world: World, wanted: PlanningRound, learned: Mapping[str, int]) -> PlannerResult:
    """Pure: the same documents and world give the same result."""
    demand = {
        plan.name: calendar_demand(spec, plan.name, learned.get(plan.name, 0))
        for plan in plans_with_calendar(spec)
    }
    horizons = [
        plan.spec.calendar.horizon for plan in plans_with_calendar(spec) if plan.spec.calendar is not None
    ]
    question = planner_inputs(spec, world, wanted, demand, world.now + max(horizons))
    return planner_result(spec, world, wanted, learned, cheapest_cover(*question))


PlannerInputs = tuple[
    tuple[PoolDemand, ...],
    tuple[Reservation, ...],
    tuple[DatedOffer, ...],
    tuple[ExtensionOffer, ...],
    Prices,
    Policy,
]


def planner_inputs(
    spec: Spec, world: World, wanted: PlanningRound, demand: Mapping[str, PoolDemand], until: datetime
) -> PlannerInputs:
    """Everything the planner needs, from what is held and what EC2 answered."""
    answers = [found for query in wanted.offers if (found := fresh_answer(world, query)) is not None]
    longer = [
        more for query in wanted.extensions if (more := fresh_extension_answer(world, query)) is not None
    ]
    policy = Policy(
        world.now,
        until,
        _ceilings(spec, world),
        offers_fresh=ANSWER_FRESH,
        held_elsewhere=_held_elsewhere(spec, world),
    )
    return (
        tuple(demand.values()),
        held_and_expected(spec, world.reservations, world.purchases, world.now),
        tuple(DatedOffer(offer, found.at) for found in answers for offer in found.offers),
        tuple(
            ExtensionOffer(offer.id, offer.reservation_id, offer.end, offer.fee_usd, more.at)
            for more in longer
            for offer in more.offers
        ),
        prices(spec, demand),
        policy,
    )


def _ceilings(spec: Spec, world: World) -> Ceilings:
    """What is proposed and not yet bought counts as spent: it may be approved."""
    budget: Budget = spec.platform.spec.budget
    asked = [purchase for purchase in world.purchases if purchase.state in NOT_SUBMITTED]
    spent_for_usd = {
        plan.spec.pool: world.spending.fees_of(plan.name)
        + sum(purchase.envelope.max_fee_usd for purchase in asked if purchase.plan == plan.name)
        for plan in spec.plans.values()
    }
    return Ceilings(
        budget.per_purchase_usd or _UNLIMITED_USD,
        budget.monthly_usd or _UNLIMITED_USD,
        world.spending.total_usd + sum(purchase.envelope.max_fee_usd for purchase in asked),
        spent_for_usd=tuple(sorted(spent_for_usd.items())),
    )


def _held_elsewhere(spec: Spec, world: World) -> int:
    owner = spec.platform.spec.deployment
    return sum(
        reservation.count
        for reservation in world.reservations
        if reservation.owner != owner and (reservation.end is None or reservation.end > world.now)
    )


# --- the result --------------------------------------------------------------------------------------


def planner_result(
    spec: Spec, world: World, wanted: PlanningRound, learned: Mapping[str, int], found: PurchasePlan
) -> PlannerResult:
    cost, second = found.cover.cost, found.runner_up
    return PlannerResult(
        at=world.now,
        basis=_basis(spec, world),
        choices=tuple(_choices(spec, world, wanted, found)),
        learned_gpus=tuple(sorted(learned.items())),
        fees_usd=cost.fees_usd,
        on_demand_usd=cost.on_demand_usd,
        penalty_usd=cost.penalty_usd,
        bound_usd=found.bound_usd,
        usd_per_gpu_h=found.usd_per_gpu_h_used,
        uncovered_gpu_h=sum(gap.gpu_hours for gap in found.cover.uncovered),
        runner_up=f"${second.dearer_usd:,.0f} dearer: {second.why}" if second is not None else "",
        changes=found.sensitivity.words,
    )


def _choices(
    spec: Spec, world: World, wanted: PlanningRound, found: PurchasePlan
) -> Iterable[PlannedPurchase]:
    saves = {worth.id: worth.saves_usd for worth in found.sensitivity.worths}
    plans = {plan.spec.pool: plan for plan in plans_with_calendar(spec)}
    asked_for = {
        offer.id: query.duration
        for query in wanted.offers
        if (search := fresh_answer(world, query)) is not None
        for offer in search.offers
    }
    more_time = {
        more.id: more
        for query in wanted.extensions
        if (told := fresh_extension_answer(world, query)) is not None
        for more in told.offers
    }
    blocks = {reservation.id: reservation for reservation in world.reservations}

    def choice(pool: str, offer: ec2.Offer | ec2.ExtensionOffer, duration: timedelta) -> PlannedPurchase:
        plan = plans[pool]
        assert plan.spec.calendar is not None
        return PlannedPurchase(
            plan.name,
            pool,
            offer,
            duration,
            offer.start - plan.spec.calendar.buy_ahead,
            saves.get(offer.id, 0.0),
        )

    for extend in found.cover.extends:
        longer = more_time[extend.id]
        yield choice(blocks[extend.block].pool or next(iter(plans)), longer, longer.end - longer.start)
    for buy in found.cover.buys:
        yield choice(buy.pool, buy.offer, asked_for[buy.offer.id])


def _basis(spec: Spec, world: World) -> tuple[str, ...]:
    return basis(spec, world.reservations, world.purchases, world.now)
