"""Whether the budget for hourly nodes lasts until every pod on them is done.

Money by the hour ends sooner the more is launched: a source's own cap, and the platform's budget, which all share.
So an answer is judged as a whole: those on new nodes, those given room on nodes that run, and those who run there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import SHORTEST_LEAD, End, pod_lead
from tidemill.decide.packer.problem import Solution
from tidemill.decide.placement.candidate_nodes import BOOT, Candidates, Stage
from tidemill.decide.placement.launch_options import CostKey, LaunchOption, end_of_option, money_end
from tidemill.decide.placement.problem_builder import BuiltProblem
from tidemill.decide.queue_item import lasts
from tidemill.model.pods import Pod

Rates = Mapping[CostKey, float]  # dollars an hour that would be added


def one_more(candidates: Candidates) -> dict[CostKey, float]:
    """The least that one more node adds to each overflow source."""
    least: dict[CostKey, float] = {}
    for option in candidates.launch_options:
        if option.hourly_cap is not None:
            least[option.till] = min(option.usd_h, least.get(option.till, option.usd_h))
    return least


def rates(built: BuiltProblem, solution: Solution) -> dict[CostKey, float]:
    added: dict[CostKey, float] = {}
    for node in solution.opened:
        option, _ = built.launch_options[id(node.option)]
        if option.usd_h:
            added[option.till] = added.get(option.till, 0.0) + option.usd_h
    return added


def overflow_nodes(built: BuiltProblem, solution: Solution) -> int:
    options = (built.launch_options[id(node.option)][0] for node in solution.opened)
    return sum(option.hourly_cap is not None for option in options)


def money_lasts(context: DecisionContext, built: BuiltProblem, solution: Solution) -> bool:
    added = rates(built, solution)
    total = sum(added.values())
    if not total:
        return True
    return (
        all(_lasts_on_new(context, built, solution, option, added, total) for option in _new(built, solution))
        and _lasts_where_it_runs(context, built, solution, added, total)
        and all(_lets_finish(context, till, pods, added, total) for till, pods in _running(context))
    )


def _new(built: BuiltProblem, solution: Solution) -> list[LaunchOption]:
    options = {id(node.option): built.launch_options[id(node.option)][0] for node in solution.opened}
    return [option for option in options.values() if option.hourly_cap is not None]


def _lasts_on_new(
    context: DecisionContext,
    built: BuiltProblem,
    solution: Solution,
    option: LaunchOption,
    added: Rates,
    total: float,
) -> bool:
    end = end_of_option(context, option, added.get(option.till, 0.0), total)
    return all(
        lasts(built.waiting[ask][0], end, option.pool, context.now + BOOT)
        for node in solution.opened
        if built.launch_options[id(node.option)][0] is option
        for ask in node.pods
    )


def _lasts_where_it_runs(
    context: DecisionContext, built: BuiltProblem, solution: Solution, added: Rates, total: float
) -> bool:
    for place, asks in solution.existing.items():
        if place >= len(built.nodes):
            continue
        group = built.nodes[place].group
        if group.template is None or not group.overflow:
            continue
        pool = group.template.pool
        till = (pool.name, group.source.kind)
        end = money_end(context, pool.name, group.source.kind, added.get(till, 0.0), total)
        start = context.now if group.stage is Stage.READY else context.now + BOOT
        for ask in asks:
            item = built.waiting[ask][0]
            if item.gated and not lasts(item, end, pool, start):
                return False
    return True


def _running(context: DecisionContext) -> Iterator[tuple[CostKey, list[tuple[Pod, datetime]]]]:
    """Work on overflow nodes that would finish in time as things are, and cannot be resumed."""
    found: dict[CostKey, list[tuple[Pod, datetime]]] = {}
    for view in context.views:
        template = view.facts.template
        if template is None or template.overflow[view.source.kind] is None or view.deadline is None:
            continue
        for pod in view.pods:
            if pod.terms.expected is None or pod.terms.checkpoint_every is not None:
                continue
            done = (pod.started_at or context.now) + pod.terms.load + pod.terms.expected
            done += max(SHORTEST_LEAD, pod_lead(pod, checkpoint=False))
            if done <= view.deadline:
                found.setdefault((template.pool.name, view.source.kind), []).append((pod, done))
    yield from found.items()


def _lets_finish(
    context: DecisionContext, till: CostKey, pods: list[tuple[Pod, datetime]], added: Rates, total: float
) -> bool:
    end: End = money_end(context, till[0], till[1], added.get(till, 0.0), total)
    return end.deadline is None or all(done <= end.deadline for _, done in pods)
