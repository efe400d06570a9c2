"""Room kept for services whose source ends: they move before it does, so nobody else may sit there then.

A claim is dated: a job that is done before the move may still use the room until then.
"""

from __future__ import annotations

from tidemill.decide.context import Draft, Life
from tidemill.decide.overflow import PREPAID
from tidemill.decide.placement.candidates import Room, Rooms
from tidemill.decide.scheduler_rules import admits, fits
from tidemill.model.world import Pod, PodShape


def claim(draft: Draft, found: Rooms) -> None:
    """For every replica on a source that ends: the first prepaid room of its pool that outlives the source."""
    leaving = [
        (life.drain_from, life, pod)
        for life in draft.lives
        if life.facts.movers and life.drain_from is not None
        for pod in life.facts.movers
    ]
    rooms = list(found.all_rooms()) if leaving else []
    under_way = _under_way(draft) if leaving else {}
    for when, life, pod in sorted(leaving, key=lambda one: (one[0], one[1].node.name, one[2].name)):
        if under_way.get(pod.workload, 0) > 0:
            under_way[pod.workload] -= 1
            continue
        shape = _goes_as(draft, pod)
        room = next((room for room in rooms if _suits(room, life, shape, pod.shape is not shape)), None)
        if room is not None:
            room.claim(shape.requests, when)


def _under_way(draft: Draft) -> dict[str, int]:
    """By workload that makes new replicas before the old ones go: the new ones. They see to their room themselves."""
    found: dict[str, int] = {}
    for one in draft.workloads.values():
        if one.added:
            found[one.name] = one.added
        elif one.rolling:
            found[one.name] = one.replicas
        elif one.pair and one.replicas and draft.workloads.get(one.pair) is not None:
            found[one.name] = draft.workloads[one.pair].replicas
    return found


def _goes_as(draft: Draft, pod: Pod) -> PodShape:
    """What takes its place: one like it, or one of the set it is paired with."""
    workload = draft.workloads.get(pod.workload)
    pair = draft.workloads.get(workload.pair) if workload is not None else None
    return pair.shape if pair is not None else pod.shape


def _suits(room: Room, life: Life, shape: PodShape, elsewhere: bool) -> bool:
    group = room.group
    if group.template is None or group.source == life.source:
        return False
    if not elsewhere and group.template is not life.facts.template:
        return False
    if group.source.kind not in PREPAID:
        return False  # what is paid by the hour is launched when they come; kept for them it would only cost
    ends, leaves = group.end.drain_from, life.deadline
    if ends is not None and leaves is not None and ends <= leaves:
        return False
    return admits(shape, group.labels, group.taints) and fits(shape.requests, room.unclaimed())
