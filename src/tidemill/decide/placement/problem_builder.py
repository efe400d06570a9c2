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

from tidemill.decide.context import DecisionContext, End
from tidemill.decide.node_cache import residents_of
from tidemill.decide.overflow import PREPAID
from tidemill.decide.packer.problem import Ask, Flavour, Place, Problem, Resident
from tidemill.decide.placement.candidates import BOOT, Group, Room, Rooms, Stage
from tidemill.decide.placement.capacity_holds import CapacityHold, promises
from tidemill.decide.placement.eligibility import barred, stranger_to, worth_launching
from tidemill.decide.placement.feasibility_filter import Chance
from tidemill.decide.placement.launch_options import (
    HourlyCap,
    LaunchOption,
    Till,
    end_of_opening,
    money_allows,
)
from tidemill.decide.placement.queue import POD_START, Item, expected_run, lasts, useful_until
from tidemill.decide.placement.queue_order import levels as levels_of
from tidemill.model.pods import Gang, Pod, PodShape
from tidemill.spec import names

_LATE = 1 << 40  # the rank of what has no end: it is kept free for what needs it
_MICRO = 1_000_000  # budgets are whole numbers: money in millionths of a dollar an hour


@dataclass(slots=True)
class Statement:
    problem: Problem
    rooms: list[Room]  # by place
    openings: dict[int, tuple[LaunchOption, End]]  # by identity of the flavour
    waiting: list[tuple[Item, Pod]]  # by ask


def state(
    context: DecisionContext,
    items: Sequence[Item],
    found: Rooms,
    added_usd_h: Mapping[Till, float],
    *,
    capped: bool = False,
) -> Statement:
    """`added_usd_h`: what new overflow nodes are assumed to cost an hour (money ends sooner then), by pool and kind;
    `capped`: and may cost at most, all of them together counted against the platform's budget."""
    words = _Words(context, found, promises(found), added_usd_h, capped)
    flavours, openings = words.flavours()
    stocks = {opening.source.id: int(opening.left) for opening, _ in openings.values() if opening.source.id}
    budgets = {name: _limits(found, name, added_usd_h if capped else {}) for name in context.templates}
    return _state(words, items, flavours, openings, stocks, budgets)


def state_what_is_there(context: DecisionContext, items: Sequence[Item], found: Rooms) -> Statement:
    """The same question with nothing to open: what could be launched need not even be looked for."""
    return _state(_Words(context, found, promises(found), {}, False), items, [], {}, {}, {})


def _state(
    words: _Words,
    items: Sequence[Item],
    flavours: list[Flavour],
    openings: dict[int, tuple[LaunchOption, End]],
    stocks: Mapping[str, int],
    budgets: Mapping[str, Mapping[str, int]],
) -> Statement:
    context, found = words.context, words.found
    asks, waiting = words.asks(items, flavours)
    rooms = [room for group in words.groups for room in group.rooms] if asks else []
    rooms.sort(key=lambda room: (room.group.rank, room.name))  # whoever listed them, in whatever order
    places = [words.place(room) for room in rooms]
    if found.between_pods:
        places += _closed(context, rooms, found)
    problem = Problem(tuple(asks), tuple(places), tuple(flavours), stocks=stocks, budgets=budgets)
    return Statement(problem, rooms, openings, waiting)


def _closed(context: DecisionContext, rooms: Iterable[Room], found: Rooms) -> list[Place]:
    """Nodes nothing can start on: their pods still count for rules between pods."""
    listed = found.gone | {id(room.view) for room in rooms if room.view is not None}
    return [
        Place(view.node.name, view.facts.labels, {}, residents=view.facts.residents)
        for view in context.views
        if id(view) not in listed and view.facts.bound
    ]


def _limits(found: Rooms, pool: str, caps: Mapping[Till, float]) -> dict[str, int]:
    allowance = found.allowances[pool]
    left = {
        names.CPU: allowance.cpu_milli, names.MEMORY: allowance.memory_bytes, "gpus": allowance.gpus,
        "nodes": allowance.nodes,
    }  # fmt: skip
    limits = {name: int(amount) for name, amount in left.items() if amount != float("inf")}
    purses = {id(o.purse): o.purse for o in found.openings if o.purse is not None and o.pool.name == pool}
    for purse in purses.values():
        left_usd = purse.hourly_left_usd - purse.added_usd_h
        limits[_money(purse)] = round(min(left_usd, caps.get((pool, purse.kind), left_usd)) * _MICRO)
    return limits


def _money(purse: HourlyCap) -> str:
    return f"usd-{purse.kind.value}"


@dataclass(slots=True)
class _Words:
    """How one decision's objects are said in the problem's words; what is alike is said once."""

    context: DecisionContext
    found: Rooms
    promises: list[CapacityHold]
    added_usd_h: Mapping[Till, float]
    capped: bool
    groups: list[Group] = field(init=False)
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
        promised = {name for group in self.groups for room in group.rooms for name in room.claimed}
        self._promised = tuple(sorted(promised))
        caps = (one.pool.spec.max_expected_duration for one in self.context.templates.values())
        self._believed = min(caps, default=timedelta.max)

    # --- places ---

    def place(self, room: Room) -> Place:
        group = room.group
        view = room.view
        ends = int(group.end.deadline.timestamp()) if group.end.deadline is not None else _LATE
        host = view.facts.labels.get(names.LABEL_HOSTNAME) if view is not None else None
        return Place(
            host or room.name,
            group.labels,
            self._with_promises(room) if self.promises else room.free,
            group.taints,
            residents=self._residents(room) if self.found.between_pods else (),
            rank=(int(group.stage), *group.order, ends, int(group.returning)),
            group=self._names[id(group)],
        )

    def _residents(self, room: Room) -> tuple[Resident, ...]:
        if room.view is not None:
            return room.view.facts.residents
        return residents_of(self.context.world.pods_by_node.get(room.name, ()))

    def _with_promises(self, room: Room) -> dict[str, int]:
        free = dict(room.free)
        for number, promise in enumerate(self.promises):
            given = room.claimed_from == promise.since and room.claimed_by is promise.beyond
            for name in self._promised:
                free[f"{name}@{number}"] = free.get(name, 0) - (room.claimed.get(name, 0) if given else 0)
        return free

    # --- flavours ---

    def flavours(self) -> tuple[list[Flavour], dict[int, tuple[LaunchOption, End]]]:
        """What could be launched now, limits and stocks aside."""
        flavours: list[Flavour] = []
        openings: dict[int, tuple[LaunchOption, End]] = {}
        for opening in self.found.openings:
            if opening.left < 1 or opening.rests(self.context.now) or not money_allows(self.context, opening):
                continue
            name, end = self._opening_group(opening)
            if not worth_launching(self.context, end):
                continue
            prepaid = opening.source.kind in PREPAID
            ends = int(end.deadline.timestamp()) if end.deadline is not None else _LATE
            kind = opening.kind
            consumes = {
                names.CPU: kind.vcpus * 1000, names.MEMORY: kind.memory_mib * 2**20, "gpus": kind.gpus, "nodes": 1,
            }  # fmt: skip
            if opening.purse is not None:
                consumes[_money(opening.purse)] = round(opening.usd_h * _MICRO)
            flavour = Flavour(
                kind.name, opening.labels, self._unpromised(opening.free), opening.usd_h, opening.template.taints,
                stock=opening.source.id, budget=opening.pool.name, consumes=consumes,
                rank=(int(Stage.NEW), *opening.order, ends if prepaid else 0, 0), group=name,
            )  # fmt: skip
            flavours.append(flavour)
            openings[id(flavour)] = (opening, end)
        return flavours, openings

    def _opening_group(self, opening: LaunchOption) -> tuple[str, End]:
        """Openings of one pool and source end together; money ends for all of a purse at once."""
        added = self.added_usd_h.get(opening.till, 0.0)
        total = sum(self.added_usd_h.values()) if self.capped else None
        key = (opening.pool.name, opening.source, id(opening.purse))
        known = self._opening_groups.get(key)
        if known is None:
            end = end_of_opening(self.context, opening, added, total)
            known = self._opening_groups[key] = (f"o{len(self._opening_groups)}", opening, end)
        return known[0], known[2]

    def _unpromised(self, free: Mapping[str, int]) -> Mapping[str, int]:
        if not self.promises:
            return free
        extra = {
            f"{name}@{number}": free.get(name, 0)
            for number in range(len(self.promises))
            for name in self._promised
        }
        return {**free, **extra}

    # --- asks ---

    def asks(
        self, items: Sequence[Item], flavours: Sequence[Flavour]
    ) -> tuple[list[Ask], list[tuple[Item, Pod]]]:
        """Of those who have a chance at all."""
        levels = levels_of(self.context, items)
        asks: list[Ask] = []
        waiting: list[tuple[Item, Pod]] = []
        chances: dict[tuple[frozenset[str], tuple[int, ...]], Chance] = {}
        for number, item in enumerate(items):
            refuses = self._refuses(item)
            promised = self._held_by(item) if self.promises else ()
            chance = chances.get((refuses, promised))
            if chance is None:
                open_to = [group for group in self.groups if self._names[id(group)] not in refuses]
                new = [flavour for flavour in flavours if flavour.group not in refuses]
                held = [self.promises[number] for number in promised]
                chance = chances[refuses, promised] = Chance(open_to, new, held)
            if not chance.has(item):
                continue
            gang = Gang(f"{number}", len(item.pods)) if len(item.pods) > 1 else None
            for pod in item.pods:
                shape = self._shape(pod.shape, promised) if promised else pod.shape
                since = pod.created_at.timestamp()
                asks.append(Ask(pod.uid, shape, pod.namespace, levels[number], since, gang, refuses=refuses))
                waiting.append((item, pod))
        return asks, waiting

    def _refuses(self, item: Item) -> frozenset[str]:
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

    def _shut(self, item: Item) -> Iterator[str]:
        context = self.context
        for group in self.groups:
            if barred(context, item, group):
                yield self._names[id(group)]
        for name, opening, end in self._opening_groups.values():
            late = not lasts(item, end, opening.pool, context.now + BOOT)
            opted_out = opening.purse is not None and not item.terms.overflow
            if late or opted_out or stranger_to(item, opening) is not None:
                yield name

    def _longest_stays(self, item: Item) -> list[timedelta]:
        """How long an item of this standing could stay in each group and opening that ends, in order."""
        now = self.context.now
        ends = [
            (group.end, group.template.pool, now if group.stage is Stage.READY else now + BOOT)
            for group in self.groups
            if group.template is not None
        ]
        ends += [(end, opening.pool, now + BOOT) for _, opening, end in self._opening_groups.values()]
        stays = {
            until - start for end, pool, start in ends if (until := useful_until(item, end, pool)) is not None
        }
        return sorted(stays)

    def _held_by(self, item: Item) -> tuple[int, ...]:
        """Promises it must leave room beside: those that fall due before it is done."""
        if not item.gated:
            return ()
        held = []
        for number, promise in enumerate(self.promises):
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
