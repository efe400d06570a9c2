"""What moving the pods of some nodes elsewhere would save, and whether it is allowed.

The solver is asked to place the pods as if their nodes were gone. A move counts only if everybody has a place, at most
one node is new, services stay up, no node is kept that would have gone by itself, and the money saved pays for
the move before the pods or their new places would have ended anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.launches import InFlight
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.backfill import hold_for_next, hold_for_services
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateNode, Stage, find_candidates
from tidemill.decide.placement.packing import Packing, pack
from tidemill.decide.placement.queue import found_waiting, queue_of
from tidemill.decide.queue_item import POD_START, QueueItem
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Pod
from tidemill.model.resources import Resources

# The most candidate nodes in all packing problems of one decision together: a problem costs about as much as it has.
_MOST_ROOMS = 60_000
_CENT = 0.01
_HOUR = timedelta(hours=1)
_SOON = timedelta(minutes=10)
# Estimates of run times are rough, and a pod may have to move again: a move must pay twice.
_MARGIN = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node all of whose pods may move."""

    view: NodeView
    items: tuple[QueueItem, ...]
    usd_h: float
    redone: timedelta  # work that is done twice if it moves, at worst
    ends: datetime | None  # when its last pod is done anyway; None: unknown, or never


@dataclass(frozen=True, slots=True)
class ConsolidationMove:
    leaving: tuple[Candidate, ...]
    packing: Packing
    new: CandidateNode | None
    saves_usd_h: float

    def is_better(self, other: ConsolidationMove | None) -> bool:
        """It saves more, or for the same money it launches nothing."""
        if other is None or self.saves_usd_h > other.saves_usd_h + _CENT:
            return True
        same = self.saves_usd_h > other.saves_usd_h - _CENT
        return same and (self.new is None or other.new is not None)


class ConsolidationMoves:
    """The moves of one pool in one decision."""

    def __init__(self, context: DecisionContext, in_flight: InFlight, *, to_prepaid: bool = False) -> None:
        """`to_prepaid`: only to nodes of prepaid capacity, and nothing is launched."""
        self._context, self._in_flight, self._to_prepaid = context, in_flight, to_prepaid
        self._looks = max(2, _MOST_ROOMS // max(1, len(context.views)))
        everything = find_candidates(context, in_flight, accelerated=False, gangs=False, between_pods=False)
        self._rooms = [
            (id(target.view), target.free) for group in everything.groups.values() for target in group.nodes
        ]
        self._launch_options = [(option.usd_h, option.free) for option in everything.launch_options]

    def best(self, candidates: Sequence[Candidate], most: int) -> ConsolidationMove | None:
        """As many nodes at once as pay, found by bisection; else the first single node that pays."""
        best: ConsolidationMove | None = None
        low, high = 2, most
        while low <= high:
            middle = (low + high) // 2
            move = self._of(candidates[:middle])
            if move is None:
                high = middle - 1
                continue
            best = move if move.is_better(best) else best
            low = middle + 1
        if best is not None and best.new is not None and len(best.leaving) > 2:
            fewer = self._of(best.leaving[:-1])  # may need no new node, for the same money
            best = fewer if fewer is not None and fewer.is_better(best) else best
        if best is not None:
            return best
        single = (self._of((candidate,)) for candidate in candidates)
        return next((move for move in single if move is not None), None)

    def _of(self, leaving: Sequence[Candidate]) -> ConsolidationMove | None:
        context = self._context
        if self._looks <= 0 or not self._might_do(leaving) or not _keeps_services_up(context, leaving):
            return None
        self._looks -= 1
        packing = self._packing(leaving)
        if not packing.all_placed:
            return None
        rooms = {id(target): target for placement in packing.placements for target in placement.nodes}
        new = [target for target in rooms.values() if target.group.stage is Stage.NEW]
        if self._to_prepaid and (new or any(one.group.source.kind not in PREPAID for one in rooms.values())):
            return None
        price = sum(_extra_usd_h(context, target) for target in rooms.values())
        saves = sum(candidate.usd_h for candidate in leaving) - price
        if len(new) > 1 or saves < _CENT or not _pays(context, leaving, rooms.values(), price, saves):
            return None
        return ConsolidationMove(tuple(leaving), packing, new[0] if new else None, saves)

    def _packing(self, leaving: Sequence[Candidate]) -> Packing:
        context = self._context
        items = [item for candidate in leaving for item in candidate.items]
        accelerated = all(item.wants_accelerator for item in items)
        minds = context.keeps_away or any(item.shape.sociable for item in items)
        targets = find_candidates(
            context, self._in_flight, accelerated=accelerated, gangs=False, between_pods=minds
        )
        targets.leave_out(candidate.view for candidate in leaving)
        targets.shut(_going_sooner(context, leaving))
        hold_for_services(context, targets)
        hold_for_next(context, found_waiting(context), targets)  # a moved pod comes back as the last
        return pack(context, queue_of(context, items), targets, thorough=False)

    def _might_do(self, leaving: Sequence[Candidate]) -> bool:
        """Sums and single fits, before the packer is asked: most nodes fail here."""
        gone = {id(candidate.view) for candidate in leaving}
        usd_h = sum(candidate.usd_h for candidate in leaving)
        rooms = [free for view, free in self._rooms if view not in gone]
        new = [free for price, free in self._launch_options if price <= usd_h - _CENT]
        wanted = Resources()
        for candidate in leaving:
            for item in candidate.items:
                if not any(free.fits(item.shape.requests) for free in (*rooms, *new)):
                    return False
                wanted.add_pod(item.shape.requests)
        for name, amount in wanted.items():
            there = sum(max(0, free.get(name, 0)) for free in rooms)
            if amount > there + max((free.get(name, 0) for free in new), default=0):
                return False
        return True


def _going_sooner(context: DecisionContext, leaving: Sequence[Candidate]) -> Iterator[NodeView]:
    """Hourly nodes that would be empty before the moved pods are done: keeping them saves nothing."""
    ends = [candidate.ends for candidate in leaving]
    last = None if None in ends else max(end for end in ends if end is not None)
    for view in context.views:
        if view.pods and view.source.kind not in PREPAID:
            free_at = last_end(context, view.pods)
            if free_at is not None and (last is None or free_at < last - _SOON):
                yield view


def last_end(context: DecisionContext, pods: Iterable[Pod]) -> datetime | None:
    """When the last of them is done; None: one of them has no expected end."""
    last = context.now
    for pod in pods:
        if pod.terms.expected is None:
            return None
        last = max(last, (pod.started_at or context.now) + pod.terms.load + pod.terms.expected)
    return last


def is_replica(pod: Pod) -> bool:
    """A replica of a service: a job without checkpoints would start over."""
    return pod.terms.expected is None and not pod.of_job


def _keeps_services_up(context: DecisionContext, leaving: Sequence[Candidate]) -> bool:
    """Every disruption budget allows it, and of every service some replica is ready on a node that stays."""
    moving: dict[str, int] = {}
    for candidate in leaving:
        for pod in candidate.view.pods:
            moving[pod.workload] = moving.get(pod.workload, 0) + 1
    for budget in context.world.budgets:
        if moving.get(budget.workload, 0) > budget.allowed:
            return False
    services = {pod.workload for one in leaving for pod in one.view.pods if is_replica(pod)}
    if not services:
        return True
    nodes = {candidate.view.node.name for candidate in leaving}
    nodes |= {view.node.name for view in context.views if view.ending or view.phase is Phase.DRAINING}
    staying = {
        pod.workload
        for pod in context.world.pods
        if pod.workload in services
        and pod.ready
        and pod.deleting_until is None
        and pod.node
        and pod.node not in nodes
    }
    return services == staying


def _extra_usd_h(context: DecisionContext, target: CandidateNode) -> float:
    """What an hour of this node costs because of the move: an empty one would have gone by itself."""
    if target.option is not None:
        return target.option.usd_h
    view = target.view
    return usd_h(context, view) if view is not None and not view.pods else 0.0


def usd_h(context: DecisionContext, view: NodeView) -> float:
    kind = view.facts.kind
    return context.spec.catalog.usd_h(kind.name, view.source.kind) if kind is not None else 0.0


def _pays(
    context: DecisionContext,
    leaving: Sequence[Candidate],
    rooms: Iterable[CandidateNode],
    price: float,
    saves: float,
) -> bool:
    """Whether the move pays before any of the pods would be done, and before any of their new nodes ends."""
    hours = (BOOT + POD_START) / _HOUR
    cost = price * hours + sum(one.usd_h * ((one.redone + POD_START) / _HOUR) for one in leaving)
    ends = [one.ends for one in leaving if one.ends is not None]
    ends += [target.group.end.drain_from for target in rooms if target.group.end.drain_from is not None]
    return not ends or context.now + _MARGIN * timedelta(hours=cost / saves) <= min(ends)
