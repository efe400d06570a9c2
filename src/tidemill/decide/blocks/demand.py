"""What a demand window lacks, from what AWS shows: asked when deciding, and again at the moment of buying (CB-4).

What is held serves the windows of a pool in the order they are written, so nobody's block counts twice. Knows
nothing of intents: what was asked for and does not show is no capacity.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidemill.spec import Spec
from tidemill.spec.models import CapacityPlan, DemandWindow
from tidemill.world import PurchaseIntent, Reservation, ReservationState

LIVE = (ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED, ReservationState.ACTIVE)


def still_missing(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """Of the window a proposal is for; what a person asked for without a window is wanted until they say no."""
    if not intent.plan:
        return intent.envelope.count
    window = window_of(spec.plans.get(intent.plan), intent.window)
    return 0 if window is None else missing(spec, reservations, intent.pool, window, now)


def missing(
    spec: Spec, reservations: Iterable[Reservation], pool: str, window: DemandWindow, now: datetime
) -> int:
    """How many instances the window lacks at its worst instant."""
    holding = held_for(spec, reservations, pool, window)
    before = _served_before(spec, pool, window)
    start = max(window.start, now)
    instants = {start} | {one.end for one in holding if one.end and start < one.end < window.end}
    instants |= {one.start for one in holding if start < one.start < window.end}
    instants |= {one.start for one in before if start < one.start < window.end}

    def left(at: datetime) -> int:
        held = sum(one.count for one in holding if one.start <= at and (one.end is None or at < one.end))
        return max(0, held - sum(one.instances for one in before if one.start <= at < one.end))

    return max(0, *(window.instances - left(at) for at in instants))


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
