"""Place pending pods: warm delivered blocks, admit what fits, launch for the rest, say what each pod waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.launches import InFlight
from tidemill.decide.phases import Phase
from tidemill.decide.placement.backfill import hold_for_next, hold_for_services
from tidemill.decide.placement.candidate_nodes import BOOT, CandidateNode, Candidates, Stage, find_candidates
from tidemill.decide.placement.eligibility import refusal, worth_launching
from tidemill.decide.placement.expected_room import wait_for_room
from tidemill.decide.placement.explain import Explainer
from tidemill.decide.placement.launch_options import LaunchOption, end_of_option, plan_launch
from tidemill.decide.placement.packing import Packing, Placement, pack
from tidemill.decide.placement.queue import (
    members_of,
    stop_gang,
    waiting,
    wake_at_birthdays,
    within_limits,
)
from tidemill.decide.queue_item import QueueItem, time_needed, useful_until
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import INSTANCE_ENDED_STATES
from tidemill.model.plan import Admit, Recreate
from tidemill.model.pods import Pod
from tidemill.model.reasons import (
    AdmitKind,
    AdmitReason,
    HoldKind,
    HoldReason,
    LaunchKind,
    LaunchReason,
    RecreateKind,
    RecreateReason,
)
from tidemill.model.warning_reasons import WarningKind, WarningReason
from tidemill.spec import names

# Pods of one job arrive one by one: wait until none came for a second, at most ten from the first.
BATCH_IDLE = timedelta(seconds=1)
BATCH_LONGEST = timedelta(seconds=10)
# What was admitted and taken back is admitted again after 5 s, 10, 20 and at most ten minutes.
FIRST_REST = timedelta(seconds=5)
LONGEST_REST = timedelta(minutes=10)
# What was let go for Karpenter is not taken back for as long as its instance may not be listed.
UNLISTED_FOR = timedelta(minutes=2)
_STARTING = {
    Phase.LAUNCHED: HoldKind.NODE_JOINS,
    Phase.JOINED: HoldKind.NODE_NOT_READY,
    Phase.REGISTERING: HoldKind.NODE_REGISTERS,
    Phase.VERIFYING: HoldKind.NODE_IS_CHECKED,
}


def place_pending(context: DecisionContext, in_flight: InFlight) -> None:
    everybody = waiting(context)
    queue, over = within_limits(context, everybody)
    items = context.waiting = queue.items
    if not items and not _could_warm(context):
        _hold_over_limits(context, over)
        return
    lanes = [lane.items[0] for lane in queue.lanes.values()]
    accelerated = all(item.wants_accelerator for item in lanes) and not context.world.budgets
    gangs = any(item.gang is not None for item in lanes)
    between_pods = context.keeps_away or any(item.sociable for item in lanes)
    candidates = find_candidates(
        context, in_flight, accelerated=accelerated, gangs=gangs, between_pods=between_pods
    )
    warm(context, candidates)
    hold_for_services(context, candidates)
    hold_for_next(context, queue, candidates)
    wake_at_birthdays(context, queue)
    packing = pack(context, queue, candidates)
    wait_for_room(context, packing, candidates)
    for placement in packing.placements:
        for candidate in placement.nodes:
            if candidate.group.template is not None:
                context.placed.add(candidate.group.template.pool.name)
            if candidate.view is not None:
                candidate.view.reserved = True
        _start_or_wait(context, placement, in_flight)
    _launch(context, packing, candidates)
    placed = context.placed_items = {placement.item for placement in packing.placements}
    for item in placed if context.namespace_caps else ():
        if not item.pinned_to:
            context.namespace_caps.take(item.pods)
    placed |= _hold_over_limits(context, [*over, *(item for item in items if item not in placed)])
    if gangs:
        _try_for_gangs(context, queue.gangs, placed, candidates)
    for item in items:
        if not item.pinned_to:
            break  # what is admitted already comes first
        if item not in placed:
            _take_back(context, item)
    Explainer(context, candidates).explain(everybody, placed)


def _could_warm(context: DecisionContext) -> bool:
    """Only a block with a free slot can be warmed: most ticks end here."""
    return any(
        reservation.kind is SourceKind.BLOCK
        and reservation.available > 0
        and reservation.owner == context.owner
        for reservation in context.world.reservations
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
            reason = LaunchReason(LaunchKind.BLOCK_ACTIVE, option.source.id, count)
            plan_launch(context, option, count, reason)
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
    """Only nodes that stay count as warm: those of a block that ends sooner are about to go."""
    own = option.reservation
    other = context.reservations.get(source.id)
    if source.kind is not SourceKind.BLOCK or own is None or other is None:
        return False
    return other.end is None or own.end is None or other.end >= own.end


# --- what was placed ----------------------------------------------------------------------------------


def _start_or_wait(context: DecisionContext, placement: Placement, in_flight: InFlight) -> None:
    item, rooms = placement.item, placement.nodes
    if item.gated and _rests(context, item):
        return
    if placement.stage is Stage.READY:
        if item.gated:
            candidate = rooms[0]
            if item.gang is not None:
                _admit(
                    context, item, candidate, AdmitKind.NODES_FREE, candidate.group.source.label, len(rooms)
                )
            else:
                _admit(context, item, candidate, AdmitKind.NODE_FREE, candidate.name)
        return
    if item.gated and all(_by_karpenter(candidate) for candidate in rooms):
        _let_karpenter_see(context, item, rooms[0])
        return
    if not any(_by_karpenter(candidate) for candidate in rooms) and _stop_broken(context, item):
        return
    for pod, candidate in zip(item.pods, rooms, strict=True):
        _wake_when_too_late(context, item, candidate)
        if candidate.group.stage is Stage.READY:
            context.hold(pod, "gang", HoldReason(HoldKind.GANG_WAITS_FOR_REST, name=candidate.name))
        elif candidate.group.returning:
            cleaned = HoldReason(HoldKind.SLOT_IS_CLEANED, name=candidate.group.source.label)
            context.hold(pod, "starting", cleaned)
        elif candidate.view is not None:
            starts = HoldReason(_STARTING[candidate.view.phase], name=candidate.name)
            context.hold(pod, "starting", starts)
        else:
            _hold_for_launch(context, pod, candidate, in_flight)


def _rests(context: DecisionContext, item: QueueItem) -> bool:
    """Admitted at once it would most likely be taken back again, for as long as nothing else changes. Its nodes are
    kept for it meanwhile."""
    workload = item.pods[0].workload
    back = next((one for one in context.world.taken_back if one.workload == workload), None)
    if back is None:
        return False
    again = back.last_at + min(FIRST_REST * 2.0 ** min(back.times - 1, 10), LONGEST_REST)
    if context.now >= again:
        return False
    context.wake(again)
    for pod in item.pods:
        often = HoldReason(HoldKind.TAKEN_BACK_OFTEN, count=back.times, at=again)
        context.hold(pod, "gang" if item.gang is not None else "held", often)
    return True


def _hold_for_launch(
    context: DecisionContext, pod: Pod, candidate: CandidateNode, in_flight: InFlight
) -> None:
    """What failed lately may fail again, zone after zone: then nobody is told that a node is on its way."""
    group, option = candidate.group, candidate.option
    type_ = group.labels.get(names.LABEL_TYPE, "") if option is None else option.kind.name
    failed_lately = in_flight.failed_lately.get((group.source, type_))
    if failed_lately is not None and not _by_karpenter(candidate):
        again = HoldReason(HoldKind.LAUNCHING_AGAIN, name=type_, source=group.source.label)
        context.hold(pod, "no-capacity", again)
        context.wake(failed_lately)
        return
    kind = HoldKind.KARPENTER_LAUNCHES if _by_karpenter(candidate) else HoldKind.LAUNCHING
    launched = (
        HoldReason(kind, name=type_, source=option.source.label) if option is not None else HoldReason(kind)
    )
    context.hold_for(BOOT, pod, "launching", launched)


def _stop_broken(context: DecisionContext, item: QueueItem) -> bool:
    """A gang whose pods are pinned by their template: who takes the place of a lost one is not gated. The others have
    started and it finds no Ready node, so they stop, and all of it waits until it can start whole (PE-17)."""
    gang = item.gang
    if gang is None or not item.pinned_to:
        return False
    members = [pod for pod in members_of(context, item) if not pod.gated]
    if not any(pod.started_at is not None for pod in members):
        return False
    lost = RecreateReason(RecreateKind.GANG_LOST_PODS, gang.name, len(item.pods), gang.size)
    stop_gang(context, members, lost)
    for pod in item.pods:
        context.hold(pod, "gang", HoldReason(HoldKind.GANG_LOST_POD, name=gang.name))
    return True


def _admit(
    context: DecisionContext,
    item: QueueItem,
    candidate: CandidateNode,
    kind: AdmitKind,
    name: str,
    count: int = 0,
    workload: str = "",
) -> None:
    uids, end, pool = tuple(pod.uid for pod in item.pods), candidate.group.end, _pool_of(candidate)
    capped_to = _capped_to(item, candidate)
    expected = item.terms.expected if capped_to is not None else None
    reason = AdmitReason(kind, name, count, pool, expected, capped_to)
    context.do(Admit(uids, candidate.group.source.label, end.deadline, reason, pool, workload))


def _by_karpenter(candidate: CandidateNode) -> bool:
    return candidate.group.template is not None and candidate.group.template.by_karpenter


def _let_karpenter_see(context: DecisionContext, item: QueueItem, candidate: CandidateNode) -> None:
    """Karpenter provisions for unschedulable pods one by one, so a gang may not start whole."""
    label = candidate.group.source.label
    if item.gang is not None:
        splits = WarningReason(WarningKind.KARPENTER_SPLITS_GANG, _pool_of(candidate))
        context.warn(item.gang.name, splits)
    _admit(context, item, candidate, AdmitKind.KARPENTER_LAUNCHES, label, workload=item.pods[0].workload)


def _capped_to(item: QueueItem, candidate: CandidateNode) -> timedelta | None:
    """It expects to run longer than its pool plans for: if it is not done by then it is drained, and should know."""
    template, expected = candidate.group.template, item.terms.expected
    if template is None or expected is None or expected <= template.pool.spec.max_expected_duration:
        return None
    return template.pool.spec.max_expected_duration


def _pool_of(candidate: CandidateNode) -> str:
    return candidate.group.template.pool.name if candidate.group.template is not None else ""


def _wake_when_too_late(context: DecisionContext, item: QueueItem, candidate: CandidateNode) -> None:
    """A node that is late may not last long enough any more: then another place must be found."""
    template = candidate.group.template
    if template is not None and item.gated:
        until = useful_until(item, candidate.group.end, template.pool)
        if until is not None:
            context.wake(until - time_needed(item.terms, template.pool) - BOOT + timedelta(seconds=1))


def _launch(context: DecisionContext, packing: Packing, candidates: Candidates) -> None:
    asked = [option for option in candidates.opened if not option.template.by_karpenter]
    if not asked:
        return
    wanting = [
        pod
        for placement in packing.placements
        if placement.stage is Stage.NEW and not all(_by_karpenter(candidate) for candidate in placement.nodes)
        for pod in placement.item.pods
    ]
    closes = _batch_closes(wanting)
    if context.now < closes:
        context.wake(closes)
        return
    for option in asked:
        first = next(
            placement.item.pods[0].full_name
            for placement in packing.placements
            if any(candidate.option is option for candidate in placement.nodes)
        )
        reason = LaunchReason(LaunchKind.PODS_WAIT, first, len(wanting) - 1)
        plan_launch(context, option, option.opened, reason, _needed_at_once(packing, option))


def _needed_at_once(packing: Packing, option: LaunchOption) -> int:
    """The most new nodes that one gang needs of it: with fewer, they would stand idle. A block is paid either way."""
    if option.reservation is not None:
        return 1
    gangs = (placement for placement in packing.placements if placement.item.gang is not None)
    needed = (
        len({id(candidate) for candidate in placement.nodes if candidate.option is option})
        for placement in gangs
    )
    return max(needed, default=1) or 1


def _try_for_gangs(
    context: DecisionContext, gangs: Iterable[QueueItem], placed: set[QueueItem], candidates: Candidates
) -> None:
    """Where nodes never became Ready one is tried at a time. A gang asks for more at once, so one is tried for it."""
    doubtful = [
        one for one in candidates.launch_options if one.trial is not None and not one.template.by_karpenter
    ]
    for item in gangs if doubtful else ():
        option = next((one for one in doubtful if refusal(context, item, one) is None), None)
        if item in placed or option is None or option.failed_starts is None:
            continue
        option.open()
        reason = LaunchReason(LaunchKind.TRIED_ALONE, item.pods[0].full_name, option.failed_starts.count)
        plan_launch(context, option, 1, reason)


def _batch_closes(pods: list[Pod]) -> datetime:
    newest = max(pod.created_at for pod in pods)
    oldest = min(pod.created_at for pod in pods)
    return min(newest + BATCH_IDLE, oldest + BATCH_LONGEST)


# --- what was not -------------------------------------------------------------------------------------


def _hold_over_limits(context: DecisionContext, items: Iterable[QueueItem]) -> set[QueueItem]:
    """Of those without a place, those for whom the GPUs of their namespace do not suffice. Says so."""
    caps, over = context.namespace_caps, set[QueueItem]()
    for item in items if caps else ():
        reason = caps.refusal(item.pods) if not item.pinned_to else None
        if reason is not None:
            over.add(item)
            never = reason.kind is HoldKind.OVER_NAMESPACE_LIMIT
            for pod in item.pods:
                context.hold(pod, "impossible" if never else "limit", reason)
    return over


def _take_back(context: DecisionContext, item: QueueItem) -> None:
    """It was admitted to a source that has no room any more: recreated and gated, it can be admitted elsewhere."""
    if _karpenter_has_launched(context, item):
        return
    reason = RecreateReason(RecreateKind.NO_ROOM_LEFT, item.pinned_to)
    if item.gang is not None:
        stop_gang(context, (pod for pod in members_of(context, item) if not pod.gated), reason)
    for pod in item.pods:
        if item.gang is None and pod.workload:
            context.do(Recreate(pod.uid, reason, pod.workload))
        if not pod.workload:
            lost = HoldReason(HoldKind.NO_ROOM_LEFT_FOR_GOOD, name=item.pinned_to)
            context.hold(pod, "impossible", lost)
        else:
            waits = HoldReason(HoldKind.NO_ROOM_LEFT, name=item.pinned_to)
            context.hold(pod, "gang" if item.gang is not None else "held", waits)


def _karpenter_has_launched(context: DecisionContext, item: QueueItem) -> bool:
    """It was let go a moment ago, and a slot of its source is taken by an instance that AWS does not list yet: that is
    the one that Karpenter launched for it."""
    workload, now = item.pods[0].workload, context.now
    let_go = next((one for one in context.world.let_go if one.workload == workload), None)
    if let_go is None or now >= let_go.at + UNLISTED_FOR:
        return False
    for reservation in context.world.reservations:
        if reservation.source.label != item.pinned_to:
            continue
        listed = sum(
            node.instance is not None
            and node.instance.source == reservation.source
            and node.instance.state not in INSTANCE_ENDED_STATES
            for node in context.world.nodes
        )
        if reservation.count - reservation.available <= listed:
            return False
        context.wake(let_go.at + UNLISTED_FOR)
        reason = HoldReason(
            HoldKind.KARPENTER_LAUNCHES, name=reservation.instance_type, source=reservation.source.label
        )
        for pod in item.pods:
            context.hold(pod, "launching", reason)
        return True
    return False
