"""What must hold of a solution that was put together from parts, checked exactly, for the whole.

Every part keeps amounts, stocks, limits and eligibility by itself. Only the whole can tell whether the rules between
pods of different parts hold, and whether a lower rank was skipped for a better price.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.decide.packer.constraint_state import ConstraintState
from tidemill.decide.packer.domain_assignment import add_existing_nodes
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import group_pods
from tidemill.decide.packer.problem import ExistingNode, NodeOption, Problem, Solution
from tidemill.decide.packer.supply import Supply


def rules_hold(problem: Problem, solution: Solution) -> bool:
    """Whether all rules between pods hold."""
    pending = any(pod.shape.spread or pod.shape.affinity or pod.shape.anti_affinity for pod in problem.pods)
    if not pending and not any(
        pods.shape.anti_affinity for node in problem.nodes for pods in node.existing_pods
    ):
        return True
    opened = [
        as_existing_node(f"new node {number}", node.option) for number, node in enumerate(solution.opened)
    ]
    whole = replace(problem, nodes=(*problem.nodes, *opened))
    grouped = group_pods(whole)
    packing = PackingState(Supply(whole, grouped), grouped.weights)
    add_existing_nodes(whole, grouped, packing)
    group_of = grouped.group_of()
    pods_on = dict(solution.existing)
    pods_on |= {len(problem.nodes) + number: node.pods for number, node in enumerate(solution.opened)}
    for number, pods in pods_on.items():
        for pod in pods:
            packing.put(packing.bins[number], group_of[pod], [pod])
    state = ConstraintState(whole, packing, grouped)
    return all(map(state.is_satisfied, state.all_placed())) and not state.unmet_affinity()


def skipped_lower_ranks(problem: Problem, solution: Solution) -> int:
    """How many nodes were opened although a node of a lower rank would do for every single pod on them.

    A lower rank goes first, whatever the price: only a pod that cannot use one opens a higher one. Other pods may
    then join it there.
    """
    if len({option.rank for option in problem.options}) < 2:
        return 0
    grouped = group_pods(problem)
    supply = Supply(problem, grouped)
    packing = PackingState(supply, grouped.weights)
    group_of = grouped.group_of()
    for node in solution.opened:
        _consume(supply, node.option, 1)
    skipped = 0
    for node in solution.opened:
        _consume(supply, node.option, -1)
        lower = [site for site in supply.by_site if site[0] < node.option.rank]
        groups = {id(group_of[pod]): group_of[pod] for pod in node.pods}.values()
        skipped += all(any(packing.cheapest_opening(group, site) for site in lower) for group in groups)
        _consume(supply, node.option, 1)
    return skipped


def _consume(supply: Supply, option: NodeOption, nodes: int) -> None:
    if option.stock:
        supply.stocks[option.stock] -= nodes
    left = supply.budgets.get(option.budget, {})
    for name in left.keys() & option.consumes.keys():
        left[name] -= nodes * option.consumes[name]


def as_existing_node(name: str, option: NodeOption) -> ExistingNode:
    """A node of this option, as if it were on its way."""
    return ExistingNode(name, option.labels, option.capacity, option.taints, rank=option.rank)
