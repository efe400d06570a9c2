"""Constraint rows for budgets: of a month, of a pool, of the whole plan.

Fees count in the month in which the purchase is due, hours on demand in the month in which they run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.decide.purchasing.planner.inputs import HOUR
from tidemill.decide.purchasing.planner.slots import Month, Problem
from tidemill.linear_program import Row

if TYPE_CHECKING:
    from tidemill.decide.purchasing.planner.cover_program import CoverProgram


def budget_rows(program: CoverProgram) -> Iterable[Row]:
    """Fees are paid when a purchase is made, hours on demand in the month in which they run. A pool's own
    ceiling binds what is spent for it, on top of what was spent for it already."""
    problem, limits = program.problem, program.problem.policy.ceilings
    months: dict[Month, dict[int, float]] = defaultdict(dict)
    of_pool: dict[tuple[int, Month], dict[int, float]] = defaultdict(dict)
    for pool, month, column, usd in _payments(program):
        months[month][column] = usd
        if pool is not None and problem.demand[pool].monthly_usd is not None:
            of_pool[pool, month][column] = usd
    spent_usd = {problem.month_of(problem.policy.now): limits.spent_usd}
    for month, terms in months.items():
        yield 0, max(0.0, limits.monthly_usd - spent_usd.get(month, 0.0)), terms
    spent_for_usd = dict(limits.spent_for_usd)
    for (pool, month), terms in of_pool.items():
        own = problem.demand[pool]
        before_usd = spent_for_usd.get(own.pool, 0.0) if month in spent_usd else 0.0
        yield 0, max(0.0, (own.monthly_usd or 0) - before_usd), terms
    if limits.whole_usd is not None:
        everything = {c: usd for terms in months.values() for c, usd in terms.items()}
        yield 0, max(0.0, limits.whole_usd), everything


def _payments(program: CoverProgram) -> Iterable[tuple[int | None, Month, int, float]]:
    """Pool (None: a block that several pools share), month, column, and dollars for one unit of the column."""
    problem = program.problem
    for (number, pool), column in program.take.items():
        offer = problem.offers[number]
        paid_at = _paid_at(problem, problem.demand[pool].buy_ahead, offer.start)
        yield pool, problem.month_of(paid_at), column, offer.fee_usd
    for one, column in zip(problem.extensions, program.extend, strict=True):
        block = problem.extended(one)
        assert block.end is not None
        users = problem.users(block)
        ahead = problem.demand[users[0]].buy_ahead if users else None
        month = problem.month_of(_paid_at(problem, ahead, block.end))
        yield users[0] if len(users) == 1 else None, month, column, one.fee_usd
    for (pool, name, slot), column in program.on_demand.items():
        usd_h, when = problem.prices[name].on_demand_usd_h, problem.slots[slot]
        assert usd_h is not None
        yield pool, when.month, column, usd_h * when.hours
        if (pool, name, slot) in program.launch:
            warm_up_h = problem.demand[pool].warm_up / HOUR
            yield pool, when.month, program.launch[pool, name, slot], usd_h * warm_up_h


def _paid_at(problem: Problem, buy_ahead: timedelta | None, start: datetime) -> datetime:
    return problem.policy.now if buy_ahead is None else max(problem.policy.now, start - buy_ahead)
