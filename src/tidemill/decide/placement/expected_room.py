"""Room that is known to come: nobody launches a node by the hour for a pod that would start as soon without.

A node by the hour takes a boot to come. Work that is done by then, by its own expected duration, leaves its room to who
waits. Prepaid room is waited for a little longer (`overflowAfter`): a paid block that starts, or work on prepaid nodes
that is done. A wait is counted from the pod's creation, so it is bounded whatever comes between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateNode, Candidates, Stage
from tidemill.decide.placement.near_blocks import waiting_for_blocks
from tidemill.decide.placement.packing import Packing
from tidemill.decide.placement.pool_explanation import coming, end_of
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.queue_item import QueueItem, finished_at, lasts
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID, ReservationState, Source
from tidemill.model.labels import Taint
from tidemill.model.pods import PodShape
from tidemill.model.reasons import HoldKind, HoldReason
from tidemill.model.resources import Amounts, Resources

# So many in the queue are looked at: a longer queue waits for more than what comes free in minutes.
_MOST_ITEMS = 200


@dataclass(slots=True)
class _Room:
    """A node, and what comes free on it when."""

    name: str
    template: PoolTemplate
    source: Source
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    end: End
    free: Resources
    releases: list[tuple[datetime, Amounts]] = field(default_factory=list)  # in order

    @property
    def prepaid(self) -> bool:
        return self.source.kind in PREPAID

    def free_for(self, shape: PodShape) -> datetime | None:
        """When it has room for one more such pod; None: not by what is known."""
        room = Resources(self.free)
        for at, requests in self.releases:
            room.add_pod(requests)
            if room.fits(shape.requests):
                return at
        return None


def wait_for_room(context: DecisionContext, packing: Packing, candidates: Candidates) -> None:
    """Takes items off their new nodes by the hour for which room comes, and closes the nodes that nobody needs then."""
    nodes = {
        id(node): node
        for placement in packing.placements
        for node in placement.nodes
        if _is_by_the_hour(node) and placement.item.gated
    }
    if not nodes:
        return
    placed = {placement.item: placement for placement in packing.placements}
    going = {one.item for one in packing.placements if any(id(node) in nodes for node in one.nodes)}
    rooms = list(_rooms(context, candidates))
    found: dict[QueueItem, tuple[datetime, str]] = {}
    for item in packing.queue.items[:_MOST_ITEMS] if rooms else ():
        if item in going or item not in placed:
            room = _take(context, item, rooms)
            if room is not None and item in going:
                found[item] = room
    for_blocks = waiting_for_blocks(context, packing, candidates, nodes)
    found.update((item, room) for item, room in for_blocks.items() if item not in found)
    waiting = _whole_nodes(packing, nodes, found)
    if not waiting:
        return
    for item in waiting:
        since, name = found[item]
        context.wake(since + timedelta(seconds=1))  # if it is not free then, a node is launched
        kind = HoldKind.BLOCK_NEEDS_LIMITS if for_blocks.get(item) == found[item] else HoldKind.ROOM_COMES
        reason = HoldReason(kind, name=name, at=since)
        for pod in item.pods:
            context.told_instead[pod.uid] = context.unmet_of(pod, "held", reason, since)
    for node in nodes.values():
        users = [one.item for one in packing.placements if any(other is node for other in one.nodes)]
        if users and all(item in waiting for item in users):
            assert node.option is not None
            node.option.close()
    packing.placements = [one for one in packing.placements if one.item not in waiting]


def _is_by_the_hour(node: CandidateNode) -> bool:
    option = node.option
    return (
        option is not None
        and node.group.stage is Stage.NEW
        and option.source.kind not in PREPAID
        and not option.template.by_karpenter
    )


def _whole_nodes(
    packing: Packing, nodes: Mapping[int, CandidateNode], found: Mapping[QueueItem, object]
) -> set[QueueItem]:
    """Those of the found whose new nodes are used by nobody else: a node that is launched anyway serves them too."""
    waiting = set(found)
    while True:
        needed = {
            id(node)
            for one in packing.placements
            if one.item not in waiting
            for node in one.nodes
            if id(node) in nodes
        }
        on_needed = {
            one.item
            for one in packing.placements
            if one.item in waiting and any(id(node) in needed or id(node) not in nodes for node in one.nodes)
        }
        if not on_needed:
            return waiting
        waiting -= on_needed


def _rooms(context: DecisionContext, candidates: Candidates) -> Iterator[_Room]:
    by_view = {
        id(node.view): node for group in candidates.groups.values() for node in group.nodes if node.view
    }
    for view in context.views:
        node = by_view.get(id(view))
        if node is not None and node.claimed_by is not None:
            continue  # it is kept for somebody
        room = _room_of(context, view, node.free if node is not None else view.facts.free)
        if room is not None:
            yield room
    for template in context.templates.values():
        patience = BOOT + template.pool.spec.overflow_after
        for one in coming(context, template):
            if one.state is ReservationState.SCHEDULED and one.start + BOOT <= context.now + patience:
                kind, pool = template.kinds[one.instance_type], template.pool
                free = kind.free_beside(candidates.daemons[pool.name])
                amounts = tuple((name, amount) for name, amount in free.items() if name != "pods")
                for _ in range(one.count):
                    yield _Room(
                        one.id, template, one.source, one.zone, template.labels(one.source, kind, one.zone),
                        template.taints, end_of(one, pool), Resources({"pods": free.get("pods", 0) - 1}),
                        [(one.start + BOOT, amounts)],
                    )  # fmt: skip


def _room_of(context: DecisionContext, view: NodeView, free: Resources) -> _Room | None:
    facts, kube, instance = view.facts, view.node.kube, view.node.instance
    if view.phase is not Phase.READY or view.ending or facts.cordoned or facts.template is None:
        return None
    if kube is None or instance is None:
        return None
    pool = facts.template.pool
    patience = BOOT + (pool.spec.overflow_after if facts.source.kind in PREPAID else timedelta(0))
    ends = ((pod.deleting_until or finished_at(pod, pool, context.now), pod) for pod in view.pods)
    soon = [
        (end, pod) for end, pod in ends if end is not None and context.now < end <= context.now + patience
    ]
    if not soon:
        return None
    soon.sort(key=lambda one: (one[0], one[1].name))
    return _Room(
        view.node.name, facts.template, facts.source, instance.zone, facts.labels, kube.taints,
        End(view.deadline, view.drain_from), Resources(free), [(end, pod.shape.requests) for end, pod in soon],
    )  # fmt: skip


def _take(context: DecisionContext, item: QueueItem, rooms: list[_Room]) -> tuple[datetime, str] | None:
    """When all its pods have room on one source, and where the last of them has; it is taken. None: not in time."""
    best: tuple[datetime, str, list[_Room]] | None = None
    for where in dict.fromkeys((room.source, room.zone) for room in rooms):
        chosen: list[_Room] = []
        last: tuple[datetime, str] | None = None
        for shape in item.shapes:
            free = [
                (at, room.name, room)
                for room in rooms
                if (room.source, room.zone) == where
                and (at := room.free_for(shape)) is not None
                and _suits(context, item, shape, room, at)
            ]
            if not free:
                break
            at, name, room = min(free, key=lambda one: one[:2])
            room.free.subtract_pod(shape.requests)
            chosen.append(room)
            last = max(last, (at, name)) if last is not None else (at, name)
        for shape, room in zip(item.shapes, chosen, strict=False):
            room.free.add_pod(shape.requests)
        if last is not None and len(chosen) == len(item.shapes) and (best is None or last < best[:2]):
            best = (*last, chosen)
    if best is None:
        return None
    for shape, room in zip(item.shapes, best[2], strict=True):
        room.free.subtract_pod(shape.requests)
    return best[0], best[1]


def _suits(context: DecisionContext, item: QueueItem, shape: PodShape, room: _Room, at: datetime) -> bool:
    pool = room.template.pool
    patience = BOOT + pool.spec.overflow_after if room.prepaid else 2 * BOOT
    return (
        at <= item.pods[0].created_at + patience
        and item.gated
        and not item.pinned_to
        and room.template.accepts(room.source.kind, item.pods[0].namespace, overflow=item.terms.overflow)
        and admits(shape, room.labels, room.taints)
        and lasts(item, room.end, pool, at)
    )
