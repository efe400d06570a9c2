"""What to ask EC2 next: a planning round searches in waves, each for what the answers so far point to.

The cheapest cover over everything that could be sold, at the prices expected now, names the blocks to ask for. The
answers change what is expected, and so the next cover. The round is over when its blocks have all been shown, or when
its searches are spent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.purchasing.offer_queries import nearest_first
from tidemill.decide.purchasing.planner.inputs import DAY, PlannerInputs
from tidemill.decide.purchasing.planner.market_cover import Pick, best_zones, market_cover
from tidemill.decide.purchasing.planner.seen_market import SeenMarket
from tidemill.model import ec2_facts
from tidemill.model.offers import OfferQuery
from tidemill.spec import Spec

# The first searches of a wave tell the most, and the last ones are often for what they rule out.
MOST_IN_A_WAVE = 10
MOST_WHERE_NOTHING_IS_SOLD = 4


@dataclass(frozen=True, slots=True)
class Wave:
    queries: tuple[OfferQuery, ...]  # none: the answers are enough to plan on
    bound_usd: float  # of what could be bought, nothing costs less by what EC2 showed


def next_wave(
    spec: Spec, inputs: PlannerInputs, market: SeenMarket, asked: Iterable[OfferQuery], searches_left: int
) -> Wave:
    in_zone = best_zones(inputs, market)
    wanted = market_cover(inputs, market, in_zone=in_zone)
    missing = [pick for pick in wanted.picks if market.offer(pick.window, pick.instances) is None]
    known = set(asked)
    found = [one for one in _searches(spec, inputs, market, missing) if one.query not in known]
    most = min(searches_left, MOST_WHERE_NOTHING_IS_SOLD if market.is_empty else MOST_IN_A_WAVE)
    queries = tuple(sorted((one.query for one in sorted(found, key=_first)[:most]), key=nearest_first))
    if queries:
        return Wave(queries, 0.0)
    if not in_zone and not market.refused:  # then nothing more can be hoped for
        return Wave((), wanted.cost_usd)
    return Wave((), market_cover(inputs, market, in_zone={}, hopeful=True).cost_usd)


@dataclass(frozen=True, slots=True)
class _Search:
    """A search, and the blocks that it is for."""

    query: OfferQuery
    usd: float
    due: bool  # whether one of them would be bought soon


def _first(search: _Search) -> tuple[bool, float, str]:
    """What would be bought soon, then where the most money is: later blocks are planned again before they are due."""
    return not search.due, -search.usd, repr(search.query)


def _searches(
    spec: Spec, inputs: PlannerInputs, market: SeenMarket, missing: Sequence[Pick]
) -> Iterator[_Search]:
    """Blocks of one size and length that one answer would show together are one search."""
    pools = {pool.pool: pool for pool in inputs.demand}
    now = inputs.policy.now.replace(second=0, microsecond=0)
    everywhere = set(spec.platform.spec.subnets)
    alike: dict[tuple[str, int, timedelta, tuple[str, ...]], list[Pick]] = defaultdict(list)
    for pick in missing:
        window = pick.window
        alike[window.instance_type, pick.instances, window.duration, pools[pick.pool].zones].append(pick)
    for (name, count, duration, zones), picks in alike.items():
        filtered = zones if set(zones) != everywhere else ()
        at_once = [pick for pick in picks if not ec2_facts.is_on_grid(pick.window.start)]
        later = [pick for pick in picks if pick not in at_once]
        # A block that starts now ends up to a day after the length that is asked for.
        ranges = [(now, now + DAY, at_once)] if at_once else []
        for first, last, together in (*ranges, *_ranges(market, later, zones, now)):
            due = any(
                pick.window.start - (pools[pick.pool].buy_ahead or timedelta(0)) <= now for pick in together
            )
            usd = sum(pick.window.usd * pick.instances for pick in together)
            yield _Search(OfferQuery(name, count, duration, first, last + duration, filtered), usd, due)


def _ranges(
    market: SeenMarket, picks: Sequence[Pick], zones: Sequence[str], now: datetime
) -> Iterator[tuple[datetime, datetime, list[Pick]]]:
    """First and last start, as far apart as an answer can still be expected to show every block that is wanted. Room
    for more starts is used for those around: what they cost is not known."""
    rest = sorted(picks, key=lambda pick: (pick.window.start, pick.window.zone))
    soonest = ec2_facts.grid_at_or_after(now + ec2_facts.EARLIEST_START)
    farthest = ec2_facts.grid_at_or_before(now + ec2_facts.FARTHEST_START)
    while rest:
        together, rest = rest[:1], rest[1:]
        first = last = together[0].window.start
        while rest and _shows(market, [*together, rest[0]], zones, first, rest[0].window.start):
            last = rest[0].window.start
            together, rest = [*together, rest[0]], rest[1:]
        for _ in range(ec2_facts.MAX_OFFERS):
            if first > soonest and _shows(market, together, zones, first - DAY, last):
                first -= DAY
            if last < farthest and _shows(market, together, zones, first, last + DAY):
                last += DAY
        yield first, last, together


def _shows(
    market: SeenMarket, picks: Sequence[Pick], zones: Sequence[str], first: datetime, last: datetime
) -> bool:
    """Whether they would be among the cheapest six that start in the range, by what is expected now."""
    one = picks[0].window
    days = (last - first) // DAY + 1
    costs = sorted(
        (market.expected_usd_h(one.instance_type, zone, first + day * DAY), zone, first + day * DAY)
        for zone in zones
        for day in range(days)
    )
    shown = {(zone, start) for _, zone, start in costs[: ec2_facts.MAX_OFFERS]}
    return all((pick.window.zone, pick.window.start) in shown for pick in picks)
