"""Mitigations: what would keep a service up over a hand-over that leaves it short, and what each costs.

Prices come from offers EC2 has shown, else from what the block cost or the catalog's rate, and then they say so. The
purchase planner prices the same four ways over a whole calendar; this is the answer for one service and two blocks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil

from tidemill.decide.context import DecisionContext
from tidemill.decide.handover.destinations import how_many
from tidemill.decide.handover.forecast import ServiceForecast
from tidemill.decide.purchasing.planner.result import Mitigation, MitigationKind
from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import LONGEST_BLOCK
from tidemill.model.offers import Offer
from tidemill.model.resources import Resources
from tidemill.spec import names

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
# EC2 takes extensions until then.
_EXTENDABLE_UNTIL = HOUR


def mitigations(context: DecisionContext, one: ServiceForecast) -> tuple[Mitigation, ...]:
    """The cheapest first, unavailable ones last. Empty where the service is not short."""
    if one.short is None:
        return ()
    found = (
        _extension(context, one),
        _more_of_b(context, one),
        _start_now(context, one),
        _bridge(context, one),
    )
    return tuple(sorted(found, key=lambda way: (way.usd is None, way.usd or 0.0)))


def instances_needed(context: DecisionContext, one: ServiceForecast) -> int:
    """Nodes of the block's type for all replicas that leave it."""
    kind = context.spec.catalog.types.get(one.block.instance_type)
    beside = how_many(one.workload.shape, Resources(kind.allocatable)) if kind is not None else 0
    return ceil(one.leaving / beside) if beside else one.block.count


def _lasts(one: ServiceForecast) -> timedelta:
    """How long it is short; a day where that is unknown."""
    assert one.short is not None
    return one.short.lasts if one.short.lasts is not None else DAY


def _usd_day(context: DecisionContext, one: ServiceForecast, count: int) -> float | None:
    """Of `count` instances: at the rate the block was bought at, else at the catalog's."""
    block = one.block
    if block.fee_usd and block.end is not None:
        return block.fee_usd / block.count * count * (DAY / (block.end - block.start))
    kind = context.spec.catalog.types.get(block.instance_type)
    return None if kind is None or kind.block_usd_h is None else kind.block_usd_h * count * 24


def _extension(context: DecisionContext, one: ServiceForecast) -> Mitigation:
    means: MitigationKind = "a-days-extension-of-a"
    block = one.block
    days = max(1, ceil(_lasts(one) / DAY))
    if block.kind is not SourceKind.BLOCK or block.end is None:
        return Mitigation(means, None, "", f"{block.id} is no Capacity Block")
    if block.extension_pending_to is not None:
        return Mitigation(
            means, None, "", f"an extension of {block.id} is not paid yet; another must wait for it"
        )
    context.wake(block.end - _EXTENDABLE_UNTIL)
    if context.now >= block.end - _EXTENDABLE_UNTIL:
        return Mitigation(means, None, "", f"{block.id} can no longer be extended: EC2 asks for an hour")
    if block.end + days * DAY - block.start > LONGEST_BLOCK:
        return Mitigation(means, None, "", f"{block.id} would be longer than 182 days")
    offers = [
        (offer.fee_usd, offer.id)
        for search in context.world.extension_searches
        if search.query.reservation_id == block.id
        for offer in search.offers
        if offer.end >= block.end + days * DAY
    ]
    if offers:
        usd, id_ = min(offers)
        return Mitigation(means, usd, id_, f"extend {block.id} with {id_}")
    rate = _usd_day(context, one, block.count)
    words = f"extend {block.id} by {days}d, reckoned at its rate; EC2 has shown no offer"
    return Mitigation(means, None if rate is None else rate * days, "", words)


def _more_of_b(context: DecisionContext, one: ServiceForecast) -> Mitigation:
    means: MitigationKind = "a-day-more-of-b"
    count = instances_needed(context, one)
    if one.successor is not None:
        return Mitigation(means, None, "", f"{one.successor.id} is bought: its start cannot be moved")
    until = one.deadline + _lasts(one)
    best = _cheapest(context, one, count, one.deadline - one.needed, until)
    if best is not None:
        return Mitigation(means, best.fee_usd, best.id, f"buy {best.id}, which starts in time")
    words = f"a block of {count} that starts a day before, reckoned at the rate of {one.block.id}"
    return Mitigation(means, _usd_day(context, one, count), "", f"{words}; EC2 has shown no offer")


def _start_now(context: DecisionContext, one: ServiceForecast) -> Mitigation:
    means: MitigationKind = "a-start-now-block"
    count = instances_needed(context, one)
    best = _cheapest(context, one, count, one.deadline - one.needed, one.deadline + _lasts(one), now=True)
    if best is not None:
        return Mitigation(
            means, best.fee_usd, best.id, f"buy {best.id}, which starts now and runs beside both"
        )
    words = f"a start-now block of {count} for a day, reckoned at the rate of {one.block.id}"
    return Mitigation(means, _usd_day(context, one, count), "", f"{words}; ask EC2 within the last day")


def _cheapest(
    context: DecisionContext,
    one: ServiceForecast,
    count: int,
    by: datetime,
    until: datetime,
    *,
    now: bool = False,
) -> Offer | None:
    """Of the offers EC2 has shown for the pool: there in time, and long enough. A start-now block is off the grid."""
    kinds = context.templates[one.pool].kinds
    fitting = (
        offer
        for search in context.world.searches
        for offer in search.offers
        if offer.instance_type in kinds and offer.count >= count and offer.start <= by and offer.end >= until
        if not now or (offer.start.hour, offer.start.minute) != (11, 30)
    )
    return min(fitting, key=lambda offer: (offer.fee_usd, offer.id), default=None)


def _bridge(context: DecisionContext, one: ServiceForecast) -> Mitigation:
    """Launched early enough to be Ready when the block ends, and paid for from then on."""
    means: MitigationKind = "an-on-demand-bridge"
    count = instances_needed(context, one)
    kind = context.spec.catalog.types.get(one.block.instance_type)
    if one.bridged:
        return Mitigation(
            means, None, "", "it is bridged already, one wave at a time; by scale all come up at once"
        )
    if kind is None or kind.on_demand_usd_h is None:
        return Mitigation(means, None, "", f"no on-demand price of {one.block.instance_type} is known")
    hours = (_lasts(one) + one.boot.length + one.load.length) / HOUR
    words = f"{count} {kind.name} on demand at ${kind.on_demand_usd_h:,.2f} an hour each, if EC2 has them"
    lacks = _lacks_for_overflow(context, one)
    return Mitigation(means, kind.on_demand_usd_h * count * hours, "", f"{words}{lacks}")


def _lacks_for_overflow(context: DecisionContext, one: ServiceForecast) -> str:
    pool = context.templates[one.pool].pool
    lacks = []
    if not any(source.type == "on-demand" for source in pool.spec.sources):
        lacks.append(f"pool {pool.name} must list on-demand with its caps")
    if not one.workload.terms.overflow:
        lacks.append(f'{one.workload.name} must say {names.OVERFLOW}: "true"')
    return f" ({'; '.join(lacks)})" if lacks else ""
