"""Which nodes to launch, and who goes where: the world is stated as a packing problem, solved, and read back.

Ready room comes first, then room that is coming, then new room, each in the pools' own order; among prepaid
sources that last long enough the one that ends first, so that long-lived capacity stays free for long work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.decide.admit import Item, lasts
from tidemill.decide.draft import Draft, End
from tidemill.decide.openings import Opening, end_of_opening
from tidemill.decide.problem import Solution
from tidemill.decide.room import BOOT, Group, Room, Rooms, Stage
from tidemill.decide.solver import solve
from tidemill.decide.statement import Statement, state

# New nodes on overflow bring the day nearer on which its money ends, and so rule out work that would run into it.
_MONEY_TRIES = 4


@dataclass(slots=True)
class Placement:
    item: Item
    rooms: list[Room]  # by pod

    @property
    def stage(self) -> Stage:
        return max(room.group.stage for room in self.rooms)


@dataclass(slots=True)
class Packing:
    placements: list[Placement] = field(default_factory=list)
    unplaced: list[Item] = field(default_factory=list)


def pack(draft: Draft, items: Sequence[Item], found: Rooms) -> Packing:
    added: dict[int, float] = _cheapest(found)
    for _ in range(_MONEY_TRIES):
        statement = state(draft, items, found, added)
        if not statement.waiting:
            return Packing(unplaced=list(items))
        solution = solve(statement.problem)
        spent = _added_usd_h(statement, solution)
        if _money_lasts(draft, statement, solution, spent):
            return _read(items, statement, solution)
        added = {**added, **spent}
    found.openings[:] = [opening for opening in found.openings if opening.purse is None]
    statement = state(draft, items, found, {})
    return _read(items, statement, solve(statement.problem))


def _cheapest(found: Rooms) -> dict[int, float]:
    """At least one node is added, if any."""
    least: dict[int, float] = {}
    for opening in found.openings:
        if opening.purse is not None:
            least[id(opening.purse)] = min(opening.usd_h, least.get(id(opening.purse), opening.usd_h))
    return least


def _added_usd_h(statement: Statement, solution: Solution) -> dict[int, float]:
    added: dict[int, float] = {}
    for node in solution.opened:
        opening, _ = statement.openings[id(node.flavour)]
        if opening.purse is not None:
            added[id(opening.purse)] = added.get(id(opening.purse), 0.0) + opening.usd_h
    return added


def _money_lasts(
    draft: Draft, statement: Statement, solution: Solution, added_usd_h: Mapping[int, float]
) -> bool:
    """Would the money for what is to be launched last until everyone on it is done?"""
    for node in solution.opened:
        opening, _ = statement.openings[id(node.flavour)]
        if opening.purse is None:
            continue
        end = end_of_opening(draft, opening, added_usd_h[id(opening.purse)])
        for ask in node.asks:
            if not lasts(statement.waiting[ask][0], end, opening.pool, draft.now + BOOT):
                return False
    return True


def _read(items: Sequence[Item], statement: Statement, solution: Solution) -> Packing:
    """Take the rooms and open the openings as the solution says, and sort its answers by item."""
    room_of: dict[str, Room] = {}  # by pod
    asks = statement.problem.asks
    for place, there in solution.existing.items():
        for ask in there:
            room_of[asks[ask].id] = statement.rooms[place]
    for node in solution.opened:
        opening, end = statement.openings[id(node.flavour)]
        opening.open()
        room = _new_room(opening, end)
        for ask in node.asks:
            room_of[asks[ask].id] = room
    packing = Packing()
    for item in items:
        if item.pods[0].uid not in room_of:  # a gang has all its rooms or none
            packing.unplaced.append(item)
            continue
        rooms = [room_of[pod.uid] for pod in item.pods]
        for pod, room in zip(item.pods, rooms, strict=True):
            room.take(pod.shape.requests)
        packing.placements.append(Placement(item, rooms))
    return packing


def _new_room(opening: Opening, end: End) -> Room:
    group = Group(
        Stage.NEW, opening.template, opening.source, opening.zone, opening.labels, opening.template.taints, end,
        opening.order, overflow=opening.purse is not None,
    )  # fmt: skip
    return Room(group, f"new {opening.kind.name}", opening.free, opening=opening)
