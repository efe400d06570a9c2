"""The engine's world as a packing problem.

Candidate nodes become existing nodes, launch options become node options, queued pods become pending pods. Everything
that Kubernetes does not know (end times, money, pins, capacity holds) is decided here and stated as groups of nodes
that a pod refuses, so that the packer need not know it. Capacity that is held from some instant on is stated as a
resource of its own: a pod that would still run at that instant requests it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_cache import existing_pods_of
from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NodeOption, PendingPod, Problem
from tidemill.decide.placement.backfill import CapacityHold
from tidemill.decide.placement.candidate_nodes import CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.eligibility import worth_launching
from tidemill.decide.placement.feasibility_filter import CandidateRoom
from tidemill.decide.placement.launch_options import (
    CostKey,
    HourlyCap,
    LaunchOption,
    end_of_option,
    money_allows,
)
from tidemill.decide.placement.queue import Queue
from tidemill.decide.placement.queue import levels as levels_of
from tidemill.decide.placement.queue_filter import LaunchGroup, QueueFilter
from tidemill.decide.queue_item import QueueItem
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Gang, Pod, PodShape
from tidemill.spec import names

_LATE = 1 << 40  # the rank of what has no end: it is kept free for pods that need it
_NONE: Mapping[int, int] = {}
_MICRO = 1_000_000  # budgets are integers: money in millionths of a dollar an hour


@dataclass(slots=True)
class BuiltProblem:
    """A problem, and what its parts are in the engine's world."""

    problem: Problem
    nodes: list[CandidateNode]  # by index of the existing node
    launch_options: dict[int, tuple[LaunchOption, End]]  # by id of the node option
    waiting: list[tuple[QueueItem, Pod]]  # by index of the pending pod
    nodes_left_out: bool = False  # because others are like them


def build_problem(
    context: DecisionContext,
    queue: Queue,
    candidates: Candidates,
    room: CandidateRoom,
    added_usd_h: Mapping[CostKey, float],
    *,
    capped: bool = False,
    without_launches: BuiltProblem | None = None,
) -> BuiltProblem:
    """`added_usd_h`: what new overflow nodes are assumed to cost an hour (money ends sooner then), by pool and kind;
    `capped`: and may cost at most, all of them together counted against the platform's budget;
    `without_launches`: the answer if it turns out that nothing can be launched."""
    builder = ProblemBuilder(context, candidates, room, added_usd_h, capped)
    options, launch_options = builder.node_options()
    stocks = {
        launch.source.id: int(launch.stock.left) for launch, _ in launch_options.values() if launch.source.id
    }
    if without_launches is not None and not builder.has_launch_groups:
        return builder.with_all_nodes(without_launches)
    budgets = {name: _limits(candidates, name, added_usd_h if capped else {}) for name in context.templates}
    return builder.build(queue, options, launch_options, stocks, budgets)


def build_without_launches(
    context: DecisionContext, queue: Queue, candidates: Candidates, room: CandidateRoom
) -> BuiltProblem:
    """The same problem on existing nodes only: launch options need not even be looked for. Of nodes that are alike it
    has as many as `place_on_existing` can use."""
    builder = ProblemBuilder(context, candidates, room, {}, False)
    return builder.build(queue, alone=len(queue.items) == 1, few_alike=not candidates.between_pods)


def with_all_nodes(
    context: DecisionContext, candidates: Candidates, room: CandidateRoom, built: BuiltProblem
) -> BuiltProblem:
    """The same problem without launches, with all the nodes that are alike."""
    return ProblemBuilder(context, candidates, room, {}, False).with_all_nodes(built)


def _limits(candidates: Candidates, pool: str, caps: Mapping[CostKey, float]) -> dict[str, int]:
    allowance = candidates.allowances[pool]
    left = {
        names.CPU: allowance.cpu_milli, names.MEMORY: allowance.memory_bytes, "gpus": allowance.gpus,
        "nodes": allowance.nodes,
    }  # fmt: skip
    limits = {name: int(amount) for name, amount in left.items() if amount != float("inf")}
    hourly_caps = {
        id(launch.hourly_cap): launch.hourly_cap
        for launch in candidates.launch_options
        if launch.hourly_cap is not None and launch.pool.name == pool
    }
    for hourly_cap in hourly_caps.values():
        left_usd = hourly_cap.hourly_left_usd - hourly_cap.added_usd_h
        limits[_money(hourly_cap)] = round(
            min(left_usd, caps.get((pool, hourly_cap.kind), left_usd)) * _MICRO
        )
    for launch in candidates.launch_options:
        if launch.trial is not None and launch.pool.name == pool:
            limits[_trial(launch)] = int(launch.trial.left)
    return limits


def _trial(launch: LaunchOption) -> str:
    return f"trial-{launch.kind.name}"


def _money(hourly_cap: HourlyCap) -> str:
    return f"usd-{hourly_cap.kind.value}"


def _enough_of_each(
    candidates: list[CandidateNode], pods: int
) -> tuple[list[CandidateNode], Mapping[int, int]]:
    """Nodes of one group on which the same is free are alike, and `place_on_existing` uses the first of them: at most
    as many as there are pods. One more is kept, so that there is still room where there was. And how many like it are
    left out, by identity of the first of them."""
    most = pods + 1
    if len(candidates) <= most:
        return candidates, _NONE
    found: list[CandidateNode] = []
    alike: dict[tuple[int, tuple[tuple[str, int], ...]], list[CandidateNode]] = {}
    for candidate in candidates:
        view = candidate.view
        if view is None or candidate.free is not view.facts.free or candidate.claimed_from is not None:
            found.append(candidate)
            continue
        equals = alike.setdefault((id(candidate.group), view.facts.free_vector), [])
        equals.append(candidate)
        if len(equals) <= most:
            found.append(candidate)
    return found, {id(equals[0]): len(equals) - most for equals in alike.values() if len(equals) > most}


@dataclass(slots=True)
class ProblemBuilder:
    """States one decision's objects as parts of a problem. Equal objects are worked out once."""

    context: DecisionContext
    candidates: Candidates
    room: CandidateRoom
    added_usd_h: Mapping[CostKey, float]
    capped: bool
    groups: list[CandidateGroup] = field(init=False)
    holds: list[CapacityHold] = field(init=False)
    _names: dict[int, str] = field(init=False)
    _launch_groups: dict[tuple[object, ...], LaunchGroup] = field(default_factory=dict)
    _shapes: dict[tuple[int, tuple[int, ...]], PodShape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups, self.holds, self._names = self.room.groups, self.room.holds, self.room.names

    @property
    def has_launch_groups(self) -> bool:
        return bool(self._launch_groups)

    def build(
        self,
        queue: Queue,
        options: Sequence[NodeOption] = (),
        launch_options: dict[int, tuple[LaunchOption, End]] | None = None,
        stocks: Mapping[str, int] | None = None,
        budgets: Mapping[str, Mapping[str, int]] | None = None,
        *,
        alone: bool = False,
        few_alike: bool = False,
    ) -> BuiltProblem:
        """`alone`: the queue has a single item. Whether it could fit is what the packer says as quickly. `few_alike`:
        of nodes that are alike only as many as the pods could use."""
        pods, waiting = self._pending_pods(queue, options, alone=alone)
        listed = self._in_order() if pods else []
        candidates, left_out = _enough_of_each(listed, len(pods)) if few_alike else (listed, {})
        nodes = self._existing_nodes(candidates, left_out)
        if self.candidates.between_pods:
            nodes += self._closed_nodes(candidates)
        problem = Problem(
            tuple(pods), tuple(nodes), tuple(options), stocks=stocks or {}, budgets=budgets or {},
            pod_budgets=self.context.namespace_caps.budgets if any(pod.consumes for pod in pods) else {},
        )  # fmt: skip
        return BuiltProblem(problem, candidates, launch_options or {}, waiting, bool(left_out))

    def with_all_nodes(self, built: BuiltProblem) -> BuiltProblem:
        if not built.nodes_left_out:
            return built
        candidates = self._in_order()
        problem = replace(built.problem, nodes=tuple(self._existing_nodes(candidates)))
        return BuiltProblem(problem, candidates, built.launch_options, built.waiting)

    # --- existing nodes ---

    def _in_order(self) -> list[CandidateNode]:
        """By rank and name, not in the order they were listed."""
        by_rank: dict[tuple[object, ...], list[CandidateNode]] = {}
        for group in self.groups:
            by_rank.setdefault(group.rank, []).extend(group.nodes)
        return [node for rank in sorted(by_rank) for node in sorted(by_rank[rank], key=attrgetter("name"))]

    def _existing_nodes(
        self, candidates: Sequence[CandidateNode], left_out: Mapping[int, int] = _NONE
    ) -> list[ExistingNode]:
        ranks = {id(group): self._rank(group) for group in self.groups} if candidates else {}
        return [
            self._existing_node(candidate, ranks[id(candidate.group)], left_out.get(id(candidate), 0))
            for candidate in candidates
        ]

    def _rank(self, group: CandidateGroup) -> tuple[int, ...]:
        ends = int(group.end.deadline.timestamp()) if group.end.deadline is not None else _LATE
        return (int(group.stage), *group.order, ends, int(group.returning))

    def _existing_node(self, candidate: CandidateNode, rank: tuple[int, ...], left_out: int) -> ExistingNode:
        group = candidate.group
        view = candidate.view
        host = view.facts.labels.get(names.LABEL_HOSTNAME) if view is not None else None
        return ExistingNode(
            host or candidate.name,
            group.labels,
            self._free_with_holds(candidate) if self.holds else candidate.free,
            group.taints,
            existing_pods=self._existing_pods(candidate) if self.candidates.between_pods else (),
            rank=rank,
            group=self._names[id(group)],
            left_out=left_out,
        )

    def _existing_pods(self, candidate: CandidateNode) -> tuple[ExistingPods, ...]:
        if candidate.view is not None:
            return candidate.view.facts.existing_pods
        return existing_pods_of(self.context.world.pods_by_node.get(candidate.name, ()))

    def _free_with_holds(self, candidate: CandidateNode) -> dict[str, int]:
        """For each hold, what is free beside it is a resource of its own."""
        free = dict(candidate.free)
        for number, hold in enumerate(self.holds):
            claimed = candidate.claimed_from == hold.since and candidate.claimed_by is hold.beyond
            for name in self.room.held_resources:
                free[f"{name}@{number}"] = free.get(name, 0) - (
                    candidate.claimed.get(name, 0) if claimed else 0
                )
        return free

    def _closed_nodes(self, candidates: Iterable[CandidateNode]) -> list[ExistingNode]:
        """Nodes on which no pod can start: the pods there still count for rules between pods."""
        listed = self.candidates.gone | {id(node.view) for node in candidates if node.view is not None}
        return [
            ExistingNode(view.node.name, view.facts.labels, {}, existing_pods=view.facts.existing_pods)
            for view in self.context.views
            if id(view) not in listed and view.facts.bound
        ]

    # --- node options ---

    def node_options(self) -> tuple[list[NodeOption], dict[int, tuple[LaunchOption, End]]]:
        """What could be launched now, limits and stocks aside."""
        options: list[NodeOption] = []
        launch_options: dict[int, tuple[LaunchOption, End]] = {}
        for launch in self.candidates.launch_options:
            if launch.left < 1 or launch.rests(self.context.now) or not money_allows(self.context, launch):
                continue
            name, end = self._launch_group(launch)
            if not worth_launching(self.context, end):
                continue
            prepaid = launch.source.kind in PREPAID
            ends = int(end.deadline.timestamp()) if end.deadline is not None else _LATE
            kind = launch.kind
            consumes = {
                names.CPU: kind.vcpus * 1000, names.MEMORY: kind.memory_mib * 2**20, "gpus": kind.gpus, "nodes": 1,
            }  # fmt: skip
            if launch.hourly_cap is not None:
                consumes[_money(launch.hourly_cap)] = round(launch.usd_h * _MICRO)
            if launch.trial is not None:
                consumes[_trial(launch)] = 1
            option = NodeOption(
                kind.name, launch.labels, self._capacity_with_holds(launch.free), launch.usd_h,
                launch.template.taints, stock=launch.source.id, budget=launch.pool.name, consumes=consumes,
                rank=(int(Stage.NEW), *launch.order, ends if prepaid else 0, 0), group=name,
            )  # fmt: skip
            options.append(option)
            launch_options[id(option)] = (launch, end)
        return options, launch_options

    def _launch_group(self, launch: LaunchOption) -> tuple[str, End]:
        """Launch options of one pool, source and hourly cap end together: they are one group."""
        key = (launch.pool.name, launch.source, id(launch.hourly_cap))
        known = self._launch_groups.get(key)
        if known is None:
            added = self.added_usd_h.get(launch.till, 0.0)
            total = sum(self.added_usd_h.values()) if self.capped else None
            end = end_of_option(self.context, launch, added, total)
            known = self._launch_groups[key] = LaunchGroup(f"o{len(self._launch_groups)}", launch, end)
        return known.name, known.end

    def _capacity_with_holds(self, free: Mapping[str, int]) -> Mapping[str, int]:
        """No new node has a hold."""
        if not self.holds:
            return free
        extra = {
            f"{name}@{number}": free.get(name, 0)
            for number in range(len(self.holds))
            for name in self.room.held_resources
        }
        return {**free, **extra}

    # --- pending pods ---

    def _pending_pods(
        self, queue: Queue, options: Sequence[NodeOption], *, alone: bool
    ) -> tuple[list[PendingPod], list[tuple[QueueItem, Pod]]]:
        """Without the pods that no node could hold."""
        asking = QueueFilter(self.context, self.room, list(self._launch_groups.values()), options)
        items = queue.items if alone else asking.that_may_fit(queue)
        levels, caps = levels_of(self.context, items), self.context.namespace_caps
        pods: list[PendingPod] = []
        waiting: list[tuple[QueueItem, Pod]] = []
        for number, item in enumerate(items):
            refuses, holds = asking.refuses(item), asking.holds_for(item)
            gang = Gang(f"{number}", len(item.pods)) if len(item.pods) > 1 else None
            for pod, own in zip(item.pods, item.shapes, strict=True):
                shape = self._shape_with_holds(own, holds) if holds else own
                since = pod.created_at.timestamp()
                consumes = caps.consumes(pod) if caps and not item.pinned_to else ()
                pods.append(
                    PendingPod(pod.uid, shape, pod.namespace, levels[number], since, gang, refuses, consumes)
                )
                waiting.append((item, pod))
        return pods, waiting

    def _shape_with_holds(self, shape: PodShape, holds: tuple[int, ...]) -> PodShape:
        """It also requests the resources that stand for these holds."""
        key = (id(shape), holds)
        known = self._shapes.get(key)
        if known is None:
            requests = dict(shape.requests)
            requests[names.PODS] = 1
            extra = [
                (f"{name}@{number}", requests[name])
                for number in holds
                for name in self.room.held_resources
                if name in requests
            ]
            known = self._shapes[key] = replace(shape, requests=(*shape.requests, *extra))
        return known
