"""Room that is promised from an instant on: to services that will move in, or to a gang that has waited long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.placement.candidates import Group, Room, Rooms
from tidemill.decide.placement.queue import Item
from tidemill.model.resources import Resources


@dataclass(slots=True)
class CapacityHold:
    """One instant, in one pool. Whoever is still there then must fit beside what is promised."""

    since: datetime
    group: Group  # one of those with such room: its pool says how long a pod is assumed to run
    # Whom it is promised to, if it is a gang: it and everyone before it in line is not held back.
    beyond: Item | None = None


def promises(found: Rooms) -> list[CapacityHold]:
    """One for each instant from which room is promised, in order."""
    by_instant: dict[tuple[datetime, int], CapacityHold] = {}
    for group in found.groups.values():
        for room in group.rooms:
            if room.claimed_from is not None:
                key = (room.claimed_from, id(room.claimed_by))
                by_instant.setdefault(key, CapacityHold(room.claimed_from, group, room.claimed_by))
    return sorted(by_instant.values(), key=lambda one: one.since)


def unclaimed(room: Room, held: Sequence[CapacityHold]) -> Resources:
    """What is free of it for somebody who must leave room beside these promises."""
    if any(room.claimed_from == one.since and room.claimed_by is one.beyond for one in held):
        return room.unclaimed()
    return room.free
