"""Demand that no document states: the use of the pool's blocks so far, and the pods that have waited for a while.

The simplest rule that is honest: use that goes on, and a queue that stands, are needed from now on. It sees no trend
and no week; whoever knows better writes a calendar. Rounded up to whole instances, and never more than is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from tidemill.decide.namespace_caps import NamespaceCaps, accelerators
from tidemill.decide.pool_templates import PoolTemplate, templates
from tidemill.decide.purchasing.planner.demand import (
    calendar_demand,
    gpus_each,
    learned_of,
    most_learned_gpus,
    plans_with_calendar,
)
from tidemill.decide.purchasing.planner.offer_filter import is_usable_by
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

# A shorter time says little about a week: until then the pods that run now are counted.
_JUDGED_AFTER_H = 24.0


def learned_gpus(spec: Spec, world: World) -> Mapping[str, int]:
    """By plan."""
    return {plan.name: gpus for plan in plans_with_calendar(spec) if (gpus := _of(spec, world, plan))}


def _of(spec: Spec, world: World, plan: CapacityPlan) -> int:
    calendar = plan.spec.calendar
    assert calendar is not None
    if not learned_of(calendar):
        return 0
    gpus = sum(_used(spec, world, block) for block in _blocks(spec, world, plan))
    gpus += sum(accelerators(pod) for pod in _standing(spec, world, plan))
    each = gpus_each(spec, calendar)
    return min(ceil(gpus / each - 1e-6) * each, most_learned_gpus(spec, calendar))


def _blocks(spec: Spec, world: World, plan: CapacityPlan) -> Iterator[Reservation]:
    demand = calendar_demand(spec, plan.name, 0)
    for reservation in world.reservations:
        mine = reservation.owner == spec.platform.spec.deployment and reservation.pool in ("", plan.spec.pool)
        if mine and reservation.state is ReservationState.ACTIVE and is_usable_by(demand, reservation):
            yield reservation


def _used(spec: Spec, world: World, block: Reservation) -> float:
    """How many of its GPUs had a pod on them, on average since it started."""
    for use in world.uses:
        if use.reservation_id == block.id and use.held_h >= _JUDGED_AFTER_H * use.accelerators > 0:
            return use.accelerators * use.used_h / use.held_h
    return sum(
        accelerators(pod)
        for node in world.nodes
        if node.instance is not None and node.instance.source == block.source and node.kube is not None
        for pod in world.pods_by_node.get(node.kube.name, ())
    )


def _standing(spec: Spec, world: World, plan: CapacityPlan) -> Iterator[Pod]:
    """Pods that could run in the pool, have waited for long enough to count, and are not over a limit of their
    namespace: more capacity would not start those."""
    assert plan.spec.calendar is not None
    caps = NamespaceCaps(spec, world)
    template = templates(spec).get(plan.spec.pool)
    if template is None:
        return
    long_enough = world.now - max(entry.waiting_for for entry in learned_of(plan.spec.calendar))
    for pod in world.pods:
        waits = pod.phase is PodPhase.PENDING and not (pod.node or pod.pinned_to or pod.held_by_others)
        if not waits or pod.created_at > long_enough or not accelerators(pod) or pod.daemon:
            continue
        if _could_run(spec, plan, template, pod) and caps.refusal((pod,)) is None:
            caps.take((pod,))
            yield pod


def _could_run(spec: Spec, plan: CapacityPlan, template: PoolTemplate, pod: Pod) -> bool:
    if not template.pool.spec.serves(pod.namespace):
        return False
    demand, source = calendar_demand(spec, plan.name, 0), Source(SourceKind.BLOCK)
    taints = template.taints_for(pod)
    return any(
        admits(pod.shape, template.labels(source, template.kinds[name], zone), taints)
        for name in demand.types
        if name in template.kinds
        for zone in demand.zones or ("",)
    )
