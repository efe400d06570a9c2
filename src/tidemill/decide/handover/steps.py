"""What a hand-over does now: the next step of every service whose source is being drained.

Each step is read off the world, so an engine that dies between two of them goes on where the last one stopped: what
was touched carries its token, what was added is noted beside the replicas, and a pair has its numbers. Evictions are
`drain`'s; here it is told which pods to leave alone meanwhile. The last safe moment is nobody's to move.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.context import Draft, Life
from tidemill.decide.drain import MUST_BE_EMPTY
from tidemill.decide.handover.destinations import boot_of, may_launch, ready_room, successors
from tidemill.decide.handover.methods import in_effect
from tidemill.decide.nodes import Phase, pod_lead
from tidemill.decide.overflow import PREPAID
from tidemill.model.plan import RestartWorkload, ScaleWorkload
from tidemill.model.world import Method, Pod, Source, Workload
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class Leaving:
    """The replicas of one service on nodes that are being drained because their source ends."""

    pods: tuple[Pod, ...]
    sources: frozenset[Source]
    deadline: datetime  # the first of them

    @property
    def turn(self) -> datetime:
        """Who is still there then is evicted, within the budget, whatever was meant to happen first."""
        return self.deadline - max(pod_lead(pod, checkpoint=False) for pod in self.pods)

    @property
    def token(self) -> str:
        labels = "+".join(sorted(source.label for source in self.sources))
        return f"{labels}@{format_instant(self.deadline)}"


def hand_over(draft: Draft) -> None:
    if not draft.workloads:
        return
    leaving = _leaving(draft)
    for name, workload in sorted(draft.workloads.items()):
        those = leaving.get(name)
        if those is not None:
            if _moves(draft, workload, those) and draft.now < those.turn:
                draft.kept.update(pod.uid for pod in those.pods)
                draft.wake(those.turn)
        elif workload.added:
            _take_back(draft, workload)
        elif workload.pair and workload.replicas and not workload.ready and workload.pair not in leaving:
            _take_over(draft, workload)


def _leaving(draft: Draft) -> dict[str, Leaving]:
    found: dict[str, list[tuple[Life, Pod]]] = {}
    for life in draft.lives:
        if life.facts.movers and _ends_with_its_source(life):
            for pod in life.facts.movers:
                found.setdefault(pod.workload, []).append((life, pod))
    return {
        name: Leaving(
            tuple(pod for _, pod in pairs),
            frozenset(life.source for life, _ in pairs),
            min(life.deadline for life, _ in pairs if life.deadline is not None),
        )
        for name, pairs in found.items()
    }


def _ends_with_its_source(life: Life) -> bool:
    """Not a node that AWS takes alone: a whole service is not made anew for one of its replicas."""
    if life.phase is not Phase.DRAINING or life.deadline is None or life.source.kind not in PREPAID:
        return False
    instance, kube = life.node.instance, life.node.kube
    alone = instance is not None and instance.ends_at is not None
    return not alone and kube is not None and MUST_BE_EMPTY in kube.drain_reason


def _moves(draft: Draft, workload: Workload, those: Leaving) -> bool:
    """Take the next step. True: its replicas stay where they are until that has borne fruit."""
    match in_effect(workload, draft.workloads):
        case Method.ROLLOUT:
            return _roll(draft, workload, those)
        case Method.SCALE:
            return _scale(draft, workload, those)
        case Method.PAIRED:
            return _swap(draft, workload, draft.workloads[workload.pair], those)
    return _awaits_room(draft, workload, those)


def _roll(draft: Draft, workload: Workload, those: Leaving) -> bool:
    if workload.rolling:
        return True
    if workload.restarted_for == those.token:
        return False  # it is done, and who is still there was not made anew: evicted like anybody
    if _awaits_room(draft, workload, those):
        return True
    if not _finds_room(draft, workload, those, 1):
        return False
    reason = f"its replicas move off {_named(those)}: new ones come up elsewhere before the old ones go"
    draft.do(RestartWorkload(workload.name, those.token, reason))
    return True


def _scale(draft: Draft, workload: Workload, those: Leaving) -> bool:
    count = len(those.pods)
    if workload.added:
        base = workload.replicas - workload.added
        if _ready_elsewhere(draft, workload, those) >= base:
            going = tuple(sorted(pod.uid for pod in those.pods))
            reason = f"{base} replicas are Ready elsewhere: those on {_named(those)} go"
            draft.do(ScaleWorkload(workload.name, base, 0, going, reason))
        return True
    if _awaits_room(draft, workload, those, count):
        return True
    if not _finds_room(draft, workload, those, count):
        return False
    reason = f"{count} more replicas elsewhere, before those on {_named(those)} go"
    draft.do(ScaleWorkload(workload.name, workload.replicas + count, count, (), reason))
    return True


def _ready_elsewhere(draft: Draft, workload: Workload, those: Leaving) -> int:
    here = {pod.uid for pod in those.pods}
    return sum(
        pod.ready and pod.uid not in here and pod.deleting_until is None
        for pod in draft.world.pods
        if pod.workload == workload.name
    )


def _swap(draft: Draft, workload: Workload, pair: Workload, those: Leaving) -> bool:
    missing = workload.replicas - pair.replicas
    if missing > 0:
        if _awaits_room(draft, pair, those, missing):
            return True
        if not _finds_room(draft, pair, those, missing):
            return False
        reason = f"it takes over from {workload.name}, whose {_named(those)} ends"
        draft.do(ScaleWorkload(pair.name, workload.replicas, 0, (), reason))
    elif pair.ready >= workload.replicas:
        reason = f"{pair.name} has {pair.ready} replicas Ready and takes over"
        draft.do(ScaleWorkload(workload.name, 0, 0, (), reason))
    return True


def _take_back(draft: Draft, workload: Workload) -> None:
    """Nobody of it leaves any more: they are gone, or their source was extended."""
    base = workload.replicas - workload.added
    reason = "none of its replicas has to leave any more"
    draft.do(ScaleWorkload(workload.name, base, 0, (), reason))


def _take_over(draft: Draft, workload: Workload) -> None:
    """Its source ended before its pair was up: nobody of it is Ready, and its own nodes are not coming back."""
    nowhere = frozenset[Source]()
    if in_effect(workload, draft.workloads) is not Method.PAIRED:
        return
    if any(successors(draft, workload, draft.now, nowhere)):
        return
    pair = draft.workloads[workload.pair]
    missing = workload.replicas - pair.replicas
    if pair.ready >= workload.replicas:
        draft.do(ScaleWorkload(workload.name, 0, 0, (), f"{pair.name} has taken over"))
    elif missing > 0 and ready_room(draft, pair, draft.now, nowhere) >= missing:
        reason = f"it takes over from {workload.name}, which has nowhere to run"
        draft.do(ScaleWorkload(pair.name, workload.replicas, 0, (), reason))


def _finds_room(draft: Draft, workload: Workload, those: Leaving, room_for: int) -> bool:
    """Where nodes may be launched for it by the hour, asking is what launches them."""
    ready = ready_room(draft, workload, those.deadline, those.sources)
    return ready >= room_for or may_launch(draft, workload)


def _awaits_room(draft: Draft, workload: Workload, those: Leaving, room_for: int = 1) -> bool:
    """Nothing is Ready to take them: they serve where they are until something is, or their own last turn comes.

    Evicted sooner they would have nowhere to go. Only what may be launched by the hour, and by nothing but their
    asking, is asked for at once; unless what is prepaid comes in time.
    """
    if ready_room(draft, workload, those.deadline, those.sources) >= room_for:
        return False
    if draft.now >= those.turn:
        return False
    return not may_launch(draft, workload) or _comes_by(draft, workload, those, those.turn)


def _comes_by(draft: Draft, workload: Workload, those: Leaving, turn: datetime) -> bool:
    for template, one in successors(draft, workload, those.deadline, those.sources):
        boot = boot_of(draft, template).length
        if max(one.start, draft.now - boot) + boot <= turn:
            return True
    return False


def _named(those: Leaving) -> str:
    return " and ".join(sorted(source.label for source in those.sources))
