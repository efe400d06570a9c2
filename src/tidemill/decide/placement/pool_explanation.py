"""Why one pool does not run a pod now, and how near it comes: the first of its obstacles that applies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import SHORTEST_LEAD, End, deadline_of
from tidemill.decide.launches import NO_CAPACITY, NOT_FILLED_AFTER
from tidemill.decide.placement.candidate_nodes import BOOT, Candidates, Stage
from tidemill.decide.placement.eligibility import Refusal, may_use, refusal
from tidemill.decide.placement.launch_options import LaunchOption, end_of_option, usable_reservations
from tidemill.decide.pool_templates import HELD, PoolTemplate
from tidemill.decide.queue_item import QueueItem, lasts, time_needed
from tidemill.decide.scheduler_rules import admits, selects, tolerates
from tidemill.model.capacity import LIVE_STATES, NOT_STARTED_STATES, Reservation, Source, SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.plan import UnmetCode
from tidemill.model.pods import PodShape
from tidemill.model.reasons import HoldKind, HoldReason
from tidemill.model.resources import Resources
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool


@dataclass(frozen=True, slots=True)
class Explanation:
    closeness: int  # how near the pool came to serving it
    code: UnmetCode
    reason: HoldReason
    earliest: datetime | None = None
    own_need: bool = False  # `reason.need` is filled in for each pod: the answer is shared, its time is not


def explain_pool(
    context: DecisionContext, item: QueueItem, template: PoolTemplate, candidates: Candidates
) -> Explanation:
    pool = template.pool
    misfit = _known_misfit(context, item, template)
    if misfit is not None:
        return misfit
    if pool.name in context.refused_pools:
        reason = HoldReason(HoldKind.POOL_REFUSED, pool.name, context.refused_pools[pool.name])
        return Explanation(6, "held", reason)
    if pool.spec.limits is None:
        return Explanation(5, "limit", HoldReason(HoldKind.POOL_WITHOUT_LIMITS, pool.name))
    if item.gang is not None and (most := _most_at_once(context, template)) < len(item.pods):
        limited = pool.spec.limits.nodes is not None and most == pool.spec.limits.nodes
        kind = HoldKind.GANG_OVER_POOL_LIMIT if limited else HoldKind.GANG_OVER_SOURCE_SIZE
        reason = HoldReason(kind, pool.name, count=len(item.pods), of=int(most))
        return Explanation(32, "limit" if limited else "gang", reason)
    following = _next_reservation(context, item, template)
    refusals = {
        refusal(context, item, option) for option in candidates.launch_options if option.template is template
    }
    answer = _closest(context, item, pool, refusals, candidates)
    if following is None:
        return answer
    reason = replace(answer.reason, next_block=following.id, next_start=following.start)
    return replace(answer, reason=reason, earliest=answer.earliest or following.start + BOOT)


def _closest(
    context: DecisionContext,
    item: QueueItem,
    pool: ComputePool,
    refusals: set[Refusal | None],
    candidates: Candidates,
) -> Explanation:
    if item.gang is not None and _keeps_out_of_its_own_zone(item):
        return Explanation(34, "impossible", HoldReason(HoldKind.GANG_KEEPS_APART, name=item.gang.name))
    if None in refusals and item.gang is not None:
        return _gang_too_large(item, pool, candidates)
    if None in refusals and item.shape.sociable:
        return Explanation(27, "held", HoldReason(HoldKind.POD_RULES, pool.name))
    if None in refusals:
        limited = [
            one
            for one in candidates.launch_options
            if one.pool is pool
            and one.hourly_cap is not None
            and (one.overflow or end_of_option(context, one).deadline is not None)
        ]
        if limited and (item.terms.overflow or not limited[0].overflow):
            kind = HoldKind.OVERFLOW_TOO_SHORT if limited[0].overflow else HoldKind.MONTH_TOO_SHORT
            return Explanation(29, "budget", HoldReason(kind, pool.name))
    if _too_large(context, item, pool, refusals, candidates):
        daemons = tuple(pair for pair in candidates.daemons[pool.name].items() if pair[0] != names.PODS)
        requests = item.pods[0].shape.requests
        reason = HoldReason(HoldKind.TOO_LARGE_WITH_DAEMONS, pool.name, requests=requests, daemons=daemons)
        return Explanation(33, "impossible", reason)
    if Refusal.LIMIT in refusals:
        return Explanation(30, "limit", HoldReason(HoldKind.LIMITS_REACHED, pool.name, pairs=_limits(pool)))
    if Refusal.NEVER_READY in refusals:
        return _never_ready(context, pool, candidates)
    if Refusal.RESTING in refusals:
        until, failure = min(
            (option.resting_until, option.failure)
            if option.resting_until is not None
            else (option.gangs_rest_until or context.now, NO_CAPACITY)
            for option in candidates.launch_options
            if option.pool is pool
            and (option.resting_until is not None or option.gangs_rest_until is not None)
        )
        reason = HoldReason(HoldKind.NO_EC2_CAPACITY, pool.name, at=until)
        unfilled = _not_filled(context, pool, candidates) if failure == NO_CAPACITY else None
        if unfilled is not None and unfilled.reservation is not None:
            since, name = unfilled.failing_since, unfilled.reservation.id
            reason = HoldReason(HoldKind.BLOCK_NOT_FILLED, pool.name, name=name, since=since, at=until)
        elif failure != NO_CAPACITY:
            reason = HoldReason(HoldKind.LAUNCH_FAILED, pool.name, name=failure, at=until)
        return Explanation(29, "no-capacity", reason, until)
    if Refusal.MONEY in refusals and _by_the_hour_alone(pool):
        return Explanation(29, "budget", HoldReason(HoldKind.MONTH_SPENT, pool.name))
    if Refusal.MONEY in refusals and item.terms.overflow:
        return Explanation(29, "budget", HoldReason(HoldKind.OVERFLOW_SPENT, pool.name))
    kept = _kept_from(context, item, pool, candidates)
    if kept is not None:
        return Explanation(28, "held", HoldReason(HoldKind.KEPT_FOR_LARGER, pool.name, at=kept))
    if _busy(context, item, pool, candidates):
        if not _free_too_short(item, pool, candidates):
            return Explanation(28, "no-capacity", HoldReason(HoldKind.NODES_TAKEN, pool.name))
        return _too_long(28, HoldKind.NODES_TAKEN_OR_TOO_SHORT, item, pool)
    if Refusal.TIME in refusals or _too_short(item, pool, candidates):
        return _too_long(26, HoldKind.NOTHING_LASTS, item, pool)
    if Refusal.FULL in refusals:
        return Explanation(28, "no-capacity", HoldReason(HoldKind.NODES_TAKEN, pool.name))
    if Refusal.NOT_OPTED_IN in refusals:
        return Explanation(25, "held", HoldReason(HoldKind.NOT_OPTED_IN, pool.name))
    if not (context.world.ledger_ok and context.world.cloud_ok):
        return Explanation(24, "held", HoldReason(HoldKind.UNREACHABLE))
    return Explanation(20, "no-capacity", HoldReason(HoldKind.NO_ACTIVE_CAPACITY, pool.name))


def _not_filled(context: DecisionContext, pool: ComputePool, candidates: Candidates) -> LaunchOption | None:
    """Paid capacity with free slots into which EC2 has launched nothing for a while."""
    return next(
        (
            option
            for option in candidates.launch_options
            if option.pool is pool
            and option.reservation is not None
            and option.left >= 1
            and option.failing_since is not None
            and option.failing_since + NOT_FILLED_AFTER <= context.now
        ),
        None,
    )


def _by_the_hour_alone(pool: ComputePool) -> bool:
    return not any(source.type in ("block", "odcr") for source in pool.spec.sources)


def _keeps_out_of_its_own_zone(item: QueueItem) -> bool:
    """Its pods have a rule against each other in a zone, in which a gang has to be."""
    labels, namespace = dict(item.shape.labels), item.pods[0].namespace
    return len(item.pods) > 1 and any(
        term.topology_key == names.LABEL_ZONE
        and namespace in term.namespaces_of(namespace)
        and selects(term.selector, labels)
        for term in item.shape.anti_affinity
    )


def _never_ready(context: DecisionContext, pool: ComputePool, candidates: Candidates) -> Explanation:
    """The type that is tried soonest."""
    tried = [
        (option.failed_starts.tried_now, option.resting_until, option.kind.name, option.failed_starts.count)
        for option in candidates.launch_options
        if option.pool is pool and option.failed_starts is not None and option.resting_until is not None
    ]
    now, until, kind, count = min(tried)
    at = None if now or until <= context.now else until
    reason = HoldReason(HoldKind.NODES_NEVER_READY, pool.name, name=kind, count=count, at=at)
    return Explanation(29, "no-capacity", reason, at)


def _too_large(
    context: DecisionContext,
    item: QueueItem,
    pool: ComputePool,
    refusals: set[Refusal | None],
    candidates: Candidates,
) -> bool:
    """It fits no node the pool could launch once its daemon pods run there, and none that it has."""
    if Refusal.SIZE not in refusals or refusals - {
        Refusal.SIZE,
        Refusal.SELECTOR,
        Refusal.NAMESPACE,
        Refusal.PINNED,
    }:
        return False
    daemons = candidates.daemons[pool.name]
    kinds = {
        view.facts.kind.name: view.facts.kind
        for view in context.views
        if view.pool is pool and view.facts.kind
    }
    return not any(kind.free_beside(daemons).fits(item.shape.requests) for kind in kinds.values())


def _most_at_once(context: DecisionContext, template: PoolTemplate) -> float:
    """The most nodes one source of the pool could ever give at one time, its limits included."""
    pool, limits = template.pool, template.pool.spec.limits
    most = 0.0
    for wanted in pool.spec.sources:
        if wanted.type in ("block", "odcr"):
            counts = [
                reservation.count
                for reservation in usable_reservations(context, pool, wanted)
                if reservation.state in LIVE_STATES
            ]
            most = max(most, max(counts, default=0))
        else:
            most = float("inf")
    capped = limits.nodes if limits is not None and limits.nodes is not None else float("inf")
    return min(most, capped)


def _gang_too_large(item: QueueItem, pool: ComputePool, candidates: Candidates) -> Explanation:
    """One of its pods would find a node, all of them together do not."""
    count = len(item.pods)
    options = [option for option in candidates.launch_options if option.pool is pool]
    if not any(option.allowance.allows(option.kind, count) for option in options):
        reason = HoldReason(HoldKind.GANG_OVER_LIMITS_LEFT, pool.name, count=count, pairs=_limits(pool))
        return Explanation(31, "limit", reason)
    return Explanation(28, "gang", HoldReason(HoldKind.GANG_WITHOUT_SOURCE, pool.name, count=count))


class _Misfits:
    """Why a pool could never run a shape, by pool, identity of the shape and namespace."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int, str], tuple[Explanation | None, PodShape]] = {}


def _known_misfit(context: DecisionContext, item: QueueItem, template: PoolTemplate) -> Explanation | None:
    """It follows from documents and the shape alone, so it is worked out once."""
    known, key = (
        context.memory.of(_Misfits).known,
        (template.pool.name, id(item.shape), item.pods[0].namespace),
    )
    if key not in known:
        if len(known) > 10_000:
            known.clear()
        known[key] = (
            _misfit(context, item, template),
            item.shape,
        )  # kept alive, so that its identity stays its own
    return known[key][0]


def _misfit(context: DecisionContext, item: QueueItem, template: PoolTemplate) -> Explanation | None:
    """The pool could never run it, whatever capacity it had."""
    pod, pool, shape = item.pods[0], template.pool, item.shape
    if not pool.spec.serves(pod.namespace):
        reason = HoldReason(HoldKind.NAMESPACE_NOT_ALLOWED, pool.name, pod.namespace)
        return Explanation(1, "impossible", reason)
    for taint in template.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            held = taint == HELD
            kind = HoldKind.ADMITTED_PODS_ONLY if held else HoldKind.TAINT_NOT_TOLERATED
            reason = HoldReason(kind, pool.name, "" if held else taint.key)
            return Explanation(2, "impossible", reason)
    source = Source(SourceKind.ON_DEMAND)
    zones = sorted(context.spec.platform.spec.subnets) or [""]
    labelled = [
        kind
        for kind in template.kinds.values()
        if any(admits(shape, template.labels(source, kind, zone), template.taints) for zone in zones)
    ]
    if not labelled:
        reason = HoldReason(HoldKind.NO_NODE_WITH_LABELS, pairs=shape.node_selector)
        return Explanation(0, "impossible", reason)
    if not any(Resources(kind.allocatable).fits(shape.requests) for kind in labelled):
        reason = HoldReason(HoldKind.TOO_LARGE, pool.name, requests=pod.shape.requests)
        return Explanation(3, "impossible", reason)
    return None


def coming(context: DecisionContext, template: PoolTemplate) -> list[Reservation]:
    """Reservations the pool may use that have not started."""
    return [
        reservation
        for wanted in template.pool.spec.sources
        if wanted.type in ("block", "odcr")
        for reservation in usable_reservations(context, template.pool, wanted)
        if reservation.state in NOT_STARTED_STATES and reservation.instance_type in template.kinds
    ]


def _next_reservation(
    context: DecisionContext, item: QueueItem, template: PoolTemplate
) -> Reservation | None:
    """The first reservation still to start that would last long enough for it."""
    pool = template.pool
    good = [
        reservation
        for reservation in coming(context, template)
        if reservation.count >= len(item.pods)
        and lasts(item, end_of(reservation, pool), pool, reservation.start + BOOT)
    ]
    return min(good, key=lambda reservation: (reservation.start, reservation.id), default=None)


def end_of(reservation: Reservation, pool: ComputePool) -> End:
    deadline = deadline_of(reservation, pool.spec.provisioner)
    return End(deadline, deadline - SHORTEST_LEAD if deadline else None)


def _busy(context: DecisionContext, item: QueueItem, pool: ComputePool, candidates: Candidates) -> bool:
    """Some room would do for it, if it were free."""
    return any(
        group.template is not None and group.template.pool is pool and may_use(context, item, group)
        for group in candidates.groups.values()
    )


def _kept_from(
    context: DecisionContext, item: QueueItem, pool: ComputePool, candidates: Candidates
) -> datetime | None:
    """From when room that would do for it is promised to a gang."""
    if not candidates.promised:
        return None
    return min(
        (
            candidate.claimed_from
            for group in candidates.groups.values()
            if group.template is not None and group.template.pool is pool and may_use(context, item, group)
            for candidate in group.nodes
            if candidate.claimed_by is not None
            and candidate.claimed_from is not None
            and candidate.free.fits(item.shape.requests)
        ),
        default=None,
    )


def _too_long(closeness: int, kind: HoldKind, item: QueueItem, pool: ComputePool) -> Explanation:
    """It needs more time than there is: its own expected time, or what the pool plans for at most."""
    needed = time_needed(item.terms, pool)
    own = needed == time_needed(item.terms, None) or item.terms.expected is None
    return Explanation(closeness, "held", HoldReason(kind, pool.name, need=needed), own_need=own)


def _free_too_short(item: QueueItem, pool: ComputePool, candidates: Candidates) -> bool:
    """Ready room is free that would suit it but for the time."""
    return item.gated and any(
        group.stage is Stage.READY
        and group.template is not None
        and group.template.pool is pool
        and group.accepts(item.shape, item.pods[0].namespace, overflow=item.terms.overflow)
        and any(candidate.free.fits(item.shape.requests) for candidate in group.nodes)
        for group in candidates.groups.values()
    )


def _too_short(item: QueueItem, pool: ComputePool, candidates: Candidates) -> bool:
    """There is room that would suit it but for the time."""
    return any(
        group.template is not None
        and group.template.pool is pool
        and group.accepts(item.shape, item.pods[0].namespace, overflow=item.terms.overflow)
        for group in candidates.groups.values()
    )


def _limits(pool: ComputePool) -> Pairs:
    limits = pool.spec.limits
    assert limits is not None
    written = limits.model_dump(by_alias=True, exclude_none=True)
    return tuple((name, str(value)) for name, value in written.items())
