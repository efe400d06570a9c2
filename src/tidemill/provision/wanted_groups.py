"""Which groups should exist: a pure function of the documents and the blocks.

For every pool that launches through groups, one for each reservation it may use, in that reservation's zone alone.
Groups for capacity by the hour are made when they are first asked for: a pool may allow a hundred types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from tidemill.decide.deadlines import deadline_of
from tidemill.decide.placement.launch_options import is_usable
from tidemill.model.capacity import SECURED_STATES, Reservation
from tidemill.model.errors import PortError, SpecError
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.purchases import LaunchIntent
from tidemill.ports.compute import Template
from tidemill.provision import asg, managed
from tidemill.provision.group_spec import (
    GROUP_PROVISIONERS,
    GroupKey,
    GroupSpec,
    TemplateInputsOf,
    group_name,
)
from tidemill.provision.launch_template import launch_template
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance, ComputePool, Provisioner, matching_types

# What is there or will be: for anything else no group is made, and one that is there is left to empty itself.
# No group of hourly nodes is larger, whatever a pool without a number of nodes in its limits would allow.
_MOST_BY_THE_HOUR = 1000


@dataclass(frozen=True, slots=True)
class WantedGroups:
    """What should be there; and what cannot be, although somebody may expect it."""

    groups: tuple[GroupSpec, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # about whom, and the sentence


def wanted_groups(
    spec: Spec,
    reservations: Iterable[Reservation],
    now: datetime,
    makings: TemplateInputsOf,
    room: Mapping[str, Allowance] | None = None,
) -> WantedGroups:
    """`room`: what each pool's limits still leave it; no schedule brings up more. None: as if nothing ran."""
    groups: list[GroupSpec] = []
    problems: list[tuple[str, str]] = []
    known = sorted(reservations, key=lambda one: (one.start, one.id))
    users = {name: reservations_for(spec, pool, known) for name, pool in spec.pools.items()}
    for name in sorted(users):
        pool = spec.pools[name]
        for one in users[name] if pool.spec.provisioner in GROUP_PROVISIONERS else ():
            shared = sum(one in others for others in users.values()) > 1
            left = None if shared else (room or {}).get(name) or Allowance.of(pool.spec.limits)
            try:
                groups.append(group_on_reservation(spec, pool, one, now, makings, left))
            except (SpecError, PortError) as error:  # or what AWS did not say about its image
                problems.append((one.id, str(error)))
    return WantedGroups(tuple(groups), tuple(problems))


def reservations_for(spec: Spec, pool: ComputePool, known: Iterable[Reservation]) -> list[Reservation]:
    """Those that are or will be there and that the pool may use."""
    owner = spec.platform.spec.deployment
    kinds = {kind.name for kind in matching_types(spec.catalog, pool.spec.requirements)}
    return [
        one
        for one in known
        if one.state in SECURED_STATES
        and one.instance_type in kinds
        and any(is_usable(one, pool, source, owner) for source in pool.spec.sources)
    ]


def group_on_reservation(
    spec: Spec,
    pool: ComputePool,
    one: Reservation,
    now: datetime,
    makings: TemplateInputsOf,
    room: Allowance | None,
) -> GroupSpec:
    """SpecError: the documents do not allow it, such as no subnet in the reservation's zone (TR-10)."""
    place = GroupKey(pool.name, one.source, one.instance_type, one.zone)
    over_at = deadline_of(one, pool.spec.provisioner)
    own = _made(spec, pool, place, makings, one.count, over_at)
    return own if own.managed else replace(own, schedules=asg.schedules(spec, pool, own, one, now, room))


def hourly_group(spec: Spec, pool: ComputePool, place: GroupKey, makings: TemplateInputsOf) -> GroupSpec:
    """Spot or on demand: as large as the pool may become of this type alone."""
    kind, allowance = spec.catalog.types[place.instance_type], Allowance.of(pool.spec.limits)
    most = next(n for n in range(_MOST_BY_THE_HOUR, -1, -1) if n == 0 or allowance.allows(kind, n))
    return _made(spec, pool, place, makings, most, None)


def remaining_allowances(
    spec: Spec, nodes: Iterable[Node], launches: Iterable[LaunchIntent]
) -> dict[str, Allowance]:
    """What each pool's limits leave it beside every node that lives or is on its way."""
    room = {name: Allowance.of(pool.spec.limits) for name, pool in spec.pools.items()}
    seen: dict[str, int] = {}
    for instance in (node.instance for node in nodes):
        if instance is not None and instance.state not in INSTANCE_ENDED_STATES and instance.pool in room:
            room[instance.pool].take(spec.catalog.types[instance.instance_type])
            seen[instance.intent_id] = seen.get(instance.intent_id, 0) + 1
    for intent in launches:
        if intent.pool in room and intent.in_flight > seen.get(intent.id, 0):
            more = intent.in_flight - seen.get(intent.id, 0)
            room[intent.pool].take(spec.catalog.types[intent.instance_type], more)
    return room


@lru_cache(maxsize=256)
def _template(spec: Spec, place: GroupKey, image_id: str, over_at: datetime | None) -> Template:
    """Kept: writing user data costs milliseconds, and groups are looked at whenever something moves."""
    pool = spec.pools[place.pool]
    return launch_template(
        spec, pool, place.instance_type, place.source, place.zone, image_id,
        managed=pool.spec.provisioner is Provisioner.MANAGED, ends_at=over_at,
    )  # fmt: skip


def _made(
    spec: Spec,
    pool: ComputePool,
    place: GroupKey,
    makings: TemplateInputsOf,
    maximum: int,
    over_at: datetime | None,
) -> GroupSpec:
    is_managed = pool.spec.provisioner is Provisioner.MANAGED
    made_of = makings(pool, place.instance_type)
    if made_of.base is None:
        template = _template(spec, place, made_of.image_id, over_at)
    else:
        template = launch_template(
            spec, pool, place.instance_type, place.source, place.zone, made_of.image_id,
            managed=is_managed, ends_at=over_at, base=made_of.base,
        )  # fmt: skip
    node_class = spec.node_classes[pool.spec.node_class_name]
    own = GroupSpec(
        name=group_name(spec.platform.spec.deployment, place),
        place=place,
        managed=is_managed,
        template=template,
        subnets=tuple(spec.platform.spec.subnets[place.zone]),
        maximum=max(1, maximum) if is_managed else maximum,  # EKS takes no 0
        role=node_class.spec.role or spec.platform.spec.node_role,
        over_at=over_at,
    )
    if not is_managed:
        return asg.as_group(spec, pool, own)
    kind = spec.catalog.types[place.instance_type]
    return managed.as_node_group(spec, pool, own, node_class, kind, made_of.image_id)
