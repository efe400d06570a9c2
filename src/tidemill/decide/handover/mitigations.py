"""Mitigations: what would keep a service up over a hand-over that leaves it short, and what each costs.

Prices come from offers EC2 has shown, else from what the block cost or the catalog's rate, and then they say so. The
purchase planner prices the same four ways over a whole calendar, by the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import ceil

from tidemill.decide.context import DecisionContext
from tidemill.decide.handover.destinations import how_many
from tidemill.decide.handover.forecast import ServiceForecast
from tidemill.decide.purchasing.planner.mitigations import (
    Mitigation,
    MoreTime,
    at_the_nearest_rate,
    block_usd_day,
    bridge_usd,
    cheapest_first,
    long_enough,
    price,
)
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import DAY, EXTENSION_CLOSES_BEFORE_END, LONGEST_BLOCK
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import MitigationNote, MitigationNoteKind
from tidemill.model.resources import Resources


def mitigations(context: DecisionContext, service: ServiceForecast) -> tuple[Mitigation, ...]:
    """The cheapest first, unavailable ones last. Empty where the service is not short."""
    if service.short is None:
        return ()
    ways = (_extension, _more_of_b, _start_now, _bridge)
    return cheapest_first(way(context, service) for way in ways)


def instances_needed(context: DecisionContext, service: ServiceForecast) -> int:
    """Nodes of the block's type for all replicas that leave it."""
    kind = context.spec.catalog.types.get(service.block.instance_type)
    beside = how_many(service.workload.shape, Resources(kind.allocatable)) if kind is not None else 0
    return ceil(service.leaving / beside) if beside else service.block.count


def _lasts(service: ServiceForecast) -> timedelta:
    """How long it is short; a day where that is unknown."""
    assert service.short is not None
    return service.short.lasts if service.short.lasts is not None else DAY


def _usd_day(context: DecisionContext, service: ServiceForecast, count: int) -> float | None:
    """Of `count` instances: at the rate the block was bought at, else at the catalog's."""
    block = service.block
    if block.fee_usd and block.end is not None:
        return block_usd_day(block) / block.count * count
    kind = context.spec.catalog.types.get(block.instance_type)
    return None if kind is None or kind.block_usd_h is None else kind.block_usd_h * count * 24


def _extension(context: DecisionContext, service: ServiceForecast) -> Mitigation:
    block, days = service.block, max(1, ceil(_lasts(service) / DAY))
    impossible = _why_not_extendable(context, block, days)
    shown = [
        MoreTime(offer.fee_usd, offer.id, offer.end - block.end)
        for search in context.world.extension_searches
        if search.query.reservation_id == block.id
        for offer in search.offers
        if block.end is not None
    ]
    options = [
        (one.usd, one.offer, MitigationNote(MitigationNoteKind.EXTEND_WITH, block.id, one.offer))
        for one in long_enough(shown, days)
    ]
    rate = _usd_day(context, service, block.count)
    estimated = MitigationNote(MitigationNoteKind.EXTENSION_ESTIMATED, block.id, days=days)
    estimate = at_the_nearest_rate(shown, days) or (None if rate is None else rate * days, estimated)
    return price("a-days-extension-of-a", options, estimate=estimate, impossible=impossible)


def _why_not_extendable(context: DecisionContext, block: Reservation, days: int) -> MitigationNote | None:
    if block.kind is not SourceKind.BLOCK or block.end is None:
        return MitigationNote(MitigationNoteKind.NOT_A_CAPACITY_BLOCK, block.id)
    if block.extension_pending_to is not None:
        return MitigationNote(MitigationNoteKind.EXTENSION_UNPAID, block.id)
    closes_at = block.end - EXTENSION_CLOSES_BEFORE_END
    context.wake(closes_at)
    if context.now >= closes_at:
        return MitigationNote(MitigationNoteKind.EXTENSIONS_CLOSED, block.id)
    if block.end + days * DAY - block.start > LONGEST_BLOCK:
        return MitigationNote(MitigationNoteKind.LONGER_THAN_LONGEST, block.id)
    return None


def _more_of_b(context: DecisionContext, service: ServiceForecast) -> Mitigation:
    count = instances_needed(context, service)
    options = [
        (offer.fee_usd, offer.id, MitigationNote(MitigationNoteKind.BUY_EARLIER, offer=offer.id))
        for offer in _fitting_offers(context, service, count)
    ]
    estimated = MitigationNote(MitigationNoteKind.EARLIER_ESTIMATED, service.block.id, count=count)
    estimate = _usd_day(context, service, count), estimated
    bought = (
        MitigationNote(MitigationNoteKind.SUCCESSOR_BOUGHT, service.successor.id)
        if service.successor is not None
        else None
    )
    return price("a-day-more-of-b", options, estimate=estimate, impossible=bought)


def _start_now(context: DecisionContext, service: ServiceForecast) -> Mitigation:
    count = instances_needed(context, service)
    options = [
        (offer.fee_usd, offer.id, MitigationNote(MitigationNoteKind.BUY_START_NOW, offer=offer.id))
        for offer in _fitting_offers(context, service, count)
        if (offer.start.hour, offer.start.minute) != (11, 30)  # only a start-now block is off the grid
    ]
    estimated = MitigationNote(MitigationNoteKind.START_NOW_ESTIMATED, service.block.id, count=count)
    estimate = _usd_day(context, service, count), estimated
    return price("a-start-now-block", options, estimate=estimate)


def _fitting_offers(context: DecisionContext, service: ServiceForecast, count: int) -> Iterator[Offer]:
    """Of the offers EC2 has shown for the pool: there in time, and long enough."""
    kinds = context.templates[service.pool].kinds
    by, until = service.deadline - service.needed, service.deadline + _lasts(service)
    for search in context.world.searches:
        for offer in search.offers:
            in_time = offer.start <= by and offer.end >= until
            if offer.instance_type in kinds and offer.count >= count and in_time:
                yield offer


def _bridge(context: DecisionContext, service: ServiceForecast) -> Mitigation:
    count = instances_needed(context, service)
    kind = context.spec.catalog.types.get(service.block.instance_type)
    if service.bridged:
        impossible = MitigationNote(MitigationNoteKind.BRIDGED_ALREADY)
        return price("an-on-demand-bridge", impossible=impossible)
    if kind is None or kind.on_demand_usd_h is None:
        impossible = MitigationNote(MitigationNoteKind.NO_ON_DEMAND_PRICE, service.block.instance_type)
        return price("an-on-demand-bridge", impossible=impossible)
    usd = bridge_usd(kind.on_demand_usd_h, count, _lasts(service), service.boot.length + service.load.length)
    pool = context.templates[service.pool].pool
    listed = any(source.type == "on-demand" for source in pool.spec.sources)
    note = MitigationNote(
        MitigationNoteKind.BRIDGE,
        kind.name,
        count=count,
        usd_h=kind.on_demand_usd_h,
        pool="" if listed else pool.name,
        workload="" if service.workload.terms.overflow else service.workload.name,
    )
    return price("an-on-demand-bridge", [(usd, "", note)])
