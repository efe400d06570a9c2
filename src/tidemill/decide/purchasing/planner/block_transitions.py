"""Where one block ends and another takes over: how long nobody serves, and what each way to avoid it costs.

Scheduled blocks lie on the 11:30 UTC grid, so two of them overlap by 0 or by whole days. Zero downtime is a day more of
the successor, a day's extension of the predecessor, a block that starts now, or a bridge on demand: all four are
priced whether the plan uses one or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from tidemill.decide.purchasing.planner.inputs import DAY, HOUR, PoolDemand
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by, starts_now
from tidemill.decide.purchasing.planner.result import Cover, HandOver, Mitigation
from tidemill.decide.purchasing.planner.slots import Problem, serving_span
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import LONGEST_BLOCK
from tidemill.model.offers import Offer


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block in a pool: held, or to be bought; its end as this plan would have it."""

    supply: Offer | Reservation
    gpus: int
    end: datetime
    first: datetime  # it serves from here
    last: datetime  # ... until here

    @property
    def id(self) -> str:
        return self.supply.id

    @property
    def usd_day(self) -> float:
        assert self.supply.end is not None
        return self.supply.fee_usd * (DAY / (self.supply.end - self.supply.start))


def block_handovers(problem: Problem, cover: Cover) -> tuple[HandOver, ...]:
    found: list[HandOver] = []
    for number, pool in enumerate(problem.demand):
        stretches = _block_spans(problem, cover, number)
        for before in stretches:
            if problem.policy.now <= before.last < problem.policy.until:
                one = _hand_over(problem, number, pool, before, stretches)
                found += [] if one is None else [one]
    return tuple(sorted(found, key=lambda one: (one.at, one.pool, one.before)))


def _block_spans(problem: Problem, cover: Cover, number: int) -> list[BlockSpan]:
    pool, until = problem.demand[number], problem.policy.until
    longer = {one.block: one.end for one in cover.extends}
    found: list[BlockSpan] = []
    held: list[Offer | Reservation] = [one for one in problem.held if number in problem.users(one)]
    for supply in [*held, *(one.offer for one in cover.buys if one.pool == pool.pool)]:
        if supply.end is None:
            continue
        end = longer.get(supply.id, supply.end)
        first, last = serving_span(pool, supply, until)
        found.append(BlockSpan(supply, problem.gpus(supply), end, first, last + (end - supply.end)))
    return sorted(found, key=lambda one: (one.first, one.last, one.id))


def _hand_over(
    problem: Problem, number: int, pool: PoolDemand, before: BlockSpan, stretches: list[BlockSpan]
) -> HandOver | None:
    """None: nobody misses the block when it ends, or what else is held covers for it."""
    after = next((one for one in stretches if one.last > before.last and one.first > before.first), None)
    rest = [one for one in stretches if one is not before and one is not after]
    at = next((n for n, slot in enumerate(problem.slots) if slot.start <= before.last < slot.end), None)
    if at is None:
        return None
    others = sum(one.gpus for one in rest if one.first <= before.last < one.last)
    gpus = min(problem.needs[number][at] - others - _unending(problem, number), before.gpus)
    if gpus <= 0:
        return None
    gap = _gap(problem, number, before.last, stretches)
    back_to_back = pool.warm_up + (before.end - before.last)
    ways = _ways(problem, pool, before, after, gpus, max(gap, back_to_back))
    return HandOver(
        pool.pool, before.id, after.id if after else "", before.end, gpus, gap, max(gap, back_to_back), ways
    )


def _unending(problem: Problem, number: int) -> int:
    return sum(problem.gpus(one) for one in problem.held if one.end is None and number in problem.users(one))


def _gap(problem: Problem, number: int, since: datetime, stretches: list[BlockSpan]) -> timedelta:
    """How long, from there on, blocks alone give less than is needed."""
    until = since
    for slot, need in zip(problem.slots, problem.needs[number], strict=True):
        if slot.end <= since:
            continue
        served = sum(one.gpus for one in stretches if one.first <= slot.start and slot.end <= one.last)
        if served + _unending(problem, number) >= need:
            break
        until = slot.end
    return until - since


# --- the four ways ------------------------------------------------------------------------------------


def _ways(
    problem: Problem, pool: PoolDemand, a: BlockSpan, b: BlockSpan | None, gpus: int, gap: timedelta
) -> tuple[Mitigation, ...]:
    ways = (
        _more_of_b(problem, pool, a, b),
        _extension_of_a(problem, pool, a, gap),
        _start_now(problem, pool, a, gpus, gap),
        _bridge(problem, pool, a, gpus, gap),
    )
    return tuple(sorted(ways, key=lambda way: (way.usd is None, way.usd or 0.0)))


def _more_of_b(problem: Problem, pool: PoolDemand, a: BlockSpan, b: BlockSpan | None) -> Mitigation:
    if b is None:
        return Mitigation("a-day-more-of-b", None, "", "no block takes over")
    if b.first <= a.last:
        days = ceil((a.end - b.supply.start) / DAY)
        return Mitigation("a-day-more-of-b", b.usd_day * days, b.id, f"{b.id} overlaps already, by {days}d")
    if isinstance(b.supply, Reservation):
        return Mitigation("a-day-more-of-b", None, "", f"{b.id} is bought: its start cannot be moved")
    days = ceil((b.first - a.last) / DAY)
    earlier = [
        offer
        for offer in problem.offers
        if offer.instance_type == b.supply.instance_type
        and is_usable_by(pool, offer)
        and offer.count >= b.supply.count
        and offer.end >= b.end
        and serving_span(pool, offer, problem.policy.until)[0] <= a.last
    ]
    best = min(earlier, key=lambda one: (one.fee_usd, one.id), default=None)
    if best is not None:
        words = f"{best.id} instead of {b.id}: it starts in time"
        return Mitigation("a-day-more-of-b", best.fee_usd - b.supply.fee_usd, best.id, words)
    return Mitigation(
        "a-day-more-of-b", b.usd_day * days, "", f"reckoned at the rate of {b.id}; EC2 shows no such offer"
    )


def _extension_of_a(problem: Problem, pool: PoolDemand, a: BlockSpan, gap: timedelta) -> Mitigation:
    """A held block is extended; one still to be bought is bought longer."""
    needed, days = a.last + gap, ceil(gap / DAY)
    if isinstance(a.supply, Offer):
        longer = [
            (one.fee_usd - a.supply.fee_usd, one.id)
            for one in problem.offers
            if one.instance_type == a.supply.instance_type
            and is_usable_by(pool, one)
            and one.count >= a.supply.count
            and one.start <= a.supply.start
            and serving_span(pool, one, problem.policy.until)[1] >= needed
        ]
    else:
        wind_down = a.end - a.last
        paid = sum(
            one.fee_usd for one in problem.extensions if one.block == a.id and one.end == a.end
        )  # it is extended in this plan already, by less
        longer = [
            (one.fee_usd - paid, one.id)
            for one in problem.extensions
            if one.block == a.id and one.end - wind_down >= needed
        ]
    if longer:
        usd, id_ = min(longer)
        return Mitigation("a-days-extension-of-a", usd, id_, f"{id_} keeps it long enough")
    if a.end + days * DAY - a.supply.start > LONGEST_BLOCK:
        return Mitigation("a-days-extension-of-a", None, "", f"{a.id} would be longer than 182 days")
    if not a.supply.fee_usd:
        return Mitigation(
            "a-days-extension-of-a", None, "", f"EC2 shows no extension of {a.id}, and its fee is not known"
        )
    words = f"reckoned at the rate of {a.id}; EC2 shows no such offer, and extensions are not guaranteed"
    return Mitigation("a-days-extension-of-a", a.usd_day * days, "", words)


def _start_now(problem: Problem, pool: PoolDemand, a: BlockSpan, gpus: int, gap: timedelta) -> Mitigation:
    until = problem.policy.until
    fitting = [
        one
        for one in problem.offers
        if starts_now(one)
        and is_usable_by(pool, one)
        and one.id != a.id
        and problem.gpus(one) >= gpus
        and serving_span(pool, one, until)[0] <= a.last
        and serving_span(pool, one, until)[1] >= a.last + gap
    ]
    best = min(fitting, key=lambda one: (one.fee_usd, one.id), default=None)
    if best is None:
        words = "EC2 shows none that lasts over the gap; ask again within the last day"
        return Mitigation("a-start-now-block", None, "", words)
    return Mitigation("a-start-now-block", best.fee_usd, best.id, f"{best.id} runs beside both")


def _bridge(problem: Problem, pool: PoolDemand, a: BlockSpan, gpus: int, gap: timedelta) -> Mitigation:
    """The bridge is warm when A stops, and so is paid for while it warms up."""
    priced: list[tuple[float, str]] = []
    for name in pool.types:
        price = problem.prices[name]
        count = ceil(gpus / price.gpus)
        if price.on_demand_usd_h is None or (price.on_demand_most or count) < count:
            continue
        usd = price.on_demand_usd_h * count * ((gap + pool.warm_up) / HOUR)
        priced.append((usd, f"{count} {name} on demand, if EC2 has them then"))
    if not priced:
        return Mitigation(
            "an-on-demand-bridge", None, "", "no type of the pool may be run on demand in this number"
        )
    usd, words = min(priced)
    return Mitigation("an-on-demand-bridge", usd, "", words)
