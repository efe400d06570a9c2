"""What is missing: the demand of a plan, less what is held and what is on its way. Asked when deciding, and again at
the moment of buying (CB-4).

There is one computation (`missing_steps`). A calendar asks it in GPUs; a demand window is a calendar with one entry, of
one instance type, and asks it in instances. Knows nothing of prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

from tidemill.decide.purchasing.planner.demand import calendar_demand, most_learned_gpus
from tidemill.decide.purchasing.planner.inputs import Calendar, PoolDemand, Step, Windows, levels
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by, live_reservations
from tidemill.decide.purchasing.planner.slots import serving_span
from tidemill.decide.purchasing.usability import counts_for
from tidemill.model.capacity import LIVE_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import DAY, LEGAL_DURATIONS
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchases import MAY_COST, OPEN, PurchaseIntent, PurchaseState
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

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


# --- windows, in instances ----------------------------------------------------------------------------


def missing_instances(
    spec: Spec,
    reservations: Iterable[Reservation],
    pool: str,
    window: DemandWindow,
    now: datetime,
    *,
    to_the_minute: bool = False,
) -> tuple[Step, ...]:
    """What is held serves the windows of a pool in the order they are written, so no block counts twice. So the windows
    before this one are demand too; but what this one misses is never more than it asks for.

    `to_the_minute`: what starts within a day counts from its start and not from now.
    """
    supplies = [
        Supply(
            block.start if to_the_minute else _serves_from(block, window, now),
            block.end,
            block.count,
            block.zone,
        )
        for block in held_for(spec, reservations, pool, window)
    ]
    windows = [*_windows_served_first(spec, pool, window), window]
    calendar = Windows(tuple(Step(window.start, window.end, window.instances) for window in windows))
    # Outside the window, what the others need is not asked about.
    steps = missing_steps(calendar, supplies, max(window.start, now), window.end)
    most = window.instances
    return tuple(step if step.amount <= most else Step(step.start, step.end, most) for step in steps)


def first_gap(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> Step | None:
    """As high as its highest step. What is bought next is for this: a window is not bought as a whole where part of it
    is covered."""
    gap: Step | None = None
    for step in missing_instances(spec, reservations, pool, window, now):
        if gap is not None and step.start != gap.end:
            break
        gap = step if gap is None else Step(gap.start, step.end, max(gap.amount, step.amount))
    return gap


def missing_instance_time(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> timedelta:
    """Instances times how long each is missing, over the whole window: what must become less with every purchase.

    Exact: two sums of hours as floats may differ although nothing was gained.
    """
    steps = missing_instances(spec, reservations, pool, window, now)
    return sum((step.amount * (step.end - step.start) for step in steps), timedelta(0))


def _serves_from(block: Reservation, window: DemandWindow, now: datetime) -> datetime:
    """A window that has begun is served as soon as can be: what starts within a day closes the gap before it, since
    nothing shorter than a day is sold. Without this each start-now block would ask for another one."""
    return now if window.start <= now < block.start <= now + LEGAL_DURATIONS[0] else block.start


def coverage_changes_at(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow
) -> Iterator[datetime]:
    """When another answer may follow from the same blocks: as windows and blocks begin and end, and once what starts
    within a day counts."""
    for one in (*_windows_served_first(spec, pool, window), window):
        yield from (one.start, one.end)
    for block in held_for(spec, reservations, pool, window):
        yield from (block.start - LEGAL_DURATIONS[0], block.start)
        if block.end is not None:
            yield block.end


def _windows_served_first(spec: Spec, pool: str, window: DemandWindow) -> list[DemandWindow]:
    """Windows of the same pool and type that come before it, by plan and place in it."""
    earlier: list[DemandWindow] = []
    for plan in spec.plans.values():
        for one in plan.spec.demand if plan.spec.pool == pool else ():
            if one is window:
                return earlier
            if one.instance_type == window.instance_type:
                earlier.append(one)
    return earlier


def held_for(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow
) -> list[Reservation]:
    """Ours, of the type it asks for, and this pool's or one that it can use."""
    return [
        reservation
        for reservation in reservations
        if reservation.instance_type == window.instance_type
        and reservation.owner == spec.platform.spec.deployment
        and reservation.state in LIVE_STATES
        and counts_for(spec, pool, reservation)
    ]


def window_named(plan: CapacityPlan | None, name: str) -> DemandWindow | None:
    return (
        next((window for window in plan.spec.demand if window.name == name), None)
        if plan is not None
        else None
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
    after = with_bought(held, offer, spec.platform.spec.deployment, intent.pool)
    window = window_named(spec.plans.get(intent.plan), intent.window)
    if window is None:
        return still_missing(spec, after, intent, now) < still_missing(spec, held, intent, now)
    left, before = (missing_instance_time(spec, blocks, intent.pool, window, now) for blocks in (after, held))
    return left < before


def comes_first(spec: Spec, held: Iterable[Reservation], intent: PurchaseIntent, now: datetime) -> str | None:
    """The window that would take whatever is bought for this one, so that it stayed as short as before; None: there is
    none. Asked of the most that its envelope allows: no offer inside it can do more."""
    window, bound = window_named(spec.plans.get(intent.plan), intent.window), intent.envelope
    if window is None or intent.extends:
        return None
    held, zone = list(held), bound.zones[0] if bound.zones else ""
    start, end = max(bound.earliest_start, now), bound.latest_start + bound.duration + DAY
    most = Offer(intent.id, bound.instance_type, zone, bound.count, start, end, bound.max_fee_usd)
    if reduces_shortage(spec, held, most, intent, now):
        return None
    earlier = _windows_served_first(spec, intent.pool, window)
    together = (one for one in earlier if one.start < window.end and window.start < one.end)
    return next((one.name for one in together if missing_instances(spec, held, intent.pool, one, now)), None)


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
    would take each other's blocks and buy more than all of them need.

    `firm`: only what may have been bought. A mere proposal keeps others from being proposed and voids no approval.
    """
    held = {reservation.id: reservation for reservation in reservations}
    under_way = MAY_COST if firm else (*OPEN, PurchaseState.CONFIRMED)
    for intent in purchases:
        if intent.id == but or intent.state not in under_way:
            continue
        bound = intent.envelope
        if intent.extends:
            block, end = held.get(intent.extends), intent.end or bound.earliest_end
            if block is not None and block.end is not None and block.end < end:
                held[block.id] = replace(block, end=end)
        elif not any(block.intent_id == intent.id for block in held.values()):
            held[intent.id] = Reservation(
                intent.id, SourceKind.BLOCK, bound.instance_type, bound.zones[0] if bound.zones else "", bound.count,
                0, ReservationState.SCHEDULED, intent.start or bound.latest_start, intent.end or bound.earliest_end,
                owner, intent.pool,
            )  # fmt: skip
    return list(held.values())


def with_bought(
    reservations: Iterable[Reservation], offer: Offer | ExtensionOffer, owner: str, pool: str
) -> list[Reservation]:
    """As if the offer had been bought."""
    if isinstance(offer, ExtensionOffer):
        return [
            replace(reservation, end=offer.end) if reservation.id == offer.reservation_id else reservation
            for reservation in reservations
        ]
    bought = Reservation(
        offer.id, SourceKind.BLOCK, offer.instance_type, offer.zone, offer.count, 0,
        ReservationState.SCHEDULED, offer.start, offer.end, owner, pool,
    )  # fmt: skip
    return [*reservations, bought]
