"""What the calendars lack, from what is held and what is on its way: asked when planning, and again when buying (CB-4).

A block counts from its warm-up after its start until EC2 takes it back before its end. Amounts are GPUs; knows nothing
of prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

from tidemill.decide.purchasing.planner.calendar import Step, levels
from tidemill.decide.purchasing.planner.demand import calendar_demand, most_learned_gpus
from tidemill.decide.purchasing.planner.inputs import PoolDemand
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by, live_reservations
from tidemill.decide.purchasing.planner.slots import serving_span
from tidemill.model.capacity import Reservation
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

MINUTE = timedelta(minutes=1)


def missing_gpus(
    spec: Spec, demand: PoolDemand, held: Sequence[Reservation], start: datetime, until: datetime
) -> tuple[Step, ...]:
    """One step after the other, without those in which nothing is missing."""
    mine = [one for one in held if is_usable_by(demand, one) and one.pool in ("", demand.pool)]
    spans = [(*serving_span(demand, one, until), one) for one in mine]
    steps = levels(demand.calendar, start, until)
    cuts = {step.start for step in steps} | {until}
    cuts |= {at for first, last, _ in spans for at in (first, last) if start < at < until}
    found: list[Step] = []
    number = 0
    for here, there in pairwise(sorted(cuts)):
        while steps[number].end <= here:
            number += 1
        serve = [one for first, last, one in spans if first <= here < last]
        short = steps[number].amount - _served(spec, demand, serve)
        if short > 0:
            if found and found[-1].end == here and found[-1].amount == short:
                found[-1] = Step(found[-1].start, there, short)
            else:
                found.append(Step(here, there, short))
    return tuple(found)


def _served(spec: Spec, demand: PoolDemand, blocks: Iterable[Reservation]) -> int:
    by_zone: dict[str, int] = {}
    for one in blocks:
        gpus = one.count * spec.catalog.types[one.instance_type].gpus
        by_zone[one.zone] = by_zone.get(one.zone, 0) + gpus
    return max(by_zone.values(), default=0) if demand.one_zone else sum(by_zone.values())


def missing_gpu_minutes(
    spec: Spec, plan: CapacityPlan, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> int:
    """GPU-minutes the calendar lacks over the time a purchase would cover, rounded up; 0: it is covered.

    What is learned counts as the most it may be: an approved purchase is not voided because the queue is short today.
    """
    assert plan.spec.calendar is not None
    demand = calendar_demand(spec, plan.name, most_learned_gpus(spec, plan.spec.calendar))
    envelope = intent.envelope
    wait = -demand.wind_down if intent.extends else demand.warm_up
    start, until = max(envelope.latest_start + wait, now), envelope.earliest_end - demand.wind_down
    if until <= start:
        return 0
    owner = spec.platform.spec.deployment
    held = [one for one in live_reservations(reservations, now) if one.owner == owner]
    minutes = (
        step.amount * ((step.end - step.start) / MINUTE)
        for step in missing_gpus(spec, demand, held, start, until)
    )
    return ceil(sum(minutes))
