"""How a hand-over will go, said beforehand: for every service on a source that ends, what moves it, when, and for how
long it would be short.

It uses the same rules, facts and durations as the steps themselves: the same room, limits, caps and deadlines, and
services take it from each other. Only what is not there yet is estimated. Where a block delivers fewer nodes than it
should, EC2 has no node by the hour, or other pods take the room, the outcome is worse. Other pods may also leave
before: then the drain begins later than it is said here, and what is said to be done by an instant reckons with that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.context import TOGETHER, DecisionContext
from tidemill.decide.deadlines import MARGIN, pod_lead
from tidemill.decide.drain import FORCE_MARGIN
from tidemill.decide.handover.destinations import boot_of
from tidemill.decide.handover.hourly_seats import HourlySeats
from tidemill.decide.handover.move_schedule import Move, Room, Short
from tidemill.decide.handover.replica_slots import PrepaidNodes, ReplicaNode, ReplicaSlots
from tidemill.decide.node_table import NodeView
from tidemill.decide.service_moves import (
    Span,
    at_once,
    lacking,
    loading,
    move_time,
    starting,
    waves,
)
from tidemill.model.capacity import PREPAID, Reservation, Source
from tidemill.model.pods import Method, Pod, Workload
from tidemill.model.warning_reasons import MissingRequirement


@dataclass(frozen=True, slots=True)
class ServiceForecast:
    workload: Workload
    pool: str
    source: Source
    block: Reservation
    successor: Reservation | None  # the reservation that takes the last replica the minimum needs
    method: Method  # as the service asks
    in_effect: Method  # as it will move
    lacking: tuple[MissingRequirement, ...]
    leaving: int
    minimum: int
    boot: Span
    load: Span
    needed: timedelta  # overlap: boot, move, margin
    overlap: timedelta | None  # None: no successor
    drain_from: datetime
    ready_from: datetime | None  # when there is room for the first replica
    moved_by: datetime | None
    deadline: datetime
    bridged: bool  # hourly nodes take the replicas: prepaid ones come too late
    short: Short | None


_SECOND = timedelta(seconds=1)  # a step of zero length would give endless waves
Together = dict[tuple[Source, str], list[tuple[NodeView, Pod]]]


def forecast(context: DecisionContext, only: str = "", onto: Collection[str] = ()) -> list[ServiceForecast]:
    """For every service on prepaid capacity that ends, the first end first; `only` of one source, `onto` these."""
    found: list[tuple[ServiceForecast, Move]] = []
    prepaid, slots = PrepaidNodes(context), dict[Source, ReplicaSlots]()
    hourly: tuple[datetime, HourlySeats] | None = None
    for (source, name), pairs in sorted(_standing(context).items(), key=_first_end):
        workload, block = context.workloads.get(name), context.reservations.get(source.id)
        if workload is None or block is None or pairs[0][0].facts.template is None:
            continue  # or its pool was removed: nothing is launched for it
        deadline = _deadline(pairs)
        if hourly is None or hourly[0] < deadline - TOGETHER:
            hourly = deadline, HourlySeats(context)  # what an earlier end needs is counted once it runs
        wanted = not only or source.id == only
        if source not in slots:
            slots[source] = ReplicaSlots(
                prepaid, source, _drain_from(pairs), deadline, onto if wanted else ()
            )
        found.append(_forecast(context, workload, block, pairs, slots[source], hourly[1]))
    return [_beside(found, *one) for one in found if not only or one[0].source.id == only]


def _standing(context: DecisionContext) -> Together:
    found: Together = {}
    for view in context.views:
        if view.facts.movers and view.deadline is not None and view.source.kind in PREPAID:
            for pod in view.facts.movers:
                if pod.workload in context.workloads:
                    found.setdefault((view.source, pod.workload), []).append((view, pod))
    return found


def _first_end(one: tuple[tuple[Source, str], list[tuple[NodeView, Pod]]]) -> tuple[datetime, Source, str]:
    return (_deadline(one[1]), *one[0])


def _deadline(pairs: list[tuple[NodeView, Pod]]) -> datetime:
    return min(view.deadline for view, _ in pairs if view.deadline is not None)


def _drain_from(pairs: list[tuple[NodeView, Pod]]) -> datetime:
    return min(view.drain_from for view, _ in pairs if view.drain_from is not None)


def _forecast(
    context: DecisionContext,
    workload: Workload,
    block: Reservation,
    pairs: list[tuple[NodeView, Pod]],
    slots: ReplicaSlots,
    hourly: HourlySeats,
) -> tuple[ServiceForecast, Move]:
    deadline, pods, pool = _deadline(pairs), [pod for _, pod in pairs], pairs[0][0].facts.pool_name
    method, minimum = context.method_of(workload), context.minimum_of(workload)
    load = loading(workload.terms, _all_of(context, workload))
    goes_as = context.workloads[workload.pair] if method is Method.PAIRED else workload
    taken = [place for place in (slots.take(goes_as) for _ in pods) if place is not None]
    last = taken[-1][1].group if taken else None
    after = context.reservations.get(last.source.id) if last is not None else None
    boot = boot_of(context, last.template if last is not None and last.template else context.templates[pool])
    move = _move(context, workload, method, pairs, _rooms(taken))
    bridge = _bridge(move, goes_as, boot.length, hourly) if move.short() is not None else None
    begins, move = move.drain_from, bridge or move
    short = _outer(move, replace(move, drain_from=_latest_drain(context, pairs)))
    result = ServiceForecast(
        workload=workload,
        pool=pool,
        source=block.source,
        block=block,
        successor=after,
        method=workload.method or Method.EVICT,
        in_effect=method,
        lacking=lacking(workload, context.workloads),
        leaving=len(pods),
        minimum=minimum,
        boot=boot,
        load=load,
        needed=boot.length
        + move_time(workload, method, _waves(workload, method, pods, minimum), load.length)
        + MARGIN,
        overlap=max(timedelta(0), deadline - after.start) if after is not None else None,
        drain_from=begins,
        ready_from=min((room.since + room.boot for room in move.rooms), default=None),
        moved_by=replace(move, drain_from=_latest_drain(context, pairs)).done_at,
        deadline=deadline,
        bridged=bridge is not None,
        short=short,
    )
    return result, move


def _beside(found: list[tuple[ServiceForecast, Move]], one: ServiceForecast, move: Move) -> ServiceForecast:
    """Replicas on another source that ends at about the same time keep no minimum, unless they have moved in time."""
    if not one.minimum or one.in_effect is Method.PAIRED or one.short is not None:
        return one
    lost = sum(
        other.leaving - theirs.moved_in_time
        for other, theirs in found
        if other.workload is one.workload
        and other.source != one.source
        and abs(other.deadline - one.deadline) <= TOGETHER
    )
    return replace(one, short=replace(move, enough=move.enough + lost).short()) if lost else one


def _waves(workload: Workload, method: Method, pods: list[Pod], minimum: int) -> int:
    return waves(workload, method, len(pods), workload.replicas - minimum)


def _rooms(taken: list[tuple[datetime, ReplicaNode]]) -> list[Room]:
    return [
        Room(ready_at - node.boot, node.boot, id(node)) if node.when_asked else Room(ready_at)
        for ready_at, node in taken
    ]


def _bridge(move: Move, workload: Workload, boot: timedelta, hourly: HourlySeats) -> Move | None:
    """With nodes by the hour for the replicas that prepaid ones take too late, as many as there may be; None: none."""
    in_time = [room for room in move.rooms if room.since + room.boot + move.step <= move.last_moment]
    nodes = [hourly.take(workload, move.last_moment) for _ in range(move.leaving - len(in_time))]
    rooms = [
        Room(move.drain_from, boot if node.is_new else timedelta(0), id(node))
        for node in nodes
        if node is not None
    ]
    if not rooms:
        return None
    late = [room for room in move.rooms if room not in in_time]
    rooms = _in_order([*in_time, *rooms, *late])
    return replace(move, rooms=tuple(rooms[: move.leaving]), all_or_none=False)


def _outer(expected: Move, latest: Move) -> Short | None:
    """From when it may be short, and until when at the latest."""
    first, last = expected.short(), latest.short()
    if first is None or last is None:
        return last or first
    if first.lasts is None or last.lasts is None:
        return Short(first.since, None)
    return Short(first.since, max(first.since + first.lasts, last.since + last.lasts) - first.since)


def _latest_drain(context: DecisionContext, pairs: list[tuple[NodeView, Pod]]) -> datetime:
    """When the drain begins if nobody but services is there then: jobs that are there now may be done before."""
    begins, deadline = _drain_from(pairs), _deadline(pairs)
    if context.now >= begins:
        return begins
    endings = {view.facts.ending for view, _ in pairs}
    return max(begins, *(context.drains_for_services(ending, deadline) for ending in endings))


def _in_order(rooms: list[Room]) -> list[Room]:
    return sorted(rooms, key=lambda room: (room.since + room.boot, room.since))


def _move(
    context: DecisionContext,
    workload: Workload,
    method: Method,
    pairs: list[tuple[NodeView, Pod]],
    rooms: list[Room],
) -> Move:
    minimum, leaving, mine = context.minimum_of(workload), len(pairs), _all_of(context, workload)
    ready = sum(pod.ready and pod.deleting_until is None for pod in mine)
    staying = 0 if method is Method.PAIRED else ready - sum(pod.ready for _, pod in pairs)
    step = max(_SECOND, starting(mine) + loading(workload.terms, mine).length)
    if method is Method.EVICT and workload.stateful:
        step += workload.terms.grace  # a pod of this name is made again only when the old one is gone
    return Move(
        method=method,
        replicas=workload.replicas,
        leaving=leaving,
        enough=minimum - staying if minimum else 0,
        at_once=at_once(workload, method, leaving, workload.replicas - minimum),
        never_allowed=method is Method.EVICT and minimum >= workload.replicas,
        step=step,
        drain_from=_drain_from(pairs),
        turn=_deadline(pairs) - max(pod_lead(pod, checkpoint=False) for _, pod in pairs),
        last_moment=_deadline(pairs) - workload.terms.grace - FORCE_MARGIN,
        rooms=tuple(_in_order(rooms)),
        all_or_none=method in (Method.SCALE, Method.PAIRED),
    )


def _all_of(context: DecisionContext, workload: Workload) -> list[Pod]:
    return [pod for pod in context.world.pods if pod.workload == workload.name]
