"""Nodes that could still be launched: from which source, of which type, how many, at what price, until when.

Nothing is opened past a pool's limits, an overflow cap or what a reservation holds, in-flight launches
counted; a source that just failed rests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog import InstanceType
from tidemill.decide.draft import NO_END, Draft, End
from tidemill.decide.launches import InFlight
from tidemill.decide.nodes import SHORTEST_LEAD
from tidemill.decide.overflow import hourly_rate, money_left_usd, money_runs_out_at, usd_per_hour
from tidemill.decide.pools import PoolTemplate
from tidemill.spec.models import ComputePool, Limits, SourceSpec
from tidemill.world import Reservation, ReservationState, Source, SourceKind


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
        caps = (limits.cpu, limits.memory, limits.gpus, limits.nodes)
        return cls(*(float("inf") if cap is None else cap for cap in caps))

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


@dataclass(slots=True, eq=False)
class Opening:
    """A kind of node that could be launched: so many more of a type, from a source, in a zone."""

    template: PoolTemplate
    source: Source
    kind: InstanceType
    zone: str
    left: float
    usd_h: float
    order: tuple[int, int]
    allowance: Allowance
    free: Mapping[str, int]
    reservation: Reservation | None = None
    overflow: SourceSpec | None = None
    hourly_left_usd: float = float("inf")
    resting_until: datetime | None = None
    opened: int = 0

    @property
    def pool(self) -> ComputePool:
        return self.template.pool

    @property
    def labels(self) -> Mapping[str, str]:
        return self.template.labels(self.source, self.kind, self.zone)

    def open(self) -> None:
        self.opened += 1
        self.left -= 1
        self.allowance.take(self.kind)

    def close(self) -> None:
        self.opened -= 1
        self.left += 1
        self.allowance.take(self.kind, -1)


def find_openings(
    draft: Draft, in_flight: InFlight, allowances: Mapping[str, Allowance], daemons: Mapping[str, int]
) -> list[Opening]:
    """In no order of preference: `pack` ranks them for each item."""
    if not (draft.world.ledger_ok and draft.world.cloud_ok):
        return []
    found: list[Opening] = []
    for name, template in draft.templates.items():
        for wanted in template.pool.spec.sources:
            if wanted.type in ("block", "odcr"):
                found += _reserved(draft, template, wanted, in_flight, allowances[name], daemons)
            else:
                found += _hourly(draft, template, wanted, allowances[name], daemons)
    for opening in found:
        opening.resting_until = in_flight.resting.get((opening.source, opening.kind.name, opening.zone))
        draft.wake(opening.resting_until)
    return found


def _reserved(
    draft: Draft, template: PoolTemplate, wanted: SourceSpec, in_flight: InFlight, allowance: Allowance,
    daemons: Mapping[str, int],
) -> list[Opening]:  # fmt: skip
    return [
        Opening(
            template, one.source, template.kinds[one.instance_type], one.zone,
            one.available - in_flight.on(one.source), 0.0, template.order(one.source), allowance,
            fresh(template.kinds[one.instance_type], daemons), reservation=one,
        )
        for one in usable_reservations(draft, template.pool, wanted)
        if one.instance_type in template.kinds and one.state is ReservationState.ACTIVE
    ]  # fmt: skip


def _hourly(
    draft: Draft, template: PoolTemplate, wanted: SourceSpec, allowance: Allowance, daemons: Mapping[str, int]
) -> list[Opening]:
    pool = template.pool
    source = Source(SourceKind(wanted.type))
    overflow = template.overflow[source.kind]
    hourly_left = float("inf")
    if overflow is not None:
        hourly_left = (overflow.max_hourly_usd or 0.0) - hourly_rate(draft.spec, draft.world, pool.name, source.kind)
    zones = [zone for zone in sorted(draft.spec.platform.spec.subnets) if _is_allowed(zone, pool, wanted)]
    return [
        Opening(
            template, source, kind, zone, float("inf"), usd_per_hour(draft.spec, kind.name, source.kind),
            template.order(source), allowance, fresh(kind, daemons), overflow=overflow, hourly_left_usd=hourly_left,
        )
        for kind in template.kinds.values()
        if kind.on_demand_usd_h is not None  # a price nobody knows cannot be kept inside a cap
        for zone in zones
    ]  # fmt: skip


def _is_allowed(zone: str, pool: ComputePool, wanted: SourceSpec) -> bool:
    return all(not zones or zone in zones for zones in (wanted.zones, pool.spec.requirements.zones))


def usable_reservations(draft: Draft, pool: ComputePool, wanted: SourceSpec) -> list[Reservation]:
    """Reservations of this kind that the pool may use.

    Always ours by the owner tag; where the pool names ids or tags, only those of them. A pool tag on a
    reservation keeps other pools off it.
    """
    return [
        one
        for one in draft.world.reservations
        if one.owner == draft.owner
        and one.kind.value == wanted.type
        and (not one.pool or one.pool == pool.name)
        and (not wanted.ids or one.id in wanted.ids)
        and (not wanted.tags or set(wanted.tags.items()) <= set(one.tags))
        and _is_allowed(one.zone, pool, wanted)
    ]


def end_of_opening(draft: Draft, opening: Opening) -> End:
    """As `Draft.end_of`, but where money is the limit it counts the node that would be added."""
    pool = opening.pool
    if opening.overflow is None:
        return draft.end_of(opening.source, pool.name, pool.spec.provisioner)
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


def fresh(kind: InstanceType, daemons: Mapping[str, int]) -> dict[str, int]:
    """What a new node of this type has for pods."""
    free = dict(kind.allocatable)
    for name, used in daemons.items():
        free[name] = free.get(name, 0) - used
    return free
