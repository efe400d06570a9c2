"""Serve what waits: warm delivered blocks, place every waiting pod, and say what each one gets or waits for."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.explain import Explainer
from tidemill.decide.launches import InFlight
from tidemill.decide.phases import Phase
from tidemill.decide.placement.backfill import hold_for_gangs
from tidemill.decide.placement.candidates import BOOT, CandidateNode, Candidates, Stage, find_candidates
from tidemill.decide.placement.capacity_holds import hold_for_services
from tidemill.decide.placement.eligibility import worth_launching
from tidemill.decide.placement.launch_options import LaunchOption, end_of_option, plan_launch
from tidemill.decide.placement.packing import Packing, Placement, pack
from tidemill.decide.placement.queue import stop_gang, waiting
from tidemill.decide.placement.queue_item import QueueItem, time_needed, useful_until
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.plan import Admit, Recreate
from tidemill.model.pods import Pod
from tidemill.spec.units import format_duration

# Pods of one job arrive one by one: wait until none came for a second, at most ten from the first.
BATCH_IDLE = timedelta(seconds=1)
BATCH_LONGEST = timedelta(seconds=10)


def place_pending(context: DecisionContext, in_flight: InFlight) -> None:
    items = context.waiting = waiting(context)
    if not items and not _could_warm(context):
        return
    accelerated = all(item.wants_accelerator for item in items) and not context.world.budgets
    gangs = any(item.gang is not None for item in items)
    candidates = find_candidates(
        context, in_flight, accelerated=accelerated, gangs=gangs, between_pods=_between_pods(context, items)
    )
    warm(context, candidates)
    hold_for_services(context, candidates)
    hold_for_gangs(context, items, candidates)
    packing = pack(context, items, candidates)
    for placement in packing.placements:
        for candidate in placement.nodes:
            if candidate.group.template is not None:
                context.placed.add(candidate.group.template.pool.name)
            if candidate.view is not None:
                candidate.view.reserved = True
        _start_or_wait(context, placement)
    _launch(context, packing, candidates)
    explainer = Explainer(context, candidates)
    for item in packing.unplaced:
        if item.pinned_to:
            _take_back(context, item)
        else:
            explainer.explain(item)


def _between_pods(context: DecisionContext, items: list[QueueItem]) -> bool:
    """Does anybody have rules about other pods? Those who run only through what they keep away."""
    return context.keeps_away or any(pod.shape.sociable for item in items for pod in item.pods)


def _could_warm(context: DecisionContext) -> bool:
    """Only a block with a free slot can be warmed: most looks end here."""
    return any(
        one.kind is SourceKind.BLOCK and one.available > 0 and one.owner == context.owner
        for one in context.world.reservations
    )


# --- warm blocks --------------------------------------------------------------------------------------


def warm(context: DecisionContext, candidates: Candidates) -> None:
    """A delivered block gets its nodes at once: it is paid for whether they run or not (CB-11)."""
    started: dict[str, int] = {}
    for option in candidates.launch_options if _could_warm(context) else ():
        if option.reservation is None or option.reservation.kind is not SourceKind.BLOCK:
            continue
        if context.shared(option.reservation) or option.template.by_karpenter:
            continue  # Karpenter keeps its own nodes warm: its NodePool says how many
        wanted = _warm_target(context, option) - started.get(option.pool.name, 0)
        end = end_of_option(context, option)
        if not worth_launching(context, end) or option.rests(context.now):
            continue
        count = 0
        while count < wanted and option.left >= 1 and option.allowance.allows(option.kind):
            option.open()
            count += 1
            group = candidates.coming(option.template, option.source, option.kind, option.zone, end)
            group.nodes.append(CandidateNode(group, f"new {option.kind.name}", option.free, option=option))
        if count:
            started[option.pool.name] = started.get(option.pool.name, 0) + count
            nodes = "1 node warms up" if count == 1 else f"{count} nodes warm up"
            plan_launch(context, option, count, f"block {option.source.id} is active: {nodes}")
            option.opened = 0


def _warm_target(context: DecisionContext, option: LaunchOption) -> float:
    setting = option.pool.spec.kept_warm
    if isinstance(setting, bool):
        return float("inf") if setting else 0
    alive = sum(
        view.facts.pool_name == option.pool.name and _outlives(context, view.source, option)
        for view in context.views
    )
    coming = sum(
        intent.in_flight
        for intent in context.world.launches
        if intent.pool == option.pool.name and _outlives(context, intent.source, option)
    )
    return max(0, setting - alive - coming)


def _outlives(context: DecisionContext, source: Source, option: LaunchOption) -> bool:
    """A warm number is reached by nodes that stay: those of a block that ends sooner are about to go."""
    own = option.reservation
    other = context.reservations.get(source.id)
    if source.kind is not SourceKind.BLOCK or own is None or other is None:
        return False
    return other.end is None or own.end is None or other.end >= own.end


# --- what was placed ----------------------------------------------------------------------------------


def _start_or_wait(context: DecisionContext, placement: Placement) -> None:
    item, rooms = placement.item, placement.nodes
    if placement.stage is Stage.READY:
        if item.gated:
            candidate = rooms[0]
            where = f"{len(rooms)} nodes of {candidate.group.source.label}" if item.gang else candidate.name
            _admit(context, item, candidate, f"there is room and time on {where}")
        return
    if item.gated and all(_by_karpenter(candidate) for candidate in rooms):
        _let_karpenter_see(context, item, rooms[0])
        return
    for pod, candidate in zip(item.pods, rooms, strict=True):
        _wake_when_too_late(context, item, candidate)
        if candidate.group.stage is Stage.READY:
            context.hold(
                pod, "gang", f"room on {candidate.name} is held for it until the rest of its gang has room"
            )
        elif candidate.group.returning:
            context.hold(
                pod,
                "starting",
                f"a node of {candidate.group.source.label} is gone, and EC2 is cleaning its slot",
            )
        elif candidate.view is not None:
            context.hold(pod, "starting", _stage_sentence(candidate.view.phase, candidate.name))
        else:
            by = " by Karpenter" if _by_karpenter(candidate) else ""
            said = f"a {_opening_words(candidate)} is being launched for it{by}"
            context.hold(pod, "launching", said, context.now + BOOT)


def _admit(context: DecisionContext, item: QueueItem, candidate: CandidateNode, why: str) -> None:
    uids, end = tuple(pod.uid for pod in item.pods), candidate.group.end
    why = f"{why}{_disbelieved(item, candidate)}"
    context.do(Admit(uids, candidate.group.source.label, end.deadline, why, _pool_of(candidate)))


def _by_karpenter(candidate: CandidateNode) -> bool:
    return candidate.group.template is not None and candidate.group.template.by_karpenter


def _let_karpenter_see(context: DecisionContext, item: QueueItem, candidate: CandidateNode) -> None:
    """It provisions for unschedulable pods only, one by one: nobody can promise that a gang comes up whole."""
    label = candidate.group.source.label
    if item.gang is not None:
        context.warn(
            item.gang.name,
            f"pool {_pool_of(candidate)} is Karpenter's, which knows no gangs: its pods start one by one",
        )
    _admit(
        context,
        item,
        candidate,
        f"there is time on {label}, and Karpenter launches for what nothing holds back",
    )


def _disbelieved(item: QueueItem, candidate: CandidateNode) -> str:
    """A word longer than the pool believes: it is drained if it is not done by then, and should know beforehand."""
    template, said = candidate.group.template, item.terms.expected
    if template is None or said is None or said <= template.pool.spec.max_expected_duration:
        return ""
    believed = format_duration(template.pool.spec.max_expected_duration)
    return f"; it says {format_duration(said)}, of which pool {template.pool.name} believes {believed}"


def _pool_of(candidate: CandidateNode) -> str:
    return candidate.group.template.pool.name if candidate.group.template is not None else ""


def _wake_when_too_late(context: DecisionContext, item: QueueItem, candidate: CandidateNode) -> None:
    """Room that is long in coming may not last any more when it is there: then something else must be found."""
    template = candidate.group.template
    if template is not None and item.gated:
        until = useful_until(item, candidate.group.end, template.pool)
        if until is not None:
            context.wake(until - time_needed(item.terms, template.pool) - BOOT + timedelta(seconds=1))


def _stage_sentence(phase: Phase, name: str) -> str:
    if phase is Phase.REGISTERING:
        return (
            f"{name} is registering its accelerators, usually 60-90 s;"
            " 'OutOfnvidia.com/gpu' until then is expected and passes"
        )
    doing = {
        Phase.LAUNCHED: "joining the cluster",
        Phase.JOINED: "not Ready yet",
        Phase.VERIFYING: "being checked",
    }
    return f"waits for {name}, which is {doing.get(phase, phase.value)}"


def _opening_words(candidate: CandidateNode) -> str:
    option = candidate.option
    return f"{option.kind.name} on {option.source.label}" if option is not None else "node"


def _launch(context: DecisionContext, packing: Packing, candidates: Candidates) -> None:
    asked = [one for one in candidates.opened if not one.template.by_karpenter]
    if not asked:
        return
    wanting = [
        pod
        for one in packing.placements
        if one.stage is Stage.NEW and not all(_by_karpenter(candidate) for candidate in one.nodes)
        for pod in one.item.pods
    ]
    closes = _batch_closes(wanting)
    if context.now < closes:
        context.wake(closes)
        return
    for option in asked:
        first = next(
            one.item.pods[0].full_name
            for one in packing.placements
            if any(candidate.option is option for candidate in one.nodes)
        )
        others = len(wanting) - 1
        beside = "" if not others else " and 1 other pod" if others == 1 else f" and {others} other pods"
        reason = f"{first}{beside} {'wait' if others else 'waits'}"
        plan_launch(context, option, option.opened, reason)


def _batch_closes(pods: list[Pod]) -> datetime:
    newest = max(pod.created_at for pod in pods)
    oldest = min(pod.created_at for pod in pods)
    return min(newest + BATCH_IDLE, oldest + BATCH_LONGEST)


# --- what was not -------------------------------------------------------------------------------------


def _take_back(context: DecisionContext, item: QueueItem) -> None:
    """Admitted to a source that has no room any more: made again, gated, it can be admitted elsewhere."""
    reason = f"{item.pinned_to}, which it was admitted to, has no room for it any more"
    if item.gang is not None:
        namespace = item.pods[0].namespace
        members = [pod for pod in context.world.pods if pod.gang == item.gang and pod.namespace == namespace]
        stop_gang(context, (pod for pod in members if not pod.gated), reason)
    for pod in item.pods:
        if item.gang is None and pod.workload:
            context.do(Recreate(pod.uid, reason))
        if not pod.workload:
            context.hold(pod, "impossible", f"{reason}, and nothing would create it again")
        else:
            context.hold(pod, "gang" if item.gang is not None else "held", reason)
