"""Which nodes to launch, and who goes where: a first-fit over rooms, ordered by cost and by time.

One pass places everything that waits: on Ready room now, on room that is coming, or on new room it opens
within the limits; what finds none gets its reason from `why`. Prepaid room comes first, and among sources
that last long enough the one that ends first, so that long-lived capacity stays free for long work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.decide.admit import Item, lasts
from tidemill.decide.draft import Draft, End
from tidemill.decide.handover import fits_beside_claims
from tidemill.decide.room import (
    BOOT,
    SHORTEST_USE,
    Opening,
    Room,
    Rooms,
    Stage,
    admits,
    end_of_opening,
    fits,
    money_allows,
)
from tidemill.spec import names
from tidemill.world import Source


@dataclass(slots=True)
class Placement:
    item: Item
    rooms: list[Room]

    @property
    def stage(self) -> Stage:
        return max(room.stage for room in self.rooms)


@dataclass(slots=True)
class Packing:
    placements: list[Placement] = field(default_factory=list)
    unplaced: list[Item] = field(default_factory=list)


def pack(draft: Draft, items: list[Item], found: Rooms) -> Packing:
    packing = Packing()
    hopeless: set[tuple[object, ...]] = set()
    with_gpus = [room for room in found.rooms if any(room.free.get(name, 0) > 0 for name in names.ACCELERATORS)]
    for item in items:
        rooms = None
        if item.kind not in hopeless:
            wants_gpu = any(name in names.ACCELERATORS for name, _ in item.shape.requests)
            rooms = _place(draft, item, with_gpus if wants_gpu else found.rooms, found)
        if rooms is None:
            hopeless.add(item.kind)
            packing.unplaced.append(item)
            continue
        for room in rooms:
            if room.stage is Stage.NEW and room not in found.rooms:
                found.rooms.append(room)
                with_gpus.append(room)
        packing.placements.append(Placement(item, rooms))
    return packing


def _place(draft: Draft, item: Item, rooms: list[Room], found: Rooms) -> list[Room] | None:
    usable = [room for room in rooms if may_use(draft, item, room)]
    if len(item.pods) == 1:
        return _place_one(draft, item, usable, found)
    return _place_gang(draft, item, usable, found)


def _place_one(draft: Draft, item: Item, usable: list[Room], found: Rooms) -> list[Room] | None:
    best = min((room for room in usable if fits_beside_claims(draft, item, room)), key=_rank, default=None)
    if best is None:
        best = _open(draft, item, found.openings)
    if best is None:
        return None
    best.take(item.shape.requests)
    return [best]


def _place_gang(draft: Draft, item: Item, usable: list[Room], found: Rooms) -> list[Room] | None:
    """All pods on one source in one zone. Fewest nodes still to come first, then order and time."""
    places: dict[tuple[Source, str], list[Room]] = {}
    for room in sorted(usable, key=_rank):
        places.setdefault((room.source, room.zone), []).append(room)
    for opening in found.openings:
        places.setdefault((opening.source, opening.zone), [])
    best: list[Room] | None = None
    for (source, zone), rooms in places.items():
        taken = _fill(draft, item, rooms, [o for o in found.openings if (o.source, o.zone) == (source, zone)])
        if taken is None:
            continue
        if best is None or _gang_rank(taken) < _gang_rank(best):
            best, taken = taken, best
        if taken is not None:
            _undo(item, taken)
    return best


def _fill(draft: Draft, item: Item, rooms: list[Room], openings: list[Opening]) -> list[Room] | None:
    """Take room for every pod of a gang, or none at all."""
    requests = item.shape.requests
    taken: list[Room] = []
    here = list(rooms)
    for _ in item.pods:
        room = next((room for room in here if fits_beside_claims(draft, item, room)), None)
        if room is None:
            room = _open(draft, item, openings)
            if room is None:
                _undo(item, taken)
                return None
            here.append(room)
        room.take(requests)
        taken.append(room)
    return taken


def _undo(item: Item, taken: list[Room]) -> None:
    for room in taken:
        room.give_back(item.shape.requests)
    for room in {id(room): room for room in taken}.values():
        if room.stage is Stage.NEW and room.opening is not None and _untouched(room):
            room.opening.opened -= 1
            room.opening.left += 1
            room.opening.allowance.take(room.opening.kind, -1)


def _untouched(room: Room) -> bool:
    return room.opening is not None and all(room.free.get(k) == v for k, v in room.opening.free.items())


def _open(draft: Draft, item: Item, openings: Iterable[Opening]) -> Room | None:
    """The first opening that would do: they are in order of preference, cheapest first."""
    best: tuple[tuple[object, ...], Opening, End] | None = None
    for opening in openings:
        if refusal(draft, item, opening) is not None:
            continue
        end = end_of_opening(draft, opening)
        rank = (*opening.order, opening.usd_h, _instant(end.deadline), opening.kind.gpus, opening.kind.name, opening.zone)
        if best is None or rank < best[0]:
            best = (rank, opening, end)
    if best is None:
        return None
    _, opening, end = best
    opening.open()
    return opening.room(end)


def refusal(draft: Draft, item: Item, opening: Opening) -> str | None:
    """Why this opening will not do, as a word `why` understands; None: it will."""
    pool = opening.pool
    if pool.spec.allowed_namespaces and item.pods[0].namespace not in pool.spec.allowed_namespaces:
        return "namespace"
    if item.pinned_to and item.pinned_to != opening.source.label:
        return "pinned"
    if not admits(item.shape, opening.labels, opening.taints):
        return "selector"
    if not fits(item.shape.requests, opening.free):
        return "size"
    if opening.overflow is not None and not item.terms.overflow:
        return "opt-in"
    if not money_allows(draft, opening):
        return "money"
    if not opening.allowance.allows(opening.kind):
        return "limit"
    end = end_of_opening(draft, opening)
    ready_at = draft.now + BOOT
    if not lasts(item, end, pool, ready_at):
        return "time"
    if end.drain_from is not None and ready_at + SHORTEST_USE > end.drain_from:
        return "time"
    if opening.resting_until is not None and opening.resting_until > draft.now:
        return "resting"
    return "full" if opening.left < 1 else None


def may_use(draft: Draft, item: Item, room: Room) -> bool:
    """Everything but resources. Ungated pods go where the scheduler sends them; we only count on room for them."""
    if item.pinned_to and item.pinned_to != room.source.label:
        return False
    if not admits(item.shape, room.labels, room.taints):
        return False
    if not item.gated:
        return True
    pool = room.pool
    if pool is None:
        return False  # a gated pod is pinned to a source, and a stranger's node has none
    if pool.spec.allowed_namespaces and item.pods[0].namespace not in pool.spec.allowed_namespaces:
        return False
    if room.overflow and not item.terms.overflow:
        return False
    from_ = draft.now if room.stage is Stage.READY else draft.now + BOOT
    return lasts(item, room.end, pool, from_)


def _instant(end: datetime | None) -> float:
    """Sorts what never ends last."""
    return end.timestamp() if end is not None else float("inf")


def _rank(room: Room) -> tuple[object, ...]:
    """Ready before coming; then the pool's own order; then the least time that suffices; then the tightest fit."""
    free_gpus = sum(room.free.get(name, 0) for name in names.ACCELERATORS)
    ends = _instant(room.end.deadline)
    return (room.stage, room.order, ends, free_gpus, room.free.get(names.CPU, 0), room.name)


def _gang_rank(rooms: list[Room]) -> tuple[object, ...]:
    coming = sum(room.stage is not Stage.READY for room in rooms)
    return (max(room.stage for room in rooms), rooms[0].order, coming, _instant(rooms[0].end.deadline), rooms[0].source.label)
