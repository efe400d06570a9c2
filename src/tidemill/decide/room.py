"""Where pods could run: nodes that are up, nodes on their way, and nodes that could still be opened.

Rooms are scratch space: `pack` takes from them. Scheduling rules (selector, taints, resources) mean here
what they mean to the Kubernetes scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from tidemill.catalog import InstanceType
from tidemill.decide.draft import NO_END, Draft, End, Life
from tidemill.decide.launches import InFlight
from tidemill.decide.nodes import SHORTEST_LEAD, Phase, deadline_of
from tidemill.decide.overflow import (
    hourly_rate,
    money_left_usd,
    money_runs_out_at,
    overflow_source,
    usd_per_hour,
)
from tidemill.spec import names
from tidemill.spec.match import matching
from tidemill.spec.models import ComputePool, Limits, SourceSpec
from tidemill.world import (
    Amounts,
    Pod,
    PodShape,
    Reservation,
    ReservationState,
    Source,
    SourceKind,
    Taint,
    Toleration,
)

# From launch call to a Ready, verified node: 3-5 minutes to join, 60-90 s to register, half a minute to check.
BOOT = timedelta(minutes=7)
# A node that would be drained sooner than this after booting is not worth launching.
SHORTEST_USE = timedelta(minutes=15)


class Stage(IntEnum):
    READY = 0
    COMING = 1
    NEW = 2


@dataclass(slots=True)
class Room:
    stage: Stage
    pool: ComputePool | None
    source: Source
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    end: End
    order: tuple[int, int]  # pool weight (negated), place of the source in the pool's list
    life: Life | None = None
    opening: Opening | None = None
    name: str = ""
    overflow: bool = False
    claimed: dict[str, int] = field(default_factory=dict)  # by services that will move in
    claimed_from: datetime | None = None

    def claim(self, requests: Amounts, since: datetime) -> None:
        for name, wanted in requests:
            self.claimed[name] = self.claimed.get(name, 0) + wanted
        self.claimed[names.PODS] = self.claimed.get(names.PODS, 0) + 1
        self.claimed_from = min(since, self.claimed_from or since)

    def unclaimed(self) -> dict[str, int]:
        return {name: free - self.claimed.get(name, 0) for name, free in self.free.items()}

    def take(self, requests: Amounts) -> None:
        free = self.free
        for name, wanted in requests:
            free[name] = free.get(name, 0) - wanted
        free[names.PODS] = free.get(names.PODS, 0) - 1

    def give_back(self, requests: Amounts) -> None:
        for name, wanted in requests:
            self.free[name] += wanted
        self.free[names.PODS] += 1


@dataclass(slots=True)
class Allowance:
    """What a pool may still launch, every node that lives or is on its way already counted (PE-5)."""

    cpu_milli: float
    memory_bytes: float
    gpus: float
    nodes: float

    @classmethod
    def of(cls, limits: Limits | None) -> Allowance:
        if limits is None:
            return cls(0, 0, 0, 0)

        def cap(value: int | None) -> float:
            return float("inf") if value is None else value

        return cls(cap(limits.cpu), cap(limits.memory), cap(limits.gpus), cap(limits.nodes))

    def take(self, kind: InstanceType, count: int = 1) -> None:
        self.cpu_milli -= kind.vcpus * 1000 * count
        self.memory_bytes -= kind.memory_mib * 2**20 * count
        self.gpus -= kind.gpus * count
        self.nodes -= count

    def allows(self, kind: InstanceType) -> bool:
        return (
            self.cpu_milli >= kind.vcpus * 1000
            and self.memory_bytes >= kind.memory_mib * 2**20
            and self.gpus >= kind.gpus
            and self.nodes >= 1
        )


@dataclass(slots=True)
class Opening:
    """A kind of node that could be launched: so many more of a type, from a source, in a zone."""

    pool: ComputePool
    source: Source
    kind: InstanceType
    zone: str
    left: float
    usd_h: float
    order: tuple[int, int]
    allowance: Allowance
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: Mapping[str, int]
    reservation: Reservation | None
    overflow: SourceSpec | None = None
    hourly_left_usd: float = 0.0
    resting_until: datetime | None = None
    opened: int = 0

    def room(self, end: End) -> Room:
        return Room(
            Stage.NEW, self.pool, self.source, self.zone, self.labels, self.taints, dict(self.free), end,
            self.order, opening=self, overflow=self.overflow is not None,
        )  # fmt: skip

    def open(self) -> None:
        self.opened += 1
        self.left -= 1
        self.allowance.take(self.kind)


@dataclass(slots=True)
class Rooms:
    rooms: list[Room] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)
    allowances: dict[str, Allowance] = field(default_factory=dict)


# --- the scheduler's rules ----------------------------------------------------------------------------


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    for one in tolerations:
        if one.effect and one.effect != taint.effect:
            continue
        if one.operator == "Exists" and one.key in ("", taint.key):
            return True
        if one.operator == "Equal" and one.key == taint.key and one.value == taint.value:
            return True
    return False


def admits(shape: PodShape, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """Selector and taints, without resources."""
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            return False
    return all(taint.effect == "PreferNoSchedule" or tolerates(shape.tolerations, taint) for taint in taints)


def fits(requests: Amounts, free: Mapping[str, int]) -> bool:
    if free.get(names.PODS, 0) < 1:
        return False
    return all(wanted <= 0 or free.get(name, 0) >= wanted for name, wanted in requests)


# --- building -----------------------------------------------------------------------------------------


def survey(draft: Draft, in_flight: InFlight) -> Rooms:
    """Every room there is or could be, strangers' nodes included."""
    daemons = _daemon_overhead(draft)
    found = Rooms()
    for pool in sorted(draft.spec.pools.values(), key=lambda pool: (-pool.spec.weight, pool.name)):
        found.allowances[pool.name] = Allowance.of(pool.spec.limits)
    for life in draft.lives:
        _count_life(draft, life, found, daemons)
    for intent, count in in_flight.unseen:
        kind = draft.spec.catalog.types.get(intent.instance_type)
        asker = draft.spec.pools.get(intent.pool)
        if kind is not None and asker is not None:
            found.allowances[asker.name].take(kind, count)
            for _ in range(count):
                found.rooms.append(_coming(draft, asker, intent.source, kind, intent.zone, daemons))
    for node in draft.strangers:
        if node.kube is not None and node.kube.ready and not node.kube.unschedulable:
            pods = draft.world.pods_by_node.get(node.kube.name, ())
            free = _free(node.kube.allocatable, pods)
            found.rooms.append(
                Room(Stage.READY, None, Source(SourceKind.ON_DEMAND), "", dict(node.kube.labels),
                     node.kube.taints, free, NO_END, (0, 0), name=node.kube.name)
            )  # fmt: skip
    for pool_name in found.allowances:
        found.openings.extend(_openings(draft, draft.spec.pools[pool_name], found, in_flight, daemons))
    return found


def _count_life(draft: Draft, life: Life, found: Rooms, daemons: Mapping[str, int]) -> None:
    instance, pool = life.node.instance, life.pool
    assert instance is not None
    kind = draft.spec.catalog.types.get(instance.instance_type)
    if life.phase is Phase.GONE or kind is None or pool is None:
        return
    found.allowances[pool.name].take(kind)
    if life.ending or life.phase is Phase.DRAINING:
        return
    kube = life.node.kube
    if life.phase is Phase.READY and kube is not None:
        pods = draft.world.pods_by_node.get(kube.name, ())
        room = Room(
            Stage.READY, pool, life.source, instance.zone, dict(kube.labels), kube.taints,
            _free(kube.allocatable, pods), End(life.deadline, life.drain_from),
            source_order(pool, life.source), life, name=kube.name,
        )  # fmt: skip
    else:
        room = _coming(draft, pool, life.source, kind, instance.zone, daemons)
        room.life, room.name, room.end = life, life.node.name, End(life.deadline, life.drain_from)
    room.overflow = overflow_source(pool, life.source.kind) is not None
    found.rooms.append(room)


def _coming(
    draft: Draft, pool: ComputePool, source: Source, kind: InstanceType, zone: str, daemons: Mapping[str, int]
) -> Room:
    end = draft.end_of(source, pool.name, pool.spec.provisioner)
    overflow = overflow_source(pool, source.kind) is not None
    return Room(
        Stage.COMING, pool, source, zone, node_labels(pool, source, kind, zone), pool_taints(pool),
        _fresh(kind, daemons), end, source_order(pool, source), overflow=overflow,
    )  # fmt: skip


def _openings(
    draft: Draft, pool: ComputePool, found: Rooms, in_flight: InFlight, daemons: Mapping[str, int]
) -> list[Opening]:
    if not (draft.world.ledger_ok and draft.world.cloud_ok):
        return []
    openings = []
    kinds = matching(draft.spec.catalog, pool.spec.requirements)
    for place, wanted in enumerate(pool.spec.sources):
        order = (-pool.spec.weight, place)
        if wanted.type in ("block", "odcr"):
            names_of_kinds = {kind.name: kind for kind in kinds}
            for reservation in usable_reservations(draft, pool, wanted):
                kind = names_of_kinds.get(reservation.instance_type)
                if kind is not None and reservation.state is ReservationState.ACTIVE:
                    left = reservation.available - in_flight.on(reservation.source)
                    openings.append(
                        _opening(pool, reservation.source, kind, reservation.zone, left, 0.0, order, found,
                                 daemons, reservation)
                    )  # fmt: skip
        else:
            openings.extend(_hourly_openings(draft, pool, wanted, kinds, order, found, daemons))
    for opening in openings:
        spot = (opening.source, opening.kind.name, opening.zone)
        opening.resting_until = in_flight.resting.get(spot)
        draft.wake(opening.resting_until)
    return openings


def _hourly_openings(
    draft: Draft, pool: ComputePool, wanted: SourceSpec, kinds: tuple[InstanceType, ...],
    order: tuple[int, int], found: Rooms, daemons: Mapping[str, int],
) -> list[Opening]:  # fmt: skip
    source = Source(SourceKind(wanted.type))
    overflow = overflow_source(pool, source.kind)
    zones = [
        zone
        for zone in sorted(draft.spec.platform.spec.subnets)
        if (not wanted.zones or zone in wanted.zones)
        and (not pool.spec.requirements.zones or zone in pool.spec.requirements.zones)
    ]
    openings = []
    hourly_left = float("inf")
    if overflow is not None:
        rate = hourly_rate(draft.spec, draft.world, pool.name, source.kind)
        hourly_left = (overflow.max_hourly_usd or 0.0) - rate
    for kind in kinds:
        if kind.on_demand_usd_h is None:
            continue  # a price nobody knows cannot be kept inside a cap
        price = usd_per_hour(draft.spec, kind.name, source.kind)
        for zone in zones:
            one = _opening(pool, source, kind, zone, float("inf"), price, order, found, daemons, None)
            one.overflow, one.hourly_left_usd = overflow, hourly_left
            openings.append(one)
    return sorted(openings, key=lambda one: (one.usd_h, one.kind.gpus, one.kind.name, one.zone))


def _opening(
    pool: ComputePool, source: Source, kind: InstanceType, zone: str, left: float, usd_h: float,
    order: tuple[int, int], found: Rooms, daemons: Mapping[str, int], reservation: Reservation | None,
) -> Opening:  # fmt: skip
    return Opening(
        pool, source, kind, zone, left, usd_h, order, found.allowances[pool.name],
        node_labels(pool, source, kind, zone), pool_taints(pool), _fresh(kind, daemons), reservation,
    )  # fmt: skip


def usable_reservations(draft: Draft, pool: ComputePool, wanted: SourceSpec) -> list[Reservation]:
    """Reservations of this kind that the pool may use, those that end first in front.

    Ours by the owner tag; or, where the pool names ids or tags, exactly those. A pool tag on a reservation
    keeps other pools off it.
    """
    zones = pool.spec.requirements.zones
    found = []
    for one in draft.world.reservations:
        if one.kind.value != wanted.type or (one.pool and one.pool != pool.name):
            continue
        if wanted.ids:
            mine = one.id in wanted.ids and one.owner == draft.owner
        elif wanted.tags:
            mine = one.owner == draft.owner and set(wanted.tags.items()) <= set(one.tags)
        else:
            mine = one.owner == draft.owner
        if mine and (not zones or one.zone in zones) and (not wanted.zones or one.zone in wanted.zones):
            found.append(one)
    return sorted(found, key=lambda one: (one.end is None, one.end, one.id) if one.end else (True, one.start, one.id))


def end_of_opening(draft: Draft, opening: Opening) -> End:
    """As `Draft.end_of`, but for money it counts the node that would be added."""
    pool = opening.pool
    if opening.overflow is None:
        end = draft.end_of(opening.source, pool.name, pool.spec.provisioner)
        if end.deadline is None and opening.reservation is not None:
            return End(deadline_of(opening.reservation, pool.spec.provisioner), None)
        return end
    extra = opening.usd_h * (opening.opened + 1)
    out = money_runs_out_at(draft.spec, draft.world, pool.name, opening.source.kind, extra)
    return End(out, out - SHORTEST_LEAD) if out is not None else NO_END


def money_allows(draft: Draft, opening: Opening) -> bool:
    if opening.overflow is None:
        return True
    if opening.usd_h * (opening.opened + 1) > opening.hourly_left_usd:
        return False
    left = money_left_usd(draft.spec, draft.world, opening.overflow, opening.pool.name, opening.source.kind)
    return min(left) > 0


def source_order(pool: ComputePool, source: Source) -> tuple[int, int]:
    for place, wanted in enumerate(pool.spec.sources):
        if wanted.type == source.kind.value and (not wanted.ids or source.id in wanted.ids):
            return (-pool.spec.weight, place)
    return (-pool.spec.weight, len(pool.spec.sources))


def node_labels(pool: ComputePool, source: Source, kind: InstanceType, zone: str) -> dict[str, str]:
    return {
        **pool.spec.labels,
        names.LABEL_POOL: pool.name,
        names.LABEL_SOURCE: source.label,
        names.LABEL_TYPE: kind.name,
        names.LABEL_ARCH: kind.arch,
        names.LABEL_ZONE: zone,
    }


def pool_taints(pool: ComputePool) -> tuple[Taint, ...]:
    """What stays on a node; startup taints go away by themselves and so do not count against a pod."""
    return tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.spec.taints)


def _free(allocatable: Amounts, pods: tuple[Pod, ...]) -> dict[str, int]:
    free = dict(allocatable)
    for pod in pods:
        for name, wanted in pod.shape.requests:
            free[name] = free.get(name, 0) - wanted
    free[names.PODS] = free.get(names.PODS, 0) - len(pods)
    return free


def _fresh(kind: InstanceType, daemons: Mapping[str, int]) -> dict[str, int]:
    free = dict(kind.allocatable)
    for name, used in daemons.items():
        free[name] = free.get(name, 0) - used
    return free


def _daemon_overhead(draft: Draft) -> dict[str, int]:
    """What daemon pods take on a node: the most seen on any node of ours, or a cautious guess before there is one."""
    worst: dict[str, int] = {}
    for life in draft.lives:
        if life.phase is not Phase.READY or life.node.kube is None:
            continue
        taken: dict[str, int] = {}
        for pod in draft.world.pods_by_node.get(life.node.kube.name, ()):
            if pod.daemon:
                taken[names.PODS] = taken.get(names.PODS, 0) + 1
                for name, wanted in pod.shape.requests:
                    taken[name] = taken.get(name, 0) + wanted
        for name, used in taken.items():
            worst[name] = max(worst.get(name, 0), used)
    return worst or {names.CPU: 250, names.MEMORY: 256 * 2**20, names.PODS: 4}
