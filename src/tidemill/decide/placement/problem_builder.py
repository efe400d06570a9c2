"""The engine's world as a packing problem.

Candidate nodes become existing nodes, launch options become node options, queued pods become pending pods. Everything
that Kubernetes does not know (end times, money, pins, capacity holds) is decided here and stated as groups of nodes
that a pod refuses, so that the packer need not know it. Capacity that is held from some instant on is stated as a
resource of its own: a pod that would still run at that instant requests it too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_cache import existing_pods_of
from tidemill.decide.packer.problem import ExistingNode, ExistingPods, NodeOption, PendingPod, Problem
from tidemill.decide.placement.backfill import CapacityHold, capacity_holds
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.eligibility import barred, pool_refusal, rests_for_gangs, worth_launching
from tidemill.decide.placement.feasibility_filter import FeasibilityFilter
from tidemill.decide.placement.launch_options import (
    CostKey,
    HourlyCap,
    LaunchOption,
    end_of_option,
    money_allows,
)
from tidemill.decide.placement.queue import Queue
from tidemill.decide.placement.queue import levels as levels_of
from tidemill.decide.queue_item import POD_START, Lane, QueueItem, expected_run, lasts, useful_until
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Gang, Pod, PodShape
from tidemill.spec import names

_LATE = 1 << 40  # the rank of what has no end: it is kept free for pods that need it
_MICRO = 1_000_000  # budgets are integers: money in millionths of a dollar an hour


@dataclass(slots=True)
class BuiltProblem:
    """A problem, and what its parts are in the engine's world."""

    problem: Problem
    nodes: list[CandidateNode]  # by index of the existing node
    launch_options: dict[int, tuple[LaunchOption, End]]  # by id of the node option
    waiting: list[tuple[QueueItem, Pod]]  # by index of the pending pod


def build_problem(
    context: DecisionContext,
    queue: Queue,
    candidates: Candidates,
    added_usd_h: Mapping[CostKey, float],
    *,
    capped: bool = False,
) -> BuiltProblem:
    """`added_usd_h`: what new overflow nodes are assumed to cost an hour (money ends sooner then), by pool and kind;
    `capped`: and may cost at most, all of them together counted against the platform's budget."""
    builder = ProblemBuilder(context, candidates, capacity_holds(candidates), added_usd_h, capped)
    options, launch_options = builder.node_options()
    stocks = {
        launch.source.id: int(launch.stock.left) for launch, _ in launch_options.values() if launch.source.id
    }
    budgets = {name: _limits(candidates, name, added_usd_h if capped else {}) for name in context.templates}
    return builder.build(queue, options, launch_options, stocks, budgets)


def build_without_launches(context: DecisionContext, queue: Queue, candidates: Candidates) -> BuiltProblem:
    """The same problem on existing nodes only: launch options need not even be looked for."""
    return ProblemBuilder(context, candidates, capacity_holds(candidates), {}, False).build(queue)


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


@dataclass(slots=True)
class ProblemBuilder:
    """States one decision's objects as parts of a problem. Equal objects are worked out once."""

    context: DecisionContext
    candidates: Candidates
    holds: list[CapacityHold]
    added_usd_h: Mapping[CostKey, float]
    capped: bool
    groups: list[CandidateGroup] = field(init=False)
    _names: dict[int, str] = field(default_factory=dict)
    _launch_groups: dict[tuple[object, ...], tuple[str, LaunchOption, End]] = field(default_factory=dict)
    _refused: dict[tuple[object, ...], frozenset[str]] = field(default_factory=dict)
    _filters: dict[tuple[frozenset[str], tuple[int, ...]], FeasibilityFilter] = field(default_factory=dict)
    _stays: dict[tuple[object, ...], list[timedelta]] = field(default_factory=dict)
    _sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    _shapes: dict[tuple[int, tuple[int, ...]], PodShape] = field(default_factory=dict)
    _held_resources: tuple[str, ...] = ()
    _accepted_duration: timedelta = timedelta.max  # the longest that every pool accepts as it is

    def __post_init__(self) -> None:
        self.groups = [*self.candidates.ordered(), *self.candidates.returning]
        self._names = {id(group): f"g{number}" for number, group in enumerate(self.groups)}
        held = {name for group in self.groups for node in group.nodes for name in node.claimed}
        self._held_resources = tuple(sorted(held))
        longest = (template.pool.spec.max_expected_duration for template in self.context.templates.values())
        self._accepted_duration = min(longest, default=timedelta.max)

    def build(
        self,
        queue: Queue,
        options: Sequence[NodeOption] = (),
        launch_options: dict[int, tuple[LaunchOption, End]] | None = None,
        stocks: Mapping[str, int] | None = None,
        budgets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> BuiltProblem:
        pods, waiting = self._pending_pods(queue, options)
        candidates = [node for group in self.groups for node in group.nodes] if pods else []
        candidates.sort(key=lambda node: (node.group.rank, node.name))  # not in the order they were listed
        nodes = [self._existing_node(candidate) for candidate in candidates]
        if self.candidates.between_pods:
            nodes += self._closed_nodes(candidates)
        problem = Problem(
            tuple(pods), tuple(nodes), tuple(options), stocks=stocks or {}, budgets=budgets or {}
        )
        return BuiltProblem(problem, candidates, launch_options or {}, waiting)

    # --- existing nodes ---

    def _existing_node(self, candidate: CandidateNode) -> ExistingNode:
        group = candidate.group
        view = candidate.view
        ends = int(group.end.deadline.timestamp()) if group.end.deadline is not None else _LATE
        host = view.facts.labels.get(names.LABEL_HOSTNAME) if view is not None else None
        return ExistingNode(
            host or candidate.name,
            group.labels,
            self._free_with_holds(candidate) if self.holds else candidate.free,
            group.taints,
            existing_pods=self._existing_pods(candidate) if self.candidates.between_pods else (),
            rank=(int(group.stage), *group.order, ends, int(group.returning)),
            group=self._names[id(group)],
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
            for name in self._held_resources:
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
            known = self._launch_groups[key] = (f"o{len(self._launch_groups)}", launch, end)
        return known[0], known[2]

    def _capacity_with_holds(self, free: Mapping[str, int]) -> Mapping[str, int]:
        """No new node has a hold."""
        if not self.holds:
            return free
        extra = {
            f"{name}@{number}": free.get(name, 0)
            for number in range(len(self.holds))
            for name in self._held_resources
        }
        return {**free, **extra}

    # --- pending pods ---

    def _pending_pods(
        self, queue: Queue, options: Sequence[NodeOption]
    ) -> tuple[list[PendingPod], list[tuple[QueueItem, Pod]]]:
        """Without the pods that no node could hold."""
        items = [
            item for lane in queue.lanes.values() if self._could_fit(lane, options) for item in lane.items
        ]
        items.sort(key=attrgetter("turn"))
        levels = levels_of(self.context, items)
        pods: list[PendingPod] = []
        waiting: list[tuple[QueueItem, Pod]] = []
        for number, item in enumerate(items):
            refuses = self._refuses(item)
            holds = self._holds_for(item) if self.holds else ()
            if not self._filter(refuses, holds, options).may_fit(item):
                continue
            gang = Gang(f"{number}", len(item.pods)) if len(item.pods) > 1 else None
            for pod, own in zip(item.pods, item.shapes, strict=True):
                shape = self._shape_with_holds(own, holds) if holds else own
                since = pod.created_at.timestamp()
                pods.append(PendingPod(pod.uid, shape, pod.namespace, levels[number], since, gang, refuses))
                waiting.append((item, pod))
        return pods, waiting

    def _could_fit(self, lane: Lane, options: Sequence[NodeOption]) -> bool:
        """Whether any of its items may fit: what the shortest refuses all refuse, and no hold is in the way of one
        that would not be in the way of the first to be done, were it the first in the queue."""
        shortest = lane.shortest
        holds: tuple[int, ...] = ()
        if self.holds:
            holds = self._holds_for(shortest, lane.items[0].turn, lane.first_done)
        return self._filter(self._refuses(shortest), holds, options).could_fit(shortest)

    def _filter(
        self, refuses: frozenset[str], holds: tuple[int, ...], options: Sequence[NodeOption]
    ) -> FeasibilityFilter:
        known = self._filters.get((refuses, holds))
        if known is None:
            groups = [group for group in self.groups if self._names[id(group)] not in refuses]
            allowed = [option for option in options if option.group not in refuses]
            kept = [self.holds[hold] for hold in holds]
            known = self._filters[refuses, holds] = FeasibilityFilter(groups, allowed, kept)
        return known

    def _refuses(self, item: QueueItem) -> frozenset[str]:
        """Items that differ only in how long they run refuse the same, up to the next end they would reach."""
        key: tuple[object, ...] = item.standing
        expected = item.terms.expected
        if expected is not None and expected <= self._accepted_duration:
            stays = self._stays.get(key)
            if stays is None:
                stays = self._stays[key] = self._longest_stays(item)
            key = (key, bisect_left(stays, item.need))
        else:  # each pool decides how long it is assumed to run
            key = (key, id(item.terms))
        known = self._refused.get(key)
        if known is None:
            known = frozenset(self._refused_groups(item))
            known = self._refused[key] = self._sets.setdefault(known, known)
        return known

    def _refused_groups(self, item: QueueItem) -> Iterator[str]:
        context = self.context
        for group in self.groups:
            if barred(context, item, group):
                yield self._names[id(group)]
        for name, launch, end in self._launch_groups.values():
            late = not lasts(item, end, launch.pool, context.now + BOOT)
            opted_out = launch.overflow and not item.terms.overflow
            rests = rests_for_gangs(context, item, launch)
            if late or opted_out or rests or pool_refusal(item, launch) is not None:
                yield name

    def _longest_stays(self, item: QueueItem) -> list[timedelta]:
        """How long such an item could stay in each group that ends, in order."""
        now = self.context.now
        ends = [
            (group.end, group.template.pool, now if group.stage is Stage.READY else now + BOOT)
            for group in self.groups
            if group.template is not None
        ]
        ends += [(end, launch.pool, now + BOOT) for _, launch, end in self._launch_groups.values()]
        stays = {
            until - start for end, pool, start in ends if (until := useful_until(item, end, pool)) is not None
        }
        return sorted(stays)

    def _holds_for(
        self, item: QueueItem, turn: tuple[object, ...] = (), at_least: timedelta = timedelta.max
    ) -> tuple[int, ...]:
        """The holds that an item must leave room for: those that begin before it is done. Or, for all items of its
        lane: of the first `turn`, and if one ran no longer than `at_least`, its load included."""
        if not item.gated:
            return ()
        numbers = []
        for number, hold in enumerate(self.holds):
            if hold.beyond is not None and (turn or item.turn) <= hold.beyond.turn:
                continue
            template = hold.group.template
            run = expected_run(item.terms, template.pool if template is not None else None)
            if run is None:
                numbers.append(number)
                continue
            if self.context.now + POD_START + min(at_least, item.terms.load + run) > hold.since:
                numbers.append(number)
        return tuple(numbers)

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
                for name in self._held_resources
                if name in requests
            ]
            known = self._shapes[key] = replace(shape, requests=(*shape.requests, *extra))
        return known
