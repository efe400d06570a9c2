"""What a hand-over does now: the next step of every service whose source is being drained.

Each step is read off the world, so an engine that dies between two of them goes on where the last one stopped: what
was touched carries its token, what was added is noted beside the replicas, and a pair has its numbers. Evictions are
`drain`'s; here it is told which pods to leave alone meanwhile. The last safe moment is nobody's to move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import pod_lead
from tidemill.decide.handover.destinations import (
    ready_room,
    room_coming,
    room_when_asked,
    successors,
)
from tidemill.decide.handover.hourly_seats import may_launch
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.model.capacity import PREPAID, Source
from tidemill.model.plan import RestartWorkload, ScaleWorkload
from tidemill.model.pods import Method, Pod, Workload
from tidemill.model.reasons import HandoverKind, HandoverReason
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class Leaving:
    """The replicas of one service on nodes that are being drained because their source ends."""

    pods: tuple[Pod, ...]
    sources: frozenset[Source]
    deadline: datetime  # the first of them

    @property
    def reservations(self) -> frozenset[Source]:
        """Those that are over then. Nodes by the hour of other pools stay, whose source has the same name."""
        return frozenset(source for source in self.sources if source.kind in PREPAID)

    @property
    def turn(self) -> datetime:
        """Replicas that are still there then are evicted within the budget, whatever step comes next."""
        return self.deadline - max(pod_lead(pod, checkpoint=False) for pod in self.pods)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(sorted(source.label for source in self.sources))

    @property
    def token(self) -> str:
        return f"{'+'.join(self.labels)}@{format_instant(self.deadline)}"


def hand_over(context: DecisionContext) -> None:
    if not context.workloads:
        return
    leaving = _leaving(context)
    for name, workload in sorted(context.workloads.items()):
        those = leaving.get(name)
        if those is not None:
            if _moves(context, workload, those, leaving) and context.now < those.turn:
                context.kept.update(pod.uid for pod in those.pods)
                context.wake(those.turn)
        elif workload.added:
            _take_back(context, workload)
        elif workload.pair and workload.replicas and not workload.ready and workload.pair not in leaving:
            _take_over(context, workload)


def _leaving(context: DecisionContext) -> dict[str, Leaving]:
    found: dict[str, list[tuple[NodeView, Pod]]] = {}
    for view in context.views:
        if view.facts.movers and _ends_with_its_source(view):
            for pod in view.facts.movers:
                found.setdefault(pod.workload, []).append((view, pod))
    return {
        name: Leaving(
            tuple(pod for _, pod in pairs),
            frozenset(view.source for view, _ in pairs),
            min(end for view, _ in pairs if (end := _end_of(view)) is not None),
        )
        for name, pairs in found.items()
    }


def _ends_with_its_source(view: NodeView) -> bool:
    """Not a node that AWS takes alone: a whole service is not rolled out for one of its replicas."""
    if view.phase is not Phase.DRAINING or _end_of(view) is None:
        return False
    instance, kube = view.node.instance, view.node.kube
    alone = instance is not None and instance.ends_at is not None
    reason = kube.drain_reason if kube is not None else None
    return not alone and reason is not None and reason.is_end


def _end_of(view: NodeView) -> datetime | None:
    """Money lasts longer with every node that goes: there the end that the drain began for is kept to."""
    kube = view.node.kube
    if view.source.kind in PREPAID or kube is None or kube.drain_reason is None:
        return view.deadline
    return kube.drain_reason.at


def _moves(
    context: DecisionContext, workload: Workload, those: Leaving, leaving: Mapping[str, Leaving]
) -> bool:
    """Take the next step. True: its replicas stay in place until the step has worked."""
    match context.method_of(workload):
        case Method.ROLLOUT:
            return _roll(context, workload, those)
        case Method.SCALE:
            return _scale(context, workload, those)
        case Method.PAIRED:
            pair = context.workloads[workload.pair]
            return _swap(context, workload, pair, those, _lasting(pair, leaving.get(pair.name), those))
    return _awaits_room(context, workload, those)


def _roll(context: DecisionContext, workload: Workload, those: Leaving) -> bool:
    if workload.rolling:
        return True
    if workload.restarted_for == those.token:
        return False  # the rollout is done; replicas that are still there are evicted
    if _awaits_room(context, workload, those):
        return True
    if not _finds_room(context, workload, those, 1):
        return False
    reason = HandoverReason(HandoverKind.ROLLOUT, sources=those.labels)
    context.do(RestartWorkload(workload.name, those.token, reason))
    return True


def _scale(context: DecisionContext, workload: Workload, those: Leaving) -> bool:
    count = len(those.pods)
    if workload.added:
        base = workload.replicas - workload.added
        if _ready_elsewhere(context, workload, those) >= base:
            going = tuple(sorted(pod.uid for pod in those.pods))
            reason = HandoverReason(HandoverKind.READY_ELSEWHERE, count=base, sources=those.labels)
            context.do(ScaleWorkload(workload.name, base, 0, going, reason))
        return True
    if _awaits_room(context, workload, those, count):
        return True
    if not _finds_room(context, workload, those, count):
        return False
    reason = HandoverReason(HandoverKind.SURGE, count=count, sources=those.labels)
    context.do(ScaleWorkload(workload.name, workload.replicas + count, count, (), reason))
    return True


def _ready_elsewhere(context: DecisionContext, workload: Workload, those: Leaving) -> int:
    here = {pod.uid for pod in those.pods}
    return sum(
        pod.ready and pod.uid not in here and pod.deleting_until is None
        for pod in context.world.pods
        if pod.workload == workload.name
    )


def _lasting(pair: Workload, leaving: Leaving | None, those: Leaving) -> int:
    """How many of the pair are Ready and stay when these have gone: what ends as soon takes over from nobody."""
    if leaving is None or leaving.deadline > those.deadline:
        return pair.ready
    return pair.ready - sum(pod.ready and pod.deleting_until is None for pod in leaving.pods)


def _swap(
    context: DecisionContext, workload: Workload, pair: Workload, those: Leaving, pair_ready: int
) -> bool:
    missing, enough = workload.replicas - pair.replicas, max(1, context.minimum_of(workload))
    if missing > 0:
        if not _comes_in_time(context, pair, those, missing):
            if context.lets_one_go(workload) and not _awaits_room(context, workload, those):
                return False  # within its budget, onto nodes of its own half
            missing = min(missing, enough)  # those of the pair that find no room wait there
        if _awaits_room(context, pair, those, missing):
            return True
        if not _finds_room(context, pair, those, missing):
            return False
        reason = HandoverReason(HandoverKind.PAIR_STARTS, workload.name, sources=those.labels)
        context.do(ScaleWorkload(pair.name, workload.replicas, 0, (), reason))
    elif pair_ready >= (workload.replicas if context.now < those.turn else enough):
        reason = HandoverReason(HandoverKind.PAIR_READY, pair.name, pair_ready)
        context.do(ScaleWorkload(workload.name, 0, 0, (), reason))
    return True


def _take_back(context: DecisionContext, workload: Workload) -> None:
    """No replica is leaving any more: they are gone, or their source was extended."""
    base = workload.replicas - workload.added
    reason = HandoverReason(HandoverKind.SURGE_NOT_NEEDED)
    context.do(ScaleWorkload(workload.name, base, 0, (), reason))


def _take_over(context: DecisionContext, workload: Workload) -> None:
    """Its source ended before its pair was up: no replica is Ready, and its nodes do not come back."""
    nowhere = frozenset[Source]()
    if context.method_of(workload) is not Method.PAIRED:
        return
    if any(successors(context, workload, context.now, nowhere)):
        return
    pair = context.workloads[workload.pair]
    missing = workload.replicas - pair.replicas
    if pair.ready >= workload.replicas:
        reason = HandoverReason(HandoverKind.PAIR_READY, pair.name, pair.ready)
        context.do(ScaleWorkload(workload.name, 0, 0, (), reason))
    elif missing > 0 and ready_room(context, pair, context.now, nowhere) >= missing:
        reason = HandoverReason(HandoverKind.PAIR_STARTS_NO_NODES, workload.name)
        context.do(ScaleWorkload(pair.name, workload.replicas, 0, (), reason))


def _finds_room(context: DecisionContext, workload: Workload, those: Leaving, room_for: int) -> bool:
    """Where nodes may be launched for it, pending replicas launch them."""
    ready = ready_room(context, workload, those.deadline, those.reservations)
    return ready >= room_for or _launches(context, workload, those, room_for - ready)


def _launches(context: DecisionContext, workload: Workload, those: Leaving, missing: int) -> bool:
    """Nodes come for its replicas once they are pending, and not before: by the hour, or on prepaid slots that nobody
    keeps up."""
    return (
        may_launch(context, workload)
        or room_when_asked(context, workload, those.deadline, those.reservations) >= missing
    )


def _comes_in_time(context: DecisionContext, pair: Workload, those: Leaving, missing: int) -> bool:
    missing -= ready_room(context, pair, those.deadline, those.reservations)
    if missing <= 0 or _launches(context, pair, those, missing):
        return True
    return room_coming(context, pair, those.deadline, those.reservations, those.turn) >= missing


def _awaits_room(context: DecisionContext, workload: Workload, those: Leaving, room_for: int = 1) -> bool:
    """No node is Ready for them: they keep serving until one is, or until they must be evicted.

    Evicted sooner they would have nowhere to go. Only what is launched by nothing but their asking is asked for at
    once; unless what is prepaid comes by itself in time.
    """
    missing = room_for - ready_room(context, workload, those.deadline, those.reservations)
    if missing <= 0 or context.now >= those.turn:
        return False
    if not _launches(context, workload, those, missing):
        return True
    return room_coming(context, workload, those.deadline, those.reservations, those.turn) >= missing
