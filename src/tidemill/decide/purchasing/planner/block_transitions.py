"""Where one block ends and another takes over: how long the gap is, and what each way to avoid it costs.

Scheduled blocks lie on the 11:30 UTC grid, so two of them overlap by 0 or by whole days. Zero downtime is a day more of
the successor, a day's extension of the predecessor, a block that starts now, or a bridge on demand: all four are
priced whether the plan uses one or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from tidemill.decide.purchasing.planner.inputs import DAY, PoolDemand
from tidemill.decide.purchasing.planner.mitigations import (
    Mitigation,
    MitigationKind,
    MoreTime,
    Option,
    at_the_nearest_rate,
    block_usd_day,
    bridge_usd,
    cheapest_first,
    long_enough,
    price,
)
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by, starts_now
from tidemill.decide.purchasing.planner.result import Cover, HandOver
from tidemill.decide.purchasing.planner.slots import Problem, serving_span
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import LONGEST_BLOCK
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import MitigationNote, MitigationNoteKind


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block in a pool, held or to be bought, with its end in this plan."""

    supply: Offer | Reservation
    gpus: int
    end: datetime
    first: datetime  # it serves from here
    last: datetime  # ... until here

    @property
    def id(self) -> str:
        return self.supply.id


def block_handovers(problem: Problem, cover: Cover) -> tuple[HandOver, ...]:
    found: list[HandOver] = []
    for number, pool in enumerate(problem.demand):
        spans = _block_spans(problem, cover, number)
        for before in spans:
            if problem.policy.now <= before.last < problem.policy.until:
                one = _hand_over(problem, number, pool, before, spans)
                found += [] if one is None else [one]
    return tuple(sorted(found, key=lambda one: (one.at, one.pool, one.before)))


def _block_spans(problem: Problem, cover: Cover, number: int) -> list[BlockSpan]:
    pool, until = problem.demand[number], problem.policy.until
    longer = {extend.block: extend.end for extend in cover.extends}
    found: list[BlockSpan] = []
    held: list[Offer | Reservation] = [block for block in problem.held if number in problem.users(block)]
    for supply in [*held, *(buy.offer for buy in cover.buys if buy.pool == pool.pool)]:
        if supply.end is None:
            continue
        end = longer.get(supply.id, supply.end)
        first, last = serving_span(pool, supply, until)
        found.append(BlockSpan(supply, problem.gpus(supply), end, first, last + (end - supply.end)))
    return sorted(found, key=lambda one: (one.first, one.last, one.id))


def _hand_over(
    problem: Problem, number: int, pool: PoolDemand, before: BlockSpan, spans: list[BlockSpan]
) -> HandOver | None:
    """None: the block is not needed when it ends, or other blocks cover for it."""
    after = next(
        (stretch for stretch in spans if stretch.last > before.last and stretch.first > before.first),
        None,
    )
    rest = [stretch for stretch in spans if stretch is not before and stretch is not after]
    at = next((n for n, slot in enumerate(problem.slots) if slot.start <= before.last < slot.end), None)
    if at is None:
        return None
    others = sum(one.gpus for one in rest if one.first <= before.last < one.last)
    gpus = min(problem.needs[number][at] - others - _unending(problem, number), before.gpus)
    if gpus <= 0:
        return None
    gap = _gap(problem, number, before.last, spans)
    back_to_back = pool.warm_up + (before.end - before.last)
    ways = _ways(problem, pool, before, after, gpus, max(gap, back_to_back))
    return HandOver(
        pool.pool, before.id, after.id if after else "", before.end, gpus, gap, max(gap, back_to_back), ways
    )


def _unending(problem: Problem, number: int) -> int:
    return sum(
        problem.gpus(block) for block in problem.held if block.end is None and number in problem.users(block)
    )


def _gap(problem: Problem, number: int, since: datetime, spans: list[BlockSpan]) -> timedelta:
    """How long, from `since` on, blocks alone serve less than is needed."""
    until = since
    for slot, need in zip(problem.slots, problem.needs[number], strict=True):
        if slot.end <= since:
            continue
        served = sum(
            stretch.gpus for stretch in spans if stretch.first <= slot.start and slot.end <= stretch.last
        )
        if served + _unending(problem, number) >= need:
            break
        until = slot.end
    return until - since


# --- the four ways ------------------------------------------------------------------------------------


def _ways(
    problem: Problem, pool: PoolDemand, a: BlockSpan, b: BlockSpan | None, gpus: int, gap: timedelta
) -> tuple[Mitigation, ...]:
    return cheapest_first(
        (
            _more_of_b(problem, pool, a, b),
            _extension_of_a(problem, pool, a, gap),
            _start_now(problem, pool, a, gpus, gap),
            _bridge(problem, pool, gpus, gap),
        )
    )


def _more_of_b(problem: Problem, pool: PoolDemand, a: BlockSpan, b: BlockSpan | None) -> Mitigation:
    kind: MitigationKind = "a-day-more-of-b"
    if b is None:
        return price(kind, impossible=MitigationNote(MitigationNoteKind.NO_SUCCESSOR))
    usd_day = block_usd_day(b.supply)
    if b.first <= a.last:
        days = ceil((a.end - b.supply.start) / DAY)
        note = MitigationNote(MitigationNoteKind.OVERLAPS, b.id, days=days)
        return price(kind, [(usd_day * days, b.id, note)])
    if isinstance(b.supply, Reservation):
        return price(kind, impossible=MitigationNote(MitigationNoteKind.SUCCESSOR_BOUGHT, b.id))
    earlier = [
        (
            offer.fee_usd - b.supply.fee_usd,
            offer.id,
            MitigationNote(MitigationNoteKind.BUY_INSTEAD, b.id, offer.id),
        )
        for offer in _same_type(problem, pool, b.supply)
        if offer.end >= b.end and serving_span(pool, offer, problem.policy.until)[0] <= a.last
    ]
    days = ceil((b.first - a.last) / DAY)
    estimated = MitigationNote(MitigationNoteKind.RATE_OF_SUCCESSOR, b.id)
    return price(kind, earlier, estimate=(usd_day * days, estimated))


def _extension_of_a(problem: Problem, pool: PoolDemand, a: BlockSpan, gap: timedelta) -> Mitigation:
    """A held block is extended; an offer is replaced by a longer one, or extended once it is bought."""
    days = ceil(gap / DAY)
    if isinstance(a.supply, Offer):
        own, extensions = a.supply, []
        longer = [
            MoreTime(offer.fee_usd - own.fee_usd, offer.id, (offer.end - offer.start) - (own.end - own.start))
            for offer in _same_type(problem, pool, own)
            if offer.start <= own.start and offer.end >= own.end + days * DAY
        ]
    else:
        offers = [extension for extension in problem.extensions if extension.block == a.id]
        # This plan may extend it already, by less.
        paid_usd = sum(offer.fee_usd for offer in offers if offer.end == a.end)
        extensions = longer = [
            MoreTime(offer.fee_usd - paid_usd, offer.id, offer.end - a.end) for offer in offers
        ]
    options = [
        (one.usd, one.offer, MitigationNote(MitigationNoteKind.LASTS_LONG_ENOUGH, offer=one.offer))
        for one in long_enough(longer, days)
    ]
    at_own_rate = block_usd_day(a.supply) * days, MitigationNote(MitigationNoteKind.RATE_OF_BLOCK, a.id)
    nearest = at_the_nearest_rate(extensions, days)
    impossible = None
    if not options and a.end + days * DAY - a.supply.start > LONGEST_BLOCK:
        impossible = MitigationNote(MitigationNoteKind.LONGER_THAN_LONGEST, a.id)
    elif not options and nearest is None and not a.supply.fee_usd:
        impossible = MitigationNote(MitigationNoteKind.FEE_UNKNOWN, a.id)
    return price("a-days-extension-of-a", options, estimate=nearest or at_own_rate, impossible=impossible)


def _same_type(problem: Problem, pool: PoolDemand, supply: Offer) -> Iterator[Offer]:
    """Offers of its type for the pool, at least as large."""
    for offer in problem.offers:
        same = offer.instance_type == supply.instance_type and offer.count >= supply.count
        if same and is_usable_by(pool, offer):
            yield offer


def _start_now(problem: Problem, pool: PoolDemand, a: BlockSpan, gpus: int, gap: timedelta) -> Mitigation:
    options: list[Option] = []
    for offer in problem.offers:
        if not starts_now(offer) or not is_usable_by(pool, offer) or offer.id == a.id:
            continue
        first, last = serving_span(pool, offer, problem.policy.until)
        if problem.gpus(offer) >= gpus and first <= a.last and last >= a.last + gap:
            note = MitigationNote(MitigationNoteKind.RUNS_BESIDE, offer=offer.id)
            options.append((offer.fee_usd, offer.id, note))
    none = MitigationNote(MitigationNoteKind.NO_OFFER_OVER_GAP)
    return price("a-start-now-block", options, impossible=None if options else none)


def _bridge(problem: Problem, pool: PoolDemand, gpus: int, gap: timedelta) -> Mitigation:
    options: list[Option] = []
    for name in pool.types:
        type_price = problem.prices[name]
        count, usd_h = ceil(gpus / type_price.gpus), type_price.on_demand_usd_h
        if usd_h is not None and (type_price.on_demand_most or count) >= count:
            usd = bridge_usd(usd_h, count, gap, pool.warm_up)
            options.append((usd, "", MitigationNote(MitigationNoteKind.BRIDGE_LATER, name, count=count)))
    none = MitigationNote(MitigationNoteKind.NO_ON_DEMAND_TYPE)
    return price("an-on-demand-bridge", options, impossible=None if options else none)
