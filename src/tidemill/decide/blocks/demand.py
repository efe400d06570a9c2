"""What a demand window lacks, from what AWS shows: asked when deciding, and again at the moment of buying (CB-4).

What is held serves the windows of a pool in the order they are written, so nobody's block counts twice. What was
bought and does not show yet, and what is about to be bought, counts as held: else the windows would take each other's
blocks and buy more than all of them need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from tidemill.decide.blocks.lacking import still_lacking
from tidemill.decide.blocks.life import OPEN
from tidemill.spec import Spec
from tidemill.spec.durations import LEGAL_DURATIONS
from tidemill.spec.models import CapacityPlan, DemandWindow
from tidemill.world import (
    ExtensionOffer,
    Offer,
    PurchaseIntent,
    PurchaseState,
    Reservation,
    ReservationState,
    SourceKind,
)

LIVE = (ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED, ReservationState.ACTIVE)


def promised(
    reservations: Iterable[Reservation], purchases: Iterable[PurchaseIntent], owner: str, *, but: str = ""
) -> list[Reservation]:
    """What AWS shows, and what it may yet show of the purchases that are under way (all `but` one)."""
    held = {one.id: one for one in reservations}
    for intent in purchases:
        if intent.id == but or not (intent.state in OPEN or intent.state is PurchaseState.CONFIRMED):
            continue
        bound = intent.envelope
        if intent.extends:
            block = held.get(intent.extends)
            if block is not None and block.end is not None and block.end < bound.earliest_end:
                held[block.id] = replace(block, end=bound.earliest_end)
        elif not any(one.intent_id == intent.id for one in held.values()):
            held[intent.id] = Reservation(
                intent.id, SourceKind.BLOCK, bound.instance_type, bound.zones[0] if bound.zones else "", bound.count,
                0, ReservationState.SCHEDULED, bound.latest_start, bound.earliest_end, owner, intent.pool,
            )  # fmt: skip
    return list(held.values())


def still_missing(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """Of the window a proposal is for; what a person asked for without a window is wanted until they say no."""
    if not intent.plan:
        return intent.envelope.count
    plan = spec.plans.get(intent.plan)
    if plan is not None and plan.spec.calendar is not None:
        return still_lacking(spec, plan, reservations, intent, now)
    window = window_of(plan, intent.window)
    return 0 if window is None else missing(spec, reservations, intent.pool, window, now)


def missing(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> int:
    """How many instances the window lacks at its worst instant."""
    holding = [_from_now(one, window, now) for one in held_for(spec, reservations, pool, window)]
    before = _served_before(spec, pool, window)
    start = max(window.start, now)
    instants = {start} | {one.end for one in holding if one.end and start < one.end < window.end}
    instants |= {one.start for one in holding if start < one.start < window.end}
    instants |= {one.start for one in before if start < one.start < window.end}

    def left(at: datetime) -> int:
        held = sum(one.count for one in holding if one.start <= at and (one.end is None or at < one.end))
        return max(0, held - sum(one.instances for one in before if one.start <= at < one.end))

    return max(0, *(window.instances - left(at) for at in instants))


def with_offer(
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
        and one.state in LIVE
    ]


def _from_now(one: Reservation, window: DemandWindow, now: datetime) -> Reservation:
    """A window that has begun is served as soon as can be: what starts within a day closes the gap before it, since
    nothing shorter than a day is sold. Without this each start-now block would ask for another one."""
    if window.start <= now < one.start < now + LEGAL_DURATIONS[0]:
        return replace(one, start=now)
    return one


def _served_before(spec: Spec, pool: str, window: DemandWindow) -> list[DemandWindow]:
    """Windows of the same pool and type that come first, by plan and place in it."""
    earlier: list[DemandWindow] = []
    for plan in spec.plans.values():
        for one in plan.spec.demand if plan.spec.pool == pool else ():
            if one is window:
                return earlier
            if one.instance_type == window.instance_type:
                earlier.append(one)
    return earlier


def window_of(plan: CapacityPlan | None, name: str) -> DemandWindow | None:
    return next((one for one in plan.spec.demand if one.name == name), None) if plan is not None else None
