"""What goes on while somebody has paused the engine: what a deadline forces, and keeping the books. Nothing else.

No purchase, launch or admission, no consolidation and no hand-over begins. Time does not wait: a node whose source ends
is emptied as ever. What was begun is finished where half of it would harm: replicas that a hand-over added are taken
back, a node that comes up is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from tidemill.model.plan import (
    Action,
    Admit,
    AnnounceEnd,
    AnnounceNodeEnd,
    CancelDrain,
    Evict,
    ForceDelete,
    KeepForJobs,
    Launch,
    MarkReady,
    Plan,
    ProposePurchase,
    Recreate,
    RemoveNode,
    RequestCheckpoint,
    RestartWorkload,
    ScaleWorkload,
    SearchExtensions,
    SearchOffers,
    SettleLaunch,
    SettlePurchase,
    StartDrain,
    SubmitPurchase,
    Terminate,
    Unmet,
    Warning,
)
from tidemill.model.pods import Pod
from tidemill.model.purchases import Pause
from tidemill.model.reasons import HandoverKind, HoldKind, HoldReason, StepKind, TerminateKind
from tidemill.model.warning_reasons import WarningKind, WarningReason
from tidemill.model.world import World

# Nobody tells the engine that it may go on.
LOOK_EVERY = timedelta(seconds=30)
# Hand-overs that are under way end with these.
_FINISHES = frozenset({HandoverKind.READY_ELSEWHERE, HandoverKind.SURGE_NOT_NEEDED, HandoverKind.PAIR_READY})


def while_paused(plan: Plan, world: World, pause: Pause, about: str) -> Plan:
    """The plan without what a pause holds back; every pod that would have been admitted says why it waits."""
    at, look = world.now, world.now + LOOK_EVERY
    ends = _ending(plan, world)
    told = Warning(about, WarningReason(WarningKind.PAUSED, name=pause.who, at=pause.at, detail=pause.reason))
    return replace(
        plan,
        actions=tuple(action for action in plan.actions if _goes_on(action, ends)),
        unmet=tuple(_unmet(plan, world, pause)),
        warnings=(told, *plan.warnings),
        wake_at=min(look, plan.wake_at) if plan.wake_at is not None and plan.wake_at > at else look,
    )


def _ending(plan: Plan, world: World) -> frozenset[str]:
    """Nodes that a deadline empties."""
    begun = (
        node.kube.name
        for node in world.nodes
        if node.kube is not None and node.kube.drain_reason is not None and node.kube.drain_reason.is_end
    )
    begins = (one.node for one in plan.actions if isinstance(one, StartDrain) and one.reason.is_end)
    on = {*begun, *begins}
    return frozenset(pod.uid for pod in world.pods if pod.node in on)


def _goes_on(action: Action, ends: frozenset[str]) -> bool:
    """`ends`: uids of the pods on nodes that a deadline empties."""
    match action:
        case SettlePurchase() | SettleLaunch() | RemoveNode() | MarkReady():
            return True  # the books, and nodes that come and go by themselves
        case AnnounceEnd() | AnnounceNodeEnd() | KeepForJobs() | ForceDelete() | CancelDrain():
            return True  # an end, or that it moved
        case StartDrain(reason=reason):
            return reason.is_end
        case RequestCheckpoint(pod=pod, reason=reason):
            return reason.kind is StepKind.NODE_DRAINS and pod in ends
        case Evict(reason=reason):
            return reason.drain is not None and reason.drain.is_end
        case Terminate(reason=reason):
            drained = (
                reason.kind is TerminateKind.DRAINED and reason.drain is not None and reason.drain.is_end
            )
            return drained or reason.kind is TerminateKind.SOURCE_ENDS
        case RestartWorkload(reason=reason) | ScaleWorkload(reason=reason):
            return reason.kind in _FINISHES
        case SearchOffers() | SearchExtensions() | ProposePurchase() | SubmitPurchase() | Launch():
            return False
        case Admit() | Recreate():
            return False
        case _:
            assert_never(action)


def _unmet(plan: Plan, world: World, pause: Pause) -> Iterator[Unmet]:
    pods = {pod.uid: pod for pod in world.pods}
    admitted = (uid for action in plan.actions if isinstance(action, Admit) for uid in action.pods)
    for uid in admitted:
        if uid in pods:
            yield _paused(pods[uid], pause)
    for one in plan.unmet:
        pod = pods.get(one.pod)
        starts = pod is None or (not pod.gated and one.code == "starting")
        yield one if starts or one.code == "impossible" or pod is None else _paused(pod, pause)


def _paused(pod: Pod, pause: Pause) -> Unmet:
    reason = HoldReason(HoldKind.PAUSED, name=pause.who, since=pause.at, detail=pause.reason)
    return Unmet(pod.uid, pod.full_name, "held", reason)
