"""Which nodes to launch, and which pod goes to which node: build a packing problem, solve it, and read it back.

Ready nodes come first, then nodes on their way, then new nodes, each in the order of the pools. Among prepaid sources
that last long enough the one that ends first is used, so that long-lived capacity stays free for long pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import SHORTEST_LEAD, End, pod_lead
from tidemill.decide.packer.existing_nodes import place_on_existing
from tidemill.decide.packer.problem import Solution
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.feasibility_filter import CandidateRoom
from tidemill.decide.placement.launch_options import CostKey, LaunchOption, end_of_option, money_end
from tidemill.decide.placement.problem_builder import (
    BuiltProblem,
    build_problem,
    build_without_launches,
    with_all_nodes,
)
from tidemill.decide.placement.queue import Queue
from tidemill.decide.placement.solve_cache import SolveCache
from tidemill.decide.queue_item import QueueItem, lasts
from tidemill.model.pods import Pod

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
    queue: Queue
    placements: list[Placement] = field(default_factory=list)

    @property
    def all_placed(self) -> bool:
        return len(self.placements) == len(self.queue.items)


def pack(context: DecisionContext, queue: Queue, candidates: Candidates, *, thorough: bool = True) -> Packing:
    """`thorough`: small problems are attempted in several ways. A what-if question needs only one attempt."""
    if not queue.items:
        return Packing(queue)
    room = CandidateRoom(candidates)
    without_launches: BuiltProblem | None = None
    # Rules between pods count the zones of new nodes too, so with such rules the whole problem is needed.
    if not candidates.between_pods and len(queue.items) <= _FEW:
        without_launches = build_without_launches(context, queue, candidates, room)
        packing = _on_existing_nodes(context, queue, candidates, room, without_launches)
        if packing is not None:
            return packing
    built = build_problem(
        context, queue, candidates, room, one_more(candidates), without_launches=without_launches
    )
    if not built.waiting:
        return Packing(queue)
    solution = context.memory.of(SolveCache).solve(built.problem, thorough=thorough)
    if not money_lasts(context, built, solution):
        built, solution = _within_money(context, queue, candidates, room, built, solution)
    return _read(queue, built, solution)


def _on_existing_nodes(
    context: DecisionContext, queue: Queue, candidates: Candidates, room: CandidateRoom, built: BuiltProblem
) -> Packing | None:
    """All pods on nodes that are up or on their way. None: a pod needs a new node, or that must be looked at.

    These nodes go before all others, so for a few pods this is mostly the answer, and it costs half.
    """
    if len(built.waiting) < sum(len(item.pods) for item in queue.items):
        return None
    solution = place_on_existing(built.problem)
    if solution is None:  # the general way looks at every node
        built = with_all_nodes(context, candidates, room, built)
        solution = context.memory.of(SolveCache).solve(built.problem)
    return None if solution.unplaced else _read(queue, built, solution)


def _within_money(
    context: DecisionContext,
    queue: Queue,
    candidates: Candidates,
    room: CandidateRoom,
    wanted: BuiltProblem,
    solution: Solution,
) -> tuple[BuiltProblem, Solution]:
    """As many of the wanted overflow nodes as the money lasts for: of all pools, or else of one of them."""
    spent, nodes, least = rates(wanted, solution), overflow_nodes(wanted, solution), one_more(candidates)
    closed = dict.fromkeys(least, 0.0)

    def solve_with(caps: dict[CostKey, float]) -> tuple[BuiltProblem, Solution]:
        built = build_problem(context, queue, candidates, room, caps, capped=True)
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


def _read(queue: Queue, built: BuiltProblem, solution: Solution) -> Packing:
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
    packing = Packing(queue)
    for item in {item: None for item, _ in built.waiting}:  # in the order of the queue
        if item.pods[0].uid not in node_of:  # a gang has all its nodes or none
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


# --- hourly money: whether the budget lasts until every pod on hourly nodes is done -------------------

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
        if group.template is None or not group.ends_with_money:
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
    """Work on nodes by the hour that would finish in time as things are, and cannot be resumed."""
    found: dict[CostKey, list[tuple[Pod, datetime]]] = {}
    for view in context.views:
        template = view.facts.template
        if template is None or template.limited[view.source.kind] is None or view.deadline is None:
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
