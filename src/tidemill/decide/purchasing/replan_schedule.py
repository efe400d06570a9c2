"""When the planner runs next for all calendars, which offers it needs for that, and whether they are known.

A round is due while a purchase could be due: on a cadence, and soon after blocks or intents changed. It is ready once
every query has a fresh answer; then `engine.planner_runner` starts the planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tidemill.decide.purchasing.coverage import missing_gpus, with_expected
from tidemill.decide.purchasing.offer_queries import (
    ANSWER_FRESH,
    MAX_EXTENSION_SEARCHES,
    MAX_FIRST_SEARCHES,
    extension_queries,
    fresh_answer,
    fresh_extension_answer,
    nearest_first,
    offer_queries,
)
from tidemill.decide.purchasing.planner.demand import calendar_demand, learned_of, plans_with_calendar
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.planner.offer_filter import live_reservations
from tidemill.decide.purchasing.usability import counts_for
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import grid_at_or_before
from tidemill.model.offers import ExtensionQuery, OfferQuery
from tidemill.model.purchases import PurchaseIntent
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

# Purchases come several at a time: after a change the next round waits for the others.
CHANGE_PAUSE = timedelta(minutes=10)
# For a gap that is over sooner than this no block can be bought any more: EC2 sells from half an hour ahead.
TOO_LATE = timedelta(hours=1)
_FIRST_DAY = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PlanningRound:
    """The queries of one planning round."""

    offers: tuple[OfferQuery, ...]
    extensions: tuple[ExtensionQuery, ...]

    def unanswered(self, world: World) -> tuple[OfferQuery | ExtensionQuery, ...]:
        return (
            *(query for query in self.extensions if fresh_extension_answer(world, query) is None),
            *(query for query in self.offers if fresh_answer(world, query) is None),
        )

    def stale_at(self, world: World) -> datetime | None:
        """When its oldest answer becomes too old to plan on; None: there are no answers."""
        answers = [
            *(fresh_answer(world, query) for query in self.offers),
            *(fresh_extension_answer(world, query) for query in self.extensions),
        ]
        dates = [answer.at for answer in answers if answer is not None]
        return min(dates) + ANSWER_FRESH if dates else None


def next_round_at(spec: Spec, world: World) -> datetime | None:
    """When the next round is due, perhaps in the past; None: nothing is missing within the horizon."""
    plans = plans_with_calendar(spec)
    if not plans:
        return None
    wanted = [at for plan in plans if (at := _wanted_from(spec, world, plan)) is not None]
    if not wanted:
        return None
    if world.planner_result is None:
        return min(wanted)
    if is_asking(spec, world):
        return world.planner_result.at
    pauses = [plan.spec.calendar.replan_every for plan in plans if plan.spec.calendar is not None]
    if world.planner_result.asks or world.planner_result.basis != basis(
        spec, world.reservations, world.purchases, world.now
    ):
        pauses.append(CHANGE_PAUSE)
    return max(min(wanted), world.planner_result.at + min(pauses))


def is_asking(spec: Spec, world: World) -> bool:
    """A round is not over: its next searches wait for answers. Nothing may have changed, and no answer be too old."""
    result = world.planner_result
    return (
        result is not None
        and result.asks_since is not None
        and world.now - result.asks_since < ANSWER_FRESH
        and result.basis == basis(spec, world.reservations, world.purchases, world.now)
    )


def schedule_changes_at(spec: Spec, world: World) -> datetime:
    """When `next_round_at` may answer otherwise: the horizon moves, or it becomes too late to buy for a gap."""
    late = [
        first.end - too_late(spec, plan)
        for plan in plans_with_calendar(spec)
        if (first := _first_missing(spec, world, plan)) is not None
    ]
    return min([grid_at_or_before(world.now) + timedelta(days=1), *late])


def _wanted_from(spec: Spec, world: World, plan: CapacityPlan) -> datetime | None:
    """From when on a purchase could be due for this plan."""
    calendar = plan.spec.calendar
    assert calendar is not None
    if learned_of(calendar):
        return grid_at_or_before(world.now)
    first = _first_missing(spec, world, plan)
    return None if first is None else grid_at_or_before(first.start - calendar.warm_up) - calendar.buy_ahead


def _first_missing(spec: Spec, world: World, plan: CapacityPlan) -> Step | None:
    """The first gap worth a round. The short gap between two blocks was priced when they were bought."""
    demand = calendar_demand(spec, plan.name, 0)
    hand_over = demand.warm_up + demand.wind_down
    last = world.now + too_late(spec, plan)
    return next(
        (
            step
            for step in _missing(spec, world, plan)
            if step.end - step.start > hand_over and step.end > last
        ),
        None,
    )


def too_late(spec: Spec, plan: CapacityPlan) -> timedelta:
    return calendar_demand(spec, plan.name, 0).warm_up + TOO_LATE


def missing_from_now(spec: Spec, world: World, plan: CapacityPlan) -> tuple[Step, ...]:
    return from_now_on(_missing(spec, world, plan), world.now)


def _missing(spec: Spec, world: World, plan: CapacityPlan) -> tuple[Step, ...]:
    learned_gpus = (
        dict(world.planner_result.learned_gpus).get(plan.name, 0) if world.planner_result is not None else 0
    )
    return missing_over_horizon(
        spec, plan.name, learned_gpus, world.reservations, world.purchases, grid_at_or_before(world.now)
    )


def from_now_on(steps: tuple[Step, ...], now: datetime) -> tuple[Step, ...]:
    return tuple(Step(max(step.start, now), step.end, step.amount) for step in steps if step.end > now)


def planning_round(spec: Spec, world: World, learned_gpus: Mapping[str, int]) -> PlanningRound:
    """The queries of a round at this instant: of the one that is not over, or the first of a new one. All calendars
    share one limit, and the nearest dates come first."""
    offers: list[OfferQuery] = []
    extensions: list[ExtensionQuery] = []
    for plan in plans_with_calendar(spec):
        gpus = learned_gpus.get(plan.name, 0)
        demand = calendar_demand(spec, plan.name, gpus)
        whole = missing_over_horizon(
            spec, plan.name, gpus, world.reservations, world.purchases, grid_at_or_before(world.now)
        )
        missing = from_now_on(whole, world.now)
        offers += offer_queries(spec, demand, missing, world.now)
        extensions += extension_queries(plan, demand, missing, world)
    asking = world.planner_result.asks if world.planner_result is not None and is_asking(spec, world) else ()
    return PlanningRound(
        asking or first_searches(offers),
        tuple(dict.fromkeys(extensions))[:MAX_EXTENSION_SEARCHES],
    )


def first_searches(offers: Iterable[OfferQuery]) -> tuple[OfferQuery, ...]:
    return tuple(sorted(dict.fromkeys(offers), key=nearest_first))[:MAX_FIRST_SEARCHES]


# --- what is held and missing -------------------------------------------------------------------------


class _Books:
    """Reservations and purchases as keys of what follows from them, compared by identity: the world keeps what did not
    change, and to hash every field of each would take longer than most answers."""

    __slots__ = ("purchases", "reservations")

    def __init__(self, reservations: tuple[Reservation, ...], purchases: tuple[PurchaseIntent, ...]) -> None:
        self.reservations, self.purchases = reservations, purchases

    def __hash__(self) -> int:
        return hash((id(self.reservations), id(self.purchases)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Books):
            return NotImplemented
        return self.reservations is other.reservations and self.purchases is other.purchases


def held_and_expected(
    spec: Spec,
    reservations: tuple[Reservation, ...],
    purchases: tuple[PurchaseIntent, ...],
    now: datetime,
) -> tuple[Reservation, ...]:
    """Our reservations that a pool can use, and those that open purchases may still bring."""
    found = _ever_held(spec, _Books(reservations, purchases))
    return tuple(one for one in found if one.end is None or one.end > now)


@lru_cache(maxsize=16)
def _ever_held(spec: Spec, books: _Books) -> tuple[Reservation, ...]:
    """Those that are over too."""
    owner = spec.platform.spec.deployment
    # A block that starts as soon as it is approved counts from now: else it would be proposed twice.
    at_once = {
        purchase.id: purchase.envelope.earliest_start
        for purchase in books.purchases
        if _is_planned(spec, purchase)
    }
    held = with_expected(books.reservations, books.purchases, owner)
    return tuple(
        replace(reservation, start=at_once[reservation.id]) if reservation.id in at_once else reservation
        for reservation in live_reservations(held, _FIRST_DAY)
        if reservation.owner == owner and _serves_some_pool(spec, reservation)
    )


def _serves_some_pool(spec: Spec, reservation: Reservation) -> bool:
    if reservation.pool or reservation.kind is not SourceKind.BLOCK:
        return True
    return any(counts_for(spec, name, reservation) for name in spec.pools)


def _is_planned(spec: Spec, intent: PurchaseIntent) -> bool:
    plan = spec.plans.get(intent.plan)
    return plan is not None and plan.spec.calendar is not None


def missing_over_horizon(
    spec: Spec,
    plan_name: str,
    learned_gpus: int,
    reservations: tuple[Reservation, ...],
    purchases: tuple[PurchaseIntent, ...],
    day: datetime,
) -> tuple[Step, ...]:
    """What one plan misses over its horizon, from a grid instant on. Kept: most ticks change nothing of it."""
    return _missing_over_horizon(spec, plan_name, learned_gpus, _Books(reservations, purchases), day)


@lru_cache(maxsize=64)
def _missing_over_horizon(
    spec: Spec, plan_name: str, learned_gpus: int, books: _Books, day: datetime
) -> tuple[Step, ...]:
    calendar = spec.plans[plan_name].spec.calendar
    assert calendar is not None
    held = held_and_expected(spec, books.reservations, books.purchases, day)
    until = day + calendar.horizon + timedelta(days=1)
    return missing_gpus(spec, calendar_demand(spec, plan_name, learned_gpus), held, day, until)


def basis(
    spec: Spec,
    reservations: tuple[Reservation, ...],
    purchases: tuple[PurchaseIntent, ...],
    now: datetime,
) -> tuple[str, ...]:
    """The blocks that a planner result counts on, named by intent: a purchase that is confirmed changes nothing."""
    found = {
        f"{block.intent_id or block.id} x{block.count}"
        + ("" if block.end is None else f" until {block.end:%Y-%m-%dT%H:%M}")
        for block in held_and_expected(spec, reservations, purchases, now)
        if block.kind is SourceKind.BLOCK or block.end is None
    }
    return tuple(sorted(found))
