"""One round of planning purchases: what the planner is asked, and what its answer comes to. Pure.

`engine.planner_runner` decides when a round runs; `report.purchase_outlook` runs one for a person who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.purchasing.coverage import missing_gpus
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import (
    ANSWER_FRESH,
    MAX_EXTENSION_SEARCHES,
    MAX_SEARCHES,
    fresh_extension_answer,
    fresh_searches,
    offer_queries,
)
from tidemill.decide.purchasing.planner import plan as cheapest_cover
from tidemill.decide.purchasing.planner import price_cover
from tidemill.decide.purchasing.planner.demand import (
    calendar_demand,
    plans_with_calendar,
    prices,
    window_demand,
    worth_usd_gpu_h,
)
from tidemill.decide.purchasing.planner.inputs import (
    Ceilings,
    CombinedCalendar,
    DatedExtensionOffer,
    DatedOffer,
    PlannerInputs,
    Policy,
    PoolDemand,
)
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by
from tidemill.decide.purchasing.planner.result import Cover, PurchasePlan
from tidemill.decide.purchasing.planner.seen_market import SeenMarket
from tidemill.decide.purchasing.replan_schedule import (
    PlanningRound,
    basis,
    first_searches,
    held_and_expected,
    is_asking,
    planning_round,
)
from tidemill.decide.purchasing.search_waves import Wave, next_wave
from tidemill.decide.purchasing.usability import counts_for
from tidemill.model import ec2_facts
from tidemill.model.capacity import Reservation
from tidemill.model.errors import SpecError
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.planner_result import PlannedPurchase, PlannerResult
from tidemill.model.purchases import NOT_SUBMITTED
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.platform import Budget

# Of one round, extensions included.
MOST_SEARCHES = MAX_SEARCHES + MAX_EXTENSION_SEARCHES
# Without a budget nothing may be bought, but the planner may still say what it would buy.
_UNLIMITED_USD = 10**9


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
    wave = _next_wave(spec, world, wanted, question)
    if wave.queries:
        return PlannerResult(
            at=world.now,
            basis=planning_basis(spec, world),
            learned_gpus=tuple(sorted(learned.items())),
            asks=(*wanted.offers, *wave.queries),
            asks_since=_asking_since(spec, world),
        )
    return planner_result(spec, world, learned, cheapest_cover(question), wave.bound_usd)


def _next_wave(spec: Spec, world: World, wanted: PlanningRound, question: PlannerInputs) -> Wave:
    """What the answers so far point to, as far as the searches of the round reach."""
    types = sorted({name for pool in question.demand for name in pool.types})
    kinds = {name: spec.catalog.types[name] for name in types}
    likely_usd_h = {
        name: kind.block_usd_h or worth_usd_gpu_h(spec.catalog, name) * max(1, kind.gpus)
        for name, kind in kinds.items()
    }
    units = {name: ec2_facts.SMALLEST_ULTRASERVER for name, kind in kinds.items() if kind.ultraserver}
    answers = [search for search in fresh_searches(world) if search.query.instance_type in kinds]
    market = SeenMarket(answers, world.now, likely_usd_h, units)
    return next_wave(spec, question, market, wanted.offers, MAX_SEARCHES - len(wanted.offers))


def _asking_since(spec: Spec, world: World) -> datetime:
    before = world.planner_result
    return before.asks_since or world.now if before is not None and is_asking(spec, world) else world.now


def planner_inputs(
    spec: Spec, world: World, wanted: PlanningRound, demand: Mapping[str, PoolDemand], until: datetime
) -> PlannerInputs:
    """Everything the planner needs, from what is held and what EC2 answered."""
    types = {name for one in demand.values() for name in one.types}
    answers = [search for search in fresh_searches(world) if search.query.instance_type in types]
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
    return PlannerInputs(
        tuple(demand.values()),
        held_and_expected(spec, world.reservations, world.purchases, world.now),
        tuple(DatedOffer(offer, found.at) for found in answers for offer in found.offers),
        tuple(
            DatedExtensionOffer(offer.id, offer.reservation_id, offer.end, offer.fee_usd, more.at)
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
    spec: Spec, world: World, learned: Mapping[str, int], found: PurchasePlan, bound_usd: float
) -> PlannerResult:
    """`bound_usd`: of all that EC2 could sell, at the rates it showed."""
    cost, second = found.cover.cost, found.runner_up
    return PlannerResult(
        at=world.now,
        basis=planning_basis(spec, world),
        choices=tuple(_choices(spec, world, found)),
        learned_gpus=tuple(sorted(learned.items())),
        fees_usd=cost.fees_usd,
        on_demand_usd=cost.on_demand_usd,
        penalty_usd=cost.penalty_usd,
        bound_usd=min(bound_usd, cost.total_usd),
        bound_asked_usd=max(found.bound_usd, min(bound_usd, cost.total_usd)),
        usd_per_gpu_h=found.usd_per_gpu_h_used,
        uncovered_gpu_h=sum(gap.gpu_hours for gap in found.cover.uncovered),
        runner_up=f"${second.dearer_usd:,.0f} dearer: {second.why}" if second is not None else "",
        changes=found.sensitivity.words,
    )


def _choices(spec: Spec, world: World, found: PurchasePlan) -> Iterable[PlannedPurchase]:
    saves = {worth.id: worth.saves_usd for worth in found.sensitivity.worths}
    plans = {plan.spec.pool: plan for plan in plans_with_calendar(spec)}
    asked_for = {
        offer.id: search.query.duration for search in fresh_searches(world) for offer in search.offers
    }
    more_time = {more.id: more for search in world.extension_searches for more in search.offers}
    blocks = {reservation.id: reservation for reservation in world.reservations}

    def choice(pool: str, offer: Offer | ExtensionOffer, duration: timedelta) -> PlannedPurchase:
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
        pool = _extended_for(spec, plans, blocks[extend.block])
        if pool is not None:
            yield choice(pool, longer, longer.end - longer.start)
    for buy in found.cover.buys:
        yield choice(buy.pool, buy.offer, asked_for[buy.offer.id])


def _extended_for(spec: Spec, plans: Mapping[str, CapacityPlan], block: Reservation) -> str | None:
    """The pool whose calendar counts on more time of a block: its own, or of one that is nobody's the first that can
    use it; None: no calendar does."""
    if block.pool:
        return block.pool if block.pool in plans else None
    counting = (
        pool
        for pool, plan in plans.items()
        if is_usable_by(calendar_demand(spec, plan.name, 0), block) and counts_for(spec, pool, block)
    )
    return next(counting, None)


def planning_basis(spec: Spec, world: World) -> tuple[str, ...]:
    return basis(spec, world.reservations, world.purchases, world.now)


# --- a round for a person who asks ------------------------------------------------------------------

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class OutlookQuestion:
    """The demand of every plan, windows planned as if they were calendars, and what EC2 must be asked for it."""

    demand: Mapping[str, PoolDemand]
    round: PlanningRound
    bound_usd: float = 0.0  # of all that EC2 could sell, at the rates it showed: once the searches are over

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(self.demand)

    @property
    def searches(self) -> int:
        return len(self.round.offers) + len(self.round.extensions)


def outlook_question(spec: Spec, world: World) -> OutlookQuestion:
    """Raises SpecError where there is no plan."""
    learned = learned_gpus(spec, world)
    demand = {
        plan.name: calendar_demand(spec, plan.name, learned.get(plan.name, 0))
        for plan in plans_with_calendar(spec)
    }
    windows = {name: window_demand(spec, plan) for name, plan in spec.plans.items() if plan.spec.demand}
    if not demand and not windows:
        raise SpecError("there is no CapacityPlan in the documents, so there is nothing to plan")
    return OutlookQuestion(
        demand | windows, _with_windows(spec, world, windows, planning_round(spec, world, learned))
    )


def next_searches(spec: Spec, world: World, question: OutlookQuestion) -> OutlookQuestion:
    """The question with what its answers point to; the same: they are enough to plan on."""
    inputs = planner_inputs(spec, world, question.round, _by_pool(question.demand), _until(world, spec))
    wave = _next_wave(spec, world, question.round, inputs)
    return replace(
        question,
        round=replace(question.round, offers=(*question.round.offers, *wave.queries)),
        bound_usd=wave.bound_usd,
    )


def plan_outlook(spec: Spec, world: World, question: OutlookQuestion) -> tuple[PurchasePlan, Cover]:
    """The plan, and what buying nothing would cost. `world` has the answers of EC2."""
    inputs = planner_inputs(spec, world, question.round, _by_pool(question.demand), _until(world, spec))
    nothing = price_cover(inputs, frozenset())
    assert nothing is not None
    return cheapest_cover(inputs), nothing


def _until(world: World, spec: Spec) -> datetime:
    """As far as the calendars look, or as the windows last: what outlasts the horizon is charged in full."""
    horizons = [
        world.now + plan.spec.calendar.horizon for plan in plans_with_calendar(spec) if plan.spec.calendar
    ]
    ends = [window.end for plan in spec.plans.values() for window in plan.spec.demand]
    return max([*horizons, *ends, world.now + _HOUR])


def _by_pool(demand: Mapping[str, PoolDemand]) -> dict[str, PoolDemand]:
    """Several plans with windows for one pool are one demand."""
    found: dict[str, tuple[str, PoolDemand]] = {}
    for name, one in demand.items():
        if one.pool in found:
            first, other = found[one.pool]
            types = tuple(dict.fromkeys((*other.types, *one.types)))
            both = CombinedCalendar((other.calendar, one.calendar))
            found[one.pool] = first, replace(other, calendar=both, types=types)
        else:
            found[one.pool] = name, one
    return dict(found.values())


def _with_windows(
    spec: Spec, world: World, windows: Mapping[str, PoolDemand], wanted: PlanningRound
) -> PlanningRound:
    offers = list(wanted.offers)
    held = held_and_expected(spec, world.reservations, world.purchases, world.now)
    for demand in windows.values():
        ends = [window.end for plan in spec.plans.values() for window in plan.spec.demand]
        if max(ends) > world.now:
            short = missing_gpus(spec, demand, held, world.now, max(ends))
            offers += offer_queries(spec, demand, short, world.now)
    return replace(wanted, offers=first_searches(offers))
