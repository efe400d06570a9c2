"""How a hand-over will go, said beforehand: for every service on a source that ends, what moves it, when, and for how
long it would be short.

The same facts and the same lengths of time as the steps themselves; only what is not there yet is reckoned. Where a
block gives fewer nodes than it should, or somebody else's pods sit in the room, it comes out worse.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.draft import Draft, Life
from tidemill.decide.drain import FORCE_MARGIN
from tidemill.decide.handover.method import in_effect, lacking
from tidemill.decide.handover.pace import Span, at_once, loading, move_time, starting, waves
from tidemill.decide.handover.rooms import boot_of, may_launch
from tidemill.decide.handover.seats import Seat, seats_for, take
from tidemill.decide.nodes import MARGIN
from tidemill.decide.overflow import PREPAID
from tidemill.world import Method, Pod, Reservation, Source, Workload


@dataclass(frozen=True, slots=True)
class Short:
    """Below its minimum, from an instant on; `lasts` None: until something comes that is not known of."""

    since: datetime
    lasts: timedelta | None


@dataclass(frozen=True, slots=True)
class Outlook:
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


Together = dict[tuple[Source, str], list[tuple[Life, Pod]]]


def outlooks(draft: Draft, only: str = "", onto: Collection[str] = ()) -> list[Outlook]:
    """For every service on prepaid capacity that ends, the first end first; `only` one source's, `onto` these alone."""
    found: list[Outlook] = []
    seats: dict[Source, list[Seat]] = {}
    for (source, name), pairs in sorted(_standing(draft).items(), key=_first_end):
        workload, block = draft.workloads.get(name), draft.reservations.get(source.id)
        if workload is None or block is None or (only and source.id != only):
            continue
        if pairs[0][0].facts.template is None:
            continue  # its pool was removed: nothing is launched for it any more
        if source not in seats:
            seats[source] = seats_for(draft, source, _deadline(pairs), onto)
        found.append(_outlook(draft, workload, block, pairs, seats[source]))
    return found


def _standing(draft: Draft) -> Together:
    found: Together = {}
    for life in draft.lives:
        if life.facts.movers and life.deadline is not None and life.source.kind in PREPAID:
            for pod in life.facts.movers:
                if pod.workload in draft.workloads:
                    found.setdefault((life.source, pod.workload), []).append((life, pod))
    return found


def _first_end(one: tuple[tuple[Source, str], list[tuple[Life, Pod]]]) -> tuple[datetime, Source, str]:
    return (_deadline(one[1]), *one[0])


def _deadline(pairs: list[tuple[Life, Pod]]) -> datetime:
    return min(life.deadline for life, _ in pairs if life.deadline is not None)


def _outlook(
    draft: Draft, workload: Workload, block: Reservation, pairs: list[tuple[Life, Pod]], seats: list[Seat]
) -> Outlook:
    deadline, pods, pool = _deadline(pairs), [pod for _, pod in pairs], pairs[0][0].facts.pool_name
    drain_from = min(life.drain_from for life, _ in pairs if life.drain_from is not None)
    method, minimum = in_effect(workload, draft.workloads), minimum_of(draft, workload)
    mine = [pod for pod in draft.world.pods if pod.workload == workload.name]
    load = loading(workload.terms, mine)
    goes_as = draft.workloads[workload.pair] if method is Method.PAIRED else workload
    taken = [take(seats, goes_as) for _ in pods]
    count = waves(workload, method, len(pods), workload.replicas - minimum)
    staying = sum(pod.ready and pod.deleting_until is None for pod in mine) - sum(pod.ready for pod in pods)
    move = _Move(
        method=method,
        replicas=workload.replicas,
        leaving=len(pods),
        enough=minimum - (0 if method is Method.PAIRED else staying),
        at_once=at_once(workload, method, len(pods), workload.replicas - minimum),
        never_allowed=method is Method.EVICT and minimum >= workload.replicas,
        step=starting(mine) + load.length,
        drain_from=drain_from,
        last_moment=deadline - workload.terms.grace - FORCE_MARGIN,
        rooms=sorted(seat.at for seat in taken if seat is not None),
    )
    bridged = move.short() is not None and may_launch(draft, goes_as)
    if bridged:
        move = move.bridged(boot_of(draft, draft.templates[pool]).length)
    last = next((seat for seat in reversed(taken) if seat is not None), None)
    after = draft.reservations.get(last.source.id) if last is not None else None
    boot = boot_of(draft, last.template if last is not None else draft.templates[pool])
    return Outlook(
        workload=workload,
        pool=pool,
        source=block.source,
        block=block,
        successor=after,
        method=workload.method or Method.EVICT,
        in_effect=method,
        lacking=lacking(workload, draft.workloads),
        leaving=len(pods),
        minimum=minimum,
        boot=boot,
        load=load,
        needed=boot.length + move_time(workload, method, count, load.length) + MARGIN,
        overlap=max(timedelta(0), deadline - after.start) if after is not None else None,
        drain_from=drain_from,
        ready_from=move.rooms[0] if move.rooms else None,
        moved_by=move.done_at(count),
        deadline=deadline,
        bridged=bridged,
        short=move.short() if minimum else None,
    )


def minimum_of(draft: Draft, workload: Workload) -> int:
    """Of its disruption budget or, as budgets count those too, of its annotation; 0: it asks for none."""
    return next((one.min_available for one in draft.world.budgets if one.workload == workload.name), 0)


@dataclass(frozen=True, slots=True)
class _Move:
    """The arithmetic of one service's move."""

    method: Method
    replicas: int
    leaving: int
    enough: int  # of those that leave: so many must be Ready elsewhere, or the minimum is missed
    at_once: int
    never_allowed: bool  # as many must be there as there are, and nothing is made before it is broken
    step: timedelta  # from an order to a Ready replica
    drain_from: datetime
    last_moment: datetime  # who is still there is made to go
    rooms: list[datetime]  # from when there is room for the first, the second, …

    def bridged(self, boot: timedelta) -> _Move:
        """By the hour there is room for everybody, a boot after they ask; in waves, after each has asked."""
        asks_anew = self.method in (Method.EVICT, Method.ROLLOUT)
        rooms = [self.drain_from + (timedelta(0) if asks_anew else boot)] * self.leaving
        return replace(self, rooms=rooms, step=self.step + (boot if asks_anew else timedelta(0)))

    @property
    def begins(self) -> datetime | None:
        """Methods that make all at once wait for room for all, the others for the first wave's."""
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
        at_last = (
            max(room_for_all, self.last_moment) + self.step
        )  # all who were made to go, made anew together
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
        """Each is missed while it is made anew. A single one goes at the last moment."""
        if not self.rooms:
            return Short(self.last_moment, None)
        if self.replicas == 1:
            return self._until(max(self.rooms[0], self.last_moment) + self.step)
        begins = self.begins or self.drain_from
        return Short(begins, self.leaving * self.step)
