"""Which nodes to launch, and who goes where: the world is stated as a packing problem, solved, and read back.

Ready room comes first, then room that is coming, then new room, each in the pools' own order; among prepaid
sources that last long enough the one that ends first, so that long-lived capacity stays free for long work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.packer.problem import Solution
from tidemill.decide.placement.candidates import CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.hourly_budget import money_lasts, one_more, overflow_nodes, rates
from tidemill.decide.placement.launch_options import CostKey, LaunchOption
from tidemill.decide.placement.problem_builder import Statement, state, state_what_is_there
from tidemill.decide.placement.solve_cache import SolveCache
from tidemill.decide.queue_item import QueueItem

# A longer queue is waiting for what is not there.
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
    """`thorough`: small problems are attempted in several ways; a mere question needs one answer."""
    there = _on_what_is_there(context, items, candidates)
    if there is not None:
        return there
    statement = state(context, items, candidates, one_more(candidates))
    if not statement.waiting:
        return Packing(unplaced=list(items))
    solution = context.memory.of(SolveCache).solve(statement.problem, thorough=thorough)
    if not money_lasts(context, statement, solution):
        statement, solution = _within_money(context, items, candidates, statement, solution)
    return _read(items, statement, solution)


def _on_what_is_there(
    context: DecisionContext, items: Sequence[QueueItem], candidates: Candidates
) -> Packing | None:
    """Everybody on nodes that are up or coming, which go before all others: of few pods this is mostly the answer, and
    it costs half. None: somebody needs a new node. Rules about other pods count the zones of new nodes too."""
    if candidates.between_pods or len(items) > _FEW:
        return None
    statement = state_what_is_there(context, items, candidates)
    if len(statement.waiting) < sum(len(item.pods) for item in items):
        return None
    solution = context.memory.of(SolveCache).solve(statement.problem)
    return None if solution.unplaced else _read(items, statement, solution)


def _within_money(
    context: DecisionContext,
    items: Sequence[QueueItem],
    candidates: Candidates,
    wished: Statement,
    wish: Solution,
) -> tuple[Statement, Solution]:
    """As many overflow nodes of those wished for as the money lasts for: of all pools, or else of one of them."""
    spent, nodes, least = rates(wished, wish), overflow_nodes(wished, wish), one_more(candidates)
    shut = dict.fromkeys(least, 0.0)

    def answer(caps: dict[CostKey, float]) -> tuple[Statement, Solution]:
        statement = state(context, items, candidates, caps, capped=True)
        return statement, context.memory.of(SolveCache).solve(statement.problem, thorough=False)

    best, most = answer(shut), 0  # what pools without a cap launch is theirs to launch
    for tills in (list(least), *([till] for till in sorted(least) if till in spent)):
        # The more are allowed, the sooner money ends, and beyond some number nobody would last at all.
        low, high = 1, nodes
        while low <= high:
            middle = (low + high) // 2
            caps = {till: max(least[till], spent.get(till, 0.0) * middle / nodes) for till in tills}
            one = answer({**shut, **caps})
            if overflow_nodes(*one) > most and money_lasts(context, *one):
                best, most, low = one, overflow_nodes(*one), middle + 1
            else:
                high = middle - 1
        if most:
            break
    return best


def _read(items: Sequence[QueueItem], statement: Statement, solution: Solution) -> Packing:
    """Take the rooms and open the openings as the solution says, and sort its answers by item."""
    room_of: dict[str, CandidateNode] = {}  # by pod
    asks = statement.problem.asks
    for place, there in solution.existing.items():
        for ask in there:
            room_of[asks[ask].id] = statement.nodes[place]
    for node in solution.opened:
        option, end = statement.launch_options[id(node.flavour)]
        option.open()
        candidate = _new_room(option, end)
        for ask in node.asks:
            room_of[asks[ask].id] = candidate
    packing = Packing()
    for item in items:
        if item.pods[0].uid not in room_of:  # a gang has all its rooms or none
            packing.unplaced.append(item)
            continue
        rooms = [room_of[pod.uid] for pod in item.pods]
        for pod, candidate in zip(item.pods, rooms, strict=True):
            candidate.take(pod.shape.requests)
        packing.placements.append(Placement(item, rooms))
    return packing


def _new_room(option: LaunchOption, end: End) -> CandidateNode:
    group = CandidateGroup(
        Stage.NEW, option.template, option.source, option.zone, option.labels, option.template.taints, end,
        option.order,
    )  # fmt: skip
    return CandidateNode(group, f"new {option.kind.name}", option.free, option=option)
