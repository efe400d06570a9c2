"""The documents people write: Platform, NodeClass, ComputePool, CapacityPlan.

One model feeds the YAML reader, the JSON Schema, the CRDs and the API. Field names are the ones users
already write (Karpenter's, and those of compute-pool blueprints); in Python they are snake_case. What a
model can judge alone is judged here; what needs several documents or the catalog is in `check`.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemill.spec.demand_calendar import DemandCalendar
from tidemill.spec.karpenter import KarpenterRef as KarpenterRef
from tidemill.spec.model import Model as Model
from tidemill.spec.model import Name as Name
from tidemill.spec.money import Approval as Approval
from tidemill.spec.money import Budget as Budget
from tidemill.spec.names import API_VERSION
from tidemill.spec.notifications import AlertRules, Notification, check_names
from tidemill.spec.units import Count, CpuMilli, Duration, Instant, Length, MemoryBytes


class Metadata(Model):
    name: Name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


# --- Platform -----------------------------------------------------------------------------------------


class ClusterRef(Model):
    name: str
    """EKS cluster name."""
    version: str = "1.33"
    """Kubernetes version, in quotes."""
    endpoint: str = ""
    """Address of the API server, for the bootstrap of self-managed nodes."""
    certificate_authority: str = ""
    """Of the API server, base64."""
    service_cidr: str = ""
    """The cluster's service addresses."""


class PlatformSpec(Model):
    region: str
    """AWS region."""
    account_id: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """12 digits, in quotes."""
    deployment: Name
    """Value of the owner tag on everything Tidemill makes."""
    tags: dict[str, str] = {}
    """More tags on every block that is bought: a cost centre, a project. Tidemill's own cannot be changed here."""
    cluster: ClusterRef
    """The EKS cluster that nodes join."""
    node_role: str = ""
    """IAM role of the nodes, by name or ARN. Its instance profile has the same name, or is named here by its ARN."""
    subnets: dict[str, tuple[str, ...]] = {}
    """Subnet ids by availability zone."""
    security_groups: tuple[str, ...] = ()
    """Of the nodes."""
    karpenter: KarpenterRef | None = None
    """The Karpenter that pools with `provisioner: karpenter` are left to."""
    hostname: str = ""
    """Where the pages and the API are served."""
    budget: Budget = Budget()
    """Ceilings on money."""
    approval: Approval = Approval()
    """Who must say yes to a purchase."""
    notifications: tuple[Notification, ...] = ()
    """Where alerts are sent. Without any they are only listed: `tidemill alerts`."""
    alerts: AlertRules = AlertRules()
    """When some alerts are raised."""

    @model_validator(mode="after")
    def _targets_have_names(self) -> PlatformSpec:
        check_names(self.notifications)
        return self


# --- NodeClass ----------------------------------------------------------------------------------------


class AmiTerm(Model):
    alias: str | None = None
    """`bottlerocket@v1.52.0`, `al2023@v20261101`; pin the version."""
    id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]+$")] | None = None
    """One image, instead of an alias."""

    @model_validator(mode="after")
    def _one_way_to_name_it(self) -> AmiTerm:
        if (self.alias is None) == (self.id is None):
            raise ValueError("an AMI term has either 'alias' or 'id'")
        return self


class Ebs(Model):
    volume_size: MemoryBytes = Field(gt=0)
    """Such as `2000Gi`."""
    volume_type: Literal["gp3", "gp2", "io1", "io2", "st1", "sc1", "standard"] = "gp3"
    encrypted: bool = True
    iops: Count | None = Field(default=None, ge=100)
    throughput: Count | None = Field(default=None, ge=125)
    kms_key_id: str | None = Field(default=None, alias="kmsKeyID")
    """None: the account's default key."""
    delete_on_termination: bool = True


class BlockDevice(Model):
    device_name: str
    """Such as `/dev/xvda`."""
    ebs: Ebs


class LaunchTemplateRef(Model):
    """An existing launch template to build on."""

    id: Annotated[str, Field(pattern=r"^lt-[0-9a-f]+$")]
    version: str = "$Default"
    """Pin a number where nodes must not change by themselves."""


class NodeClassSpec(Model):
    """How nodes are made. Read by real launches alone: a rehearsal checks it and plays without it."""

    ami_selector_terms: tuple[AmiTerm, ...] = Field(min_length=1)
    """Which image nodes boot."""
    ami_family: Literal["AL2023", "Bottlerocket"] = "AL2023"
    """What an image named by its id is built on, for the language of its user data. An alias says it itself."""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    """EBS volumes."""
    instance_store_policy: Literal["RAID0"] | None = None
    """RAID0 joins the local NVMe disks into one; what is on it is lost with the node."""
    launch_template: LaunchTemplateRef | None = None
    """An existing template to build on."""
    user_data: str = ""
    """Extra bootstrap, merged into what Tidemill writes: AL2023 a script, a NodeConfig or a MIME archive of them;
    Bottlerocket TOML settings."""
    kernel: dict[str, str] = {}
    """sysctl settings."""
    container_runtime: dict[str, str] = {}
    """AL2023: containerd's own TOML, such as `plugins.'io.containerd.cri.v1.images'.max_concurrent_downloads: "20"`;
    Bottlerocket: keys of `settings.container-runtime`."""
    max_pods: Count | None = Field(default=None, gt=0)
    """None: what the type's network interfaces allow."""
    efa: bool = False
    """Attach the type's EFA interfaces."""
    role: str = ""
    """IAM role of these nodes, or the ARN of an instance profile; empty: the platform's."""


# --- ComputePool --------------------------------------------------------------------------------------


class Provisioner(StrEnum):
    NATIVE = "native"
    ASG = "asg"
    MANAGED = "managed"
    KARPENTER = "karpenter"


class SourceSpec(Model):
    """One place capacity may come from. Listed in order of preference.

    In a pool that has a block or odcr source, spot and on-demand sources are overflow: only pods that opt in
    (`tidemill.dev/overflow: "true"`) use them, and both caps are required.
    """

    type: Literal["block", "odcr", "spot", "on-demand"]
    """Capacity Block, on-demand capacity reservation, or paid by the hour."""
    ids: tuple[str, ...] = ()
    """Block and odcr: only these reservations (strict pinning). To hand over, name the successor beside them."""
    tags: dict[str, str] = {}
    """Block and odcr: only reservations with these tags. Default: the platform's owner tag."""
    zones: tuple[str, ...] = ()
    """Only these zones."""
    max_hourly_usd: float | None = Field(default=None, ge=0)
    """Spot and on-demand: the most all nodes of this source may cost per hour."""
    max_monthly_usd: float | None = Field(default=None, ge=0)
    """Spot and on-demand: the most they may cost per calendar month (UTC)."""


class Requirements(Model):
    """Which instance types may be launched. All that are given must hold; an absent one allows any."""

    instance_categories: tuple[str, ...] = ()
    """Such as `p`, `g`, `trn`."""
    instance_families: tuple[str, ...] = ()
    """Such as `p5`, `g6e`."""
    instance_types: tuple[str, ...] = ()
    """Such as `p5.48xlarge`."""
    arch: Literal["amd64", "arm64"] | None = None
    hypervisor: Literal["nitro", "xen"] | None = None
    min_generation: Count | None = Field(default=None, ge=1)
    """The number in the family's name: p5 is of generation 5."""
    cpu_sizes: tuple[Count, ...] = ()
    """Only types with one of these vCPU counts."""
    zones: tuple[str, ...] = ()


class TaintSpec(Model):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Limits(Model):
    """The most a pool may have at once, nodes on their way included. What is absent is not limited."""

    cpu: CpuMilli | None = Field(default=None, ge=0)
    """vCPUs of all nodes together."""
    memory: MemoryBytes | None = Field(default=None, ge=0)
    gpus: Count | None = Field(default=None, ge=0)
    """GPUs or Neuron devices of all nodes together."""
    nodes: Count | None = Field(default=None, ge=0)


class DisruptionBudgetSpec(Model):
    nodes: str = "10%"
    """How many nodes of the pool may be disrupted at once: a number or a percentage (rounded up)."""
    schedule: str | None = None
    """When it begins to hold, as a cron line (UTC); none: always."""
    duration: Duration | None = None
    """How long it holds from then."""
    reasons: tuple[Literal["Empty", "Underutilized", "Drifted"], ...] = ()
    """Empty: all reasons."""


class Disruption(Model):
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Never"] = "WhenEmpty"
    """Which nodes are taken away by themselves."""
    consolidate_after: Duration = timedelta(minutes=5)
    """How long a node must have been so; starts anew when a pod comes or goes."""
    consolidate_blocks: bool = False
    """Prepaid block nodes stay up while the block lives, unless this is true."""
    budgets: tuple[DisruptionBudgetSpec, ...] = ()
    """How many nodes may go at once, and when; the strictest that is in force counts. None: no limit."""


class Drain(Model):
    lead: Duration | None = None
    """Start draining at least this long before the deadline; the pods may need more."""
    checkpoint: bool = True
    """Ask pods that can for a checkpoint before they are evicted."""


class ComputePoolSpec(Model):
    node_class_name: Name
    """The NodeClass its nodes are made from."""
    provisioner: Provisioner = Provisioner.NATIVE
    """Who launches: the engine itself, an Auto Scaling group, an EKS managed node group, or Karpenter."""
    sources: tuple[SourceSpec, ...] = (SourceSpec(type="on-demand"),)
    """Where capacity may come from, the preferred first."""
    requirements: Requirements = Requirements()
    labels: dict[str, str] = {}
    """On its nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """On its nodes."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """On its nodes until something else takes them off."""
    limits: Limits | None = None
    """Without limits a pool launches nothing: set them."""
    disruption: Disruption = Disruption()
    warm: bool | Count | None = None
    """Block pools: true brings up every node of a block when it is delivered and keeps it up, a number that many,
    false none. Not given: true, unless consolidateBlocks is."""
    drain: Drain = Drain()
    weight: Count = Field(default=0, ge=0, le=100)
    """Higher weights are tried first."""
    default_duration: Duration | None = None
    """How long a pod that does not say runs; none: it is taken to have no end."""
    max_expected_duration: Length = timedelta(days=182)
    """A pod that says it runs longer is taken to run this long, and is drained if it is not done then. The default is
    the longest block EC2 sells: whoever says more would wait for ever."""
    allowed_namespaces: tuple[str, ...] = ()
    """Empty: all."""

    @property
    def kept_warm(self) -> bool | int:
        """How many nodes of its blocks stay up without work: all (True), so many, or none."""
        return not self.disruption.consolidate_blocks if self.warm is None else self.warm

    @model_validator(mode="after")
    def _warm_or_consolidated(self) -> ComputePoolSpec:
        if self.warm is True and self.disruption.consolidate_blocks:
            raise ValueError(
                "warm: true keeps every node up, so consolidateBlocks: true could never take effect"
            )
        return self


# --- CapacityPlan -------------------------------------------------------------------------------------


class DemandWindow(Model):
    """So many instances from an instant to another."""

    name: Name
    start: Instant = Field(alias="from")
    end: Instant = Field(alias="to")
    """Rounded up to a length EC2 sells; at most 182 days after `from`."""
    instance_type: str
    instances: Count = Field(gt=0)
    """At most 64: EC2 sells no larger block."""
    zones: tuple[str, ...] = ()
    """Empty: any zone the platform has subnets in."""
    max_fee_usd: Count = Field(default=0, ge=0)
    """The most this window may cost; 0: the platform's per-purchase ceiling."""

    @model_validator(mode="after")
    def _runs_forward(self) -> DemandWindow:
        if self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class Extending(Model):
    """More time on a block that is there keeps its nodes: no boot, no hand-over."""

    policy: Literal["prefer", "never"] = "prefer"
    """Ask for extension offers first and fall back to a new block; or always buy new blocks."""
    min_utilisation: float = Field(default=0, ge=0, le=1)
    """Let a block lapse whose accelerators were used less than this share of the time since it started."""


class CapacityPlanSpec(Model):
    pool: Name
    """The ComputePool that will use the blocks."""
    demand: tuple[DemandWindow, ...] = ()
    """Windows, each bought as it is written: when how many instances are needed."""
    calendar: DemandCalendar | None = None
    """Instead of windows: what is needed over time, bought as the planner finds cheapest."""
    propose_before: Duration = timedelta(days=56)
    """Start to search this long before a window opens; EC2 sells at most 8 weeks ahead."""
    extend: Extending = Extending()
    """Whether a block that ends before its demand is extended, which comes before a new one is bought."""
    overlap: Duration = timedelta(0)
    """How long before its window a block must start, to run beside the one before it while services move. Blocks lie on
    the 11:30 UTC grid, so that it may cost a day more. A block that is extended needs none."""
    budget: Budget | None = None
    """Can only lower the platform's ceilings. Its month counts the fees of what is bought for this plan."""

    @model_validator(mode="after")
    def _windows_or_a_calendar(self) -> CapacityPlanSpec:
        if bool(self.demand) == (self.calendar is not None):
            raise ValueError("a plan has either 'demand' (windows) or a 'calendar'")
        if self.calendar is not None and "propose_before" in self.model_fields_set:
            raise ValueError("'proposeBefore' is about windows; a calendar has 'buyAhead'")
        return self


# --- envelopes ----------------------------------------------------------------------------------------


class Document(Model):
    api_version: Literal["tidemill.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    metadata: Metadata

    @property
    def name(self) -> str:
        return self.metadata.name


class Platform(Document):
    kind: Literal["Platform"] = "Platform"
    spec: PlatformSpec


class NodeClass(Document):
    kind: Literal["NodeClass"] = "NodeClass"
    spec: NodeClassSpec


class ComputePool(Document):
    kind: Literal["ComputePool"] = "ComputePool"
    spec: ComputePoolSpec


class CapacityPlan(Document):
    kind: Literal["CapacityPlan"] = "CapacityPlan"
    spec: CapacityPlanSpec
