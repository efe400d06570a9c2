"""Which nodes to launch, and who goes where: a first-fit over groups of rooms, ordered by cost and by time.

One pass places everything that waits: on Ready room now, on room that is coming, or on new room it opens
within the limits; what finds none gets its reason from `why`. Prepaid room comes first, and among sources
that last long enough the one that ends first, so that long-lived capacity stays free for long work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.admit import Item, lasts
from tidemill.decide.draft import Draft, End
from tidemill.decide.handover import fits_beside_claims
from tidemill.decide.openings import Opening, end_of_opening, money_allows
from tidemill.decide.room import BOOT, Group, Room, Rooms, Stage
from tidemill.decide.rules import admits, fits, wants_host
from tidemill.spec import names
from tidemill.world import Source

# A node that would be drained sooner than this after booting is not worth launching.
SHORTEST_USE = timedelta(minutes=15)


@dataclass(slots=True)
class Placement:
    item: Item
    rooms: list[Room]

    @property
    def stage(self) -> Stage:
        return max(room.group.stage for room in self.rooms)


@dataclass(slots=True)
class Packing:
    placements: list[Placement] = field(default_factory=list)
    unplaced: list[Item] = field(default_factory=list)


def pack(draft: Draft, items: list[Item], found: Rooms) -> Packing:
    """Room only ever shrinks within a pass: where an item found none, one like it that needs longer will not."""
    packing = Packing()
    groups = found.ordered()
    hopeless: dict[tuple[object, ...], timedelta] = {}
    for item in items:
        failed = hopeless.get(item.kind)
        if failed is not None and failed <= item.need:
            packing.unplaced.append(item)
            continue
        usable = [group for group in groups if group.rooms and may_use(draft, item, group)]
        if len(item.pods) == 1:
            rooms = _place_one(draft, item, usable, found)
        else:
            rooms = _place_gang(draft, item, usable, found)
        if rooms is None:
            hopeless[item.kind] = item.need
            packing.unplaced.append(item)
            continue
        for room in rooms:
            if room.group.stage is Stage.NEW and room not in room.group.rooms:
                room.group.rooms.append(room)
                groups.append(room.group)
        packing.placements.append(Placement(item, rooms))
    return packing


def _place_one(draft: Draft, item: Item, usable: list[Group], found: Rooms) -> list[Room] | None:
    host = wants_host(item.shape)
    best: Room | None = None
    for group in usable:
        best = _of_host(draft, item, group, host) if host else _tightest(draft, item, group)
        if best is not None:
            break
    if best is None:
        best = _open(draft, item, found.openings)
    if best is None:
        return None
    best.take(item.shape.requests)
    return [best]


def _tightest(draft: Draft, item: Item, group: Group) -> Room | None:
    """The room it would leave least of. Pods of one shape go down one list: what was tightest stays tightest
    while it fits, and what did not fit once never will, so each list is sorted once."""
    requests = item.shape.requests
    waiting = group.lines.get(id(item.shape))
    if waiting is None or len(group.rooms) != waiting[1]:
        fitting = [room for room in group.rooms if fits(requests, room.free)]
        fitting.sort(key=lambda room: room.tightness, reverse=True)
        waiting = group.lines[id(item.shape)] = (fitting, len(group.rooms))
    line = waiting[0]
    while line and not fits(requests, line[-1].free):
        line.pop()
    if line and not line[-1].claimed:
        return line[-1]
    return next((room for room in reversed(line) if fits_beside_claims(draft, item, room)), None)


def _of_host(draft: Draft, item: Item, group: Group, host: str) -> Room | None:
    there = (room for room in group.rooms if _is_host(room, host))
    return next((room for room in there if fits_beside_claims(draft, item, room)), None)


def _is_host(room: Room, host: str) -> bool:
    labels = room.life.facts.labels if room.life is not None else room.group.labels
    return labels.get(names.LABEL_HOSTNAME) == host


def _place_gang(draft: Draft, item: Item, usable: list[Group], found: Rooms) -> list[Room] | None:
    """All pods on one source in one zone. Fewest nodes still to come first, then order and time."""
    places: dict[tuple[Source, str], list[Room]] = {}
    for group in usable:
        places.setdefault((group.source, group.zone), []).extend(group.rooms)
    for group in found.returning:
        if may_use(draft, item, group):
            places.setdefault((group.source, group.zone), []).extend(group.rooms)
    best = _best_of(item, [_fill(draft, item, rooms, ()) for rooms in places.values()])
    if best is not None:
        return best
    opening_at: dict[tuple[Source, str], list[Opening]] = {}
    for opening in found.openings:
        opening_at.setdefault((opening.source, opening.zone), []).append(opening)
    for place, openings in opening_at.items():
        taken = _fill(draft, item, places.get(place, []), openings)
        best = _best_of(item, [best, taken])
    return best


def _best_of(item: Item, fillings: Iterable[list[Room] | None]) -> list[Room] | None:
    """Keep the best; give back what the others took."""
    best: list[Room] | None = None
    for taken in fillings:
        if taken is None:
            continue
        if best is None or _gang_rank(taken) < _gang_rank(best):
            best, taken = taken, best
        if taken is not None:
            _undo(item, taken)
    return best


def _fill(draft: Draft, item: Item, rooms: list[Room], openings: Iterable[Opening]) -> list[Room] | None:
    """Take room for every pod of a gang, or none at all."""
    requests = item.shape.requests
    taken: list[Room] = []
    here = [room for room in rooms if fits_beside_claims(draft, item, room)]
    for _ in item.pods:
        room = next((room for room in here if fits(requests, room.free)), None)
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
    for opened in {id(room): room for room in taken if room.opening is not None}.values():
        if opened.opening is not None and not opened.group.rooms:
            opened.opening.close()


def _gang_rank(rooms: list[Room]) -> tuple[object, ...]:
    coming = sum(room.group.stage is not Stage.READY for room in rooms)
    return (max(room.group.stage for room in rooms), rooms[0].group.order, coming, rooms[0].group.rank)


# --- opening ------------------------------------------------------------------------------------------


def _open(draft: Draft, item: Item, openings: Iterable[Opening]) -> Room | None:
    """The best opening that would do: the pool's order, then the price, then the least time, then the fewest GPUs."""
    best: tuple[tuple[object, ...], Opening, End] | None = None
    for opening in openings:
        if refusal(draft, item, opening) is not None:
            continue
        end = end_of_opening(draft, opening)
        ends = end.deadline.timestamp() if end.deadline is not None else float("inf")
        rank = (*opening.order, opening.usd_h, ends, opening.kind.gpus, opening.kind.name, opening.zone)
        if best is None or rank < best[0]:
            best = (rank, opening, end)
    if best is None:
        return None
    _, opening, end = best
    opening.open()
    return new_room(opening, end, Stage.NEW)


def new_room(opening: Opening, end: End, stage: Stage) -> Room:
    group = Group(
        stage, opening.template, opening.source, opening.zone, opening.labels, opening.template.taints, end,
        opening.order, overflow=opening.purse is not None,
    )  # fmt: skip
    return Room(group, f"new {opening.kind.name}", opening.free, opening=opening)


def refusal(draft: Draft, item: Item, opening: Opening) -> str | None:
    """Why this opening will not do, as a word `why` understands; None: it will."""
    pool = opening.pool
    if pool.spec.allowed_namespaces and item.pods[0].namespace not in pool.spec.allowed_namespaces:
        return "namespace"
    if item.pinned_to and item.pinned_to != opening.source.label:
        return "pinned"
    if not admits(item.shape, opening.labels, opening.template.taints) or wants_host(item.shape):
        return "selector"
    if not fits(item.shape.requests, opening.free):
        return "size"
    if opening.purse is not None and not item.terms.overflow:
        return "opt-in"
    if not money_allows(draft, opening):
        return "money"
    if not opening.allowance.allows(opening.kind):
        return "limit"
    if not outlasts(draft, item, end_of_opening(draft, opening), opening):
        return "time"
    if opening.resting_until is not None and opening.resting_until > draft.now:
        return "resting"
    return "full" if opening.left < 1 else None


def outlasts(draft: Draft, item: Item, end: End, opening: Opening) -> bool:
    ready_at: datetime = draft.now + BOOT
    if end.drain_from is not None and ready_at + SHORTEST_USE > end.drain_from:
        return False
    return lasts(item, end, opening.pool, ready_at)


def may_use(draft: Draft, item: Item, group: Group) -> bool:
    """Everything but resources. Ungated pods go where the scheduler sends them; we only count on room for them."""
    if item.pinned_to and item.pinned_to != group.source.label:
        return False
    if not admits(item.shape, group.labels, group.taints):
        return False
    if not item.gated:
        return True
    if group.template is None:
        return False  # a gated pod is pinned to a source, and a stranger's node has none
    pool = group.template.pool
    if pool.spec.allowed_namespaces and item.pods[0].namespace not in pool.spec.allowed_namespaces:
        return False
    if group.overflow and not item.terms.overflow:
        return False
    from_ = draft.now if group.stage is Stage.READY else draft.now + BOOT
    return lasts(item, group.end, pool, from_)
