"""The cheapest cover over everything that EC2 could sell, at the prices that its answers let expect: a linear program.

It says what to ask for next, and bounds what the best plan can cost. Instances of a window are one column, in any
number, so there are few thousand columns and no choices; the row of a slot holds only what changes at its start (who
begins to serve, who ends), so a column has two entries whatever its length. Blocks of any size follow from it,
because with one type its solutions are whole numbers. Work in one zone may mix zones here (unless one is given): so
it never costs more than a plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate

from tidemill.decide.purchasing.planner.inputs import DAY, HOUR, PlannerInputs, PoolDemand
from tidemill.decide.purchasing.planner.offer_filter import filter_extensions, is_usable_by, live_reservations
from tidemill.decide.purchasing.planner.seen_market import SeenMarket, Window
from tidemill.decide.purchasing.planner.slots import (
    Month,
    Problem,
    added_serving_span,
    build_problem,
    dates,
    serving_span,
)
from tidemill.linear_program import INFINITE, Program
from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import MAX_INSTANCES_ON_A_DATE, MAX_INSTANCES_PER_BLOCK
from tidemill.model.offers import Offer

# On the day of a hand-over the blocks before and after it count both.
_OVERLAP = 2
# Of two windows at the same price the one that was shown is taken: nothing is asked for without need.
_SHOWN_IS_CHEAPER = 1 - 1e-5


@dataclass(frozen=True, slots=True)
class Pick:
    """A block to ask for: so many instances of a window, for a pool."""

    window: Window
    pool: str
    instances: int


@dataclass(frozen=True, slots=True)
class MarketCover:
    cost_usd: float
    picks: tuple[Pick, ...]


def market_cover(
    inputs: PlannerInputs, market: SeenMarket, *, in_zone: Mapping[str, str], hopeful: bool = False
) -> MarketCover:
    """`in_zone`: pools whose work must run in one zone, with the zone to suppose; empty: zones are mixed."""
    model = _Model(inputs, market, in_zone, hopeful=hopeful)
    solved = model.program.solve()
    assert solved is not None  # to buy nothing is always allowed
    found = [
        Pick(window, pool, _whole(solved.values[column], window.unit))
        for column, (window, pool) in model.take.items()
        if solved.values[column] > 1e-4
    ]
    return MarketCover(solved.objective, tuple(found))


def best_zones(inputs: PlannerInputs, market: SeenMarket) -> dict[str, str]:
    """For pools whose work must run in one zone: the one that alone would serve them cheapest."""
    found: dict[str, str] = {}
    for pool in (one for one in inputs.demand if one.one_zone and len(one.zones) > 1):
        cost = {
            zone: market_cover(inputs, market, in_zone={**found, pool.pool: zone}).cost_usd
            for zone in pool.zones
        }
        found[pool.pool] = min(pool.zones, key=lambda zone: (cost[zone], zone))
    return found


def _whole(units: float, unit: int) -> int:
    return -int(-(units - 1e-4) // 1) * unit


class _Model:
    def __init__(
        self, inputs: PlannerInputs, market: SeenMarket, in_zone: Mapping[str, str], *, hopeful: bool
    ) -> None:
        self.inputs, self.program = inputs, Program()
        self.take: dict[int, tuple[Window, str]] = {}
        self._in_zone = in_zone
        self._rows: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        self._limits: list[tuple[float, dict[int, float]]] = []
        self._first: dict[
            tuple[int, datetime, bool], int
        ] = {}  # slots by the start of a window, and by its end
        self._last: dict[tuple[int, datetime, bool], int] = {}
        self._months: dict[tuple[int | None, Month], dict[int, float]] = defaultdict(dict)
        windows = list(self._windows(market, hopeful=hopeful))
        self.problem = self._problem(windows)
        self._fixed = [[0.0] * len(self.problem.slots) for _ in self.problem.demand]
        self._holdings()
        self._purchases(market, windows)
        self._date_limit()
        for pool in range(len(self.problem.demand)):
            self._rest(pool)
        self._close()

    # --- what could serve -----------------------------------------------------------------------------

    def _windows(self, market: SeenMarket, *, hopeful: bool) -> Iterable[Window]:
        """Of all types, in the zones of the pools that use them."""
        zones: dict[str, set[str]] = defaultdict(set)
        for pool in self.inputs.demand:
            for name in pool.types:
                zones[name] |= set(pool.zones)
        for name in sorted(zones):
            yield from market.windows(name, zones[name], self.inputs.policy.until, hopeful=hopeful)

    def _problem(self, windows: Sequence[Window]) -> Problem:
        """Slots are cut at every start and end of a window: blocks of a day each stand for them."""
        inputs, policy = self.inputs, self.inputs.policy
        held = live_reservations(inputs.owned, policy.now)
        longer, _ = filter_extensions(inputs.extensions, held, policy)
        starts = {(one.instance_type, one.zone, one.start, one.unit > 1) for one in windows}
        ends = {(one.instance_type, one.zone, one.end - DAY, one.unit > 1) for one in windows}
        days = [Offer("", n, zone, 1, at, at + DAY, 0, whole) for n, zone, at, whole in sorted(starts | ends)]
        return build_problem(inputs.demand, held, days, longer, inputs.prices, policy)

    def _holdings(self) -> None:
        problem = self.problem
        for block in problem.held:
            pools = [pool for pool in problem.users(block) if self._counts(pool, block.zone)]
            if not pools:
                continue  # of another pool, perhaps of a type that nobody asks for here
            each = problem.prices[block.instance_type].gpus
            shared: dict[int, dict[int, float]] = defaultdict(dict)
            for pool in pools:
                for slot in problem.span(serving_span(problem.demand[pool], block, problem.policy.until)):
                    if len(pools) == 1:
                        self._fixed[pool][slot] += problem.gpus(block)
                    else:
                        column = self.program.column(upper=block.count)
                        shared[slot][column] = 1.0
                        self._serve(pool, column, range(slot, slot + 1), each)
            self._limits += [(block.count, terms) for terms in shared.values()]
        self._extensions()

    def _extensions(self) -> None:
        problem = self.problem
        of_block: dict[str, dict[int, float]] = defaultdict(dict)
        for one in problem.extensions:
            block = problem.extended(one)
            assert block.end is not None
            column = self.program.column(one.fee_usd, upper=1)
            of_block[one.block][column] = 1.0
            users = [pool for pool in problem.users(block) if self._counts(pool, block.zone)]
            for pool in users:
                span = problem.span(added_serving_span(problem.demand[pool], block, one.end))
                self._serve(pool, column, span, problem.gpus(block))
            self._pay(users[0] if len(users) == 1 else None, block.end, column, one.fee_usd)
        self._limits += [(1.0, terms) for terms in of_block.values()]

    def _purchases(self, market: SeenMarket, windows: Sequence[Window]) -> None:
        problem, users = self.problem, self._users(windows)
        useful = [self._useful_slots(pool) for pool in range(len(problem.demand))]
        shorter: dict[object, int] = {}
        for window in windows:
            of_window: dict[int, float] = {}
            shown = market.shown(window)
            for pool in users[window.instance_type, window.zone]:
                demand = problem.demand[pool]
                span = self._span(pool, window)
                serves = useful[pool][span.stop] - useful[pool][span.start] if span else 0
                key = (pool, window.instance_type, window.zone, window.start)
                # A longer one that serves nothing more only costs more.
                if serves <= shorter.get(key, 0) and not (shown and serves):
                    continue
                most = min(window.most, self._most(demand, window)) // window.unit
                if not most:
                    continue
                shorter[key] = max(serves, shorter.get(key, 0))
                usd = window.usd * window.unit * (_SHOWN_IS_CHEAPER if shown else 1.0)
                column = self.program.column(usd, upper=most)
                self.take[column] = window, demand.pool
                of_window[column] = 1.0
                self._serve(pool, column, span, problem.prices[window.instance_type].gpus * window.unit)
                self._pay(pool, window.start, column, usd)
            if len(of_window) > 1:
                self._limits.append((window.most // window.unit, of_window))

    def _span(self, pool: int, window: Window) -> range:
        """The slots in which it serves. Windows share their starts and ends, so each is looked up once."""
        starts, ends = (pool, window.start, window.unit > 1), (pool, window.end, window.unit > 1)
        if starts not in self._first or ends not in self._last:
            one = serving_span(self.problem.demand[pool], _one_of(window), self.problem.policy.until)
            span = self.problem.span(one)
            self._first[starts], self._last[ends] = span.start, span.stop
        return range(self._first[starts], self._last[ends])

    def _useful_slots(self, pool: int) -> list[int]:
        """How many slots before each one lack something."""
        lacks = (need > held for need, held in zip(self.problem.needs[pool], self._fixed[pool], strict=True))
        return [0, *accumulate(lacks)]

    def _date_limit(self) -> None:
        """EC2's limit for a date. It matters where much is needed at once, and makes the program slow."""
        problem = self.problem
        least = min(problem.prices[name].gpus for pool in problem.demand for name in pool.types)
        peak = sum(max(needs, default=0) for needs in problem.needs) / least
        if peak * _OVERLAP <= MAX_INSTANCES_ON_A_DATE - problem.policy.held_elsewhere:
            return
        held: dict[date, int] = defaultdict(int)
        for block in problem.held:
            if block.kind is SourceKind.BLOCK and block.end is not None:
                for day in dates(block.start, block.end):
                    held[day] += block.count
        by_date: dict[date, dict[int, float]] = defaultdict(dict)
        for column, (window, _) in self.take.items():
            for day in dates(window.start, window.end):
                by_date[day][column] = float(window.unit)
        for day, terms in by_date.items():
            left = MAX_INSTANCES_ON_A_DATE - problem.policy.held_elsewhere - held[day]
            self._limits.append((max(0, left), terms))

    def _users(self, windows: Sequence[Window]) -> dict[tuple[str, str], list[int]]:
        found: dict[tuple[str, str], list[int]] = {}
        for window in windows:
            key = (window.instance_type, window.zone)
            if key not in found:
                found[key] = [
                    number
                    for number, pool in enumerate(self.problem.demand)
                    if is_usable_by(pool, _one_of(window)) and self._counts(number, window.zone)
                ]
        return found

    def _counts(self, pool: int, zone: str) -> bool:
        return self._in_zone.get(self.problem.demand[pool].pool, zone) == zone

    def _most(self, pool: PoolDemand, window: Window) -> int:
        """Instances in one block: what EC2 sells, the pool's limits hold and one purchase may cost."""
        most = float(MAX_INSTANCES_PER_BLOCK)
        if pool.usable_counts is not None:
            most = min(most, dict(pool.usable_counts).get(window.instance_type, 0))
        for ceiling in (pool.per_purchase_usd, self.inputs.policy.ceilings.per_purchase_usd):
            if ceiling is not None and window.usd > 0:
                most = min(most, ceiling // window.usd)
        return int(most) // window.unit * window.unit

    # --- what must hold -------------------------------------------------------------------------------

    def _serve(self, pool: int, column: int, slots: range, gpus: float) -> None:
        if slots:
            rows = self._rows
            rows[pool, slots[0]][column] = rows[pool, slots[0]].get(column, 0.0) + gpus
            after = rows[pool, slots[-1] + 1]
            after[column] = after.get(column, 0.0) - gpus

    def _pay(self, pool: int | None, start: datetime, column: int, usd: float) -> None:
        ahead = self.problem.demand[pool].buy_ahead if pool is not None else None
        now = self.problem.policy.now
        month = self.problem.month_of(now if ahead is None else max(now, start - ahead))
        self._months[None, month][column] = usd
        if pool is not None and self.problem.demand[pool].monthly_usd is not None:
            self._months[pool, month][column] = usd

    def _rest(self, pool: int) -> None:
        """What blocks do not serve runs on demand or is short; what they serve beyond the need is of no use."""
        problem, demand = self.problem, self.problem.demand[pool]
        before: dict[str, int] = {}
        for slot, when in enumerate(problem.slots):
            here = range(slot, slot + 1)
            need = max(0.0, problem.needs[pool][slot] - self._fixed[pool][slot])
            self._serve(pool, self.program.column(), here, -1.0)
            if need:
                short = self.program.column(demand.penalty_usd_gpu_h * when.hours, upper=need)
                self._serve(pool, short, here, 1.0)
            for name in demand.types:
                usd_h = problem.prices[name].on_demand_usd_h
                if usd_h is None:
                    continue
                most = problem.prices[name].on_demand_most
                up = self.program.column(usd_h * when.hours, upper=INFINITE if most is None else most)
                self._serve(pool, up, here, problem.prices[name].gpus)
                self._months[None, when.month][up] = usd_h * when.hours
                launch_usd = usd_h * (demand.warm_up / HOUR)
                if launch_usd:
                    new = self.program.column(launch_usd)
                    self._limits.append(
                        (0.0, {up: 1.0, new: -1.0, **({before[name]: -1.0} if name in before else {})})
                    )
                before[name] = up

    def _close(self) -> None:
        problem, limits = self.problem, self.problem.policy.ceilings
        for pool in range(len(problem.demand)):
            served = 0.0
            for slot in range(len(problem.slots)):
                need = max(0.0, problem.needs[pool][slot] - self._fixed[pool][slot])
                self.program.row(need - served, need - served, self._rows[pool, slot])
                served = need
        for most, terms in self._limits:
            self.program.row(-INFINITE, most, terms)
        this_month, spent_for = problem.month_of(problem.policy.now), dict(limits.spent_for_usd)
        for (number, month), terms in self._months.items():
            if number is None:
                left = limits.monthly_usd - (limits.spent_usd if month == this_month else 0.0)
            else:
                own = problem.demand[number]
                left = (own.monthly_usd or 0) - (spent_for.get(own.pool, 0.0) if month == this_month else 0.0)
            self.program.row(-INFINITE, max(0.0, left), terms)


def _one_of(window: Window) -> Offer:
    ultraserver = window.unit > 1
    return Offer("", window.instance_type, window.zone, 1, window.start, window.end, 0, ultraserver)
