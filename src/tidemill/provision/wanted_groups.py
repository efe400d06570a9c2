"""Which groups should exist: a pure function of the documents and the blocks.

A pool that launches through groups has one for each reservation it may use, in the zone of that reservation. Groups for
spot and on-demand capacity are created when a launch first needs them: a pool may allow a hundred types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from tidemill.decide.read_models import deadline_of, is_usable
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.model.errors import TidemillError
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.purchases import LaunchIntent
from tidemill.provision import asg, managed
from tidemill.provision.group_spec import (
    GROUP_PROVISIONERS,
    GroupKey,
    GroupSpec,
    TemplateInputs,
    TemplateInputsOf,
    group_name,
)
from tidemill.provision.launch_template import launch_template
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance, ComputePool, Provisioner, matching_types

# The largest group of hourly nodes, for pools whose limits do not bound the number of nodes.
_LARGEST_HOURLY_GROUP = 1000


@dataclass(frozen=True, slots=True)
class WantedGroups:
    """The groups that should exist, and why others that people may expect cannot."""

    groups: tuple[GroupSpec, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # reservation id, and why
    # Wanted, but it cannot be said now how they should be: what exists of them stays as it is. Managed, name.
    unmade: frozenset[tuple[bool, str]] = frozenset()


def wanted_groups(
    spec: Spec,
    reservations: Iterable[Reservation],
    now: datetime,
    template_inputs: TemplateInputsOf,
    allowances: Mapping[str, Allowance] | None = None,
) -> WantedGroups:
    """`allowances`: what each pool's limits still leave it; no schedule brings up more. None: as if nothing ran."""
    groups: list[GroupSpec] = []
    problems: list[tuple[str, str]] = []
    unmade: set[tuple[bool, str]] = set()
    known = sorted(reservations, key=lambda reservation: (reservation.start, reservation.id))
    by_pool = {name: reservations_for(spec, pool, known) for name, pool in spec.pools.items()}
    for name in sorted(by_pool):
        pool = spec.pools[name]
        for reservation in by_pool[name] if pool.spec.provisioner in GROUP_PROVISIONERS else ():
            shared = sum(reservation in usable for usable in by_pool.values()) > 1
            allowance = None if shared else (allowances or {}).get(name) or Allowance.of(pool.spec.limits)
            try:
                groups.append(group_on_reservation(spec, pool, reservation, now, template_inputs, allowance))
            except TidemillError as error:  # also: AWS did not answer for the image
                problems.append((reservation.id, str(error)))
                key = GroupKey(name, reservation.source, reservation.instance_type, reservation.zone)
                unmade.add(identity(spec, key))
    return WantedGroups(tuple(groups), tuple(problems), frozenset(unmade))


def identity(spec: Spec, key: GroupKey) -> tuple[bool, str]:
    """Whether it is a node group, and its name: both services may have one of that name."""
    managed_by_eks = spec.pools[key.pool].spec.provisioner is Provisioner.MANAGED
    return managed_by_eks, group_name(spec.platform.spec.deployment, key)


def reservations_for(spec: Spec, pool: ComputePool, known: Iterable[Reservation]) -> list[Reservation]:
    """The scheduled and active reservations that the pool may use."""
    owner = spec.platform.spec.deployment
    kinds = {kind.name for kind in matching_types(spec.catalog, pool.spec.requirements)}
    return [
        reservation
        for reservation in known
        if reservation.state in SECURED_STATES
        and reservation.instance_type in kinds
        and any(is_usable(reservation, pool, source, owner) for source in pool.spec.sources)
    ]


def group_on_reservation(
    spec: Spec,
    pool: ComputePool,
    reservation: Reservation,
    now: datetime,
    template_inputs: TemplateInputsOf,
    allowance: Allowance | None,
) -> GroupSpec:
    """SpecError: the documents do not allow it, such as no subnet in the reservation's zone (TR-10)."""
    key = GroupKey(pool.name, reservation.source, reservation.instance_type, reservation.zone)
    deadline = deadline_of(reservation, pool.spec.provisioner)
    group_spec = _group_spec(spec, pool, key, template_inputs, reservation.count, deadline)
    if group_spec.managed:
        return group_spec
    schedules = asg.schedules(spec, pool, group_spec, reservation, now, allowance)
    return replace(group_spec, schedules=schedules)


def hourly_group(
    spec: Spec, pool: ComputePool, key: GroupKey, template_inputs: TemplateInputsOf
) -> GroupSpec:
    """Spot or on-demand: as large as the pool's limits allow with this type alone."""
    allowed = Allowance.of(pool.spec.limits).most(spec.catalog.types[key.instance_type])
    maximum = max(0, int(min(allowed, _LARGEST_HOURLY_GROUP)))
    return _group_spec(spec, pool, key, template_inputs, maximum, None)


def remaining_allowances(
    spec: Spec, nodes: Iterable[Node], launches: Iterable[LaunchIntent]
) -> dict[str, Allowance]:
    """What the limits of each pool leave it, beside the nodes that exist and those being launched."""
    allowances = {name: Allowance.of(pool.spec.limits) for name, pool in spec.pools.items()}
    seen: dict[str, int] = {}
    for instance in (node.instance for node in nodes):
        if (
            instance is not None
            and instance.state not in INSTANCE_ENDED_STATES
            and instance.pool in allowances
        ):
            allowances[instance.pool].take(spec.catalog.types[instance.instance_type])
            seen[instance.intent_id] = seen.get(instance.intent_id, 0) + 1
    for intent in launches:
        if intent.pool in allowances and intent.in_flight > seen.get(intent.id, 0):
            more = intent.in_flight - seen.get(intent.id, 0)
            allowances[intent.pool].take(spec.catalog.types[intent.instance_type], more)
    return allowances


def _group_spec(
    spec: Spec,
    pool: ComputePool,
    key: GroupKey,
    template_inputs: TemplateInputsOf,
    maximum: int,
    deadline: datetime | None,
) -> GroupSpec:
    inputs = template_inputs(pool, key.instance_type)
    make = _written if inputs.base is None else _write
    return make(spec, key, inputs, maximum, deadline)


def _write(
    spec: Spec, key: GroupKey, inputs: TemplateInputs, maximum: int, deadline: datetime | None
) -> GroupSpec:
    pool = spec.pools[key.pool]
    is_managed = pool.spec.provisioner is Provisioner.MANAGED
    template = launch_template(
        spec, pool, key.instance_type, key.source, key.zone, inputs.image_id,
        managed=is_managed, ends_at=deadline, base=inputs.base,
    )  # fmt: skip
    node_class = spec.node_classes[pool.spec.node_class_name]
    group_spec = GroupSpec(
        name=group_name(spec.platform.spec.deployment, key),
        key=key,
        managed=is_managed,
        template=template,
        subnets=tuple(spec.platform.spec.subnets[key.zone]),
        maximum=max(1, maximum) if is_managed else maximum,  # EKS refuses 0
        role=node_class.spec.role or spec.platform.spec.node_role,
        deadline=deadline,
    )
    if not is_managed:
        return asg.as_group(spec, pool, group_spec)
    kind = spec.catalog.types[key.instance_type]
    return managed.as_node_group(spec, pool, group_spec, node_class, kind, inputs.image_id)


# Writing user data and digesting it costs milliseconds, and groups are compared at most looks. What is written follows
# from the arguments alone, unless it is based on a template of others.
_written = lru_cache(maxsize=256)(_write)
