"""The least-cost cover of a demand calendar: which offers to buy, which blocks to extend, what to run on demand.

Pure: the same question gives the same plan, to the cent, on any machine. It proposes; approvals, budgets and the
purchase itself are checked again by those who buy. It takes seconds, so it does not run inside a tick, and its result
is dated.
"""

from __future__ import annotations

from tidemill.decide.purchasing.planner.block_transitions import block_handovers
from tidemill.decide.purchasing.planner.cover_program import CoverProgram
from tidemill.decide.purchasing.planner.explanation import (
    bought_gpu_hours,
    cover_of,
    runner_up,
    sensitivity,
    short_gpu_hours,
)
from tidemill.decide.purchasing.planner.inputs import PlannerInputs
from tidemill.decide.purchasing.planner.neighbourhood import Neighbourhood
from tidemill.decide.purchasing.planner.offer_filter import (
    filter_extensions,
    filter_offers,
    live_reservations,
)
from tidemill.decide.purchasing.planner.result import Cover, PurchasePlan, RejectedOffer, RunnerUp
from tidemill.decide.purchasing.planner.slots import Problem, build_problem

__all__ = ["plan", "price_cover"]

_CENT = 0.01  # two covers this close cost the same
_LIKELY = 5  # neighbours of each kind that are priced: the estimate is seldom further off


def plan(inputs: PlannerInputs) -> PurchasePlan:
    # 1. What may be bought at all.
    problem, left_out = _problem_of(inputs)
    # 2. The cheapest cover, first without budgets: often they do not bind.
    program = CoverProgram(problem)
    found = _cheapest(program)
    assert found is not None  # to buy nothing is always allowed
    best, bound_usd, unlimited = found
    # 3. The runner-up. It becomes the best if the search had stopped before finding it.
    best, second = _with_runner_up(program, best, bound_usd)
    # 4. Rates, sensitivity, and the hand-overs between blocks.
    bought, used = bought_gpu_hours(problem, best), _used_gpu_hours(program, best)
    spent_usd = best.cost.spent_usd
    return PurchasePlan(
        at=inputs.policy.now,
        until=inputs.policy.until,
        cover=best,
        bound_usd=min(bound_usd, best.cost.total_usd),
        demand_gpu_hours=_demand_gpu_hours(problem),
        usd_per_gpu_h_bought=spent_usd / bought if bought else None,
        usd_per_gpu_h_used=spent_usd / used if used > 1e-6 else None,
        runner_up=second,
        sensitivity=sensitivity(program, best, unlimited),
        hand_overs=block_handovers(problem, best),
        left_out=tuple(sorted(left_out, key=lambda left: left.id)),
        extended=tuple(problem.extended(extend) for extend in best.extends),
    )


def price_cover(inputs: PlannerInputs, ids: frozenset[str]) -> Cover | None:
    """What a given choice of offers would cost, with the rest chosen as well as possible. None: it breaks a rule."""
    problem, _ = _problem_of(inputs)
    on_sale = {offer.id for offer in problem.offers} | {extension.id for extension in problem.extensions}
    return _priced(CoverProgram(problem), ids) if ids <= on_sale else None


def _problem_of(inputs: PlannerInputs) -> tuple[Problem, list[RejectedOffer]]:
    """The problem with everything that may be bought, and the offers that may not."""
    demand, prices, policy = inputs.demand, inputs.prices, inputs.policy
    held = live_reservations(inputs.owned, policy.now)
    kept, left_out = filter_offers(inputs.offers, demand, prices, policy)
    longer, not_longer = filter_extensions(inputs.extensions, held, policy)
    return build_problem(demand, held, kept, longer, prices, policy), [*left_out, *not_longer]


def _cheapest(
    program: CoverProgram, unlike: tuple[frozenset[str], ...] = ()
) -> tuple[Cover, float, Cover | None] | None:
    """The cover, a lower bound on the cost of any cover, and the cover without budgets if that is another one."""
    found = program.solve(free=True, unlike=unlike)
    if found is None:
        return None
    ids = program.chosen(found)
    free, limited = _priced(program, ids, free=True), _priced(program, ids)
    if free is None or (limited is not None and limited.cost.total_usd <= free.cost.total_usd + _CENT):
        return (limited, found.bound, None) if limited is not None else None
    best = program.solve(unlike=unlike)
    cover = _priced(program, program.chosen(best)) if best is not None else None
    return (cover, best.bound, free) if best is not None and cover is not None else None


def _with_runner_up(program: CoverProgram, best: Cover, bound_usd: float) -> tuple[Cover, RunnerUp | None]:
    """The runner-up is usually a neighbour of the best. If a neighbour costs little more than the bound, there is no
    further search. It is only reported, so twice the gap of the best is enough."""
    second = _cheapest_neighbour(program, best) if program.gap else None
    if second is None or second.cost.total_usd * (1 - 2 * program.gap) > bound_usd:
        found = _cheapest(program, (best.ids,))
        second = found[0] if found is not None else second
    if second is None:
        return best, None
    if second.cost.total_usd < best.cost.total_usd - _CENT:
        best, second = second, best
    return best, runner_up(best, second)


def _cheapest_neighbour(program: CoverProgram, best: Cover) -> Cover | None:
    """The cheapest of those whose estimate is lowest: one purchase less, one more, or one for another."""
    nearby = Neighbourhood(program, program.program.cost, program.money)
    priced = program.price(best.ids)
    assert priced is not None
    nearby.begin(program.columns_of(priced))
    purchases = [*program.take.values(), *program.extend]
    kinds = (nearby.leave(), nearby.add(purchases), nearby.swap(purchases))
    likely = [changed for moves in kinds for _, changed in sorted(moves)[:_LIKELY]]
    found = [_priced(program, program.ids_of(nearby.chosen ^ set(changed))) for changed in likely]
    return min((one for one in found if one), key=lambda one: one.cost.total_usd, default=None)


def _priced(program: CoverProgram, ids: frozenset[str], *, free: bool = False) -> Cover | None:
    found = program.price(ids, free=free)
    return cover_of(program, found) if found is not None else None


def _demand_gpu_hours(problem: Problem) -> float:
    return sum(
        need * slot.hours for needs in problem.needs for need, slot in zip(needs, problem.slots, strict=True)
    )


def _used_gpu_hours(program: CoverProgram, cover: Cover) -> float:
    """What is short with the held blocks alone, less what is short with this cover."""
    nothing = program.price(frozenset(), free=True, blocks_only=True)
    assert nothing is not None
    return short_gpu_hours(program, nothing) - sum(gap.gpu_hours for gap in cover.uncovered)
