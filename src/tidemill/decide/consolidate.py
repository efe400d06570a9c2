"""Fewer or cheaper nodes for the same pods: delete nodes whose pods fit elsewhere, or put one cheaper in their place.

The question is put to the solver, which is asked to place the pods of some nodes as if those nodes were gone. The
answer is acted on only if everybody has a place, at most one node is new, the money saved pays for the move before
the pods or their new place would have ended anyway, and the new place is Ready: a replacement is launched
first, and the old nodes are drained once it is there. Work that would start from the beginning is never moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.admit import POD_START, Item
from tidemill.decide.disruption import Disruptions, idle_since, is_protected
from tidemill.decide.draft import Draft, Life
from tidemill.decide.handover import claim
from tidemill.decide.launches import InFlight
from tidemill.decide.nodes import Phase
from tidemill.decide.openings import write_launch
from tidemill.decide.overflow import PREPAID, usd_per_hour
from tidemill.decide.pack import Packing, pack
from tidemill.decide.room import BOOT, Room, Rooms, Stage, survey
from tidemill.plan import Launch, StartDrain
from tidemill.world import Pod

# How many nodes are looked at in one decision, and how many rooms in all its questions together: the rest has
# its turn when these have changed. A question costs about as much as there are rooms.
_MOST_NODES = 100
_MOST_ROOMS = 60_000
_CENT = 0.01
_HOUR = timedelta(hours=1)
_SOON = timedelta(minutes=10)
# Estimates of run times are rough, and whoever moved once may have to move again: a move must pay twice.
_MARGIN = 2


@dataclass(frozen=True, slots=True)
class _Candidate:
    life: Life
    items: tuple[Item, ...]
    usd_h: float
    redone: timedelta  # work that is done twice if it moves, at worst
    ends: datetime | None  # when its last pod is done anyway; None: not known, or never


@dataclass(frozen=True, slots=True)
class _Move:
    leaving: tuple[_Candidate, ...]
    packing: Packing
    found: Rooms
    new: Room | None
    saves_usd_h: float


def consolidate(draft: Draft, in_flight: InFlight, disruptions: Disruptions) -> None:
    """Pool by pool; a pool in which something comes or goes is left alone until it is settled."""
    for name, template in draft.templates.items():
        if template.pool.spec.disruption.consolidation_policy != "WhenEmptyOrUnderutilized":
            continue
        allowed = disruptions.left(template.pool, "Underutilized")
        if allowed < 1 or not _is_settled(draft, in_flight, name):
            continue
        for until in in_flight.resting.values():
            draft.wake(until)
        candidates = sorted(_candidates(draft, name), key=_disturbance)[:_MOST_NODES]
        key = _fingerprint(draft, in_flight, candidates, allowed)
        if not candidates or draft.memory.settled.get(name) == key:
            continue
        wake_at = draft.wake_at
        move = _best_move(draft, in_flight, candidates, int(min(allowed, len(candidates))))
        draft.wake_at = wake_at  # what was only looked at is nothing to wake up for
        if move is None:
            draft.memory.settled[name] = key
        else:
            _carry_out(draft, move, disruptions)


def _is_settled(draft: Draft, in_flight: InFlight, pool: str) -> bool:
    """Nothing was just given room, nothing is on its way without having been seen, nothing is going."""
    if draft.placed or any(intent.pool == pool for intent, _ in in_flight.unseen):
        return False
    if any(isinstance(action, Launch) and action.intent.pool == pool for action in draft.actions):
        return False
    return not any(
        life.facts.pool_name == pool and (life.ending or life.phase is Phase.DRAINING) for life in draft.lives
    )


def _fingerprint(
    draft: Draft, in_flight: InFlight, candidates: Sequence[_Candidate], allowed: float
) -> tuple[object, ...]:
    """While this is the same, "nothing to gain" stays true: with time alone there is only less to gain."""
    return (
        allowed,
        tuple(candidate.life.facts for candidate in candidates),
        tuple(life.facts for life in draft.lives),
        tuple(sorted(in_flight.resting)),
        tuple((one.id, one.available) for one in draft.world.reservations),
    )


# --- who could go -------------------------------------------------------------------------------------


def _candidates(draft: Draft, pool: str) -> Iterator[_Candidate]:
    for life in draft.lives:
        if life.facts.pool_name != pool or life.phase is not Phase.READY or life.reserved or not life.pods:
            continue
        if life.source.kind in PREPAID or life.facts.kind is None or life.facts.drift is not None:
            continue  # prepaid: nothing is saved by leaving
        assert life.pool is not None
        due = idle_since(life) + life.pool.spec.disruption.consolidate_after
        if draft.now < due:
            draft.wake(due)
            continue
        if all(_may_move(draft, pod) for pod in life.pods):
            yield _candidate(draft, life)


def _may_move(draft: Draft, pod: Pod) -> bool:
    if not pod.workload or pod.gang is not None or pod.deleting_until is not None or is_protected(draft, pod):
        return False
    return pod.terms.checkpoint_every is not None or _is_replica(pod)


def _is_replica(pod: Pod) -> bool:
    """Of something that runs on: a job without checkpoints would begin again."""
    return pod.terms.expected is None and not pod.workload.startswith("Job/")


def _candidate(draft: Draft, life: Life) -> _Candidate:
    redone = max((pod.terms.checkpoint_every or timedelta(0)) + pod.terms.load for pod in life.pods)
    items = tuple(Item((pod,), None, True) for pod in sorted(life.pods, key=lambda pod: pod.full_name))
    return _Candidate(life, items, _usd_h(draft, life), redone, _last_end(draft, life.pods))


def _last_end(draft: Draft, pods: Iterable[Pod]) -> datetime | None:
    """When the last of them is done; None: one of them says nothing about its end."""
    last = draft.now
    for pod in pods:
        if pod.terms.expected is None:
            return None
        last = max(last, (pod.started_at or draft.now) + pod.terms.load + pod.terms.expected)
    return last


def _disturbance(candidate: _Candidate) -> tuple[object, ...]:
    """The fewest and least important pods first, the dearest node first among those."""
    weight = sum(1 + max(0, item.terms.priority) for item in candidate.items)
    return (weight, candidate.redone, -candidate.usd_h, candidate.life.node.name)


# --- what could be gained -----------------------------------------------------------------------------


def _best_move(
    draft: Draft, in_flight: InFlight, candidates: Sequence[_Candidate], most: int
) -> _Move | None:
    """As many nodes at once as pays, found by bisection; else the first single one that pays."""
    looks = max(2, _MOST_ROOMS // max(1, len(draft.lives)))
    best: _Move | None = None
    low, high = 2, most
    while low <= high and looks > 0:
        middle = (low + high) // 2
        looks -= 1
        move = _try(draft, in_flight, candidates[:middle])
        if move is not None:
            best, low = _better(move, best), middle + 1
        else:
            high = middle - 1
    if best is not None and best.new is not None and len(best.leaving) > 2:
        fewer = _try(
            draft, in_flight, best.leaving[:-1]
        )  # one fewer may do without a new node, for the same money
        best = _better(fewer, best) if fewer is not None else best
    if best is not None:
        return best
    for candidate in candidates[:looks]:
        move = _try(draft, in_flight, (candidate,))
        if move is not None:
            return move
    return None


def _going_sooner(draft: Draft, leaving: Sequence[_Candidate]) -> Iterator[Life]:
    """Nodes paid by the hour that would be empty before those who move are done: nothing is saved by keeping them."""
    ends = [candidate.ends for candidate in leaving]
    last = None if None in ends else max(end for end in ends if end is not None)
    for life in draft.lives:
        if life.pods and life.source.kind not in PREPAID:
            free_at = _last_end(draft, life.pods)
            if free_at is not None and (last is None or free_at < last - _SOON):
                yield life


def _better(one: _Move, other: _Move | None) -> _Move:
    """What saves more; for the same money what launches nothing."""
    if other is None or one.saves_usd_h > other.saves_usd_h + _CENT:
        return one
    if one.saves_usd_h < other.saves_usd_h - _CENT:
        return other
    return one if one.new is None or other.new is not None else other


def _keeps_services_up(draft: Draft, leaving: Sequence[_Candidate]) -> bool:
    """Every disruption budget allows it, and of every service some replica is ready on a node that stays."""
    moving: dict[str, int] = {}
    for candidate in leaving:
        for pod in candidate.life.pods:
            moving[pod.workload] = moving.get(pod.workload, 0) + 1
    for budget in draft.world.budgets:
        if moving.get(budget.workload, 0) > budget.allowed:
            return False
    nodes = {candidate.life.node.name for candidate in leaving}
    staying = {
        pod.workload
        for pod in draft.world.pods
        if pod.workload in moving and pod.ready and pod.node and pod.node not in nodes
    }
    services = {pod.workload for one in leaving for pod in one.life.pods if _is_replica(pod)}
    return services <= staying


def _try(draft: Draft, in_flight: InFlight, leaving: Sequence[_Candidate]) -> _Move | None:
    if not _keeps_services_up(draft, leaving):
        return None
    items = [item for candidate in leaving for item in candidate.items]
    accelerated = all(item.wants_accelerator for item in items)
    minds = any(life.facts.keeps_away for life in draft.lives) or any(item.shape.sociable for item in items)
    found = survey(draft, in_flight, accelerated=accelerated, gangs=False, between_pods=minds)
    found.leave_out(candidate.life for candidate in leaving)
    found.shut(_going_sooner(draft, leaving))
    claim(draft, found)
    packing = pack(draft, items, found)
    if packing.unplaced:
        return None
    rooms = {id(room): room for placement in packing.placements for room in placement.rooms}
    new = [room for room in rooms.values() if room.group.stage is Stage.NEW]
    if len(new) > 1:
        return None
    price = sum(_extra_usd_h(draft, room) for room in rooms.values())
    saves = sum(candidate.usd_h for candidate in leaving) - price
    if saves < _CENT or not _pays(draft, leaving, rooms.values(), price, saves):
        return None
    return _Move(tuple(leaving), packing, found, new[0] if new else None, saves)


def _extra_usd_h(draft: Draft, room: Room) -> float:
    """What an hour of this room costs only because of the move: one that is empty would have gone by itself."""
    if room.opening is not None:
        return room.opening.usd_h
    life = room.life
    if life is None or life.pods or life.facts.kind is None:
        return 0.0
    return _usd_h(draft, life)


def _usd_h(draft: Draft, life: Life) -> float:
    assert life.facts.kind is not None
    return usd_per_hour(draft.spec, life.facts.kind.name, life.source.kind)


def _pays(
    draft: Draft, leaving: Sequence[_Candidate], rooms: Iterable[Room], price: float, saves: float
) -> bool:
    """Is the move paid for before any of the pods would be done, and before any of their new places ends?"""
    hours = (BOOT + POD_START) / _HOUR
    cost = price * hours + sum(one.usd_h * ((one.redone + POD_START) / _HOUR) for one in leaving)
    ends = [one.ends for one in leaving if one.ends is not None]
    ends += [room.group.end.drain_from for room in rooms if room.group.end.drain_from is not None]
    return not ends or draft.now + _MARGIN * timedelta(hours=cost / saves) <= min(ends)


# --- doing it -----------------------------------------------------------------------------------------


def _carry_out(draft: Draft, move: _Move, disruptions: Disruptions) -> None:
    for placement in move.packing.placements:
        for room in placement.rooms:
            if room.life is not None:
                room.life.reserved = True
    names = ", ".join(candidate.life.node.name for candidate in move.leaving)
    saving = f"saves ${move.saves_usd_h:,.2f} an hour"
    if move.new is not None and move.new.opening is not None:
        nodes = "node" if len(move.leaving) == 1 else "nodes"
        write_launch(draft, move.new.opening, 1, f"replaces {nodes} {names}: {saving}")
    elif all(placement.stage is Stage.READY for placement in move.packing.placements):
        for candidate in move.leaving:
            assert candidate.life.pool is not None
            candidate.life.ending = True
            disruptions.take(candidate.life.pool)
            draft.do(StartDrain(candidate.life.node.name, f"its pods fit elsewhere: {saving}"))
