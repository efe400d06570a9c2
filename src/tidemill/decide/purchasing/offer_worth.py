"""What an offer comes to for its demand: its fee, and what the hours that it leaves uncovered are worth.

The planner's own measure, for one purchase. A cheap block that starts tomorrow is no bargain for demand of today. Asked
when a window is proposed, and again at submit, among what EC2 sells then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.decide.purchasing.coverage import missing_gpus, with_bought
from tidemill.decide.purchasing.planner.demand import calendar_demand, most_learned_gpus, worth_usd_gpu_h
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.window_coverage import missing_instances, window_named
from tidemill.model.capacity import Reservation
from tidemill.model.offers import ExtensionOffer, Offer
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

# What is bought may come to so much more than what was approved: the fee that was approved, from its planned start on.
# More than that is proposed anew.
APPROVED_PERCENT = 110
_HOUR = timedelta(hours=1)


def cost_for_window_usd(
    spec: Spec, held: Sequence[Reservation], offer: Offer | ExtensionOffer, pool: str, window: DemandWindow,
    now: datetime,
) -> float:  # fmt: skip
    """An hour that is missing costs what it costs on demand."""
    after = with_bought(held, offer, spec.platform.spec.deployment, pool, window.name)
    missing = missing_instances(spec, after, pool, window, now, to_the_minute=True)
    kind = spec.catalog.types[window.instance_type]
    return offer.fee_usd + _hours(missing) * max(1, kind.gpus) * worth_usd_gpu_h(spec.catalog, kind.name)


def cost_for_purchase_usd(
    spec: Spec,
    held: Sequence[Reservation],
    offer: Offer | ExtensionOffer,
    intent: PurchaseIntent,
    now: datetime,
) -> float:
    """Of what a person asked for outside any plan: the fee."""
    plan = spec.plans.get(intent.plan)
    window = window_named(plan, intent.window)
    if window is not None:
        return cost_for_window_usd(spec, held, offer, intent.pool, window, now)
    if plan is not None and plan.spec.calendar is not None:
        return _cost_for_calendar_usd(spec, held, offer, plan, intent, now)
    return offer.fee_usd


def _cost_for_calendar_usd(
    spec: Spec, held: Sequence[Reservation], offer: Offer | ExtensionOffer, plan: CapacityPlan,
    intent: PurchaseIntent, now: datetime,
) -> float:  # fmt: skip
    assert plan.spec.calendar is not None
    demand = calendar_demand(spec, plan.name, most_learned_gpus(spec, plan.spec.calendar))
    start = max(now, intent.envelope.earliest_start)
    after = with_bought(held, offer, spec.platform.spec.deployment, intent.pool, intent.window)
    missing = missing_gpus(spec, demand, after, start, intent.envelope.earliest_end)
    return offer.fee_usd + _hours(missing) * demand.penalty_usd_gpu_h


def is_as_approved(
    spec: Spec,
    held: Sequence[Reservation],
    offer: Offer | ExtensionOffer,
    intent: PurchaseIntent,
    now: datetime,
) -> bool:
    """Not much worse than what was approved would be by now: who approves late gets what is left of it."""
    bound = intent.envelope
    if isinstance(offer, ExtensionOffer) or bound.planned_start is None or not intent.plan:
        return True
    start = min(max(now, bound.planned_start), bound.latest_start)
    approved = Offer(
        "approved", bound.instance_type, offer.zone, bound.count, start, max(bound.earliest_end, start),
        bound.max_fee_usd,
    )  # fmt: skip
    most_usd = cost_for_purchase_usd(spec, held, approved, intent, now) * APPROVED_PERCENT / 100
    return cost_for_purchase_usd(spec, held, offer, intent, now) <= most_usd


def _hours(steps: Sequence[Step]) -> float:
    return sum(step.amount * ((step.end - step.start) / _HOUR) for step in steps)
