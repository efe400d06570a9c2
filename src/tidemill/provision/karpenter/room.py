"""Which NodePool may use the room that the limits of its pool leave. Pure.

Karpenter keeps limits for each NodePool by itself, but the limits of a pool are for all its nodes together. So the
limits of a NodePool are what it has already and its part of what is free; together they are never above the pool's.
Prepaid NodePools come first. All that is left goes to one hourly NodePool: the one that pods wait for, in turns if
there are several. A limit below what a NodePool has ends no node: Karpenter only launches no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.catalog import Catalog, InstanceType
from tidemill.decide.read_models import admits, deadline_of, is_usable, templates
from tidemill.model.capacity import Reservation, ReservationState
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.resources import Resources
from tidemill.model.world import World
from tidemill.provision.karpenter.removal import Object, pool_of, source_of
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import (
    Allowance,
    ComputePool,
    Limits,
    Provisioner,
    SourceSpec,
    matching_types,
)
from tidemill.spec.default_durations import BOOT
from tidemill.spec.units import format_cpu, format_memory, parse_cpu, parse_memory

# Enough for Karpenter to launch, or to find that there is no capacity. Then another NodePool has its turn.
TURN = timedelta(minutes=10)
# A block that begins has its room already: the engine looks at least every ten minutes, and room settles in one.
BEGINS_SOON = timedelta(minutes=15)
# A node that boots so late would be drained before it is of use, and replicas that came to it would leave again.
NOT_WORTH_LAUNCHING = BOOT + timedelta(minutes=15)
NODES = "nodes"
Use = Mapping[str, int]  # mCPU, bytes, nodes, and devices by their resource


@dataclass(frozen=True, slots=True)
class Demand:
    """What runs of a pool and who waits for it, both by the label of a source."""

    used: Mapping[str, Use] = field(default_factory=dict)
    # Pods; "": any source would do. Those count for every reservation that would take them, too.
    waiting: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0
    ending: frozenset[str] = frozenset()  # being drained because they end
    up: Mapping[str, int] = field(
        default_factory=dict
    )  # nodes that take pods: those who wait found no room there


@dataclass(frozen=True, slots=True)
class Rooms:
    reserved: Mapping[str, int]  # how many nodes in all, by reservation
    hourly: Mapping[str, Allowance]  # how much more, by source; a source that is not in it: nothing
    ending: frozenset[str] = frozenset()  # reservations on which nothing is launched any more
    replicas: Mapping[str, int] = field(
        default_factory=dict
    )  # of static NodePools: those kept warm, and asked for


# --- what is there ------------------------------------------------------------------------------------


def demand_of(spec: Spec, pool: ComputePool, world: World, node_pools: Iterable[Object]) -> Demand:
    """`node_pools`: as listed, with Karpenter's own count in their status. The higher one counts: of a launch one or
    the other hears first."""
    seen = _seen(spec, pool, world.nodes)
    counted: dict[str, dict[str, int]] = {}
    for node_pool in node_pools:
        if pool_of(node_pool) == pool.name:
            _add(counted.setdefault(source_of(node_pool), {}), _counted(node_pool))
    used = {
        label: {
            key: max(seen.get(label, {}).get(key, 0), counted.get(label, {}).get(key, 0))
            for key in {*seen.get(label, {}), *counted.get(label, {})}
        }
        for label in sorted({*seen, *counted})
    }
    waiting: dict[str, int] = {}
    for pod in world.pods:
        if not pod.node and _waits_for(pod, pool):
            waiting[pod.pinned_to] = waiting.get(pod.pinned_to, 0) + 1
            for label in _prepaid_for(spec, pool, world, pod) if not pod.pinned_to else ():
                waiting[label] = waiting.get(label, 0) + 1
    hourly = sum(source.type in waiting or "" in waiting for source in pool.spec.sources)
    turn = _turn(world.now) if hourly > 1 else 0
    return Demand(used, waiting, turn, _ending(pool, world.nodes), _up(pool, world.nodes))


def _ending(pool: ComputePool, nodes: Iterable[Node]) -> frozenset[str]:
    """Karpenter would launch there again, for the replicas that are made to leave."""
    return frozenset(
        node.instance.source.label
        for node in nodes
        if node.instance is not None
        and node.instance.pool == pool.name
        and node.instance.ends_at is None  # else AWS takes this instance alone
        and node.kube is not None
        and node.kube.drain_reason is not None
        and node.kube.drain_reason.is_end
    )


def _up(pool: ComputePool, nodes: Iterable[Node]) -> Mapping[str, int]:
    return Counter(
        node.instance.source.label
        for node in nodes
        if node.instance is not None
        and node.instance.pool == pool.name
        and node.kube is not None
        and node.kube.ready
        and all(taint.key != names.TAINT_STARTUP for taint in node.kube.taints)
    )


def _seen(spec: Spec, pool: ComputePool, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Of all provisioners: the pool may have had another one before."""
    found: dict[str, dict[str, int]] = {}
    for node in nodes:
        instance = node.instance
        if instance is None or instance.pool != pool.name or instance.state in INSTANCE_ENDED_STATES:
            continue
        kind = spec.catalog.types.get(instance.instance_type)
        if kind is not None:
            _add(found.setdefault(instance.source.label, {}), _size(kind))
    return found


def _size(kind: InstanceType, count: int = 1) -> dict[str, int]:
    size = {
        names.CPU: kind.vcpus * 1000 * count,
        names.MEMORY: kind.memory_mib * 2**20 * count,
        NODES: count,
    }
    if kind.accelerator is not None:
        size[kind.accelerator.resource] = kind.gpus * count
    return size


def _counted(node_pool: Object) -> dict[str, int]:
    """status.resources: what Karpenter itself holds against the limits, launches under way included."""
    resources = node_pool.get("status", {}).get("resources", {})
    return quantities(resources)


def quantities(written: Mapping[str, object]) -> dict[str, int]:
    """Those that a pool can have limits on. What cannot be read counts as nothing."""
    found: dict[str, int] = {}
    for key, value in written.items():
        try:
            match key:
                case names.CPU:
                    found[key] = parse_cpu(value)
                case names.MEMORY:
                    found[key] = parse_memory(value)
                case _ if key == NODES or "/" in key:
                    found[key] = int(str(value))
        except ValueError:
            continue
    return found


def _add(sums: dict[str, int], more: Use) -> None:
    for key, amount in more.items():
        sums[key] = sums.get(key, 0) + amount


def _waits_for(pod: Pod, pool: ComputePool) -> bool:
    """Karpenter may launch a node of this pool for it. Errs on the side of yes: then a NodePool has a turn too many."""
    if pod.gated or pod.held_by_others or pod.daemon or pod.deleting_until is not None:
        return False
    labels = {**pool.spec.labels, names.LABEL_POOL: pool.name}
    return pod.phase is PodPhase.PENDING and all(
        labels.get(key, value) == value for key, value in pod.shape.node_selector
    )


def _prepaid_for(spec: Spec, pool: ComputePool, world: World, pod: Pod) -> Iterator[str]:
    """Reservations whose nodes would take it, although it is pinned to none: a replica of a service."""
    template, owner = templates(spec)[pool.name], spec.platform.spec.deployment
    for one in world.reservations:
        kind = template.kinds.get(one.instance_type)
        if kind is None or not any(is_usable(one, pool, source, owner) for source in pool.spec.sources):
            continue
        labels = template.labels(one.source, kind, one.zone)
        fits = Resources(kind.allocatable).fits(pod.shape.requests)
        if fits and admits(pod.shape, labels, template.taints):
            yield one.source.label


def _turn(now: datetime) -> int:
    return int(now.timestamp() // TURN.total_seconds())


# --- who gets what ------------------------------------------------------------------------------------


def divide(
    catalog: Catalog,
    pool: ComputePool,
    blocks: Sequence[Reservation],
    unaffordable: Collection[str],
    demand: Demand,
    now: datetime | None,
    *,
    static: bool,
) -> Rooms:
    """`blocks`: in the order in which they get room. `static`: their nodes stay up without pods."""
    free = Allowance.of(pool.spec.limits)
    for use in demand.used.values():
        _take(free, use)
    has = {block.id: demand.used.get(block.source.label, {}).get(NODES, 0) for block in blocks}
    ending = frozenset(
        block.id for block in blocks if block.source.label in demand.ending or _nearly_over(block, now)
    )
    # Replicas of a static NodePool are its nodes: fewer of them would end some.
    rooms = {block.id: has[block.id] if static or block.id not in ending else 0 for block in blocks}
    blocks = [block for block in blocks if block.id not in ending]
    begun = [block for block in blocks if needs_room(block, now)]
    for block in begun:
        label = block.source.label
        asked = waiting = demand.waiting.get(label, 0)
        if static:  # each replica is a node: one that boots is for somebody who waits
            asked = max(_kept_warm(pool, block), demand.up.get(label, 0) + waiting) - has[block.id]
        rooms[block.id] += _given(free, catalog.types[block.instance_type], block, has, asked)
    replicas = dict(rooms)
    able = [
        source.type
        for source in pool.spec.sources
        if source.type in ("spot", "on-demand") and source.type not in unaffordable
    ]
    claiming = [label for label in able if demand.waiting.get(label) or demand.waiting.get("")]
    if not claiming:
        for block in begun if able else blocks:
            rooms[block.id] += _given(free, catalog.types[block.instance_type], block, rooms, block.count)
    holders = claiming or able[:1]
    hourly: dict[str, Allowance] = {holders[demand.turn % len(holders)]: free} if holders else {}
    return Rooms(rooms, hourly, ending, replicas)


def needs_room(block: Reservation, now: datetime | None) -> bool:
    """One that begins later would keep it from nodes that are paid by the hour."""
    soon = now is not None and block.start - now <= BEGINS_SOON
    return soon or block.state is ReservationState.ACTIVE


def _nearly_over(block: Reservation, now: datetime | None) -> bool:
    deadline = deadline_of(block, Provisioner.KARPENTER)
    return now is not None and deadline is not None and deadline - now < NOT_WORTH_LAUNCHING


def _kept_warm(pool: ComputePool, block: Reservation) -> int:
    return block.count if pool.spec.warm is True else min(block.count, int(pool.spec.warm or 0))


def _given(
    free: Allowance, kind: InstanceType, block: Reservation, has: Mapping[str, int], asked: int
) -> int:
    most = max(0, min(asked, block.count - has[block.id]))
    count = max(n for n in range(most + 1) if n == 0 or free.allows(kind, n))
    free.take(kind, count)
    return count


def _take(free: Allowance, use: Use) -> None:
    free.cpu_milli -= use.get(names.CPU, 0)
    free.memory_bytes -= use.get(names.MEMORY, 0)
    free.gpus -= sum(amount for key, amount in use.items() if "/" in key)
    free.nodes -= use.get(NODES, 0)


# --- as Karpenter reads it ----------------------------------------------------------------------------


def limits_of(spec: Spec, pool: ComputePool, use: Use, free: Allowance | None) -> dict[str, str]:
    """What it has, and what is free for it; None: nothing is.

    A pool without limits launches nothing, but a NodePool without limits has none: it gets a limit of 0 vCPUs.
    Karpenter counts nodes only since 1.8: a number of nodes becomes the vCPUs of that many of the smallest type, which
    errs on the low side. The devices of a pool with several kinds are divided between them, for the same reason.
    """
    own, kinds = pool.spec.limits, matching_types(spec.catalog, pool.spec.requirements)
    if own is None or own == Limits():
        return {"cpu": "0"}
    free = free or Allowance(0, 0, 0, 0)
    found: dict[str, str] = {}
    smallest = min((kind.vcpus for kind in kinds), default=0)
    rooms = [1000 * smallest * _whole(free.nodes)] if own.nodes is not None else []
    rooms += [_whole(free.cpu_milli)] if own.cpu is not None else []
    if rooms:
        found["cpu"] = format_cpu(use.get(names.CPU, 0) + min(rooms))
    if own.memory is not None:
        found["memory"] = format_memory(use.get(names.MEMORY, 0) + _whole(free.memory_bytes))
    if own.gpus is not None:
        devices = sorted({kind.accelerator.resource for kind in kinds if kind.accelerator is not None})
        found |= {key: str(use.get(key, 0) + _whole(free.gpus) // len(devices)) for key in devices}
    return found


def limits_within_cap(
    spec: Spec, pool: ComputePool, wanted: SourceSpec, use: Use, free: Allowance | None
) -> dict[str, str]:
    """And so few vCPUs that even its most expensive type stays under the hourly cap."""
    limits = limits_of(spec, pool, use, free)
    if wanted.max_hourly_usd is None:
        return limits
    rates = [
        kind.on_demand_usd_h / kind.vcpus
        for kind in matching_types(spec.catalog, pool.spec.requirements)
        if kind.on_demand_usd_h is not None
    ]
    afforded = 1000 * int(wanted.max_hourly_usd / max(rates)) if rates else 0
    cpu = min(afforded, parse_cpu(limits["cpu"])) if "cpu" in limits else afforded
    return limits | {"cpu": format_cpu(cpu)}


def _whole(amount: float) -> int:
    return max(0, int(amount))
