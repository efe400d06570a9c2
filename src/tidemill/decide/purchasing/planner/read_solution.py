"""A solution of the program, read back as a cover: purchases, runs on demand, uncovered stretches, and money."""

from __future__ import annotations

from collections import defaultdict

from tidemill.decide.purchasing.planner.cover_program import CoverProgram
from tidemill.decide.purchasing.planner.inputs import HOUR
from tidemill.decide.purchasing.planner.mip_solver import Solution
from tidemill.decide.purchasing.planner.result import Buy, Cost, Cover, OnDemand, Uncovered
from tidemill.decide.purchasing.planner.slots import Problem


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
    fees_usd = sum(one.offer.fee_usd for one in buys) + sum(one.fee_usd for one in extends)
    hours_usd, penalty_usd = sum(one.usd for one in on_demand), sum(one.penalty_usd for one in uncovered)
    return Cover(buys, extends, on_demand, uncovered, Cost(fees_usd, hours_usd, penalty_usd))


def short_gpu_hours(program: CoverProgram, solution: Solution) -> float:
    slots = program.problem.slots
    return sum(solution.values[column] * slots[slot].hours for (_, slot), column in program.short.items())


def bought_gpu_hours(problem: Problem, cover: Cover) -> float:
    """That the money pays for, from start to paid end, used or not."""
    hours = sum(problem.gpus(one.offer) * ((one.offer.end - one.offer.start) / HOUR) for one in cover.buys)
    for one in cover.extends:
        block = problem.extended(one)
        assert block.end is not None
        hours += problem.gpus(block) * ((one.end - block.end) / HOUR)
    return hours + sum(
        one.instances * problem.prices[one.instance_type].gpus * ((one.end - one.start) / HOUR)
        for one in cover.on_demand
    )


def _runs(program: CoverProgram, solution: Solution) -> tuple[OnDemand, ...]:
    """Slots next to each other with as many instances are one run."""
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
