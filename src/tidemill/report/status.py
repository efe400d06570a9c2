"""The status at one instant: pools, blocks, nodes, waiting pods, purchases and money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.catalog.price_comparison import on_demand_usd
from tidemill.decide.read_models import (
    SHORTEST_LEAD,
    DecisionContext,
    NodeView,
    Phase,
    at_once,
    hourly_rate,
    inherits_pin,
    kill_at,
    pod_lead,
)
from tidemill.model.capacity import DELIVERED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.plan import Plan
from tidemill.model.pods import Method, Pod
from tidemill.model.purchases import PurchaseIntent
from tidemill.model.world import World
from tidemill.report.pods import gpus, pods, warnings
from tidemill.report.rows import BlockRow, Money, NodeRow, PodRow, PoolRow, PurchaseRow, Status
from tidemill.report.savings import Savings
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner, matching_types
from tidemill.spec.units import format_duration
from tidemill.wording import sentence
from tidemill.wording.purchases import purchase_note, verdict_sentence


def status(
    spec: Spec,
    world: World,
    plan: Plan,
    *,
    block_names: Mapping[str, str] | None = None,
    used_gpu_hours: Mapping[str, float] | None = None,
    savings: Savings | None = None,
) -> Status:
    """`block_names` are names of reservations by id; without a name a reservation has the name of its demand window.

    `used_gpu_hours` are the hours used of each reservation so far, from whoever counts them: the world does not have
    them. `savings` likewise: those of `report.savings`, from whoever has the costs.
    """
    context = DecisionContext(spec, world)
    views = [view for view in context.views if view.phase is not Phase.GONE]
    blocks = _blocks(context, views, block_names or {}, used_gpu_hours)
    rows = pods(spec, world, plan)
    waiting = tuple(row for row in rows if row.state == "waiting")
    return Status(
        at=world.now,
        pools=tuple(_pool(context, pool, views, blocks, rows) for pool in spec.pools.values()),
        blocks=blocks,
        nodes=tuple(_node(spec, view) for view in views),
        waiting=waiting,
        purchases=tuple(_purchase(intent) for intent in world.purchases),
        money=replace(_money(spec, world, blocks), savings=savings),
        warnings=warnings(plan),
        wake_at=plan.wake_at,
    )


def _blocks(
    context: DecisionContext,
    views: list[NodeView],
    block_names: Mapping[str, str],
    used_gpu_hours: Mapping[str, float] | None,
) -> tuple[BlockRow, ...]:
    windows = {id_: intent.window for intent in context.world.purchases for id_ in intent.reservation_ids}
    windows |= {
        reservation.id: intent.window
        for intent in context.world.purchases
        for reservation in context.world.reservations
        if reservation.intent_id == intent.id
    }
    rows = [
        _block(
            context,
            reservation,
            views,
            block_names.get(reservation.id)
            or windows.get(reservation.id)
            or dict(reservation.tags).get("Name")
            or reservation.id,
            None if used_gpu_hours is None else used_gpu_hours.get(reservation.id, 0.0),
        )
        for reservation in context.world.reservations
        if reservation.owner == context.owner
    ]
    return tuple(sorted(rows, key=lambda row: (row.start, row.id)))


def _block(
    context: DecisionContext, reservation: Reservation, views: list[NodeView], name: str, used_h: float | None
) -> BlockRow:
    own_views = [view for view in views if view.source == reservation.source]
    drain_from, deadline = _ends(context, reservation, own_views)
    lead, causes = slowest(context, own_views)
    instance_type = context.spec.catalog.types.get(reservation.instance_type)
    return BlockRow(
        id=reservation.id,
        name=name,
        kind=reservation.kind.value,
        pool=reservation.pool,
        type=reservation.instance_type,
        count=reservation.count,
        zone=reservation.zone,
        state=reservation.state.value,
        gpus=reservation.count * (instance_type.gpus if instance_type else 0),
        fee_usd=reservation.charged_usd,
        start=reservation.start,
        drain_from=drain_from,
        deadline=deadline,
        kill_at=kill_at(reservation) if reservation.kind is SourceKind.BLOCK else None,
        end=reservation.end,
        nodes_up=len(own_views),
        pods=sum(len(view.pods) for view in own_views),
        delivered_on_demand_usd=_on_demand(context, reservation, _gpu_hours_delivered(context, reservation)),
        used_on_demand_usd=_on_demand(context, reservation, used_h),
        drain_lead_s=int(lead.total_seconds()) if lead is not None else None,
        drain_lead_for=causes,
    )


def _gpu_hours_delivered(context: DecisionContext, reservation: Reservation) -> float:
    """From its start until now or its end; 0 for a reservation that was not delivered."""
    instance_type = context.spec.catalog.types.get(reservation.instance_type)
    if instance_type is None or reservation.state not in DELIVERED_STATES:
        return 0.0
    until = context.now if reservation.end is None else min(context.now, reservation.end)
    return (
        reservation.count * instance_type.gpus * max(0.0, (until - reservation.start).total_seconds() / 3600)
    )


def _on_demand(context: DecisionContext, reservation: Reservation, gpu_hours: float | None) -> float | None:
    """Only for blocks: an On-Demand Capacity Reservation is paid at the on-demand price."""
    instance_type = context.spec.catalog.types.get(reservation.instance_type)
    if instance_type is None or gpu_hours is None or reservation.kind is not SourceKind.BLOCK:
        return None
    usd = on_demand_usd(instance_type, gpu_hours)
    return None if usd is None else round(usd, 2)


def _ends(
    context: DecisionContext, reservation: Reservation, views: list[NodeView]
) -> tuple[datetime | None, datetime | None]:
    """The earliest drain start and deadline of its nodes; without nodes, those of a node that its pool would launch."""
    if views:
        starts = [view.drain_from for view in views if view.drain_from is not None]
        deadlines = [view.deadline for view in views if view.deadline is not None]
        return min(starts, default=None), min(deadlines, default=None)
    pool = context.spec.pools.get(reservation.pool)
    end = context.end_of(
        reservation.source, reservation.pool, pool.spec.provisioner if pool else Provisioner.NATIVE
    )
    return end.drain_from, end.deadline


def _node(spec: Spec, view: NodeView) -> NodeRow:
    instance, kube = view.node.instance, view.node.kube
    assert instance is not None  # a NodeView is of our own nodes, and only instances have our tag
    known = spec.catalog.types.get(instance.instance_type)
    return NodeRow(
        name=view.node.name,
        instance=instance.id,
        pool=instance.pool,
        type=instance.instance_type,
        source=view.source.label,
        zone=instance.zone,
        phase=view.phase.value,
        gpus=known.gpus if known else 0,
        gpus_used=sum(gpus(pod.shape) for pod in view.pods),
        pods=tuple(pod.full_name for pod in view.pods),
        drain_from=view.drain_from,
        deadline=view.deadline,
        why=sentence(kube.drain_reason) if kube is not None and kube.drain_reason is not None else "",
    )


def _pool(
    context: DecisionContext,
    pool: ComputePool,
    views: list[NodeView],
    blocks: tuple[BlockRow, ...],
    rows: Iterable[PodRow],
) -> PoolRow:
    mine = [view for view in views if view.node.instance and view.node.instance.pool == pool.name]
    nodes = [_node(context.spec, view) for view in mine]
    sources = {view.source.label for view in mine}
    active = [row for row in blocks if row.state == "active" and (row.pool == pool.name or row.id in sources)]
    active.sort(key=lambda row: (row.end is None, row.end or row.start, row.id))
    first = active[0] if active else None
    asked = [row for row in rows if row.pool == pool.name]
    used = sum(node.gpus_used for node in nodes)
    queue = [row for row in asked if row.state == "waiting"]
    month = sum(usd for (name, _), usd in context.world.spending.hourly_usd if name == pool.name)
    return PoolRow(
        name=pool.name,
        types=tuple(kind.name for kind in matching_types(context.spec.catalog, pool.spec.requirements)),
        gpus_ready=sum(node.gpus for node in nodes if node.phase == Phase.READY),
        gpus_used=used,
        gpus_wanted=used + sum(row.gpus for row in queue),
        nodes=_by_phase(context.world, pool.name, mine),
        blocks=tuple(row.id for row in active),
        drain_from=first.drain_from if first else None,
        deadline=first.deadline if first else None,
        ends_at=first.end if first else None,
        waiting=len(queue),
        usd_per_hour=hourly_rate(context.spec, context.world, pool.name, None),
        month_usd=month,
        pinned_to=pool.spec.pinned_to,
        pin_inherited_by=tuple(block.id for block in inherits_pin(context, context.templates[pool.name])),
    )


def _by_phase(world: World, pool: str, views: list[NodeView]) -> dict[str, int]:
    counts = Counter(view.phase for view in views)
    seen = Counter(node.instance.intent_id for node in world.nodes if node.instance is not None)
    counts[Phase.REQUESTED] = sum(
        max(0, intent.in_flight - seen[intent.id]) for intent in world.launches if intent.pool == pool
    )
    return {phase.value: counts[phase] for phase in Phase if counts[phase]}


def _purchase(intent: PurchaseIntent) -> PurchaseRow:
    return PurchaseRow(
        id=intent.id,
        plan=intent.plan,
        window=intent.window,
        pool=intent.pool,
        state=intent.state.value,
        type=intent.envelope.instance_type,
        count=intent.envelope.count,
        max_fee_usd=intent.envelope.max_fee_usd,
        fee_usd=intent.fee_usd,
        proposed_at=intent.proposed_at,
        state_at=intent.state_at,
        verdicts=tuple(verdict_sentence(verdict) for verdict in intent.verdicts),
        reservations=intent.reservation_ids,
        note=purchase_note(intent),
    )


def _money(spec: Spec, world: World, blocks: tuple[BlockRow, ...]) -> Money:
    hourly = sum(usd for _, usd in world.spending.hourly_usd)
    budget_usd = spec.platform.spec.budget.monthly_usd
    delivered = [row for row in blocks if row.kind == SourceKind.BLOCK and row.state in DELIVERED_STATES]
    priced = [row for row in delivered if row.delivered_on_demand_usd is not None]
    counted = any(row.used_on_demand_usd is not None for row in priced)
    bought = {id_ for purchase in world.purchases for id_ in purchase.reservation_ids}
    others = [
        row
        for row in blocks
        if row.kind == SourceKind.BLOCK
        and row.id not in bought
        and row.state != ReservationState.PAYMENT_FAILED
    ]
    return Money(
        other_fees_usd=sum(row.fee_usd for row in others),
        unknown_fees=tuple(row.id for row in others if not row.fee_usd),
        fees_usd=world.spending.fees_usd,
        hourly_usd=hourly,
        budget_usd=budget_usd,
        usd_per_hour=hourly_rate(spec, world, None, None),
        delivered_on_demand_usd=round(sum(row.delivered_on_demand_usd or 0.0 for row in priced), 2),
        used_on_demand_usd=round(sum(row.used_on_demand_usd or 0.0 for row in priced), 2)
        if counted
        else None,
        unpriced=tuple(sorted({row.type for row in delivered if row.delivered_on_demand_usd is None})),
    )


_NAMED = 3


def slowest(context: DecisionContext, views: list[NodeView]) -> tuple[timedelta | None, tuple[str, ...]]:
    """The longest drain lead of these nodes and its causes; no causes if it is the shortest lead."""
    drained = [view for view in views if view.deadline is not None and view.drain_from is not None]
    leads = {
        id(view): view.deadline - view.drain_from for view in drained if view.deadline and view.drain_from
    }
    if not leads:
        return None, ()
    lead = max(leads.values())
    first = [view for view in drained if leads[id(view)] == lead]
    names = [] if lead <= SHORTEST_LEAD else sorted({*_causes_of_lead(context, first, lead)})
    more = (f"and {len(names) - _NAMED} more",) if len(names) > _NAMED else ()
    return lead, (*names[:_NAMED], *more)


def _causes_of_lead(context: DecisionContext, views: list[NodeView], lead: timedelta) -> Iterator[str]:
    for view in views:
        pool = view.pool
        checkpoint = pool.spec.drain.checkpoint if pool is not None else True
        if pool is not None and pool.spec.drain.lead == lead:
            yield f"pool {pool.name} asks for {format_duration(lead)}"
        for pod in view.pods:
            if pod_lead(pod, checkpoint=checkpoint) == lead:
                yield f"{pod.full_name} ({_pod_needs(pod, checkpoint)})"
    deadline = views[0].deadline
    assert deadline is not None
    services: dict[str, list[Pod]] = {}
    for pod in context.moving_together(views, deadline):
        services.setdefault(pod.workload, []).append(pod)
    for workload, moving in services.items():
        needs = context.services_lead(timedelta(0), moving)
        if needs == lead:
            yield from _service_needs(context, workload, len(moving))


def _service_needs(context: DecisionContext, name: str, leaving: int) -> Iterator[str]:
    """A service without a minimum moves all at once and needs no time of its own."""
    workload, allowed = context.workloads.get(name), context.disruptions_at_once.get(name)
    method = context.method_of(workload) if workload is not None else Method.EVICT
    if workload is not None and method is not Method.EVICT:
        count = at_once(workload, method, leaving, allowed or 1)
        yield f"{name} ({workload.replicas} replicas by {method.value}, {count} at a time)"
    elif allowed is not None:
        yield f"{name} ({leaving} replicas, {allowed} at a time)"


def _pod_needs(pod: Pod, checkpoint: bool) -> str:
    grace = f"{format_duration(pod.terms.grace)} grace"
    if checkpoint and pod.terms.checkpoint_every is not None and pod.terms.checkpoint_time:
        return f"{grace}, {format_duration(pod.terms.checkpoint_time)} checkpoint"
    return grace
