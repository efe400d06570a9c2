"""What a demand window lacks, from what AWS shows: asked when deciding, and again at the moment of buying (CB-4).

What is held serves the windows of a pool in the order they are written, so nobody's block counts twice. What was
bought and does not show yet, and what is about to be bought, counts as held: else the windows would take each other's
blocks and buy more than all of them need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from tidemill.decide.purchasing.calendar_gaps import missing_gpu_minutes
from tidemill.model.capacity import LIVE_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import DAY, LEGAL_DURATIONS, LONGEST_BLOCK, round_up_duration
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchases import MAY_COST, OPEN, PurchaseIntent, PurchaseState
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

# A block is extended as a whole, and an UltraServer sold as one: what holds more than twice what is missing is not
# bought by itself. Somebody who wants it all the same says `tidemill extend` or `tidemill buy`.
MAX_OVERSIZE = 2


def with_expected(
    reservations: Iterable[Reservation],
    purchases: Iterable[PurchaseIntent],
    owner: str,
    *,
    but: str = "",
    firm: bool = False,
) -> list[Reservation]:
    """What AWS shows, and what it may yet show of the purchases that are under way (all `but` one). What was submitted
    lasts as its offer said; of what was not, only the least that its envelope promises is counted on.

    `firm`: only what may have been bought. A mere proposal keeps others from being proposed and voids no approval.
    """
    held = {one.id: one for one in reservations}
    under_way = MAY_COST if firm else (*OPEN, PurchaseState.CONFIRMED)
    for intent in purchases:
        if intent.id == but or intent.state not in under_way:
            continue
        bound = intent.envelope
        if intent.extends:
            block, end = held.get(intent.extends), intent.end or bound.earliest_end
            if block is not None and block.end is not None and block.end < end:
                held[block.id] = replace(block, end=end)
        elif not any(one.intent_id == intent.id for one in held.values()):
            held[intent.id] = Reservation(
                intent.id, SourceKind.BLOCK, bound.instance_type, bound.zones[0] if bound.zones else "", bound.count,
                0, ReservationState.SCHEDULED, intent.start or bound.latest_start, intent.end or bound.earliest_end,
                owner, intent.pool,
            )  # fmt: skip
    return list(held.values())


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
    plan = spec.plans.get(intent.plan)
    window = window_named(plan, intent.window)
    if window is None:
        return still_missing(spec, after, intent, now) < still_missing(spec, held, intent, now)
    return missing_instance_hours(spec, after, intent.pool, window, now) < missing_instance_hours(
        spec, held, intent.pool, window, now
    )


def is_mostly_covered(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> bool:
    """Somebody covered most of its window meanwhile: less than half of it would be used, and less is sold.

    Errs on the side of buying: a day at each end is EC2's grid, and a block is extended as a whole.
    """
    plan = spec.plans.get(intent.plan)
    window = window_named(plan, intent.window)
    if plan is None or window is None:
        return False
    gaps, bound = list(_gaps(spec, reservations, intent.pool, window, now)), intent.envelope
    if not gaps:
        return False  # covered, which is somebody else's to say
    count = max(gap.count for gap in gaps)
    kind = spec.catalog.types.get(bound.instance_type)
    if intent.extends or (kind is not None and kind.ultraserver):  # sold as a whole
        count = min(bound.count, MAX_OVERSIZE * count)
    span = gaps[-1].end - gaps[0].start + plan.spec.overlap + DAY
    least = ((round_up_duration(span) or LONGEST_BLOCK) + DAY) * count
    used = sum(((gap.end - gap.start) * min(gap.count, bound.count) for gap in gaps), timedelta(0))
    wanted = bound.duration * bound.count
    return used * 2 < wanted and wanted > least


def still_missing(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """Of the window a proposal is for; what a person asked for without a window is wanted until they say no."""
    if not intent.plan:
        return intent.envelope.count
    plan = spec.plans.get(intent.plan)
    if plan is not None and plan.spec.calendar is not None:
        return missing_gpu_minutes(spec, plan, reservations, intent, now)
    window = window_named(plan, intent.window)
    return 0 if window is None else missing(spec, reservations, intent.pool, window, now)


def missing(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> int:
    """How many instances the window lacks at the worst instant of its first gap."""
    gap = first_gap(spec, reservations, pool, window, now)
    return 0 if gap is None else gap.count


@dataclass(frozen=True, slots=True)
class Gap:
    """So many instances are lacking, from an instant to another."""

    count: int
    start: datetime
    end: datetime


def first_gap(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> Gap | None:
    """What is bought next is for this: a window is not bought as a whole where part of it is covered."""
    gaps = _gaps(spec, reservations, pool, window, now)
    first = next(gaps, None)
    if first is None:
        return None
    for more in gaps:
        if more.start != first.end:
            break
        first = Gap(max(first.count, more.count), first.start, more.end)
    return first


def missing_instance_hours(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> float:
    """Instance hours, over the whole window: what must become less with every purchase."""
    return sum(
        gap.count * ((gap.end - gap.start) / timedelta(hours=1))
        for gap in _gaps(spec, reservations, pool, window, now)
    )


def _gaps(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> Iterator[Gap]:
    """One after the other, between the instants at which anything changes."""
    holding = [_from_now(one, window, now) for one in held_for(spec, reservations, pool, window)]
    before = _windows_served_first(spec, pool, window)
    start = max(window.start, now)
    if start >= window.end:
        return
    turns = {start, window.end} | {one.end for one in holding if one.end and start < one.end < window.end}
    turns |= {one.start for one in holding if start < one.start < window.end}
    turns |= {at for one in before for at in (one.start, one.end) if start < at < window.end}

    def left(at: datetime) -> int:
        held = sum(one.count for one in holding if one.start <= at and (one.end is None or at < one.end))
        return max(0, held - sum(one.instances for one in before if one.start <= at < one.end))

    ordered = sorted(turns)
    for begins, ends in pairwise(ordered):
        lacks = window.instances - left(begins)
        if lacks > 0:
            yield Gap(lacks, begins, ends)


def with_bought(
    reservations: Iterable[Reservation], offer: Offer | ExtensionOffer, owner: str, pool: str
) -> list[Reservation]:
    """As if it had been bought."""
    if isinstance(offer, ExtensionOffer):
        return [
            replace(one, end=offer.end) if one.id == offer.reservation_id else one for one in reservations
        ]
    bought = Reservation(
        offer.id, SourceKind.BLOCK, offer.instance_type, offer.zone, offer.count, 0,
        ReservationState.SCHEDULED, offer.start, offer.end, owner, pool,
    )  # fmt: skip
    return [*reservations, bought]


def held_for(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow
) -> list[Reservation]:
    """Ours, of the type it asks for, and not another pool's."""
    return [
        one
        for one in reservations
        if one.instance_type == window.instance_type
        and one.owner == spec.platform.spec.deployment
        and (not one.pool or one.pool == pool)
        and one.state in LIVE_STATES
    ]


def _from_now(one: Reservation, window: DemandWindow, now: datetime) -> Reservation:
    """A window that has begun is served as soon as can be: what starts within a day closes the gap before it, since
    nothing shorter than a day is sold. Without this each start-now block would ask for another one."""
    if window.start <= now < one.start < now + LEGAL_DURATIONS[0]:
        return replace(one, start=now)
    return one


def _windows_served_first(spec: Spec, pool: str, window: DemandWindow) -> list[DemandWindow]:
    """Windows of the same pool and type that come first, by plan and place in it."""
    earlier: list[DemandWindow] = []
    for plan in spec.plans.values():
        for one in plan.spec.demand if plan.spec.pool == pool else ():
            if one is window:
                return earlier
            if one.instance_type == window.instance_type:
                earlier.append(one)
    return earlier


def window_named(plan: CapacityPlan | None, name: str) -> DemandWindow | None:
    return next((one for one in plan.spec.demand if one.name == name), None) if plan is not None else None
