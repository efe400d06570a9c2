"""A group that should be there: the words that Auto Scaling groups and EKS node groups have in common.

One for each place nodes of a pool come from, named after it. What is asked of which service is told in `asg` and
`managed`; which groups there should be, in `groups`.
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
# EKS's limit on the name of a node group; Auto Scaling's is 255, but one rule for both is easier to know.
_LONGEST_NAME = 63
# EC2's ids have 17 digits, and had 8. A pool may be called `my-cr-pool`.
_ENDS_WITH_A_RESERVATION = re.compile(r"-cr-[0-9a-f]{8,}$")


@dataclass(frozen=True, slots=True)
class TemplateInputs:
    """What AWS knows and the documents do not: the image an alias stands for, and an existing template's data."""

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
    """Where nodes come from: one group each."""

    pool: str
    source: Source
    instance_type: str
    zone: str

    @classmethod
    def of(cls, one: LaunchIntent | Instance) -> GroupKey:
        return cls(one.pool, one.source, one.instance_type, one.zone)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Whatever its size is just now."""

    name: str
    place: GroupKey
    managed: bool  # an EKS node group; else an Auto Scaling group of ours
    template: Template
    subnets: tuple[str, ...]  # of the place's zone, and of no other
    maximum: int
    role: str  # of the nodes
    tags: Pairs = ()
    over_at: datetime | None = None  # its deadline: from then on it launches nothing
    # Auto Scaling groups:
    hook: Hook | None = None
    schedules: tuple[Schedule, ...] = ()
    # node groups:
    ami_type: str = ""  # empty: the template names an image
    labels: Pairs = ()
    taints: tuple[tuple[str, str, str], ...] = ()


def group_name(deployment: str, place: GroupKey) -> str:
    """`mill-train-cr-0123456789abcdef0`; by the hour with kind, type and zone. Too long: cut, and told apart."""
    tail = place.source.id or f"{place.source.kind.value}-{place.instance_type}-{place.zone}"
    front, tail = f"{deployment}-{place.pool}".replace(".", "-"), tail.replace(".", "-")
    name = f"{front}-{tail}"
    if len(name) <= _LONGEST_NAME:
        return name
    mark = blake2b(name.encode(), digest_size=4).hexdigest()
    room = _LONGEST_NAME - len(tail) - len(mark) - 2
    return f"{front[:room]}-{mark}-{tail}"


def is_for_a_reservation(name: str) -> bool:
    """Of a group or a template of ours: it launches from one reservation, and is of no use once that is over."""
    return _ENDS_WITH_A_RESERVATION.search(name) is not None


def template_digest(template: Template) -> str:
    """Short for what a template says: a group carries it, so that a change shows without reading the template."""
    written = json.dumps(template.data, sort_keys=True, default=str)
    return blake2b(written.encode(), digest_size=8).hexdigest()
