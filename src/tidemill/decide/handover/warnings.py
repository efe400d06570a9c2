"""Whom to tell before a hand-over, and what: who would be short and for how long, what a method lacks, which pin must
move. Sentences name instants and not time left, so that they stay the same while nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import ceil

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import deadline_of
from tidemill.decide.handover.destinations import LOOK_AGAIN, boot_of, launched_at, may_launch, successors
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.mitigations import mitigations
from tidemill.decide.placement.launch_options import usable_reservations
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.purchasing.planner.result import Mitigation
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.spec.units import format_duration, format_instant

# Of a block that nothing succeeds: most are followed by one that is bought later. Two days leave time to buy.
NOBODY_FOLLOWS = timedelta(days=2)
_MINUTE = timedelta(minutes=1)


def warn_of_shortages(context: DecisionContext) -> None:
    for one in _forecasts(context) if context.workloads else ():
        name = one.workload.name
        if one.lacking:
            context.warn(f"hand-over of {name}", lacks(one))
        if _is_news(context, one):
            context.warn(name, will_be_short(one, mitigations(context, one)), "service-short", one.deadline)
    for template in context.templates.values():
        for about, sentence in pins_that_must_move(context, template):
            context.warn(about, sentence)


class _ForecastCache:
    def __init__(self) -> None:
        self.follow_from: tuple[object, ...] = ()
        self.forecasts: list[ServiceForecast] = []


def _forecasts(context: DecisionContext) -> list[ServiceForecast]:
    """Worked out anew only where something they follow from has changed: most events are about jobs."""
    world = context.world
    empty = [one for one in world.reservations if one.available and one.owner == context.owner]
    for one in empty:
        context.wake(launched_at(context, one) + LOOK_AGAIN)
    follow_from: tuple[object, ...] = (
        world.reservations,
        world.workloads,
        world.budgets,
        tuple((view.facts.standing, view.drain_from) for view in context.views),
        tuple(launched_at(context, one) for one in empty),
    )
    cache = context.memory.of(_ForecastCache)
    if cache.follow_from != follow_from:
        cache.follow_from, cache.forecasts = follow_from, forecast(context)
    return cache.forecasts


def _is_news(context: DecisionContext, one: ServiceForecast) -> bool:
    """A move that is under way is told by its steps."""
    if one.short is None:
        return False
    if one.short.lasts is None and context.now < one.deadline - NOBODY_FOLLOWS:
        context.wake(one.deadline - NOBODY_FOLLOWS)
        return False
    return context.now < one.drain_from or not _may_still_move(context, one, one.short.since)


def _may_still_move(context: DecisionContext, one: ServiceForecast, by: datetime) -> bool:
    """Under way, its seats cannot be told from those of its own replacements: only what comes too late is certain."""
    if may_launch(context, one.workload):
        return True
    goes_as = context.workloads.get(one.workload.pair, one.workload)
    found = successors(context, goes_as, one.deadline, (one.source,))
    return any(after.start + boot_of(context, template).length <= by for template, after in found)


def lacks(one: ServiceForecast) -> str:
    return (
        f"it asks for {one.method.value}, and {'; '.join(one.lacking)}. Until then its replicas are evicted within"
        " their budget, and nothing is promised"
    )


def will_be_short(one: ServiceForecast, ways: tuple[Mitigation, ...]) -> str:
    assert one.short is not None
    since, ends = format_instant(one.short.since), format_instant(one.deadline)
    if one.short.lasts is None:
        told = f"it will have fewer than {one.minimum} ready from {since} on: {one.block.id} must be empty by {ends}"
        return f"{told}, and nothing that lasts takes over. {_help(one, ways)}"
    lasts = format_duration(ceil(one.short.lasts / _MINUTE) * _MINUTE)
    told = f"it will have fewer than {one.minimum} ready for {lasts} from {since}"
    if one.in_effect.value == "evict" and one.minimum >= one.workload.replicas:
        why = f"its minimum is all it has, so each of its {one.leaving} replicas is missed while it moves"
        return f"{told}: {why}; ask for one less, or hand over by rollout or scale. {_help(one, ways)}"
    if one.bridged:
        why = (
            f"nodes by the hour are launched for it, but {one.in_effect.value} asks for them wave after wave"
        )
        return f"{told}: {one.block.id} must be empty by {ends}; {why}. {_help(one, ways)}"
    after = one.successor.id if one.successor is not None else "what follows"
    ready = format_instant(one.ready_from) if one.ready_from is not None else "later"
    return f"{told}: {one.block.id} must be empty by {ends}, and {after} takes pods from {ready}. {_help(one, ways)}"


def _help(one: ServiceForecast, ways: tuple[Mitigation, ...]) -> str:
    """In a few words: `tidemill handover` has all of them."""
    brief = {
        "a-day-more-of-b": "a block that starts a day earlier",
        "a-days-extension-of-a": f"an extension of {one.block.id} by a day",
        "a-start-now-block": "a start-now block",
        "an-on-demand-bridge": "a bridge on demand",
    }
    priced = [f"{brief[way.means]} (about ${way.usd:,.0f})" for way in ways if way.usd is not None]
    return f"What would help: {', '.join(priced)}" if priced else "Nothing that is known of would help"


# --- pins ---------------------------------------------------------------------------------------------


def pins_that_must_move(context: DecisionContext, template: PoolTemplate) -> Iterator[tuple[str, str]]:
    """A pin is the user's: it is never moved here. What it keeps out, and ends before, is said."""
    pool = template.pool
    pinned = [source for source in pool.spec.sources if source.ids]
    if not pinned:
        return
    usable = {one.id for wanted in pool.spec.sources for one in usable_reservations(context, pool, wanted)}
    last = _last_of(context, usable)
    if last is not None and last.end is None:
        return
    for one in context.world.reservations:
        if (
            one.pool != pool.name
            or one.owner != context.owner
            or one.id in usable
            or one.state not in SECURED_STATES
        ):
            continue
        if last is None or last.end is None or one.end is None or one.end > last.end:
            yield f"pool {pool.name}", must_move(template, last, one)


def _last_of(context: DecisionContext, ids: set[str]) -> Reservation | None:
    held = [one for one in context.world.reservations if one.id in ids and one.state in SECURED_STATES]
    return max(held, key=lambda one: (one.end is None, one.end or one.start, one.id), default=None)


def must_move(template: PoolTemplate, last: Reservation | None, after: Reservation) -> str:
    ids = next(source.ids for source in template.pool.spec.sources if source.ids)
    waits = f"{after.id} is this pool's and stays unused until the pin names it"
    if last is None:
        return f"nothing it is pinned to is there; {waits}: write ids: [{after.id}]"
    ends = deadline_of(last, template.pool.spec.provisioner)
    by = format_instant(ends) if ends is not None else "its end"
    named = ", ".join((*ids, after.id))
    return f"it is pinned to {last.id}, which must be empty by {by}; {waits} too: write ids: [{named}]"
