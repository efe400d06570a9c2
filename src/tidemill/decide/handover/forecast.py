"""How a hand-over will go, said beforehand: for every service on a source that ends, what moves it, when, and for how
long it would be short.

It uses the same facts and durations as the steps themselves; only what is not there yet is estimated. Where a block
delivers fewer nodes than it should, or other pods take the room, the outcome is worse.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import MARGIN
from tidemill.decide.drain import FORCE_MARGIN
from tidemill.decide.handover.destinations import ReplicaSlots, boot_of, may_launch
from tidemill.decide.node_table import NodeView
from tidemill.decide.service_moves import (
    Span,
    at_once,
    in_effect,
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
class Short:
    """Below its minimum from an instant on; `lasts` None: for an unknown time."""

    since: datetime
    lasts: timedelta | None


@dataclass(frozen=True, slots=True)
class Move:
    """One service's move, wave by wave, from when there is room until it is done or the deadline comes."""

    method: Method
    replicas: int
    leaving: int
    enough: int  # how many of those that leave must be Ready elsewhere to keep the minimum
    at_once: int
    never_allowed: bool  # the minimum is all replicas, and the method creates none before it evicts
    step: timedelta  # from creation to a Ready replica
    drain_from: datetime
    last_moment: datetime  # replicas that are still there are deleted
    rooms: list[datetime]  # from when there is room for the first, the second, …

    def bridged(self, boot: timedelta) -> Move:
        """With hourly nodes there is room for all, one boot after they are pending; in waves, after each wave."""
        asks_anew = self.method in (Method.EVICT, Method.ROLLOUT)
        rooms = [self.drain_from + (timedelta(0) if asks_anew else boot)] * self.leaving
        return replace(self, rooms=rooms, step=self.step + (boot if asks_anew else timedelta(0)))

    @property
    def begins(self) -> datetime | None:
        """Methods that create all replicas at once wait for room for all, the others for the first wave."""
        wave = min(self.at_once, self.leaving)
        return max(self.drain_from, self.rooms[wave - 1]) if len(self.rooms) >= wave else None

    def done_at(self, count: int) -> datetime | None:
        if self.begins is None or len(self.rooms) < self.leaving:
            return None
        return max(self.begins + count * self.step, self.rooms[-1] + self.step)

    def short(self) -> Short | None:
        if self.enough <= 0:
            return None
        if self.never_allowed:
            return self._one_by_one()
        if len(self.rooms) < self.enough:
            return Short(self.last_moment, None)
        room_for_all = self.rooms[self.enough - 1]
        # Replicas that were deleted are created again with all others, as soon as there is room.
        at_last = max(room_for_all, self.last_moment) + self.step
        if self.begins is None or self.begins >= self.last_moment:
            return self._until(at_last)
        finished = (self.last_moment - self.begins) // self.step
        if finished * self.at_once >= self.enough and room_for_all + self.step <= self.last_moment:
            return None
        if self.enough - finished * self.at_once <= self.at_once:
            return self._until(max(self.begins + (finished + 1) * self.step, room_for_all + self.step))
        return self._until(at_last)

    def _until(self, up: datetime) -> Short | None:
        return Short(self.last_moment, up - self.last_moment) if up > self.last_moment else None

    def _one_by_one(self) -> Short | None:
        """Each replica is missing while it is created again. A single replica goes at the last moment."""
        if not self.rooms:
            return Short(self.last_moment, None)
        if self.replicas == 1:
            return self._until(max(self.rooms[0], self.last_moment) + self.step)
        begins = self.begins or self.drain_from
        return Short(begins, self.leaving * self.step)


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
    found: list[ServiceForecast] = []
    slots: dict[Source, ReplicaSlots] = {}
    for (source, name), pairs in sorted(_standing(context).items(), key=_first_end):
        workload, block = context.workloads.get(name), context.reservations.get(source.id)
        if workload is None or block is None or (only and source.id != only):
            continue
        if pairs[0][0].facts.template is None:
            continue  # its pool was removed: nothing is launched for it
        if source not in slots:
            slots[source] = ReplicaSlots(context, source, _drain_from(pairs), _deadline(pairs), onto)
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


def _drain_from(pairs: list[tuple[NodeView, Pod]]) -> datetime:
    return min(view.drain_from for view, _ in pairs if view.drain_from is not None)


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
    count = waves(workload, method, len(pods), workload.replicas - minimum)
    move = _move(context, workload, method, pairs, ready)
    if method in (Method.EVICT, Method.ROLLOUT) and ready:  # each wave asks for the nodes it needs
        asked = {id(node): node for node in taken if slots.comes_when_asked(node)}
        move = replace(move, step=move.step + min(len(asked), count) * boot.length / count)
    bridged = move.short() is not None and may_launch(context, goes_as)
    move = move.bridged(boot.length) if bridged else move
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
        drain_from=_drain_from(pairs),
        last_moment=_deadline(pairs) - workload.terms.grace - FORCE_MARGIN,
        rooms=sorted(rooms),
    )


def _all_of(context: DecisionContext, workload: Workload) -> list[Pod]:
    return [pod for pod in context.world.pods if pod.workload == workload.name]


def minimum_of(context: DecisionContext, workload: Workload) -> int:
    """Its minimum from a disruption budget or from its annotation; 0: none."""
    return next(
        (budget.min_available for budget in context.world.budgets if budget.workload == workload.name), 0
    )
