"""A group as it should exist: what Auto Scaling groups and EKS node groups have in common.

There is one for each pool, source, instance type and zone, and its name says so. `asg` and `managed` say what each
service is asked for; `wanted_groups` says which groups there should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from tidemill.model.capacity import Source
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance
from tidemill.model.purchases import LaunchIntent
from tidemill.ports.compute import Hook, Schedule, Template
from tidemill.provision.images import Images
from tidemill.provision.launch_template import check_nodes_can_join
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner

GROUP_PROVISIONERS = (Provisioner.ASG, Provisioner.MANAGED)
# EKS's limit on the name of a node group. Auto Scaling's is 255, but one rule for both is simpler.
_LONGEST_NAME = 63
# Reservation ids have 17 hexadecimal digits, and had 8. A pool may be called `my-cr-pool`.
_ENDS_WITH_A_RESERVATION = re.compile(r"-(cr-[0-9a-f]{8,})$")


@dataclass(frozen=True, slots=True)
class TemplateInputs:
    """What only AWS knows: the image behind an alias, and the data of an existing template."""

    image_id: str
    base: Mapping[str, Any] | None = None


TemplateInputsOf = Callable[[ComputePool, str], TemplateInputs]  # pool, instance type


def template_inputs_of(spec: Spec, images: Images) -> TemplateInputsOf:
    def find(pool: ComputePool, instance_type: str) -> TemplateInputs:
        if images.boots:
            check_nodes_can_join(spec, pool)
        node_class = spec.node_classes[pool.spec.node_class_name]
        reference = node_class.spec.launch_template
        base = images.existing(reference) if reference is not None else None
        return TemplateInputs(images.image_id(node_class, instance_type), base)

    return find


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What one group launches: there is one group for each key."""

    pool: str
    source: Source
    instance_type: str
    zone: str

    @classmethod
    def of(cls, launched: LaunchIntent | Instance) -> GroupKey:
        return cls(launched.pool, launched.source, launched.instance_type, launched.zone)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Everything but its size, which follows from the open launch intents."""

    name: str
    key: GroupKey
    managed: bool  # an EKS node group; else an Auto Scaling group of ours
    template: Template
    subnets: tuple[str, ...]  # all in the zone of its key
    maximum: int
    role: str  # of the nodes
    tags: Pairs = ()
    deadline: datetime | None = None  # of its source: from then on the group launches nothing
    # Auto Scaling groups:
    hook: Hook | None = None
    schedules: tuple[Schedule, ...] = ()
    # node groups:
    ami_type: str = ""  # empty: the template names an image
    labels: Pairs = ()
    taints: tuple[tuple[str, str, str], ...] = ()


def group_name(deployment: str, key: GroupKey) -> str:
    """`mill-train-cr-0123456789abcdef0`; hourly groups end in kind, type and zone. A long name is cut and hashed."""
    tail = key.source.id or f"{key.source.kind.value}-{key.instance_type}-{key.zone}"
    front, tail = f"{deployment}-{key.pool}".replace(".", "-"), tail.replace(".", "-")
    name = f"{front}-{tail}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    length = _LONGEST_NAME - len(tail) - len(digest) - 2
    return f"{front[:length]}-{digest}-{tail}"


def is_for_a_reservation(name: str) -> bool:
    """By the name of a group or template of ours: it launches from one reservation, and is useless once that ends."""
    return bool(reservation_of(name))


def reservation_of(name: str) -> str:
    """By the name of a group or template of ours: the id of its reservation; empty: it is for hourly capacity."""
    found = _ENDS_WITH_A_RESERVATION.search(name)
    return found.group(1) if found is not None else ""


def template_digest(template: Template) -> str:
    """A short digest of its content. A group carries it as a tag, so a change shows without reading the template."""
    text = json.dumps(template.data, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()
