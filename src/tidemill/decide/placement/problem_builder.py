"""The engine's world as a packing problem, and back: rooms are places, openings are flavours, pods are asks.

Everything that is ours and not Kubernetes' (time, money, pins, promises) is worked out here and stated as groups an
ask may not use, so that the solver need not know it. Room that is promised from some instant on is stated as a
resource of its own: whoever would still be there at that instant asks for it too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_cache import residents_of
from tidemill.decide.packer.problem import Ask, Flavour, Place, Problem, Resident
from tidemill.decide.placement.candidates import BOOT, CandidateGroup, CandidateNode, Candidates, Stage
from tidemill.decide.placement.capacity_holds import CapacityHold, capacity_holds
from tidemill.decide.placement.eligibility import barred, pool_refusal, worth_launching
from tidemill.decide.placement.feasibility_filter import FeasibilityFilter
from tidemill.decide.placement.launch_options import (
    CostKey,
    HourlyCap,
    LaunchOption,
    end_of_option,
    money_allows,
)
from tidemill.decide.placement.queue import levels as levels_of
from tidemill.decide.queue_item import POD_START, QueueItem, expected_run, lasts, useful_until
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Gang, Pod, PodShape
from tidemill.spec import names

_LATE = 1 << 40  # the rank of what has no end: it is kept free for what needs it
_MICRO = 1_000_000  # budgets are whole numbers: money in millionths of a dollar an hour


@dataclass(slots=True)
class Statement:
    problem: Problem
    nodes: list[CandidateNode]  # by place
    launch_options: dict[int, tuple[LaunchOption, End]]  # by identity of the flavour
    waiting: list[tuple[QueueItem, Pod]]  # by ask


def state(
    context: DecisionContext,
    items: Sequence[QueueItem],
    candidates: Candidates,
    added_usd_h: Mapping[CostKey, float],
    *,
    capped: bool = False,
) -> Statement:
    """`added_usd_h`: what new overflow nodes are assumed to cost an hour (money ends sooner then), by pool and kind;
    `capped`: and may cost at most, all of them together counted against the platform's budget."""
    words = _Words(context, candidates, capacity_holds(candidates), added_usd_h, capped)
    flavours, options = words.flavours()
    stocks = {option.source.id: int(option.left) for option, _ in options.values() if option.source.id}
    budgets = {name: _limits(candidates, name, added_usd_h if capped else {}) for name in context.templates}
    return _state(words, items, flavours, options, stocks, budgets)


def state_what_is_there(
    context: DecisionContext, items: Sequence[QueueItem], candidates: Candidates
) -> Statement:
    """The same question with nothing to open: what could be launched need not even be looked for."""
    return _state(_Words(context, candidates, capacity_holds(candidates), {}, False), items, [], {}, {}, {})


def _state(
    words: _Words,
    items: Sequence[QueueItem],
    flavours: list[Flavour],
    options: dict[int, tuple[LaunchOption, End]],
    stocks: Mapping[str, int],
    budgets: Mapping[str, Mapping[str, int]],
) -> Statement:
    context, found = words.context, words.found
    asks, waiting = words.asks(items, flavours)
    rooms = [candidate for group in words.groups for candidate in group.nodes] if asks else []
    rooms.sort(
        key=lambda candidate: (candidate.group.rank, candidate.name)
    )  # whoever listed them, in whatever order
    places = [words.place(candidate) for candidate in rooms]
    if found.between_pods:
        places += _closed(context, rooms, found)
    problem = Problem(tuple(asks), tuple(places), tuple(flavours), stocks=stocks, budgets=budgets)
    return Statement(problem, rooms, options, waiting)


def _closed(context: DecisionContext, rooms: Iterable[CandidateNode], candidates: Candidates) -> list[Place]:
    """Nodes nothing can start on: their pods still count for rules between pods."""
    listed = candidates.gone | {id(candidate.view) for candidate in rooms if candidate.view is not None}
    return [
        Place(view.node.name, view.facts.labels, {}, residents=view.facts.residents)
        for view in context.views
        if id(view) not in listed and view.facts.bound
    ]


def _limits(candidates: Candidates, pool: str, caps: Mapping[CostKey, float]) -> dict[str, int]:
    allowance = candidates.allowances[pool]
    left = {
        names.CPU: allowance.cpu_milli, names.MEMORY: allowance.memory_bytes, "gpus": allowance.gpus,
        "nodes": allowance.nodes,
    }  # fmt: skip
    limits = {name: int(amount) for name, amount in left.items() if amount != float("inf")}
    purses = {
        id(o.hourly_cap): o.hourly_cap
        for o in candidates.launch_options
        if o.hourly_cap is not None and o.pool.name == pool
    }
    for hourly_cap in purses.values():
        left_usd = hourly_cap.hourly_left_usd - hourly_cap.added_usd_h
        limits[_money(hourly_cap)] = round(
            min(left_usd, caps.get((pool, hourly_cap.kind), left_usd)) * _MICRO
        )
    return limits


def _money(hourly_cap: HourlyCap) -> str:
    return f"usd-{hourly_cap.kind.value}"


@dataclass(slots=True)
class _Words:
    """How one decision's objects are said in the problem's words; what is alike is said once."""

    context: DecisionContext
    found: Candidates
    holds: list[CapacityHold]
    added_usd_h: Mapping[CostKey, float]
    capped: bool
    groups: list[CandidateGroup] = field(init=False)
    _names: dict[int, str] = field(default_factory=dict)
    _opening_groups: dict[tuple[object, ...], tuple[str, LaunchOption, End]] = field(default_factory=dict)
    _refused: dict[tuple[object, ...], frozenset[str]] = field(default_factory=dict)
    _until: dict[tuple[object, ...], list[timedelta]] = field(default_factory=dict)
    _sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    _shapes: dict[tuple[int, tuple[int, ...]], PodShape] = field(default_factory=dict)
    _promised: tuple[str, ...] = ()  # resources that are promised at all
    _believed: timedelta = timedelta.max  # the longest word that every pool takes as it is

    def __post_init__(self) -> None:
        self.groups = [*self.found.ordered(), *self.found.returning]
        self._names = {id(group): f"g{number}" for number, group in enumerate(self.groups)}
        promised = {name for group in self.groups for candidate in group.nodes for name in candidate.claimed}
        self._promised = tuple(sorted(promised))
        caps = (template.pool.spec.max_expected_duration for template in self.context.templates.values())
        self._believed = min(caps, default=timedelta.max)

    # --- places ---

    def place(self, candidate: CandidateNode) -> Place:
        group = candidate.group
        view = candidate.view
        ends = int(group.end.deadline.timestamp()) if group.end.deadline is not None else _LATE
        host = view.facts.labels.get(names.LABEL_HOSTNAME) if view is not None else None
        return Place(
            host or candidate.name,
            group.labels,
            self._with_promises(candidate) if self.holds else candidate.free,
            group.taints,
            residents=self._residents(candidate) if self.found.between_pods else (),
            rank=(int(group.stage), *group.order, ends, int(group.returning)),
            group=self._names[id(group)],
        )

    def _residents(self, candidate: CandidateNode) -> tuple[Resident, ...]:
        if candidate.view is not None:
            return candidate.view.facts.residents
        return residents_of(self.context.world.pods_by_node.get(candidate.name, ()))

    def _with_promises(self, candidate: CandidateNode) -> dict[str, int]:
        free = dict(candidate.free)
        for number, promise in enumerate(self.holds):
            given = candidate.claimed_from == promise.since and candidate.claimed_by is promise.beyond
            for name in self._promised:
                free[f"{name}@{number}"] = free.get(name, 0) - (
                    candidate.claimed.get(name, 0) if given else 0
                )
        return free

    # --- flavours ---

    def flavours(self) -> tuple[list[Flavour], dict[int, tuple[LaunchOption, End]]]:
        """What could be launched now, limits and stocks aside."""
        flavours: list[Flavour] = []
        options: dict[int, tuple[LaunchOption, End]] = {}
        for option in self.found.launch_options:
            if option.left < 1 or option.rests(self.context.now) or not money_allows(self.context, option):
                continue
            name, end = self._opening_group(option)
            if not worth_launching(self.context, end):
                continue
            prepaid = option.source.kind in PREPAID
            ends = int(end.deadline.timestamp()) if end.deadline is not None else _LATE
            kind = option.kind
            consumes = {
                names.CPU: kind.vcpus * 1000, names.MEMORY: kind.memory_mib * 2**20, "gpus": kind.gpus, "nodes": 1,
            }  # fmt: skip
            if option.hourly_cap is not None:
                consumes[_money(option.hourly_cap)] = round(option.usd_h * _MICRO)
            flavour = Flavour(
                kind.name, option.labels, self._unpromised(option.free), option.usd_h, option.template.taints,
                stock=option.source.id, budget=option.pool.name, consumes=consumes,
                rank=(int(Stage.NEW), *option.order, ends if prepaid else 0, 0), group=name,
            )  # fmt: skip
            flavours.append(flavour)
            options[id(flavour)] = (option, end)
        return flavours, options

    def _opening_group(self, option: LaunchOption) -> tuple[str, End]:
        """Openings of one pool and source end together; money ends for all of a purse at once."""
        added = self.added_usd_h.get(option.till, 0.0)
        total = sum(self.added_usd_h.values()) if self.capped else None
        key = (option.pool.name, option.source, id(option.hourly_cap))
        known = self._opening_groups.get(key)
        if known is None:
            end = end_of_option(self.context, option, added, total)
            known = self._opening_groups[key] = (f"o{len(self._opening_groups)}", option, end)
        return known[0], known[2]

    def _unpromised(self, free: Mapping[str, int]) -> Mapping[str, int]:
        if not self.holds:
            return free
        extra = {
            f"{name}@{number}": free.get(name, 0)
            for number in range(len(self.holds))
            for name in self._promised
        }
        return {**free, **extra}

    # --- asks ---

    def asks(
        self, items: Sequence[QueueItem], flavours: Sequence[Flavour]
    ) -> tuple[list[Ask], list[tuple[QueueItem, Pod]]]:
        """Of those who have a chance at all."""
        levels = levels_of(self.context, items)
        asks: list[Ask] = []
        waiting: list[tuple[QueueItem, Pod]] = []
        chances: dict[tuple[frozenset[str], tuple[int, ...]], FeasibilityFilter] = {}
        for number, item in enumerate(items):
            refuses = self._refuses(item)
            promised = self._held_by(item) if self.holds else ()
            chance = chances.get((refuses, promised))
            if chance is None:
                open_to = [group for group in self.groups if self._names[id(group)] not in refuses]
                new = [flavour for flavour in flavours if flavour.group not in refuses]
                held = [self.holds[number] for number in promised]
                chance = chances[refuses, promised] = FeasibilityFilter(open_to, new, held)
            if not chance.has(item):
                continue
            gang = Gang(f"{number}", len(item.pods)) if len(item.pods) > 1 else None
            for pod in item.pods:
                shape = self._shape(pod.shape, promised) if promised else pod.shape
                since = pod.created_at.timestamp()
                asks.append(Ask(pod.uid, shape, pod.namespace, levels[number], since, gang, refuses=refuses))
                waiting.append((item, pod))
        return asks, waiting

    def _refuses(self, item: QueueItem) -> frozenset[str]:
        """Whoever differs only in how long it needs refuses the same, up to the next end it would run into."""
        key: tuple[object, ...] = item.standing
        expected = item.terms.expected
        if (
            expected is not None and expected <= self._believed
        ):  # else the pool says how long it is taken to run
            ends = self._until.get(key)
            if ends is None:
                ends = self._until[key] = self._longest_stays(item)
            key = (key, bisect_left(ends, item.need))
        else:
            key = (key, id(item.terms))
        known = self._refused.get(key)
        if known is None:
            known = frozenset(self._shut(item))
            known = self._refused[key] = self._sets.setdefault(known, known)
        return known

    def _shut(self, item: QueueItem) -> Iterator[str]:
        context = self.context
        for group in self.groups:
            if barred(context, item, group):
                yield self._names[id(group)]
        for name, option, end in self._opening_groups.values():
            late = not lasts(item, end, option.pool, context.now + BOOT)
            opted_out = option.hourly_cap is not None and not item.terms.overflow
            if late or opted_out or pool_refusal(item, option) is not None:
                yield name

    def _longest_stays(self, item: QueueItem) -> list[timedelta]:
        """How long an item of this standing could stay in each group and opening that ends, in order."""
        now = self.context.now
        ends = [
            (group.end, group.template.pool, now if group.stage is Stage.READY else now + BOOT)
            for group in self.groups
            if group.template is not None
        ]
        ends += [(end, option.pool, now + BOOT) for _, option, end in self._opening_groups.values()]
        stays = {
            until - start for end, pool, start in ends if (until := useful_until(item, end, pool)) is not None
        }
        return sorted(stays)

    def _held_by(self, item: QueueItem) -> tuple[int, ...]:
        """Promises it must leave room beside: those that fall due before it is done."""
        if not item.gated:
            return ()
        held = []
        for number, promise in enumerate(self.holds):
            if promise.beyond is not None and item.turn <= promise.beyond.turn:
                continue
            template = promise.group.template
            run = expected_run(item.terms, template.pool if template is not None else None)
            done = self.context.now + POD_START + item.terms.load + run if run is not None else None
            if done is None or done > promise.since:
                held.append(number)
        return tuple(held)

    def _shape(self, shape: PodShape, promised: tuple[int, ...]) -> PodShape:
        key = (id(shape), promised)
        known = self._shapes.get(key)
        if known is None:
            asked = dict(shape.requests)
            asked[names.PODS] = 1
            extra = [
                (f"{name}@{number}", asked[name])
                for number in promised
                for name in self._promised
                if name in asked
            ]
            known = self._shapes[key] = replace(shape, requests=(*shape.requests, *extra))
        return known
