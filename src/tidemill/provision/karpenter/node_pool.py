"""NodePools: which nodes Karpenter may launch, from which source and how many; prepaid nodes are left alone.

For blocks (KP-4): never consolidated, never expired, and ten minutes to drain, because Karpenter begins 40 minutes
before the end of a block and EC2 terminates the instances 30 minutes before it.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import Any, Literal

from tidemill.catalog import InstanceType
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.provision.karpenter import room
from tidemill.provision.karpenter.node_class import KarpenterApi, is_static
from tidemill.provision.karpenter.removal import without_drift
from tidemill.provision.launch_template import owner_tags
from tidemill.spec import Spec, names, traps
from tidemill.spec.compute_pool import (
    Allowance,
    ComputePool,
    DisruptionBudgetSpec,
    SourceSpec,
    matching_types,
)
from tidemill.spec.node_class import fingerprint
from tidemill.spec.units import format_duration

CAPACITY_TYPE = "karpenter.sh/capacity-type"
RESERVATION_TYPE, RESERVATION_ID = "capacity-reservation-type", "capacity-reservation-id"
_RESERVATION_TYPES = {SourceKind.BLOCK: "capacity-block", SourceKind.ODCR: "default"}
_DRAIN_TIME = format_duration(traps.LONGEST_GRACE)
_WEIGHT = 50  # of a pool that sets none: fall-backs get lower ones
_LONGEST_NAME = 63
Body = dict[str, Any]
Requirement = dict[str, Any]


def reserved(spec: Spec, pool: ComputePool, api: KarpenterApi, name: str, kind: SourceKind) -> Body:
    """For all reservations its node class selects: no pod can be pinned to one of them. Of a warm static pool the
    replicas are as many as the pool keeps warm, or as its limits allow: how large the blocks are is not known."""
    body = _body(spec, pool, api, name, None, _capacity(api, kind), prepaid=kind is SourceKind.BLOCK)
    most = pool.spec.limits.nodes if pool.spec.limits is not None else None
    if is_static(pool, api) and (most is not None or pool.spec.warm is not True):
        count = most or 0 if pool.spec.warm is True else int(pool.spec.warm or 0)
        static = {"replicas": count, "limits": {"nodes": str(most if most is not None else count)}}
        return _object(spec, pool, object_name(name, "warm"), body | static)
    limits = room.limits_of(spec, pool, {}, Allowance.of(pool.spec.limits))
    more = {"limits": limits, "weight": pool.spec.weight or _WEIGHT}
    return _object(spec, pool, name, body | more)


def for_reservation(
    spec: Spec,
    pool: ComputePool,
    api: KarpenterApi,
    name: str,
    node_class: str,
    reservation: Reservation,
    count: int,
    replicas: int = 0,
    *,
    ending: bool = False,
) -> Body:
    """For one reservation, with room for so many nodes in all; `ending`: those that it has, and none after them.
    `replicas`: so many of them are kept up if the pool is static."""
    kind = spec.catalog.types[reservation.instance_type]
    capacity = [
        *_capacity(api, reservation.kind),
        _in("node.kubernetes.io/instance-type", reservation.instance_type),
        _in(names.LABEL_ZONE, reservation.zone),
        *([] if api.auto_mode else [_in(f"{api.labels}/{RESERVATION_ID}", reservation.id)]),
    ]
    body = _body(
        spec,
        pool,
        api,
        node_class,
        reservation.source,
        capacity,
        prepaid=reservation.kind is SourceKind.BLOCK,
    )
    if is_static(pool, api):
        static = _static(reservation, replicas, 0 if ending else count)
        return _object(spec, pool, object_name(name, "warm"), body | static)
    return _object(
        spec, pool, name, body | {"limits": _limits_for(kind, count), "weight": pool.spec.weight or _WEIGHT}
    )


def hourly(
    spec: Spec,
    pool: ComputePool,
    api: KarpenterApi,
    node_class: str,
    source: Source,
    wanted: SourceSpec,
    use: room.Use,
    free: Allowance | None,
    *,
    rank: int,
) -> Body:
    """Spot or on-demand, `rank` below the pool's weight. `use`: what it has; `free`: what it may have besides. The cap
    in dollars becomes a cap in vCPUs."""
    zones = [_in(names.LABEL_ZONE, *wanted.zones)] if wanted.zones else []
    capacity = [*_of_types(spec, pool, api), _in(CAPACITY_TYPE, source.kind.value), *zones]
    body = _body(spec, pool, api, node_class, source, capacity, prepaid=False)
    body["limits"] = room.limits_within_cap(spec, pool, wanted, use, free)
    weight = (pool.spec.weight or _WEIGHT) - rank
    if weight > 0:
        body["weight"] = weight
    return _object(spec, pool, object_name(pool.name, source.kind.value), body)


def object_name(pool: str, tail: str) -> str:
    """Nodes carry it as the value of a label: at most 63 characters."""
    name = f"{pool}-{tail}".replace(".", "-")
    if len(name) <= _LONGEST_NAME:
        return name
    mark = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{name[: _LONGEST_NAME - len(mark) - len(tail) - 2]}-{mark}-{tail}"


def _body(
    spec: Spec,
    pool: ComputePool,
    api: KarpenterApi,
    node_class: str,
    source: Source | None,
    requirements: list[Requirement],
    *,
    prepaid: bool,
) -> Body:
    if source is None:
        requirements = [*requirements, *_of_types(spec, pool, api)]
    labels = {
        **pool.spec.labels,
        names.LABEL_POOL: pool.name,
        **({names.LABEL_SOURCE: source.label} if source is not None else {}),
        names.LABEL_NODE_CLASS: fingerprint(spec.node_classes[pool.spec.node_class_name]),
    }
    template: Body = {
        "nodeClassRef": {"group": api.group, "kind": api.kind, "name": node_class},
        "requirements": requirements,
        "expireAfter": api.expire_after,
        **({"terminationGracePeriod": _DRAIN_TIME} if prepaid else {}),
        **({"taints": [t.model_dump(exclude_defaults=True) | {"effect": t.effect} for t in pool.spec.taints]}
           if pool.spec.taints else {}),
        "startupTaints": [
            *(t.model_dump(exclude_defaults=True) | {"effect": t.effect} for t in pool.spec.startup_taints),
            *([{"key": names.TAINT_STARTUP, "effect": "NoSchedule"}] if api.engine else []),
        ],
    }  # fmt: skip
    if not template["startupTaints"]:
        del template["startupTaints"]
    return {
        "template": {"metadata": {"labels": labels}, "spec": template},
        "disruption": _disruption(pool, prepaid=prepaid),
    }


def _disruption(pool: ComputePool, *, prepaid: bool) -> Body:
    own = pool.spec.disruption
    never = own.consolidation_policy == "Never" or (prepaid and not own.consolidate_blocks)
    policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized"] = (
        "WhenEmptyOrUnderutilized"
        if own.consolidation_policy == "WhenEmptyOrUnderutilized" and not never
        else "WhenEmpty"
    )
    budgets = [_budget(budget) for budget in own.budgets]
    budgets = without_drift(budgets) if prepaid else budgets
    return {
        "consolidationPolicy": policy,
        "consolidateAfter": "Never" if never else _hms(format_duration(own.consolidate_after)),
        **({"budgets": budgets} if budgets else {}),
    }


def _budget(budget: DisruptionBudgetSpec) -> Body:
    """Its duration in hours and minutes, which is all that Karpenter accepts. Rounded up: it holds longer."""
    written = budget.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) | {
        "nodes": budget.nodes
    }
    if budget.duration is not None:
        hours, minutes = divmod(-(-budget.duration // timedelta(minutes=1)), 60)
        written["duration"] = f"{hours}h{minutes}m"
    return written


def _hms(duration: str) -> str:
    """Karpenter accepts no days: `2d` is `48h`."""
    days, found, rest = duration.partition("d")
    return f"{int(days) * 24}h{rest}" if found else duration


def _static(reservation: Reservation, replicas: int, most: int) -> Body:
    """No replicas before the reservation is active: every launch would fail. Fewer replicas would end nodes, so it is
    the limit that keeps Karpenter from making one anew for each that is drained."""
    return {
        "replicas": replicas if reservation.state is ReservationState.ACTIVE else 0,
        "limits": {"nodes": str(most)},
    }


def _capacity(api: KarpenterApi, kind: SourceKind) -> list[Requirement]:
    """In Auto Mode only the node class says which reservations: its selector takes blocks and ODCRs."""
    kinds = [] if api.auto_mode else [_in(f"{api.labels}/{RESERVATION_TYPE}", _RESERVATION_TYPES[kind])]
    return [_in(CAPACITY_TYPE, "reserved"), *kinds]


def _of_types(spec: Spec, pool: ComputePool, api: KarpenterApi) -> list[Requirement]:
    """The pool's requirements in Karpenter's labels. A NodePool that names no types would have those of every kind."""
    wanted = pool.spec.requirements
    categories = wanted.instance_categories
    if not wanted.names_types:
        categories = tuple(sorted({kind.category for kind in matching_types(spec.catalog, wanted)}))
    listed = {
        names.LABEL_TYPE: wanted.instance_types,
        f"{api.labels}/instance-category": categories,
        f"{api.labels}/instance-family": wanted.instance_families,
        f"{api.labels}/instance-cpu": tuple(map(str, wanted.cpu_sizes)),
        f"{api.labels}/instance-hypervisor": (wanted.hypervisor,) if wanted.hypervisor else (),
        names.LABEL_ARCH: (wanted.arch,) if wanted.arch else (),
        names.LABEL_ZONE: wanted.zones,
    }
    found = [_in(key, *values) for key, values in listed.items() if values]
    if wanted.min_generation is not None and wanted.min_generation > 1:
        more_than = str(wanted.min_generation - 1)  # Gte came with 1.13; Gt is as old as Karpenter
        found.append({"key": f"{api.labels}/instance-generation", "operator": "Gt", "values": [more_than]})
    return found


def _in(key: str, *values: str) -> Requirement:
    return {"key": key, "operator": "In", "values": list(values)}


def _limits_for(kind: InstanceType, count: int) -> Body:
    """So many nodes, in resources that every version of Karpenter counts."""
    found: Body = {"cpu": str(kind.vcpus * count)}
    if kind.accelerator is not None:
        found[kind.accelerator.resource] = str(kind.gpus * count)
    return found


def _object(spec: Spec, pool: ComputePool, name: str, body: Body) -> Body:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": dict(owner_tags(spec, pool))},
        "spec": body,
    }
