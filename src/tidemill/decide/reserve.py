"""A gang that has waited long gets the next nodes that come free together, without anybody being stopped for it.

Left alone, a gang of eight waits behind single pods for ever: whenever one node is free, somebody small takes it. So
once a gang is old enough, the nodes of one source that will be free soonest are promised to it from the instant the
last of them is. Work that is done by then may still use them (it fills the gap and delays nobody), and only
nodes whose pods say when they end are waited for: a promise is always for a finite time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.admit import Item, expected_run, lasts
from tidemill.decide.draft import Draft, End, Life
from tidemill.decide.nodes import Phase
from tidemill.decide.permits import barred
from tidemill.decide.room import Room, Rooms
from tidemill.decide.rules import admits, fits
from tidemill.decide.statement import AGES
from tidemill.spec import names
from tidemill.world import Amounts, Pod, Source

OLD = AGES[0]
# Who says an hour may need a little more; who is later than this has no known end.
OVERRUN = timedelta(minutes=30)


@dataclass(slots=True)
class _Coming:
    """The nodes of one source in one zone, and when each could take a pod of the gang."""

    source: Source
    free: list[tuple[datetime, int, Life]] = field(default_factory=list)  # from when, how many pods


def reserve(draft: Draft, items: list[Item], found: Rooms) -> None:
    """At most one gang is waited for on each source: the first in line."""
    taken: set[Source] = set()
    for item in items:
        if len(item.pods) < 2 or not item.gated or item.pinned_to:
            continue
        old_at = item.pods[0].created_at + OLD
        if draft.now < old_at:
            draft.wake(old_at)
            continue
        promise = _soonest(draft, item, found, taken)
        if promise is None:
            continue
        since, lives = promise
        taken.add(lives[0].source)
        if since > draft.now:  # else it fits now, and is placed before whoever is smaller
            _promise(item, since, lives, found)


def _soonest(
    draft: Draft, item: Item, found: Rooms, taken: set[Source]
) -> tuple[datetime, list[Life]] | None:
    best: tuple[datetime, list[Life]] | None = None
    for one in _sources(draft, item, found):
        if one.source in taken:
            continue
        missing, chosen = len(item.pods), []
        since = draft.now
        for when, count, life in sorted(one.free, key=lambda each: (each[0], each[2].node.name)):
            if missing <= 0:
                break
            missing -= count
            chosen.append(life)
            draft.wake(when)  # if it is not free then, there is another instant to wait for
            since = max(since, when)
        if missing > 0 or (best is not None and since >= best[0]):
            continue
        pool, end = chosen[0].pool, End(chosen[0].deadline, chosen[0].drain_from)
        if pool is not None and lasts(item, end, pool, since):
            best = (since, chosen)
    return best


def _sources(draft: Draft, item: Item, found: Rooms) -> list[_Coming]:
    suits: dict[int, bool] = {}
    by_source: dict[tuple[Source, str], _Coming] = {}
    for life in draft.lives:
        facts = life.facts
        if life.phase is not Phase.READY or life.ending or facts.cordoned or facts.template is None:
            continue
        known = suits.get(facts.group)
        if known is None:
            group = found.groups.get((facts.group, life.drain_from))
            known = suits[facts.group] = (
                group is not None
                and not barred(draft, item, group)
                and admits(item.shape, group.labels, group.taints)
            )
        if not known:
            continue
        when = _free_at(draft, life, item)
        if when is not None:
            assert life.node.instance is not None
            key = (life.source, life.node.instance.zone)
            by_source.setdefault(key, _Coming(life.source)).free.append((*when, life))
    return list(by_source.values())


def _free_at(draft: Draft, life: Life, item: Item) -> tuple[datetime, int] | None:
    """When this node could take one of the gang's pods, and how many; None: nobody can say."""
    requests = item.shape.requests
    free = dict(life.facts.free)
    if fits(requests, free):
        return draft.now, _count(requests, free)
    leaving = sorted(
        ((end, pod) for pod in life.pods if (end := _ends(draft, life, pod)) is not None),
        key=lambda one: (one[0], one[1].name),
    )
    for end, pod in leaving:
        for name, amount in pod.shape.requests:
            free[name] = free.get(name, 0) + amount
        free[names.PODS] = free.get(names.PODS, 0) + 1
        if fits(requests, free):
            return max(end, draft.now), _count(requests, free)
    return None


def _count(requests: Amounts, free: dict[str, int]) -> int:
    return min(free.get(name, 0) // amount for name, amount in (*requests, (names.PODS, 1)) if amount)


def _ends(draft: Draft, life: Life, pod: Pod) -> datetime | None:
    run = expected_run(pod.terms, life.pool)
    if pod.deleting_until is not None:
        return pod.deleting_until
    if run is None or pod.started_at is None:
        return None
    end = pod.started_at + pod.terms.load + run
    for estimate in (end, end + OVERRUN):
        if estimate > draft.now:
            return estimate
    return None


def _promise(item: Item, since: datetime, lives: list[Life], found: Rooms) -> None:
    found.promised[id(item)] = (since, lives[0].source.label)
    wanted = {id(life) for life in lives}
    for room in found.all_rooms():
        if room.life is not None and id(room.life) in wanted and not room.claimed:
            _claim_whole(room, item, since)


def _claim_whole(room: Room, item: Item, since: datetime) -> None:
    for _ in range(max(0, _count(item.shape.requests, dict(room.free)))):
        room.claim(item.shape.requests, since)
    if room.claimed:
        room.claimed_by = item
