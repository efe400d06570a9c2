"""How a hand-over will go, said beforehand: for every service on a source that ends, what moves it, when, and for how
long it would be short.

The same facts and the same lengths of time as the steps themselves; only what is not there yet is reckoned. Where a
block gives fewer nodes than it should, or somebody else's pods sit in the room, it comes out worse.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.deadlines import MARGIN
from tidemill.decide.drain import FORCE_MARGIN
from tidemill.decide.handover.destinations import ReplicaSlots, boot_of, may_launch
from tidemill.decide.handover.durations import Span, at_once, loading, move_time, starting, waves
from tidemill.decide.handover.methods import in_effect, lacking
from tidemill.decide.handover.move_timeline import Move, Short
from tidemill.model.capacity import PREPAID, Reservation, Source
from tidemill.model.pods import Method, Pod, Workload


@dataclass(frozen=True, slots=True)
class ServiceForecast:
    workload: Workload
    pool: str
    source: Source
    block: Reservation
    successor: Reservation | None  # what takes the replica that the minimum hangs on
    method: Method  # as it asks
    in_effect: Method  # as it will be done
    lacking: tuple[str, ...]
    leaving: int
    minimum: int
    boot: Span
    load: Span
    needed: timedelta  # overlap: boot, move, margin
    overlap: timedelta | None  # there is; None: no successor
    drain_from: datetime
    ready_from: datetime | None  # there is room for the first of them
    moved_by: datetime | None
    deadline: datetime
    bridged: bool  # nodes paid by the hour take them: what is prepaid comes too late
    short: Short | None


_SECOND = timedelta(seconds=1)  # a step that takes no time at all would make waves without end
Together = dict[tuple[Source, str], list[tuple[NodeView, Pod]]]


def forecast(context: DecisionContext, only: str = "", onto: Collection[str] = ()) -> list[ServiceForecast]:
    """For every service on prepaid capacity that ends, the first end first; `only` one source's, `onto` these alone."""
    found: list[ServiceForecast] = []
    slots: dict[Source, ReplicaSlots] = {}
    for (source, name), pairs in sorted(_standing(context).items(), key=_first_end):
        workload, block = context.workloads.get(name), context.reservations.get(source.id)
        if workload is None or block is None or (only and source.id != only):
            continue
        if pairs[0][0].facts.template is None:
            continue  # its pool was removed: nothing is launched for it any more
        if source not in slots:
            slots[source] = ReplicaSlots(context, source, _deadline(pairs), onto)
        found.append(_forecast(context, workload, block, pairs, slots[source]))
    return found


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


def _forecast(
    context: DecisionContext,
    workload: Workload,
    block: Reservation,
    pairs: list[tuple[NodeView, Pod]],
    slots: ReplicaSlots,
) -> ServiceForecast:
    deadline, pods, pool = _deadline(pairs), [pod for _, pod in pairs], pairs[0][0].facts.pool_name
    method, minimum = in_effect(workload, context.workloads), minimum_of(context, workload)
    load = loading(workload.terms, _all_of(context, workload))
    goes_as = context.workloads[workload.pair] if method is Method.PAIRED else workload
    taken = [node for node in (slots.take(goes_as) for _ in pods) if node is not None]
    last = taken[-1].group if taken else None
    after = context.reservations.get(last.source.id) if last is not None else None
    boot = boot_of(context, last.template if last is not None and last.template else context.templates[pool])
    ready = [node.ready_at for node in taken if node.ready_at is not None]
    move = _move(context, workload, method, pairs, ready)
    bridged = move.short() is not None and may_launch(context, goes_as)
    move = move.bridged(boot.length) if bridged else move
    count = waves(workload, method, len(pods), workload.replicas - minimum)
    return ServiceForecast(
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
        needed=boot.length + move_time(workload, method, count, load.length) + MARGIN,
        overlap=max(timedelta(0), deadline - after.start) if after is not None else None,
        drain_from=move.drain_from,
        ready_from=move.rooms[0] if move.rooms else None,
        moved_by=move.done_at(count),
        deadline=deadline,
        bridged=bridged,
        short=move.short(),
    )


def _move(
    context: DecisionContext,
    workload: Workload,
    method: Method,
    pairs: list[tuple[NodeView, Pod]],
    rooms: list[datetime],
) -> Move:
    minimum, leaving, mine = minimum_of(context, workload), len(pairs), _all_of(context, workload)
    ready = sum(pod.ready and pod.deleting_until is None for pod in mine)
    staying = 0 if method is Method.PAIRED else ready - sum(pod.ready for _, pod in pairs)
    return Move(
        method=method,
        replicas=workload.replicas,
        leaving=leaving,
        enough=minimum - staying if minimum else 0,
        at_once=at_once(workload, method, leaving, workload.replicas - minimum),
        never_allowed=method is Method.EVICT and minimum >= workload.replicas,
        step=max(_SECOND, starting(mine) + loading(workload.terms, mine).length),
        drain_from=min(view.drain_from for view, _ in pairs if view.drain_from is not None),
        last_moment=_deadline(pairs) - workload.terms.grace - FORCE_MARGIN,
        rooms=sorted(rooms),
    )


def _all_of(context: DecisionContext, workload: Workload) -> list[Pod]:
    return [pod for pod in context.world.pods if pod.workload == workload.name]


def minimum_of(context: DecisionContext, workload: Workload) -> int:
    """Of its disruption budget or, as budgets count those too, of its annotation; 0: it asks for none."""
    return next((one.min_available for one in context.world.budgets if one.workload == workload.name), 0)
