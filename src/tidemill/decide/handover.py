"""Room kept for services whose source ends: they move before it does, so nobody else may sit there then.

A claim is dated: a job that is done before the move may still use the room until then.
"""

from __future__ import annotations

from tidemill.decide.draft import Draft, Life
from tidemill.decide.overflow import PREPAID
from tidemill.decide.room import Room, Rooms
from tidemill.decide.rules import admits, fits
from tidemill.world import Pod


def claim(draft: Draft, found: Rooms) -> None:
    """For every replica on a source that ends: the first prepaid room of its pool that outlives the source."""
    leaving = [
        (life.drain_from, life, pod)
        for life in draft.lives
        if life.facts.movers and life.drain_from is not None
        for pod in life.facts.movers
    ]
    rooms = list(found.all_rooms()) if leaving else []
    for when, life, pod in sorted(leaving, key=lambda one: (one[0], one[1].node.name, one[2].name)):
        room = next((room for room in rooms if _suits(room, life, pod)), None)
        if room is not None:
            room.claim(pod.shape.requests, when)


def _suits(room: Room, life: Life, pod: Pod) -> bool:
    group = room.group
    if group.template is None or group.template is not life.facts.template or group.source == life.source:
        return False
    if group.source.kind not in PREPAID:
        return False  # what is paid by the hour is launched when they come; kept for them it would only cost
    ends, leaves = group.end.drain_from, life.deadline
    if ends is not None and leaves is not None and ends <= leaves:
        return False
    return admits(pod.shape, group.labels, group.taints) and fits(pod.shape.requests, room.unclaimed())
