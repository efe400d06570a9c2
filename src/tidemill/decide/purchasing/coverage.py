"""What is missing: the demand of a plan, less what is held and what is on its way. Asked when deciding, and again at
the moment of buying (CB-4).

A calendar misses GPUs, whichever block they are on (`missing_gpus`); a demand window misses instances of its type
(`window_coverage.py`). Knows nothing of prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

from tidemill.decide.purchasing.planner.demand import calendar_demand, most_learned_gpus
from tidemill.decide.purchasing.planner.inputs import Calendar, PoolDemand, Step, levels
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by, live_reservations
from tidemill.decide.purchasing.planner.slots import serving_span
from tidemill.decide.purchasing.window_coverage import first_gap, missing_instance_time, window_named
from tidemill.model.capacity import LIVE_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchases import MAY_COST, OPEN, PurchaseIntent, PurchaseState
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

# A block is extended as a whole, and an UltraServer sold as one: what holds more than twice what is missing is not
# bought without being asked for. Somebody who wants it all the same says `tidemill extend` or `tidemill buy`.
MAX_OVERSIZE = 2
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Supply:
    """So much serves in a zone, from an instant to another; None: without end."""

    start: datetime
    end: datetime | None
    amount: int
    zone: str


def missing_steps(
    calendar: Calendar,
    supplies: Sequence[Supply],
    start: datetime,
    until: datetime,
    *,
    one_zone: bool = False,
) -> tuple[Step, ...]:
    """One step after the other, without those in which nothing is missing.

    `one_zone`: at any instant only the zone that serves most counts.
    """
    if until <= start:
        return ()
    steps = levels(calendar, start, until)
    cuts = {step.start for step in steps} | {until}
    cuts |= {
        at
        for supply in supplies
        for at in (supply.start, supply.end)
        if at is not None and start < at < until
    }
    missing: list[Step] = []
    number = 0
    for here, there in pairwise(sorted(cuts)):
        while steps[number].end <= here:
            number += 1
        by_zone: dict[str, int] = {}
        for one in supplies:
            if one.start <= here and (one.end is None or here < one.end):
                by_zone[one.zone] = by_zone.get(one.zone, 0) + one.amount
        served = max(by_zone.values(), default=0) if one_zone else sum(by_zone.values())
        short = steps[number].amount - served
        if short <= 0:
            continue
        if missing and missing[-1].end == here and missing[-1].amount == short:
            missing[-1] = Step(missing[-1].start, there, short)
        else:
            missing.append(Step(here, there, short))
    return tuple(missing)


# --- calendars, in GPUs -------------------------------------------------------------------------------


def missing_gpus(
    spec: Spec, demand: PoolDemand, held: Sequence[Reservation], start: datetime, until: datetime
) -> tuple[Step, ...]:
    """A block counts from its warm-up after its start until EC2 takes it back before its end."""
    supplies = [
        Supply(
            *serving_span(demand, block, until),
            block.count * spec.catalog.types[block.instance_type].gpus,
            block.zone,
        )
        for block in held
        if is_usable_by(demand, block) and block.pool in ("", demand.pool)
    ]
    return missing_steps(demand.calendar, supplies, start, until, one_zone=demand.one_zone)


def _missing_gpu_minutes(
    spec: Spec, plan: CapacityPlan, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """Over the time a purchase would cover, rounded up; 0: the calendar is covered.

    What is learned counts as the most it may be: an approved purchase is not voided because the queue is short today.
    """
    assert plan.spec.calendar is not None
    demand = calendar_demand(spec, plan.name, most_learned_gpus(spec, plan.spec.calendar))
    envelope = intent.envelope
    wait = -demand.wind_down if intent.extends else demand.warm_up
    start, until = max(envelope.latest_start + wait, now), envelope.earliest_end - demand.wind_down
    owner = spec.platform.spec.deployment
    held = [reservation for reservation in live_reservations(reservations, now) if reservation.owner == owner]
    return ceil(
        sum(
            step.amount * ((step.end - step.start) / MINUTE)
            for step in missing_gpus(spec, demand, held, start, until)
        )
    )


# --- of one purchase ----------------------------------------------------------------------------------


def still_missing(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """0: what the purchase is for is covered. What a person asked for without a window is wanted until they say no."""
    if not intent.plan:
        return intent.envelope.count
    plan = spec.plans.get(intent.plan)
    if plan is not None and plan.spec.calendar is not None:
        return _missing_gpu_minutes(spec, plan, reservations, intent, now)
    window = window_named(plan, intent.window)
    gap = None if window is None else first_gap(spec, reservations, intent.pool, window, now)
    return 0 if gap is None else gap.amount


def reduces_shortage(
    spec: Spec,
    held: Iterable[Reservation],
    offer: Offer | ExtensionOffer,
    intent: PurchaseIntent,
    now: datetime,
) -> bool:
    """What leaves its demand as short as before would be followed by another purchase, and another."""
    held = list(held)
    after = with_bought(held, offer, spec.platform.spec.deployment, intent.pool, intent.window)
    window = window_named(spec.plans.get(intent.plan), intent.window)
    if window is None:
        return still_missing(spec, after, intent, now) < still_missing(spec, held, intent, now)
    left, before = (missing_instance_time(spec, blocks, intent.pool, window, now) for blocks in (after, held))
    return left < before


# --- what is held, and what may come ------------------------------------------------------------------


def with_expected(
    reservations: Iterable[Reservation],
    purchases: Iterable[PurchaseIntent],
    owner: str,
    *,
    but: str = "",
    firm: bool = False,
) -> list[Reservation]:
    """What AWS shows, and what it may yet show of the purchases that are under way (all `but` one). What was submitted
    lasts as its offer said; of what was not, only the least that its envelope promises is counted on. Else the windows
    would take each other's blocks and buy more than all of them need. Each with the windows it was bought for.

    `firm`: only what may have been bought. A mere proposal keeps others from being proposed and voids no approval.
    """
    held = {reservation.id: reservation for reservation in reservations}
    made_by: dict[str, list[str]] = {}
    for reservation in held.values():
        made_by.setdefault(reservation.intent_id, []).append(reservation.id)
    under_way = MAY_COST if firm else (*OPEN, PurchaseState.CONFIRMED)
    for intent in purchases:
        if intent.id == but or intent.state not in under_way:
            continue
        bound = intent.envelope
        if intent.extends:
            block = held.get(intent.extends)
            if block is not None and block.state in LIVE_STATES:
                end = intent.end or bound.earliest_end
                held[block.id] = extended(block, bound.latest_start, end, intent.window)
            continue
        made = made_by.get(intent.id) or [id_ for id_ in intent.reservation_ids if id_ in held]
        for block in [held[id_] for id_ in made] or [_expected(intent, owner)]:
            if block.state in LIVE_STATES:  # what is over serves nothing, and there is ever more of it
                held[block.id] = replace(block, bought_for=(*block.bought_for, (block.start, intent.window)))
    return list(held.values())


def _expected(intent: PurchaseIntent, owner: str) -> Reservation:
    bound = intent.envelope
    return Reservation(
        intent.id, SourceKind.BLOCK, bound.instance_type, bound.zones[0] if bound.zones else "", bound.count,
        0, ReservationState.SCHEDULED, intent.start or bound.latest_start, intent.end or bound.earliest_end,
        owner, intent.pool,
    )  # fmt: skip


def extended(block: Reservation, old_end: datetime, end: datetime, window: str) -> Reservation:
    """The same block, longer; its end is as AWS shows it where that is later."""
    later = block.end is not None and block.end < end
    return replace(block, end=end if later else block.end, bought_for=(*block.bought_for, (old_end, window)))


def with_bought(
    reservations: Iterable[Reservation], offer: Offer | ExtensionOffer, owner: str, pool: str, window: str
) -> list[Reservation]:
    """As if the offer had been bought for a window."""
    if isinstance(offer, ExtensionOffer):
        return [
            extended(reservation, offer.start, offer.end, window)
            if reservation.id == offer.reservation_id
            else reservation
            for reservation in reservations
        ]
    bought = Reservation(
        offer.id, SourceKind.BLOCK, offer.instance_type, offer.zone, offer.count, 0,
        ReservationState.SCHEDULED, offer.start, offer.end, owner, pool, bought_for=((offer.start, window),),
    )  # fmt: skip
    return [*reservations, bought]
