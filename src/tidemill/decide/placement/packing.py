"""Which nodes to launch, and which pod goes to which node: build a packing problem, solve it, and read it back.

Ready nodes come first, then nodes on their way, then new nodes, each in the order of the pools. Among prepaid sources
that last long enough the one that ends first is used, so that long-lived capacity stays free for long pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.packer.problem import Solution
from tidemill.decide.placement.candidate_nodes import CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.hourly_budget import money_lasts, one_more, overflow_nodes, rates
from tidemill.decide.placement.launch_options import CostKey, LaunchOption
from tidemill.decide.placement.problem_builder import (
    BuiltProblem,
    build_problem,
    build_without_launches,
)
from tidemill.decide.placement.solve_cache import SolveCache
from tidemill.decide.queue_item import QueueItem

# A longer queue mostly waits for nodes that do not exist.
_FEW = 20


@dataclass(slots=True)
class Placement:
    item: QueueItem
    nodes: list[CandidateNode]  # by pod

    @property
    def stage(self) -> Stage:
        return max(candidate.group.stage for candidate in self.nodes)


@dataclass(slots=True)
class Packing:
    placements: list[Placement] = field(default_factory=list)
    unplaced: list[QueueItem] = field(default_factory=list)


def pack(
    context: DecisionContext, items: Sequence[QueueItem], candidates: Candidates, *, thorough: bool = True
) -> Packing:
    """`thorough`: small problems are attempted in several ways. A what-if question needs only one attempt."""
    packing = _on_existing_nodes(context, items, candidates)
    if packing is not None:
        return packing
    built = build_problem(context, items, candidates, one_more(candidates))
    if not built.waiting:
        return Packing(unplaced=list(items))
    solution = context.memory.of(SolveCache).solve(built.problem, thorough=thorough)
    if not money_lasts(context, built, solution):
        built, solution = _within_money(context, items, candidates, built, solution)
    return _read(items, built, solution)


def _on_existing_nodes(
    context: DecisionContext, items: Sequence[QueueItem], candidates: Candidates
) -> Packing | None:
    """All pods on nodes that are up or on their way. None: a pod needs a new node, or that must be looked at.

    These nodes go before all others, so for a few pods this is mostly the answer, and it costs half. Rules between
    pods count the zones of new nodes too, so with such rules the whole problem is needed.
    """
    if candidates.between_pods or len(items) > _FEW:
        return None
    built = build_without_launches(context, items, candidates)
    if len(built.waiting) < sum(len(item.pods) for item in items):
        return None
    solution = context.memory.of(SolveCache).solve(built.problem)
    return None if solution.unplaced else _read(items, built, solution)


def _within_money(
    context: DecisionContext,
    items: Sequence[QueueItem],
    candidates: Candidates,
    wanted: BuiltProblem,
    solution: Solution,
) -> tuple[BuiltProblem, Solution]:
    """As many of the wanted overflow nodes as the money lasts for: of all pools, or else of one of them."""
    spent, nodes, least = rates(wanted, solution), overflow_nodes(wanted, solution), one_more(candidates)
    closed = dict.fromkeys(least, 0.0)

    def solve_with(caps: dict[CostKey, float]) -> tuple[BuiltProblem, Solution]:
        built = build_problem(context, items, candidates, caps, capped=True)
        return built, context.memory.of(SolveCache).solve(built.problem, thorough=False)

    best, most = solve_with(closed), 0  # pools without a cap launch what they want
    for keys in (list(least), *([key] for key in sorted(least) if key in spent)):
        # The more nodes, the sooner the money ends. Beyond some number no pod would run long enough.
        low, high = 1, nodes
        while low <= high:
            middle = (low + high) // 2
            caps = {key: max(least[key], spent.get(key, 0.0) * middle / nodes) for key in keys}
            result = solve_with({**closed, **caps})
            if overflow_nodes(*result) > most and money_lasts(context, *result):
                best, most, low = result, overflow_nodes(*result), middle + 1
            else:
                high = middle - 1
        if most:
            break
    return best


def _read(items: Sequence[QueueItem], built: BuiltProblem, solution: Solution) -> Packing:
    """Take the room on the nodes that the solution uses, open its launch options, and sort the pods by item."""
    node_of: dict[str, CandidateNode] = {}  # by uid of the pod
    pending = built.problem.pods
    for index, pods in solution.existing.items():
        for number in pods:
            node_of[pending[number].id] = built.nodes[index]
    for new in solution.opened:
        launch, end = built.launch_options[id(new.option)]
        launch.open()
        candidate = _new_node(launch, end)
        for number in new.pods:
            node_of[pending[number].id] = candidate
    packing = Packing()
    for item in items:
        if item.pods[0].uid not in node_of:  # a gang has all its nodes or none
            packing.unplaced.append(item)
            continue
        nodes = [node_of[pod.uid] for pod in item.pods]
        for pod, candidate in zip(item.pods, nodes, strict=True):
            candidate.take(pod.shape.requests)
        packing.placements.append(Placement(item, nodes))
    return packing


def _new_node(option: LaunchOption, end: End) -> CandidateNode:
    group = CandidateGroup(
        Stage.NEW, option.template, option.source, option.zone, option.labels, option.template.taints, end,
        option.order,
    )  # fmt: skip
    return CandidateNode(group, f"new {option.kind.name}", option.free, option=option)
