"""Whom to tell before a hand-over, and what: who would be short and for how long, what a method lacks, which pin must
move. Reasons have instants and not time left, so that they stay the same while nothing changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import deadline_of
from tidemill.decide.handover.destinations import boot_of, successors
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.hourly_seats import may_launch, money_read
from tidemill.decide.handover.mitigations import mitigations
from tidemill.decide.handover.replica_slots import LOOK_AGAIN, launched_at
from tidemill.decide.placement.candidate_nodes import daemon_overhead
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.purchasing.planner.mitigations import Mitigation
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.model.pods import Method
from tidemill.model.warning_reasons import MethodUnavailable, PinMustMove, ServiceShort, ShortKind

# A block without a successor is reported two days before its end: earlier, the successor is often still to be bought.
NOBODY_FOLLOWS = timedelta(days=2)


def warn_of_shortages(context: DecisionContext) -> None:
    for service in _forecasts(context) if context.workloads else ():
        name = service.workload.name
        if service.lacking:
            context.warn(f"hand-over of {name}", MethodUnavailable(service.method.value, service.lacking))
        if _is_news(context, service):
            context.warn(name, _short(service, mitigations(context, service)))
    for template in context.templates.values():
        for reason in pins_that_must_move(context, template):
            context.warn(f"pool {template.pool.name}", reason)


class _ForecastCache:
    def __init__(self) -> None:
        self.follow_from: tuple[object, ...] = ()
        self.estimated: tuple[Reservation, ...] = ()  # those whose estimated launches the forecasts read
        self.launched: tuple[datetime, ...] = ()  # the estimates
        self.forecasts: list[ServiceForecast] = []


def _forecasts(context: DecisionContext) -> list[ServiceForecast]:
    """Computed again only where their inputs have changed: most events are about jobs."""
    world, cache = context.world, context.memory.of(_ForecastCache)
    follow_from: tuple[object, ...] = (
        world.reservations,
        world.workloads,
        world.budgets,
        tuple((view.facts.standing, view.drain_from) for view in context.views),
        tuple(pod for pod in world.pods if pod.workload in context.workloads),  # how long they took to load
        dict(context.table.counts),
        daemon_overhead(context),
        tuple((one.id, one.in_flight) for one in world.launches if one.in_flight),
        money_read(context),
    )
    if cache.follow_from != follow_from or cache.launched != _launched(context, cache.estimated):
        context.estimated.clear()
        cache.follow_from, cache.forecasts = follow_from, forecast(context)
        cache.estimated = tuple(context.estimated.values())
        cache.launched = _launched(context, cache.estimated)
    for at in cache.launched:
        context.wake(at + LOOK_AGAIN)
    return cache.forecasts


def _launched(context: DecisionContext, reservations: Iterable[Reservation]) -> tuple[datetime, ...]:
    return tuple(launched_at(context, reservation) for reservation in reservations)


def _is_news(context: DecisionContext, service: ServiceForecast) -> bool:
    """A move that is under way is reported by its steps."""
    if service.short is None:
        return False
    if service.short.lasts is None and context.now < service.deadline - NOBODY_FOLLOWS:
        context.wake(service.deadline - NOBODY_FOLLOWS)
        return False
    return context.now < service.drain_from or not _may_still_move(context, service, service.short.since)


def _may_still_move(context: DecisionContext, service: ServiceForecast, by: datetime) -> bool:
    """During a move its own replacements take the free nodes: only a node that comes too late is certain."""
    if may_launch(context, service.workload):
        return True
    goes_as = context.workloads.get(service.workload.pair, service.workload)
    found = successors(context, goes_as, service.deadline, (service.source,))
    return any(after.start + boot_of(context, template).length <= by for template, after in found)


def _short(service: ServiceForecast, ways: tuple[Mitigation, ...]) -> ServiceShort:
    short = service.short
    assert short is not None
    if short.lasts is None:
        kind = ShortKind.NO_SUCCESSOR
    elif service.in_effect is Method.EVICT and service.minimum >= service.workload.replicas:
        kind = ShortKind.MINIMUM_IS_ALL
    else:
        kind = ShortKind.BRIDGE_IN_WAVES if service.bridged else ShortKind.SUCCESSOR_LATE
    return ServiceShort(
        kind,
        minimum=service.minimum,
        since=short.since,
        lasts=short.lasts,
        block=service.block.id,
        deadline=service.deadline,
        method=service.in_effect.value,
        leaving=service.leaving,
        successor=service.successor.id if service.successor is not None else "",
        ready_from=service.ready_from,
        remedies=tuple((way.means, way.usd) for way in ways if way.usd is not None),
    )


# --- pins ---------------------------------------------------------------------------------------------


def pins_that_must_move(context: DecisionContext, template: PoolTemplate) -> Iterator[PinMustMove]:
    """A pin moves by itself only on to what was bought for its pool. Other reservations of the pool that it keeps out
    are reported: those the user names."""
    pool = template.pool
    pinned = [source for source in pool.spec.sources if source.ids]
    if not pinned:
        return
    usable = {
        reservation.id
        for wanted in pool.spec.sources
        for reservation in usable_reservations(context, pool, wanted)
    }
    last = _last_of(context, usable)
    if last is not None and last.end is None:
        return
    for reservation in context.world.reservations:
        if (
            reservation.pool != pool.name
            or reservation.owner != context.owner
            or reservation.id in usable
            or reservation.state not in SECURED_STATES
        ):
            continue
        if last is None or last.end is None or reservation.end is None or reservation.end > last.end:
            yield _must_move(template, last, reservation)


def inherits_pin(context: DecisionContext, template: PoolTemplate) -> tuple[Reservation, ...]:
    """The reservations, paid and not over, that the pool uses although its pin does not name them: those bought for it.
    Empty for a pool with a source that any of them could come from."""
    pool = template.pool
    found = {
        reservation.id: reservation
        for wanted in pool.spec.sources
        for reservation in usable_reservations(context, pool, wanted)
        if wanted.ids and reservation.state in SECURED_STATES
    }
    named = {id_ for wanted in pool.spec.sources for id_ in wanted.ids}
    free = {
        reservation.id
        for wanted in pool.spec.sources
        if not wanted.ids
        for reservation in usable_reservations(context, pool, wanted)
    }
    return tuple(reservation for id_, reservation in found.items() if id_ not in named | free)


def _last_of(context: DecisionContext, ids: set[str]) -> Reservation | None:
    held = [
        reservation
        for reservation in context.world.reservations
        if reservation.id in ids and reservation.state in SECURED_STATES
    ]
    return max(
        held,
        key=lambda reservation: (
            reservation.end is None,
            reservation.end or reservation.start,
            reservation.id,
        ),
        default=None,
    )


def _must_move(template: PoolTemplate, last: Reservation | None, after: Reservation) -> PinMustMove:
    if last is None:
        return PinMustMove(after.id, (after.id,))
    ids = next(source.ids for source in template.pool.spec.sources if source.ids)
    return PinMustMove(after.id, (*ids, after.id), last.id, deadline_of(last, template.pool.spec.provisioner))
