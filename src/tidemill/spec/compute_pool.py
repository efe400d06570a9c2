"""The ComputePool document: which instance types, from which sources, how many, and when nodes may go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from pydantic import Field, field_validator, model_validator

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.ec2_facts import LONGEST_BLOCK
from tidemill.spec.document import Document, Model, Name
from tidemill.spec.units import Count, CpuMilli, Duration, Length, MemoryBytes


class Provisioner(StrEnum):
    NATIVE = "native"
    ASG = "asg"
    MANAGED = "managed"
    KARPENTER = "karpenter"


class SourceSpec(Model):
    """Where capacity comes from. Sources are listed in order of preference.

    In a pool that has a block or odcr source, spot and on-demand sources are overflow: only pods that opt in
    (`tidemill.dev/overflow: "true"`) use them, and both caps are required.
    """

    type: Literal["block", "odcr", "spot", "on-demand"]
    """A Capacity Block, an On-Demand Capacity Reservation, or instances paid by the hour."""
    ids: tuple[str, ...] = ()
    """Block and odcr: use only these reservations, and blocks that a plan or `tidemill buy` buys for this pool: the
    pin moves on to them. To use any other reservation, add its id."""
    tags: dict[str, str] = {}
    """Block and odcr: use only reservations with these tags. Default: the platform's owner tag."""
    zones: tuple[str, ...] = ()
    """Use only these zones. Empty: all."""
    max_hourly_usd: float | None = Field(default=None, ge=0)
    """Spot and on-demand: the most all nodes of this source may cost per hour."""
    max_monthly_usd: float | None = Field(default=None, ge=0)
    """Spot and on-demand: the most all nodes of this source may cost per calendar month (UTC)."""


class Requirements(Model):
    """Which instance types may be launched. A type must meet all fields that are given. Types without accelerators
    are launched only where a category, a family or a type names them."""

    instance_categories: tuple[str, ...] = ()
    """Such as `p`, `g`, `trn`; without accelerators `c`, `m`, `r`, `t`."""
    instance_families: tuple[str, ...] = ()
    """Such as `p5`, `g6e`, `m7i`."""
    instance_types: tuple[str, ...] = ()
    """Such as `p5.48xlarge`."""
    arch: Literal["amd64", "arm64"] | None = None
    """CPU architecture."""
    hypervisor: Literal["nitro", "xen"] | None = None
    min_generation: Count | None = Field(default=None, ge=1)
    """Only types of this generation or later: the number in the family's name, such as 5 in p5."""
    cpu_sizes: tuple[Count, ...] = ()
    """Only types with one of these vCPU counts."""
    zones: tuple[str, ...] = ()
    """Availability zones. Empty: all."""

    @property
    def names_types(self) -> bool:
        """Whether it says which types, and not only what they must be like."""
        return bool(self.instance_categories or self.instance_families or self.instance_types)


class TaintSpec(Model):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Limits(Model):
    """The most a pool may have at once, including nodes that are being launched. A field that is not given is not
    a limit."""

    cpu: CpuMilli | None = Field(default=None, ge=0)
    """vCPUs of all nodes together."""
    memory: MemoryBytes | None = Field(default=None, ge=0)
    """Memory of all nodes together."""
    gpus: Count | None = Field(default=None, ge=0)
    """GPUs or Neuron devices of all nodes together."""
    nodes: Count | None = Field(default=None, ge=0)
    """Number of nodes."""


@dataclass(slots=True)
class Allowance:
    """What a pool may still launch within its limits, every node that lives or is on its way already counted (PE-5)."""

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

    def allows(self, kind: InstanceType, count: int = 1) -> bool:
        return (
            self.cpu_milli >= kind.vcpus * 1000 * count
            and self.memory_bytes >= kind.memory_mib * 2**20 * count
            and self.gpus >= kind.gpus * count
            and self.nodes >= count
        )

    def most(self, kind: InstanceType) -> float:
        """How many of this type it allows, perhaps with a fraction; infinite where no limit is set."""
        each = (
            (self.cpu_milli, kind.vcpus * 1000),
            (self.memory_bytes, kind.memory_mib * 2**20),
            (self.gpus, kind.gpus),
            (self.nodes, 1),
        )
        return max(0.0, min(left / one for left, one in each if one))


class DisruptionBudgetSpec(Model):
    nodes: str = Field(default="10%", max_length=32)
    """How many nodes of the pool may be disrupted at once: a number or a percentage (rounded up)."""
    schedule: str | None = None
    """When the budget starts to apply, as a cron line in UTC. Not given: always."""
    duration: Duration | None = None
    """How long the budget applies from then."""
    reasons: tuple[Literal["Empty", "Underutilized", "Drifted"], ...] = ()
    """The reasons for disruption that the budget limits. Empty: all."""


class Disruption(Model):
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Never"] = "WhenEmpty"
    """Which nodes Tidemill removes to save money."""
    consolidate_after: Duration = timedelta(minutes=5)
    """How long a node must have been empty or underutilized. The time starts again when a pod comes or goes."""
    consolidate_blocks: bool = False
    """Also remove nodes of blocks. By default they stay up until the block ends, because they are prepaid."""
    budgets: tuple[DisruptionBudgetSpec, ...] = ()
    """How many nodes may be disrupted at once, and when. The strictest budget that applies counts. Empty: no limit."""


class Drain(Model):
    lead: Duration | None = None
    """Start to drain at least this long before the deadline. Pods that need more time get it."""
    checkpoint: bool = True
    """Ask pods for a checkpoint before they are evicted, if they can write one."""


class ComputePoolSpec(Model):
    node_class_name: Name
    """The NodeClass that its nodes are made from."""
    provisioner: Provisioner = Provisioner.NATIVE
    """What launches the nodes: the engine itself, an Auto Scaling group, an EKS managed node group, or Karpenter."""
    sources: tuple[SourceSpec, ...] = (SourceSpec(type="on-demand"),)
    """Where capacity comes from, the preferred source first."""
    requirements: Requirements = Requirements()
    """Which instance types may be launched."""
    labels: dict[str, str] = {}
    """Labels of its nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of its nodes."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that its nodes start with and that something else removes."""
    limits: Limits | None = None
    """The most the pool may have at once. Without limits a pool launches nothing."""
    disruption: Disruption = Disruption()
    """When nodes may be removed or replaced."""
    warm: bool | Count | None = None
    """Block pools: how many nodes of a block run without pods from its delivery to its end. true: all, false: none. Not
    given: true, unless `consolidateBlocks` is true."""
    drain: Drain = Drain()
    """How nodes are drained before their source ends."""
    weight: Count = Field(default=0, ge=0, le=100)
    """Pools with a higher weight are tried first."""
    default_duration: Duration | None = None
    """Expected duration of pods that do not state one. Not given: such pods have no end."""
    max_expected_duration: Length = LONGEST_BLOCK
    """A longer expected duration of a pod counts as this one, and the pod is drained if it has not finished by then.
    The default is the longest block that EC2 sells: a pod that needs more would wait for ever."""
    overflow_after: Duration = timedelta(minutes=15)
    """How much longer than a node takes to boot a pod waits for prepaid capacity that is known to come (a paid block
    that starts, work that is done by its expected duration) before it gets a node by the hour."""
    preempt_after: Duration | None = timedelta(minutes=15)
    """A pod that would wait longer than this for a node makes resumable pods of lower priority save their work and
    leave. null: never. Pods that are not resumable or not to be disrupted always stay."""
    node_check: Literal["none", "required"] = "none"
    """When a new node takes pods. none: when its accelerators are registered, and the node check has passed where one
    reports. required: only when a node check has passed; a node that none reports on is replaced."""
    admitted_pods_only: bool = False
    """Its nodes carry the taint `tidemill.dev/held`: only pods that Tidemill admits, and managed services,
    are scheduled there, so that no other pod takes the room between a decision and the start of its pods. Daemon pods
    must tolerate it. Not for the provisioner karpenter."""
    allowed_namespaces: tuple[str, ...] = ()
    """Only pods of these namespaces may use the pool. Empty: all."""

    def serves(self, namespace: str) -> bool:
        """Whether pods of this namespace may use the pool."""
        return not self.allowed_namespaces or namespace in self.allowed_namespaces

    @property
    def pinned_to(self) -> tuple[str, ...]:
        """The reservations that its sources name."""
        return tuple(dict.fromkeys(id_ for source in self.sources for id_ in source.ids))

    @property
    def kept_warm(self) -> bool | int:
        """How many nodes of its blocks run without pods: all (True), a number, or none (False)."""
        return not self.disruption.consolidate_blocks if self.warm is None else self.warm

    @field_validator("limits")
    @classmethod
    def _empty_limits_are_none(cls, limits: Limits | None) -> Limits | None:
        """`limits: {}` limits nothing, and a pool without limits launches nothing: it must not mean without end."""
        return None if limits == Limits() else limits

    @model_validator(mode="after")
    def _warm_or_consolidated(self) -> ComputePoolSpec:
        if self.warm is True and self.disruption.consolidate_blocks:
            raise ValueError(
                "warm: true keeps every node up, so consolidateBlocks: true has no effect; remove one of them"
            )
        return self


class ComputePool(Document):
    kind: Literal["ComputePool"] = "ComputePool"
    spec: ComputePoolSpec


# --- which instance types its requirements allow --------------------------------------------------


@lru_cache(maxsize=1024)
def matching_types(catalog: Catalog, requirements: Requirements) -> tuple[InstanceType, ...]:
    """The types that meet the requirements, sorted by name. Cached: the engine asks at every tick."""
    allowed = (t for t in catalog.types.values() if matches(t, requirements))
    return tuple(sorted(allowed, key=lambda t: t.name))


def matches(instance_type: InstanceType, wanted: Requirements) -> bool:
    t = instance_type
    return (
        (t.accelerator is not None or wanted.names_types)
        and (not wanted.instance_categories or t.category in wanted.instance_categories)
        and (not wanted.instance_families or t.family in wanted.instance_families)
        and (not wanted.instance_types or t.name in wanted.instance_types)
        and (wanted.arch is None or t.arch == wanted.arch)
        and (wanted.hypervisor is None or t.hypervisor == wanted.hypervisor)
        and (wanted.min_generation is None or t.generation >= wanted.min_generation)
        and (not wanted.cpu_sizes or t.vcpus in wanted.cpu_sizes)
    )


# --- which labels its nodes may set --------------------------------------------------

_KUBERNETES = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
# What the kubelet's NodeRestriction rule allows, without the labels that the kubelet sets itself.
_MAY_SET = re.compile(r"(^|\.)(node|kubelet)\.kubernetes\.io/|^topology\.kubernetes\.io/")


def kubelet_may_set(label: str) -> bool:
    """Whether a node may give itself this label. With a label that it may not set, the kubelet does not start."""
    return _KUBERNETES.search(label) is None or _MAY_SET.search(label) is not None
