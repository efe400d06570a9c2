"""Backfill: nodes that come free are kept for a gang that has waited long; smaller work uses them only until then.

Left alone, a gang of eight waits behind single pods for ever: whenever one node is free, somebody small takes it. So
once a gang is old enough, the nodes of one source that will be free soonest are promised to it from the instant the
last of them is. Work that is done by then may still use them (it fills the gap and delays nobody), and only
nodes whose pods say when they end are waited for: a promise is always for a finite time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.deadlines import End
from tidemill.decide.phases import Phase
from tidemill.decide.placement.candidate_nodes import CandidateGroup, CandidateNode, Candidates
from tidemill.decide.placement.queue import birthday_from, last_birthday
from tidemill.decide.queue_item import QueueItem, done_at, lasts
from tidemill.model.capacity import Source
from tidemill.model.resources import Amounts, Resources

OLD = timedelta(minutes=10)


@dataclass(slots=True)
class _Coming:
    """The nodes of one source in one zone, and when each could take a pod of the gang."""

    where: tuple[Source, str]
    free: list[tuple[datetime, str, int, NodeView]] = field(
        default_factory=list
    )  # from when, name, how many pods


def hold_for_gangs(context: DecisionContext, items: list[QueueItem], candidates: Candidates) -> None:
    """At most one gang is kept nodes for on each source: the first in the queue."""
    free = {
        (group.source, group.zone)
        for group in candidates.groups.values()
        if any(candidate.view is not None for candidate in group.nodes)
    }
    if not free:
        return  # nothing is free now, so nothing can be kept
    born_before = last_birthday(context.now) - OLD
    taken: set[tuple[Source, str]] = set()
    coming: dict[tuple[object, ...], list[_Coming]] = {}
    for item in items:
        if len(item.pods) < 2 or not item.gated or item.pinned_to or not item.alike:
            continue
        if item.pods[0].created_at > born_before:
            context.wake(birthday_from(item.pods[0].created_at + OLD))
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
        taken.add(one.where)
        if since > context.now:  # else it fits now, and is placed before smaller items
            context.wake(since)  # if it is not whole then, another instant is computed
            for view in views:
                context.wake(view.facts.free_at[id(item.shape)][2])  # and when an estimate expires
            _promise(item, since, views, candidates)


def _soonest(
    context: DecisionContext, item: QueueItem, sources: list[_Coming]
) -> tuple[datetime, _Coming, list[NodeView]] | None:
    best: tuple[datetime, _Coming, list[NodeView]] | None = None
    for source in sources:
        missing, chosen, since = len(item.pods), [], context.now
        for when, _, count, view in source.free:
            if missing <= 0:
                break
            missing -= count
            chosen.append(view)
            since = max(since, when)
        if missing > 0 or (best is not None and since >= best[0]):
            continue
        pool, end = chosen[0].pool, End(chosen[0].deadline, chosen[0].drain_from)
        if pool is not None and lasts(item, end, pool, since):
            best = (since, source, chosen)
    return best


def _sources(
    context: DecisionContext, item: QueueItem, candidates: Candidates, free: set[tuple[Source, str]]
) -> list[_Coming]:
    """Sources where something is free and the gang may run, time aside; nodes in the order they come free."""
    suits: dict[int, _Coming | None] = {}
    by_source: dict[tuple[Source, str], _Coming] = {}
    shape, key = item.shape, id(item.shape)
    for view in context.views:
        facts = view.facts
        if view.phase is not Phase.READY or view.ending or facts.cordoned:
            continue
        if facts.group not in suits:
            group = candidates.groups.get((facts.group, view.drain_from))
            where = (group.source, group.zone) if group is not None else None
            if group is None or where not in free or group.template is None or not _may_run(item, group):
                suits[facts.group] = None
            else:
                assert where is not None
                suits[facts.group] = by_source.setdefault(where, _Coming(where))
        here = suits[facts.group]
        if here is None:
            continue
        known = facts.free_at.get(key)
        if known is None or context.now < known[3] or (known[2] is not None and known[2] <= context.now):
            known = facts.free_at[key] = (*_free_at(context, view, shape.requests), context.now, shape)
        if known[1] > 0:
            here.free.append((known[0] or context.now, view.node.name, known[1], view))
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


def _promise(item: QueueItem, since: datetime, views: list[NodeView], candidates: Candidates) -> None:
    candidates.promised[id(item)] = (since, views[0].source.label)
    wanted = {id(view) for view in views}
    for candidate in candidates.all_nodes():
        if candidate.view is not None and id(candidate.view) in wanted and not candidate.claimed:
            _claim_whole(candidate, item, since)


def _claim_whole(candidate: CandidateNode, item: QueueItem, since: datetime) -> None:
    for _ in range(candidate.free.count_fitting(item.shape.requests)):
        candidate.claim(item.shape.requests, since)
    if candidate.claimed:
        candidate.claimed_by = item
