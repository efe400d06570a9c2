"""The cheapest cover by trying every set of offers: slow, plain, and sharing nothing with the planner but the rules.

For every set: who serves when is written out minute by minute of change, then on-demand is decided by going through
time with every number of running instances and every sum spent that is not beaten in both money and cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import combinations, pairwise, product

from tests.planner.asked import Asked
from tidemill.decide.purchasing.planner.inputs import PoolDemand
from tidemill.model.offers import Offer

UNLIMITED = 1_000_000  # no case comes near it
Taken = dict[str, str]  # offer -> pool
Known = dict[tuple[str, frozenset[str]], list[tuple[float, float]]]  # what a pool does with the same blocks


def cheapest(asked: Asked) -> list[tuple[float, frozenset[str]]]:
    """Every legal set of offers and extensions with its least cost, the cheapest first."""
    best: dict[frozenset[str], float] = {}
    known: Known = {}
    for taken in _sets(asked):
        for extended in _extended(asked):
            cost = _cost(asked, taken, extended, known)
            key = frozenset(taken) | frozenset(extended)
            if cost is not None and cost < best.get(key, float("inf")):
                best[key] = cost
    return sorted((cost, key) for key, cost in best.items())


def _sets(asked: Asked) -> Iterator[Taken]:
    for size in range(len(asked.offers) + 1):
        for chosen in combinations(asked.offers, size):
            if not _one_stock(asked, chosen):
                continue
            for pools in product([one.pool for one in asked.demand], repeat=size):
                yield {offer.id: pool for offer, pool in zip(chosen, pools, strict=True)}


def _one_stock(asked: Asked, chosen: tuple[Offer, ...]) -> bool:
    for one in chosen:
        shelf = (one.zone, one.start, one.end)
        same = [other for other in asked.offers if (other.zone, other.start, other.end) == shelf]
        if sum(other.count for other in same if other in chosen) > max(other.count for other in same):
            return False
    return True


def _extended(asked: Asked) -> Iterator[dict[str, datetime]]:
    yield {}
    for one in asked.extensions:  # of one block, in the cases drawn
        yield {one.id: one.end}


def _cost(asked: Asked, taken: Taken, extended: dict[str, datetime], known: Known) -> float | None:
    fees = sum(one.fee_usd for one in asked.offers if one.id in taken)
    fees += sum(one.fee_usd for one in asked.extensions if one.id in extended)
    limit = asked.policy.ceilings.monthly_usd
    ways = [(float(fees), float(fees))]  # spent, cost
    if fees > limit:
        return None
    for pool in asked.demand:
        blocks = frozenset(id_ for id_, user in taken.items() if user == pool.pool) | frozenset(extended)
        if (pool.pool, blocks) not in known:
            known[pool.pool, blocks] = _recourse(asked, pool, taken, extended)
        ways = [
            (spent + more_spent, cost + more_cost)
            for spent, cost in ways
            for more_spent, more_cost in known[pool.pool, blocks]
        ]
    return min((cost for spent, cost in ways if spent <= limit + 1e-9), default=None)


def _recourse(
    asked: Asked, pool: PoolDemand, taken: Taken, extended: dict[str, datetime]
) -> list[tuple[float, float]]:
    """(spent, cost) of on-demand and penalties, all that are not beaten."""
    price = asked.prices[pool.types[0]]
    usd_h = price.on_demand_usd_h
    spans = _spans(asked, pool, taken, extended)
    slots = _slots(asked, pool, spans)
    most = max((need for *_, need, _ in slots), default=0) if usd_h is not None else 0
    states: dict[int, list[tuple[float, float]]] = {0: [(0.0, 0.0)]}
    for hours, need, served in slots:
        after: dict[int, list[tuple[float, float]]] = {}
        for running, ways in states.items():
            for now in range(most + 1):
                launched = max(0, now - running) * pool.warm_up.total_seconds() / 3600
                spent = (now * hours + launched) * (usd_h or 0.0)
                short = max(0, need - served - now) * price.gpus * hours * pool.penalty_usd_gpu_h
                after.setdefault(now, []).extend((s + spent, c + spent + short) for s, c in ways)
        states = {now: _unbeaten(asked, ways) for now, ways in after.items()}
    return _unbeaten(asked, [way for ways in states.values() for way in ways])


def _spans(
    asked: Asked, pool: PoolDemand, taken: Taken, extended: dict[str, datetime]
) -> list[tuple[datetime, datetime, str, int]]:
    longer = {one.block: extended[one.id] for one in asked.extensions if one.id in extended}
    found = [
        (one.start + pool.warm_up, longer.get(one.id, one.end) - pool.wind_down, one.zone, one.count)
        for one in asked.owned
        if one.pool == pool.pool and one.end is not None
    ]
    return found + [
        (one.start + pool.warm_up, one.end - pool.wind_down, one.zone, one.count)
        for one in asked.offers
        if taken.get(one.id) == pool.pool
    ]


def _slots(
    asked: Asked, pool: PoolDemand, spans: list[tuple[datetime, datetime, str, int]]
) -> list[tuple[float, int, int]]:
    """Hours, instances needed, instances there. Cut where anything could change, so that the planner's slots are
    the same and on-demand is kept for as long."""
    begin, end = asked.policy.now, asked.policy.until
    steps = pool.calendar.steps(begin, end)
    cuts = {begin, end} | {at for step in steps for at in (step.start, step.end)}
    for demand in asked.demand:
        cuts |= {one.start + demand.warm_up for one in asked.offers}
        cuts |= {one.start + demand.warm_up for one in asked.owned}
        cuts |= {one.end - demand.wind_down for one in asked.offers}
        cuts |= {one.end - demand.wind_down for one in asked.owned if one.end is not None}
        cuts |= {one.end - demand.wind_down for one in asked.extensions}
        cuts |= {at for step in demand.calendar.steps(begin, end) for at in (step.start, step.end)}
    instants = sorted(at for at in cuts if begin <= at <= end)
    found = []
    for here, there in pairwise(instants):
        need = sum(step.amount for step in steps if step.start <= here < step.end)
        by_zone: dict[str, int] = {}
        for first, last, zone, count in spans:
            if first <= here < last:
                by_zone[zone] = by_zone.get(zone, 0) + count
        served = max(by_zone.values(), default=0) if pool.one_zone else sum(by_zone.values())
        found.append(((there - here).total_seconds() / 3600, need, served))
    return found


def _unbeaten(asked: Asked, ways: list[tuple[float, float]]) -> list[tuple[float, float]]:
    limit = asked.policy.ceilings.monthly_usd
    if limit >= UNLIMITED:
        return [min(ways, key=lambda way: way[1])]
    kept: list[tuple[float, float]] = []
    for spent, cost in sorted(ways):
        if spent <= limit + 1e-9 and (not kept or cost < kept[-1][1] - 1e-9):
            kept.append((spent, cost))
    return kept
