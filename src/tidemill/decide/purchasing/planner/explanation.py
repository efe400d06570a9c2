"""A solution of the program, explained: the cover it stands for, the runner-up, and what would change the answer."""

from __future__ import annotations

from collections import defaultdict

from tidemill.decide.purchasing.planner.cover_program import CoverProgram
from tidemill.decide.purchasing.planner.inputs import HOUR, TypePrice
from tidemill.decide.purchasing.planner.result import (
    Buy,
    Cost,
    Cover,
    OnDemand,
    RunnerUp,
    Sensitivity,
    Uncovered,
    Worth,
)
from tidemill.decide.purchasing.planner.slots import Problem
from tidemill.linear_program import Solution


def cover_of(program: CoverProgram, solution: Solution) -> Cover:
    problem, values = program.problem, solution.values
    buys = tuple(
        Buy(problem.offers[offer], problem.demand[pool].pool)
        for (offer, pool), column in program.take.items()
        if values[column] > 0.5
    )
    extends = tuple(
        one for one, column in zip(problem.extensions, program.extend, strict=True) if values[column] > 0.5
    )
    on_demand = _runs(program, solution)
    uncovered = _uncovered(program, solution)
    fees_usd = sum(buy.offer.fee_usd for buy in buys) + sum(extend.fee_usd for extend in extends)
    hours_usd, penalty_usd = sum(run.usd for run in on_demand), sum(gap.penalty_usd for gap in uncovered)
    return Cover(buys, extends, on_demand, uncovered, Cost(fees_usd, hours_usd, penalty_usd))


def short_gpu_hours(program: CoverProgram, solution: Solution) -> float:
    slots = program.problem.slots
    return sum(solution.values[column] * slots[slot].hours for (_, slot), column in program.short.items())


def bought_gpu_hours(problem: Problem, cover: Cover) -> float:
    """The GPU hours that were paid for, from start to paid end, used or not."""
    hours = sum(problem.gpus(buy.offer) * ((buy.offer.end - buy.offer.start) / HOUR) for buy in cover.buys)
    for extend in cover.extends:
        block = problem.extended(extend)
        assert block.end is not None
        hours += problem.gpus(block) * ((extend.end - block.end) / HOUR)
    return hours + sum(
        run.instances * problem.prices[run.instance_type].gpus * ((run.end - run.start) / HOUR)
        for run in cover.on_demand
    )


def _runs(program: CoverProgram, solution: Solution) -> tuple[OnDemand, ...]:
    """Adjacent slots with the same number of instances are one run."""
    problem = program.problem
    found: dict[tuple[int, str], list[OnDemand]] = defaultdict(list)
    for (pool, name, slot), column in sorted(program.on_demand.items()):
        count, when = round(solution.values[column]), problem.slots[slot]
        if not count:
            continue
        usd_h = problem.prices[name].on_demand_usd_h
        assert usd_h is not None
        launched = program.launch.get((pool, name, slot))
        new = round(solution.values[launched]) if launched is not None else 0
        usd = usd_h * (count * when.hours + new * (problem.demand[pool].warm_up / HOUR))
        runs, start = found[pool, name], when.start
        if runs and runs[-1].end == start and runs[-1].instances == count:
            before = runs.pop()
            usd, start = usd + before.usd, before.start
        runs.append(OnDemand(problem.demand[pool].pool, name, count, start, when.end, usd))
    return tuple(run for runs in found.values() for run in runs)


def _uncovered(program: CoverProgram, solution: Solution) -> tuple[Uncovered, ...]:
    problem = program.problem
    found: dict[int, list[Uncovered]] = defaultdict(list)
    for (pool, slot), column in sorted(program.short.items()):
        gpus, when = round(solution.values[column]), problem.slots[slot]
        if not gpus:
            continue
        usd = gpus * when.hours * problem.demand[pool].penalty_usd_gpu_h
        runs, start = found[pool], when.start
        if runs and runs[-1].end == start and runs[-1].gpus == gpus:
            before = runs.pop()
            usd, start = usd + before.penalty_usd, before.start
        runs.append(Uncovered(problem.demand[pool].pool, gpus, start, when.end, usd))
    return tuple(run for runs in found.values() for run in runs)


# --- the runner-up, and what would change the answer --------------------------------------------------


_CENT = 0.005


def runner_up(best: Cover, second: Cover) -> RunnerUp:
    dearer_usd = second.cost.total_usd - best.cost.total_usd
    more, less = sorted(second.ids - best.ids), sorted(best.ids - second.ids)
    swap = " and ".join(
        words
        for words in (
            f"takes {_named(more)}" if more else "",
            f"leaves {_named(less)}" if less else "",
        )
        if words
    )
    if dearer_usd < _CENT:
        return RunnerUp(second, dearer_usd, f"it {swap} and costs the same")
    return RunnerUp(second, dearer_usd, f"it {swap}: {_because(best.cost, second.cost)}")


def _named(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= 4 else f"{', '.join(ids[:3])} and {len(ids) - 3} more"


def _because(best: Cost, second: Cost) -> str:
    parts = (
        ("in fees", second.fees_usd - best.fees_usd),
        ("on demand", second.on_demand_usd - best.on_demand_usd),
        ("in penalties", second.penalty_usd - best.penalty_usd),
    )
    differences = [
        f"${abs(usd):,.0f} {'more' if usd > 0 else 'less'} {name}" for name, usd in parts if abs(usd) >= 0.5
    ]
    return ", ".join(differences) or "a few cents more"


def sensitivity(program: CoverProgram, cover: Cover, unlimited: Cover | None) -> Sensitivity:
    full = program.price(cover.ids, free=True, blocks_only=True)
    assert full is not None
    short_h = short_gpu_hours(program, full)
    worths = tuple(_worth(program, cover, id_, short_h) for id_ in sorted(cover.ids))
    words = [
        *(_of_budget(cover, unlimited) if unlimited is not None else ()),
        *(words for worth in worths for words in _of_purchase(worth)),
        *_of_gaps(program.problem, cover),
    ]
    return Sensitivity(worths, unlimited is not None, unlimited, tuple(words))


def _worth(program: CoverProgram, cover: Cover, id_: str, short_h: float) -> Worth:
    """Leaves this purchase out, all others fixed, and prices what on-demand and penalties would cost instead."""
    others = cover.ids - {id_}
    without = program.price(others, free=True)
    bare = program.price(others, free=True, blocks_only=True) if program.on_demand else without
    assert without is not None
    assert bare is not None
    hours = short_gpu_hours(program, bare) - short_h
    fee_usd, price = _fee_and_price(program.problem, id_)
    saves_usd = without.objective - cover.cost.total_usd
    if hours < 1e-6:
        return Worth(id_, saves_usd, 0.0, None, None)
    return Worth(id_, saves_usd, hours, fee_usd / hours * price.gpus, fee_usd / hours)


def _fee_and_price(problem: Problem, id_: str) -> tuple[int, TypePrice]:
    for offer in problem.offers:
        if offer.id == id_:
            return offer.fee_usd, problem.prices[offer.instance_type]
    one = next(extension for extension in problem.extensions if extension.id == id_)
    return one.fee_usd, problem.prices[problem.extended(one).instance_type]


def _of_budget(cover: Cover, unlimited: Cover) -> list[str]:
    more_usd = unlimited.cost.spent_usd - cover.cost.spent_usd
    saved_usd = cover.cost.total_usd - unlimited.cost.total_usd
    if more_usd > 0:
        return [
            f"the budget binds: ${more_usd:,.0f} more of it would save ${saved_usd:,.0f}, penalties counted"
        ]
    return [f"the budget binds this month: without it the plan would cost ${saved_usd:,.0f} less"]


def _of_purchase(worth: Worth) -> list[str]:
    if worth.on_demand_below_usd_h is None or worth.penalty_below_usd_gpu_h is None:
        return [f"{worth.id} covers no demand that would be short without it"]
    hours, gpu_hours = worth.on_demand_below_usd_h, worth.penalty_below_usd_gpu_h
    words = f"{worth.id} would not be bought if on-demand cost less than ${hours:,.2f} an instance-hour"
    return [f"{words}, or if the penalty were below ${gpu_hours:,.2f} a GPU-hour"]


def _of_gaps(problem: Problem, cover: Cover) -> list[str]:
    """For pools that are short: the penalty from which on-demand instances would fill the gap, if they are allowed."""
    lines: list[str] = []
    for pool in problem.demand:
        short = [gap for gap in cover.uncovered if gap.pool == pool.pool]
        if not short:
            continue
        hours = sum(one.gpu_hours for one in short)
        offered = [
            price.on_demand_usd_h / price.gpus
            for price in (problem.prices[name] for name in pool.types)
            if price.on_demand_usd_h is not None
        ]
        words = f"{hours:,.0f} GPU-hours of {pool.pool} stay uncovered at ${pool.penalty_usd_gpu_h:,.2f} each"
        if offered and min(offered) > pool.penalty_usd_gpu_h:
            words += f"; on-demand would take over from about ${min(offered):,.2f}"
        elif not offered:
            words += "; it has no on-demand price, so only other offers could fill them"
        lines.append(words)
    return lines
