"""The packer: which pod goes to which node, and which nodes to open for the rest. Deterministic.

Pods that are alike form groups. Groups are split over domains on counts; within a domain, groups with the same
requests are placed by best fit, and then nodes grow or open in the cheapest way. Small problems are improved by
further attempts and by ruin and recreate. designs/0002-solver.md explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.packer.domain_assignment import add_existing_nodes, assign_domains, plan_domains
from tidemill.decide.packer.existing_nodes import place_on_existing
from tidemill.decide.packer.gangs import place_gangs
from tidemill.decide.packer.local_search import improve_locally
from tidemill.decide.packer.node_closing import close_nodes
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.placement_order import USUAL, Strategy, place_in_order
from tidemill.decide.packer.pod_budgets import solve_within_budgets
from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup, group_pods
from tidemill.decide.packer.problem import NewNode, Problem, Solution
from tidemill.decide.packer.repair import needs_repair, repair
from tidemill.decide.packer.restarts import search
from tidemill.decide.packer.supply import Supply

__all__ = ["solve"]


def solve(problem: Problem, *, thorough: bool = True) -> Solution:
    """The solution of one attempt, or (if `thorough`) the best of several where the problem is small."""
    if problem.pod_budgets:
        return solve_within_budgets(problem, lambda part: solve(part, thorough=thorough))
    known = place_on_existing(problem)
    if known is not None:
        return known
    return search(problem, attempt) if thorough else attempt(problem, USUAL)


def attempt(problem: Problem, strategy: Strategy) -> Solution:
    grouped = group_pods(problem)  # 1 equal pods form one group
    supply = Supply(problem, grouped)  # 2 domains, and what could be opened in each
    packing = PackingState(supply, grouped.weights)
    balancer = add_existing_nodes(problem, grouped, packing)  # 3 existing nodes and the pods on them
    if strategy.place_first is not None:
        every_pod = list(range(len(problem.pods)))
        unplaced = repair(problem, grouped, packing, every_pod, strategy.place_first)
        return _solution(problem, packing, unplaced)
    unplaced = []
    for level in _by_priority(grouped):  # all pods of a higher priority are placed first
        domains = sorted(balancer.load)
        if strategy.gangs_first:
            unplaced += place_gangs(problem, level.gangs, packing, domains)  # 4 gangs, whole or not at all
        plan = plan_domains(level.groups, packing, balancer) if not grouped.gangs else None
        shares = assign_domains(level.groups, packing, balancer, plan)  # 5 a domain for each pod, on counts
        unplaced += place_in_order(shares, packing, strategy, plan)  # 6 a node for each pod, existing or new
        if not strategy.gangs_first:
            unplaced += place_gangs(problem, level.gangs, packing, domains)
    unplaced += [pod for group in grouped.groups if group.needs_exact_check for pod in group.pods]
    if needs_repair(grouped, unplaced):
        unplaced = repair(problem, grouped, packing, unplaced)  # 7 pods that counts cannot place
    else:
        single: list[PodGroup | None] = [None] * len(problem.pods)  # members of gangs stay where they are
        for group in grouped.groups:
            for pod in group.pods:
                single[pod] = group
        close_nodes(packing, single)  # 8 fewer nodes, and smaller ones where much is left over
        improve_locally(packing, single)
    return _solution(problem, packing, unplaced)  # 9 each new node gets the cheapest type that holds its pods


@dataclass(slots=True)
class _Level:
    """All pods of one priority."""

    groups: list[PodGroup] = field(default_factory=list)
    gangs: list[PodGroup] = field(default_factory=list)


def _by_priority(grouped: GroupedPods) -> list[_Level]:
    levels: dict[int, _Level] = {}
    for group in grouped.groups:
        levels.setdefault(group.priority, _Level()).groups.append(group)
    for group in grouped.gangs:
        levels.setdefault(group.priority, _Level()).gangs.append(group)
    return [levels[priority] for priority in sorted(levels, reverse=True)]


def _solution(problem: Problem, packing: PackingState, unplaced: list[int]) -> Solution:
    solution = Solution()
    for bin in packing.bins:
        if bin.node_index >= 0:
            if bin.pods:
                solution.existing[bin.node_index] = bin.pods
        elif bin.pods:
            assert bin.ladder is not None
            packing.downsize(bin)
            solution.opened.append(NewNode(bin.ladder.options[bin.rung], bin.pods))
    for pod in unplaced:
        gang = problem.pods[pod].gang is not None
        solution.unplaced[pod] = "no room for the whole gang" if gang else "no room"
    return solution
