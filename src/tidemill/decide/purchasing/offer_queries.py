"""Which offers EC2 is asked for first in a planning round: few searches, the nearest dates first.

EC2 answers a search with at most six offers of one length and size, so the questions are cut to what is missing: its
layers (what is always missing, what is missing by day), each in one piece; and a week from every start of a stretch of
days, which shows the cheapest starts there. What else to ask for follows from the answers (`search_waves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

from tidemill.decide.purchasing.planner.inputs import DAY, PoolDemand, Step
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by
from tidemill.model import ec2_facts
from tidemill.model.capacity import Reservation
from tidemill.model.offers import ExtensionQuery, ExtensionSearch, OfferQuery, OfferSearch
from tidemill.model.purchases import OPEN, PurchaseState
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

# For one planning round, all calendars together: EC2 throttles. What they are enough for: `benchmarks.planner_market`.
MAX_SEARCHES = 48
# Before any answer there is little to choose by: most searches are left for what the answers point to.
MAX_FIRST_SEARCHES = 16
MAX_EXTENSION_SEARCHES = 12
# Starts are compared by blocks of at most this length.
SURVEY_LENGTH = timedelta(days=7)
# ... so many at once: the six that an answer shows are the cheaper half.
SURVEYED_OFFERS = 2 * ec2_facts.MAX_OFFERS
# Lengths of which one block's extension is asked for, at least; more where few blocks end.
LEAST_EXTENSION_LENGTHS = 4
MAX_LAYERS = 3
# First come, first served: an older answer is not planned on.
ANSWER_FRESH = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class MissingSpan:
    """So many GPUs are missing, with breaks of less than a day: no block is shorter than that."""

    start: datetime
    end: datetime
    gpus: int


def missing_spans(lacks: Iterable[Step]) -> tuple[MissingSpan, ...]:
    """By layers: the lowest is missing most of the time, higher ones now and then on top of it."""
    lacks = tuple(lacks)
    heights = sorted({step.amount for step in lacks})
    if len(heights) > MAX_LAYERS:  # the lowest, the highest, and one between
        heights = [heights[0], heights[len(heights) // 2], heights[-1]]
    found: list[MissingSpan] = []
    below = 0
    for height in heights:
        open_: MissingSpan | None = None
        for step in (lack for lack in lacks if lack.amount > below):
            if open_ is not None and step.start - open_.end < DAY:
                open_ = MissingSpan(open_.start, step.end, height - below)
                found[-1] = open_
            else:
                open_ = MissingSpan(step.start, step.end, height - below)
                found.append(open_)
        below = height
    return tuple(found)


def offer_queries(
    spec: Spec, demand: PoolDemand, lacks: Iterable[Step], now: datetime
) -> tuple[OfferQuery, ...]:
    """The first of a round: the nearest dates first, and of those the longest."""
    lacks = tuple(lacks)
    zones = demand.zones if set(demand.zones) != set(spec.platform.spec.subnets) else ()
    asked: dict[OfferQuery, None] = {}
    now = now.replace(second=0, microsecond=0)
    for name in demand.types:
        for stretch in missing_spans(lacks):
            begin, whole = _one_piece(demand, stretch)
            for count in _counts(spec, demand, name, stretch.gpus):
                # A day of room on either side: for an overlap, and for blocks that start now.
                earliest, latest = max(now, begin - DAY), begin + whole + 2 * DAY
                asked[OfferQuery(name, count, whole, earliest, latest, zones)] = None
        for query in _survey(spec, demand, name, lacks, now):
            asked[replace(query, zones=zones)] = None
    return tuple(sorted(asked, key=nearest_first))


def nearest_first(query: OfferQuery) -> tuple[datetime, timedelta, str, int]:
    return query.earliest_start, -query.duration, query.instance_type, query.count


def _survey(
    spec: Spec, demand: PoolDemand, name: str, lacks: tuple[Step, ...], now: datetime
) -> Iterator[OfferQuery]:
    """Stretches of days in which something is missing, each asked for its cheapest starts."""
    starts = sorted({start for step in lacks for start in _useful_starts(demand, step, now)})
    days = max(1, SURVEYED_OFFERS // max(1, len(demand.zones)))
    while starts:
        first = starts[0]
        ahead = [start for start in starts if start < first + days * DAY]
        starts = starts[len(ahead) :]
        least = min(step.amount for step in lacks if step.end > first)
        rest = ec2_facts.round_up_duration(lacks[-1].end + demand.wind_down - first)
        length = min(SURVEY_LENGTH, rest or SURVEY_LENGTH)
        for count in _counts(spec, demand, name, least)[:1]:
            yield OfferQuery(name, count, length, first, ahead[-1] + length)


def _useful_starts(demand: PoolDemand, step: Step, now: datetime) -> Iterator[datetime]:
    """On the grid, from the last before it is missing to the last before it is not."""
    start = ec2_facts.grid_at_or_before(step.start - demand.warm_up)
    while start < step.end:
        if start >= now:
            yield start
        start += DAY


def _counts(spec: Spec, demand: PoolDemand, name: str, gpus: int) -> tuple[int, ...]:
    """Instances for so many GPUs, in blocks that EC2 sells and the pool could use."""
    return tuple(count for count in _sold_counts(spec, name, gpus) if demand.could_use(name, count))


def _sold_counts(spec: Spec, name: str, gpus: int) -> tuple[int, ...]:
    kind = spec.catalog.types[name]
    instances = ceil(gpus / max(1, kind.gpus))
    if kind.ultraserver:
        instances = ec2_facts.least_sold(instances, ultraserver=True)
        return (
            min(
                instances,
                ec2_facts.MAX_INSTANCES_PER_BLOCK
                // ec2_facts.SMALLEST_ULTRASERVER
                * ec2_facts.SMALLEST_ULTRASERVER,
            ),
        )
    if instances <= ec2_facts.MAX_INSTANCES_PER_BLOCK:
        return (instances,)
    rest = instances % ec2_facts.MAX_INSTANCES_PER_BLOCK
    return (ec2_facts.MAX_INSTANCES_PER_BLOCK, rest) if rest else (ec2_facts.MAX_INSTANCES_PER_BLOCK,)


def _one_piece(demand: PoolDemand, stretch: MissingSpan) -> tuple[datetime, timedelta]:
    """The last start before it is needed, and the legal length that covers it all."""
    begin, end = ec2_facts.grid_at_or_before(stretch.start - demand.warm_up), stretch.end + demand.wind_down
    return begin, ec2_facts.round_up_duration(end - begin) or ec2_facts.LONGEST_BLOCK


# --- extensions --------------- --------------------------------------------------------------------------


def extension_queries(
    plan: CapacityPlan, demand: PoolDemand, lacks: Iterable[Step], world: World
) -> tuple[ExtensionQuery, ...]:
    """For blocks that end soon and whose GPUs are missing from then on."""
    assert plan.spec.calendar is not None
    if plan.spec.extend.policy == "never":
        return ()
    lacks = tuple(lacks)
    soon = world.now + plan.spec.calendar.buy_ahead + DAY
    ending: list[tuple[Reservation, list[Step]]] = []
    for block in sorted(world.reservations, key=lambda one: (one.end is None, one.end or one.start, one.id)):
        if (
            not is_usable_by(demand, block)
            or block.pool not in ("", demand.pool)
            or not _extendable(world, block)
        ):
            continue
        assert block.end is not None
        missed = [step for step in lacks if step.end > block.end - demand.wind_down]
        if block.end > soon or not missed or missed[0].start > block.end + DAY:
            continue
        ending.append((block, missed))
    each = max(LEAST_EXTENSION_LENGTHS, MAX_EXTENSION_SEARCHES // max(1, len(ending)))
    return tuple(
        ExtensionQuery(block.id, by)
        for block, missed in ending
        for by in _extension_lengths(demand, block, missed, each)
    )


def _extension_lengths(
    demand: PoolDemand, block: Reservation, missed: list[Step], most: int
) -> list[timedelta]:
    """Lengths that EC2 sells: the one that covers all that is missed, a day for a hand-over, those after which nothing
    is missed for a day or more, and then a half, a quarter and so on of it all: another block may go on from there."""
    assert block.end is not None
    left = ec2_facts.LONGEST_BLOCK - (block.end - block.start)
    legal = [one for one in ec2_facts.LEGAL_DURATIONS if one <= left]
    if not legal:
        return []
    served_until = block.end - demand.wind_down
    breaks = [one.end - served_until for one, after in pairwise(missed) if after.start - one.end >= DAY]
    whole = missed[-1].end - served_until
    parts = [whole / 2**n for n in range(1, 8)]
    found = dict.fromkeys(
        next((one for one in legal if one >= length), legal[-1]) for length in (whole, DAY, *breaks, *parts)
    )
    return sorted(list(found)[:most])


def _extendable(world: World, block: Reservation) -> bool:
    """EC2 sells extensions of it now, no purchase of one is open, and no payment for one has failed."""
    if block.extension_window is None:
        return False
    asked = [purchase for purchase in world.purchases if purchase.extends == block.id]
    if any(purchase.state in OPEN or purchase.state is PurchaseState.FAILED for purchase in asked):
        return False
    opens, closes = block.extension_window
    return opens <= world.now <= closes


# --- what was answered --------------------------------------------------------------------------------


def fresh_searches(world: World) -> tuple[OfferSearch, ...]:
    """Every fresh answer, whoever asked: it tells what is sold, and at what price."""
    return tuple(search for search in world.searches if world.now - search.at < ANSWER_FRESH)


def fresh_answer(world: World, query: OfferQuery) -> OfferSearch | None:
    """The newest fresh answer. A start-now search moves with the clock: minutes make no difference."""
    same = [
        search
        for search in world.searches
        if search.query.instance_type == query.instance_type
        and (search.query.count, search.query.duration) == (query.count, query.duration)
        and (search.query.latest_end, search.query.zones) == (query.latest_end, query.zones)
        and abs(search.query.earliest_start - query.earliest_start) <= ANSWER_FRESH
        and world.now - search.at < ANSWER_FRESH
    ]
    return max(same, key=lambda one: one.at, default=None)


def fresh_extension_answer(world: World, query: ExtensionQuery) -> ExtensionSearch | None:
    same = [
        extension_search
        for extension_search in world.extension_searches
        if extension_search.query == query and world.now - extension_search.at < ANSWER_FRESH
    ]
    return max(same, key=lambda one: one.at, default=None)
