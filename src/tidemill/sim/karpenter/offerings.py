"""What a NodePool could launch this instant: instance types, zones and reservations, as simulated Karpenter sees them.

Reads the objects it is given with Karpenter's own meaning: requirements on labels, selector terms of the node class.
It knows no pod and launches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.ec2_facts import KARPENTER_DRAINS_BEFORE_END
from tidemill.model.labels import Expression, Taint
from tidemill.sim.cluster.scheduler_filters import matches
from tidemill.spec import names
from tidemill.spec.units import parse_cpu, parse_duration, parse_memory

Object = Mapping[str, Any]
_FAMILIES = ("karpenter.k8s.aws", "eks.amazonaws.com")
_TYPE_LABELS = {
    names.LABEL_TYPE,
    names.LABEL_ARCH,
    *(
        f"{family}/instance-{what}"
        for family in _FAMILIES
        for what in ("category", "family", "generation", "cpu", "hypervisor")
    ),
}
_RESERVATION_TYPE = {SourceKind.BLOCK: "capacity-block", SourceKind.ODCR: "default"}


@dataclass(frozen=True, slots=True)
class Offering:
    kind: InstanceType
    zone: str
    source: Source
    usd_h: float
    labels: Mapping[str, str]  # of the node it would become


@dataclass(frozen=True, slots=True)
class NodePool:
    """One object and the node class it names, read."""

    name: str
    weight: int
    node_class: Mapping[str, Any]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    requirements: tuple[Expression, ...]
    limits: Mapping[str, float]
    replicas: int | None
    consolidate_after: timedelta | None  # None: never

    @classmethod
    def read(cls, written: Object, node_class: Object) -> NodePool:
        spec, template = written["spec"], written["spec"]["template"]
        consolidate_after = spec["disruption"].get("consolidateAfter", "0s")
        inner = template["spec"]
        return cls(
            name=written["metadata"]["name"],
            weight=spec.get("weight", 0),
            node_class=node_class["spec"],
            labels=template.get("metadata", {}).get("labels", {}),
            taints=tuple(Taint(t["key"], t.get("value", ""), t["effect"]) for t in inner.get("taints", ())),
            requirements=tuple(
                Expression(requirement["key"], requirement["operator"], tuple(requirement.get("values", ())))
                for requirement in inner["requirements"]
            ),
            limits={name: _quantity(name, value) for name, value in spec.get("limits", {}).items()},
            replicas=spec.get("replicas"),
            consolidate_after=None if consolidate_after == "Never" else parse_duration(consolidate_after),
        )

    def allows(self, kind: InstanceType, has: Iterable[InstanceType]) -> bool:
        """Its limits, with what it has already: capacity is counted, not what pods may use of it."""
        counts = capacity_of([*has, kind])
        return all(counts[name] <= self.limits.get(name, counts[name]) for name in capacity_of([kind]))


def capacity_of(kinds: Iterable[InstanceType]) -> dict[str, int]:
    """vCPUs, bytes, nodes and devices, as Karpenter counts them in the status of a NodePool."""
    found = {names.CPU: 0, names.MEMORY: 0, "nodes": 0}
    for kind in kinds:
        more = {names.CPU: kind.vcpus, names.MEMORY: kind.memory_mib * 2**20, "nodes": 1}
        if kind.accelerator is not None:
            more[kind.accelerator.resource] = kind.gpus
        for name, amount in more.items():
            found[name] = found.get(name, 0) + amount
    return found


def _quantity(name: str, value: object) -> float:
    if name == names.CPU:
        return parse_cpu(value) / 1000
    return float(parse_memory(value)) if name == names.MEMORY else float(str(value))


def offerings(
    pool: NodePool,
    catalog: Catalog,
    hourly: Sequence[Offering],
    reservations: Iterable[Reservation],
    now: datetime,
) -> list[Offering]:
    """Reserved capacity first, which is paid for, then `hourly`: what `offered_by_the_hour` says."""
    return [*_ordered(pool, _reserved(pool, catalog, reservations, now)), *hourly]


def offered_by_the_hour(pool: NodePool, catalog: Catalog, zones: Iterable[str]) -> list[Offering]:
    """The cheapest first. It is the same as long as the object is."""
    return _ordered(pool, _by_the_hour(pool, catalog, zones))


def _ordered(pool: NodePool, offered: Iterable[Offering]) -> list[Offering]:
    allowed = [offering for offering in offered if matches(pool.requirements, offering.labels)]
    return sorted(allowed, key=lambda offer: (offer.usd_h, offer.kind.name, offer.zone, offer.source))


def _reserved(
    pool: NodePool, catalog: Catalog, reservations: Iterable[Reservation], now: datetime
) -> Iterator[Offering]:
    terms = pool.node_class.get("capacityReservationSelectorTerms", ())
    for reservation in reservations:
        expiring = (
            reservation.kind is SourceKind.BLOCK
            and reservation.end is not None
            and now >= reservation.end - KARPENTER_DRAINS_BEFORE_END
        )
        if reservation.state is not ReservationState.ACTIVE or reservation.available < 1 or expiring:
            continue
        if any(_selects(term, reservation) for term in terms):
            kind = catalog.types[reservation.instance_type]
            more = {
                "capacity-reservation-type": _RESERVATION_TYPE[reservation.kind],
                "capacity-reservation-id": reservation.id,
            }
            labels = _labels(pool, kind, reservation.zone, "reserved", more)
            yield Offering(kind, reservation.zone, reservation.source, 0.0, labels)


def _by_the_hour(pool: NodePool, catalog: Catalog, zones: Iterable[str]) -> Iterator[Offering]:
    places = sorted(zones)
    of_types = tuple(one for one in pool.requirements if one.key in _TYPE_LABELS)
    for kind in catalog.types.values():
        if kind.on_demand_usd_h is None or not matches(of_types, _labels_of_type(kind)):
            continue
        for zone in places:
            for source in (Source(SourceKind.ON_DEMAND), Source(SourceKind.SPOT)):
                # How much cheaper spot is does not matter to the order of types.
                usd_h = kind.on_demand_usd_h * (0.5 if source.kind is SourceKind.SPOT else 1)
                yield Offering(kind, zone, source, usd_h, _labels(pool, kind, zone, source.kind.value, {}))


def _selects(term: Mapping[str, Any], reservation: Reservation) -> bool:
    if "id" in term:
        return bool(term["id"] == reservation.id)
    there = dict(reservation.tags)
    # In a term, "*" is any value.
    return all(key in there and value in ("*", there[key]) for key, value in term.get("tags", {}).items())


def _labels(
    pool: NodePool, kind: InstanceType, zone: str, capacity: str, more: Mapping[str, str]
) -> dict[str, str]:
    return {
        **pool.labels,
        **_labels_of_type(kind),
        names.LABEL_ZONE: zone,
        "karpenter.sh/capacity-type": capacity,
        "karpenter.sh/nodepool": pool.name,
        **_of_families(more),
    }


@cache
def _labels_of_type(kind: InstanceType) -> dict[str, str]:
    described = {
        "instance-category": kind.category,
        "instance-family": kind.family,
        "instance-generation": str(kind.generation),
        "instance-cpu": str(kind.vcpus),
        "instance-hypervisor": kind.hypervisor,
    }
    return {names.LABEL_TYPE: kind.name, names.LABEL_ARCH: kind.arch, **_of_families(described)}


def _of_families(described: Mapping[str, str]) -> dict[str, str]:
    return {f"{family}/{key}": value for family in _FAMILIES for key, value in described.items()}
