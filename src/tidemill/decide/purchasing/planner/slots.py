"""The problem cut into slots: spans of time in which neither demand nor anything that could serve it changes.

Facts and arithmetic on instants only; `cover_program` chooses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from tidemill.decide.purchasing.planner.inputs import (
    DAY,
    HOUR,
    DatedExtensionOffer,
    Policy,
    PoolDemand,
    Prices,
    levels,
)
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import ULTRASERVER_TERMINATES_BEFORE_END
from tidemill.model.errors import SpecError
from tidemill.model.offers import Offer

Month = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slot:
    start: datetime
    end: datetime

    @property
    def hours(self) -> float:
        return (self.end - self.start) / HOUR

    @property
    def month(self) -> Month:
        return self.start.year, self.start.month


@dataclass(frozen=True, slots=True)
class Problem:
    demand: tuple[PoolDemand, ...]
    held: tuple[Reservation, ...]
    offers: tuple[Offer, ...]
    extensions: tuple[DatedExtensionOffer, ...]
    prices: Prices
    policy: Policy
    slots: tuple[Slot, ...]
    needs: tuple[tuple[int, ...], ...]  # GPUs by pool and slot
    _starts: tuple[datetime, ...]

    @staticmethod
    def month_of(at: datetime) -> Month:
        return at.year, at.month

    def gpus(self, supply: Offer | Reservation) -> int:
        return supply.count * self.prices[supply.instance_type].gpus

    def span(self, serving_span: tuple[datetime, datetime]) -> range:
        """The slots that lie in it; it begins and ends on cuts, or outside the calendar."""
        return range(bisect_left(self._starts, serving_span[0]), bisect_left(self._starts, serving_span[1]))

    def users(self, supply: Offer | Reservation) -> list[int]:
        """The pools that may use it, by number."""
        tagged = supply.pool if isinstance(supply, Reservation) else ""
        return [
            number
            for number, pool in enumerate(self.demand)
            if is_usable_by(pool, supply) and tagged in ("", pool.pool)
        ]

    def extended(self, one: DatedExtensionOffer) -> Reservation:
        return next(block for block in self.held if block.id == one.block)


def serving_span(pool: PoolDemand, supply: Offer | Reservation, until: datetime) -> tuple[datetime, datetime]:
    """From when to when it serves: nodes come up after its start and must be gone before its end."""
    end = supply.end
    last = until if end is None else end - _wind_down(pool, supply)
    return supply.start + pool.warm_up, last


def added_serving_span(pool: PoolDemand, block: Reservation, end: datetime) -> tuple[datetime, datetime]:
    """What an extension to `end` adds: the nodes are up, so nothing is lost in between."""
    assert block.end is not None
    wind_down = _wind_down(pool, block)
    return max(block.start + pool.warm_up, block.end - wind_down), end - wind_down


def _wind_down(pool: PoolDemand, supply: Offer | Reservation) -> timedelta:
    return max(pool.wind_down, ULTRASERVER_TERMINATES_BEFORE_END) if supply.ultraserver else pool.wind_down


def dates(start: datetime, end: datetime) -> list[date]:
    """Every UTC date it touches. The day of a hand-over counts both blocks: the EC2 guide says "on any one date", and
    the strict reading is the safe one."""
    first = start.date()
    return [first + number * DAY for number in range((end.date() - first).days + 1)]


def build_problem(
    demand: Sequence[PoolDemand],
    held: Sequence[Reservation],
    offers: Sequence[Offer],
    extensions: Sequence[DatedExtensionOffer],
    prices: Prices,
    policy: Policy,
) -> Problem:
    demand = tuple(sorted(demand, key=lambda pool: pool.pool))
    _check(demand, prices)
    begin, until = policy.now, policy.until
    blocks = {block.id: block for block in held}
    cuts = {begin, until} | _months(begin, until)
    for pool in demand:
        cuts |= {step.start for step in levels(pool.calendar, begin, until)}
        supplies: list[Offer | Reservation] = [*held, *offers]
        for supply in supplies:
            if is_usable_by(pool, supply):
                cuts |= set(serving_span(pool, supply, until))
        for extension in extensions:
            if is_usable_by(pool, blocks[extension.block]):
                cuts |= set(added_serving_span(pool, blocks[extension.block], extension.end))
    instants = sorted(at for at in cuts if begin <= at <= until)
    slots = tuple(Slot(start, end) for start, end in pairwise(instants))
    needs = tuple(_needs(pool, prices, policy, slots) for pool in demand)
    starts = tuple(slot.start for slot in slots)
    return Problem(
        demand, tuple(held), tuple(offers), tuple(extensions), prices, policy, slots, needs, starts
    )


def independent_problems(problem: Problem) -> list[Problem]:
    """Pools without a common type are independent problems, as long as neither budgets nor EC2's date limit bind."""
    groups: list[list[PoolDemand]] = []
    for pool in problem.demand:
        joined = [group for group in groups if any(set(one.types) & set(pool.types) for one in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(one for group in joined for one in group), pool])
    return [_of(problem, group) for group in groups] if len(groups) > 1 else [problem]


def _of(problem: Problem, pools: Sequence[PoolDemand]) -> Problem:
    types = {name for pool in pools for name in pool.types}
    held = [block for block in problem.held if block.instance_type in types]
    ids = {block.id for block in held}
    return build_problem(
        pools, held, [offer for offer in problem.offers if offer.instance_type in types],
        [extension for extension in problem.extensions if extension.block in ids], problem.prices, problem.policy,
    )  # fmt: skip


def _check(demand: Sequence[PoolDemand], prices: Prices) -> None:
    names = [pool.pool for pool in demand]
    if len(set(names)) < len(names):
        raise SpecError("every pool has one demand calendar; put several together with Together")
    for pool in demand:
        unknown = sorted(set(pool.types) - set(prices))
        if unknown or not pool.types:
            raise SpecError(
                f"pool {pool.pool}: no GPUs are known for {', '.join(unknown) or 'no type at all'}"
            )
        if pool.penalty_usd_gpu_h < 0:
            raise SpecError(f"pool {pool.pool}: a penalty cannot be negative")
        if pool.unit == "instances" and len({prices[name].gpus for name in pool.types}) > 1:
            raise SpecError(f"pool {pool.pool}: its types differ in size, so demand must be in GPUs")


def _needs(pool: PoolDemand, prices: Prices, policy: Policy, slots: Sequence[Slot]) -> tuple[int, ...]:
    each = prices[pool.types[0]].gpus if pool.unit == "instances" else 1
    steps = levels(pool.calendar, policy.now, policy.until)
    found: list[int] = []
    at = 0
    for slot in slots:
        while steps[at].end <= slot.start:
            at += 1
        found.append(steps[at].amount * each)
    return tuple(found)


def _months(begin: datetime, until: datetime) -> set[datetime]:
    """The first instants of the months in between: monthly budgets start again there."""
    first = begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = set()
    while first < until:
        first = (first + timedelta(days=32)).replace(day=1)
        found.add(first)
    return found
