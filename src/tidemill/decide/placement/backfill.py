"""Capacity that is held from an instant on: for services whose source ends, and for who is next in the queue. Work that
is done by then backfills it.

Left alone, a gang of eight nodes waits behind single pods for ever, and a job of a whole node behind small ones:
whenever something is free, somebody small takes it. So on each source the first in the queue that does not fit is
promised the nodes that will be free for it soonest, from the instant the last of them is (EASY backfill). Work that is
done by then may still use them: it fills the gap and delays nobody. Only nodes whose pods say when they end are
waited for: a promise is always for a finite time. Idle nodes by the hour are not kept for longer than they stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import CandidateGroup, CandidateNode, Candidates
from tidemill.decide.placement.queue import Queue
from tidemill.decide.queue_item import QueueItem, done_at, lasts
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID, Source
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts, Resources


@dataclass(slots=True)
class CapacityHold:
    """From an instant on, in one pool: pods that still run then must fit beside what is kept."""

    since: datetime
    group: CandidateGroup  # one group with such nodes: its pool says how long a pod is assumed to run
    # Whom it is kept for: that item and every one before it in the queue ignore the hold.
    beyond: QueueItem | None = None


def capacity_holds(candidates: Candidates) -> list[CapacityHold]:
    """One for each instant from which room is kept, in order."""
    by_instant: dict[tuple[datetime, int], CapacityHold] = {}
    for group in candidates.groups.values():
        for candidate in group.nodes:
            if candidate.claimed_from is not None:
                key = (candidate.claimed_from, id(candidate.claimed_by))
                by_instant.setdefault(key, CapacityHold(candidate.claimed_from, group, candidate.claimed_by))
    return sorted(by_instant.values(), key=lambda one: one.since)


def unclaimed(candidate: CandidateNode, held: Sequence[CapacityHold]) -> Resources:
    """What is free of it for a pod that must respect these holds."""
    if any(candidate.claimed_from == one.since and candidate.claimed_by is one.beyond for one in held):
        return candidate.unclaimed()
    return candidate.free


def hold_for_services(context: DecisionContext, candidates: Candidates) -> None:
    """For every replica on a source that ends: the first prepaid node of its pool that outlives the source."""
    leaving = [
        (view.drain_from, view, pod)
        for view in context.views
        if view.facts.movers and view.drain_from is not None
        for pod in view.facts.movers
    ]
    rooms = list(candidates.all_nodes()) if leaving else []
    under_way = _under_way(context) if leaving else {}
    for when, view, pod in sorted(
        leaving, key=lambda one: (one[0], one[1].node.name, one[2].name, one[2].uid)
    ):
        if under_way.get(pod.workload, 0) > 0:
            under_way[pod.workload] -= 1
            continue
        shape = _goes_as(context, pod)
        candidate = next(
            (candidate for candidate in rooms if _suits(candidate, view, shape, pod.shape is not shape)), None
        )
        if candidate is not None:
            candidate.claim(shape.requests, when)


def _under_way(context: DecisionContext) -> dict[str, int]:
    """By workload that creates new replicas before the old ones go: how many. Those are pending pods already."""
    found: dict[str, int] = {}
    for workload in context.workloads.values():
        if workload.added:
            found[workload.name] = workload.added
        elif workload.rolling:
            found[workload.name] = workload.replicas
        elif workload.pair and workload.replicas and context.workloads.get(workload.pair) is not None:
            found[workload.name] = context.workloads[workload.pair].replicas
    return found


def _goes_as(context: DecisionContext, pod: Pod) -> PodShape:
    """The shape of its replacement: its own, or that of the workload it is paired with."""
    workload = context.workloads.get(pod.workload)
    pair = context.workloads.get(workload.pair) if workload is not None else None
    return pair.shape if pair is not None else pod.shape


def _suits(candidate: CandidateNode, view: NodeView, shape: PodShape, elsewhere: bool) -> bool:
    group = candidate.group
    if group.template is None or group.source == view.source:
        return False
    if not elsewhere and group.template is not view.facts.template:
        return False
    if group.source.kind not in PREPAID:
        return False  # hourly nodes are launched when the replicas come; keeping them would only cost money
    ends, leaves = group.end.drain_from, view.deadline
    if ends is not None and leaves is not None and ends <= leaves:
        return False
    return admits(shape, group.labels, group.taints) and candidate.unclaimed().fits(shape.requests)


# What comes free within the time that a node takes to boot needs no promise.
OLD = timedelta(minutes=10)


@dataclass(slots=True)
class _Coming:
    """The nodes of one source in one zone, and when each could take a pod of the item."""

    where: tuple[Source, str]
    free: list[tuple[datetime, str, int, NodeView]] = field(
        default_factory=list
    )  # from when, name, how many pods


def hold_for_next(context: DecisionContext, queue: Queue, candidates: Candidates) -> None:
    """On each source, for the first in the queue that has waited and does not fit."""
    free = {
        (group.source, group.zone)
        for group in candidates.groups.values()
        if any(candidate.view is not None for candidate in group.nodes)
    }
    if not free:
        return  # nothing is free now, so nothing can be kept
    taken: set[tuple[Source, str]] = set()
    coming: dict[tuple[object, ...], list[_Coming]] = {}
    for item in _next(queue, len(free)):
        if taken == free:
            break
        old = item.pods[0].created_at + OLD
        if old > context.now:
            context.wake(old)
            continue
        key = (id(item.shape), item.standing)
        sources = coming.get(key)
        if sources is None:
            sources = coming[key] = _sources(context, item, candidates, free)
        left = [source for source in sources if source.where not in taken]
        promise = _soonest(context, item, left) if left else None
        if promise is None:
            continue
        since, one, views = promise
        if since <= context.now:
            continue  # it fits now, and is placed before who came later
        taken.add(one.where)
        context.wake(since)  # if it is not whole then, another instant is computed
        for when, _, _, view in one.free:
            if when <= since:
                context.wake(view.facts.free_at[id(item.shape)][2])  # and when an estimate expires
        _promise(context, item, since, views, candidates)


def _next(queue: Queue, sources: int) -> list[QueueItem]:
    """Those who could be the first on so many sources, in the order of the queue. Behind so many who ask for the same
    nobody can be."""
    lanes = (lane.items[:sources] for lane in queue.lanes.values())
    items = (item for few in lanes for item in few if item.gated and not item.pinned_to and item.alike)
    return sorted(items, key=attrgetter("turn"))


def _soonest(
    context: DecisionContext, item: QueueItem, sources: list[_Coming]
) -> tuple[datetime, _Coming, list[NodeView]] | None:
    best: tuple[datetime, _Coming, list[NodeView]] | None = None
    for source in sources:
        since = _whole_at(item, source)
        if since is None or (best is not None and since >= best[0]):
            continue
        chosen = _last_of_those_free(item, source, since)
        pool, end = chosen[0].pool, End(chosen[0].deadline, chosen[0].drain_from)
        if pool is not None and lasts(item, end, pool, since):
            best = (since, source, chosen)
    return best


def _whole_at(item: QueueItem, source: _Coming) -> datetime | None:
    """When there is room for all of its pods; None: not by what is known."""
    missing = len(item.pods)
    for when, _, count, _ in source.free:
        missing -= count
        if missing <= 0:
            return when
    return None


def _last_of_those_free(item: QueueItem, source: _Coming, since: datetime) -> list[NodeView]:
    """Of the nodes that are free at that instant, those that come free last: what is free before and not needed then
    is nobody's, and takes work that lasts longer."""
    missing, chosen = len(item.pods), []
    free = [one for one in source.free if one[0] <= since]
    for _, _, count, view in sorted(free, key=lambda one: one[0], reverse=True):
        if missing <= 0:
            break
        missing -= count
        chosen.append(view)
    return chosen


def _sources(
    context: DecisionContext, item: QueueItem, candidates: Candidates, free: set[tuple[Source, str]]
) -> list[_Coming]:
    """Sources where something is free and the gang may run, time aside; nodes in the order they come free."""
    suits: dict[int, _Coming | None] = {}
    by_source: dict[tuple[Source, str], _Coming] = {}
    shape, key, now, ready = item.shape, id(item.shape), context.now, Phase.READY
    for view in context.views:
        facts = view.facts
        if view.phase is not ready or view.ending or facts.cordoned:
            continue
        number = facts.group
        if number not in suits:
            group = candidates.groups.get((number, view.drain_from))
            where = (group.source, group.zone) if group is not None else None
            if group is None or where not in free or group.template is None or not _may_run(item, group):
                suits[number] = None
            else:
                assert where is not None
                suits[number] = by_source.setdefault(where, _Coming(where))
        here = suits[number]
        if here is None:
            continue
        known = facts.free_at.get(key)
        if known is None or now < known[3] or (known[2] is not None and known[2] <= now):
            known = facts.free_at[key] = (*_free_at(context, view, shape.requests), now, shape)
        if known[1] > 0:
            here.free.append((known[0] or now, facts.name, known[1], view))
    for one in by_source.values():
        one.free.sort()
    return list(by_source.values())


def _may_run(item: QueueItem, group: CandidateGroup) -> bool:
    return group.accepts(item.shape, item.pods[0].namespace, overflow=item.terms.overflow)


def _free_at(
    context: DecisionContext, view: NodeView, requests: Amounts
) -> tuple[datetime | None, int, datetime | None]:
    """From when this node could take such pods (None: now), how many (0: unknown), until when the estimate holds."""
    free = Resources(view.facts.free)
    if free.fits(requests):
        return None, free.count_fitting(requests), None
    leaving = sorted(
        ((end, pod) for pod in view.pods if (end := done_at(pod, view.pool, context.now)) is not None),
        key=lambda one: (one[0], one[1].name),
    )
    for end, pod in leaving:
        free.add_pod(pod.shape.requests)
        if free.fits(requests):
            return end, free.count_fitting(requests), leaving[0][0]
    return None, 0, leaving[0][0] if leaving else None


def _promise(
    context: DecisionContext, item: QueueItem, since: datetime, views: list[NodeView], candidates: Candidates
) -> None:
    candidates.promised[item] = (since, views[0].source.label)
    wanted = {id(view): view for view in views}
    missing = len(item.pods)
    for candidate in candidates.all_nodes():
        view = candidate.view
        if view is None or id(view) not in wanted or candidate.claimed or _goes_before(view, since):
            continue
        missing -= _keep(context, candidate, view, item, since, missing)


def _goes_before(view: NodeView, since: datetime) -> bool:
    """An idle node by the hour is given back sooner: kept until then, whoever it was launched for would have another
    launched, time after time."""
    if view.pods or view.source.kind in PREPAID or view.pool is None:
        return False
    disruption = view.pool.spec.disruption
    return (
        disruption.consolidation_policy != "Never" and view.idle_since + disruption.consolidate_after < since
    )


def _keep(
    context: DecisionContext,
    candidate: CandidateNode,
    view: NodeView,
    item: QueueItem,
    since: datetime,
    most: int,
) -> int:
    """Who still runs at that instant must fit beside the item: what is free then, less what it asks for, is all that
    such work may take now. Returns for how many of its pods that is kept."""
    requests, room = item.shape.requests, Resources(candidate.free)
    for pod in view.pods:
        done = done_at(pod, view.pool, context.now)
        if done is not None and done <= since:
            room.add_pod(pod.shape.requests)
    count = min(most, room.count_fitting(requests))
    for _ in range(count):
        room.subtract_pod(requests)
    candidate.claimed = candidate.free.beyond(room)
    if candidate.claimed:
        candidate.claimed_from, candidate.claimed_by = since, item
    return count
