"""Kubernetes objects as slim structs: only the fields we read.

Unknown fields are skipped, never refused. Parts of a pod that only the template decides stay raw until `templates`
reads them once per template. `codec` decodes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, field

NO_RAW = Raw()


class Owner(Struct, rename="camel", gc=False, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def controller(self) -> Owner | None:
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


# A namespaced name: what a delete of somebody else's object, or an owner, is found by.
Key = tuple[str, str]


class KubeObject(Struct, rename="camel", gc=False):
    metadata: Meta = field(default_factory=Meta)

    @property
    def key(self) -> Key:
        return self.metadata.namespace, self.metadata.name


class Named(Struct, gc=False, frozen=True):
    name: str = ""


class Condition(Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None
    reason: str | None = None
    message: str | None = None


# --- pods -----------------------------------------------------------------------------------------------


class Container(Struct, rename="camel", gc=False):
    resources: Raw = NO_RAW
    ports: Raw = NO_RAW
    restart_policy: str | None = None  # of an init container, "Always": a sidecar


class ClaimName(Struct, rename="camel", gc=False):
    claim_name: str = ""


class Volume(Struct, rename="camel", gc=False):
    name: str = ""
    persistent_volume_claim: ClaimName | None = None
    ephemeral: Raw = NO_RAW


class PodSpec(Struct, rename="camel", gc=False):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Raw = NO_RAW
    tolerations: Raw = NO_RAW
    topology_spread_constraints: Raw = NO_RAW
    overhead: Raw = NO_RAW
    resources: Raw = NO_RAW
    priority: int | None = None
    priority_class_name: str = ""
    scheduling_gates: list[Named] | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    volumes: list[Volume] | None = None


class Running(Struct, rename="camel", gc=False):
    started_at: datetime | None = None


class Waiting(Struct, gc=False):
    reason: str = ""
    message: str = ""


class ContainerState(Struct, gc=False):
    running: Running | None = None
    waiting: Waiting | None = None


class ContainerStatus(Struct, gc=False):
    state: ContainerState | None = None


class PodStatus(Struct, rename="camel", gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodObject(KubeObject, gc=False):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
    template: Any = None  # a templates.Template, once it is read; the raw parts are dropped then


class PodTemplate(KubeObject, gc=False):
    """A pod template; its metadata has labels and annotations only."""

    spec: PodSpec = field(default_factory=PodSpec)


# --- nodes ----------------------------------------------------------------------------------------------


class NodeTaint(Struct, rename="camel", gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Struct, gc=False):
    provider_id: str = field(default="", name="providerID")
    taints: list[NodeTaint] | None = None
    unschedulable: bool = False


class NodeStatus(Struct, gc=False):
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None


class NodeObject(KubeObject, gc=False):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


# --- workloads ------------------------------------------------------------------------------------------


class SelectorRule(Struct, gc=False, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRule] | None = None


class RollingUpdate(Struct, rename="camel", gc=False):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None
    partition: int | None = None


class Strategy(Struct, rename="camel", gc=False):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class ServiceSpec(Struct, rename="camel", gc=False):
    replicas: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)
    strategy: Strategy | None = None  # of a Deployment
    update_strategy: Strategy | None = None  # of a StatefulSet
    pod_management_policy: str = ""


class ServiceStatus(Struct, rename="camel", gc=False):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class ServiceObject(KubeObject, gc=False):
    """A Deployment or a StatefulSet."""

    spec: ServiceSpec = field(default_factory=ServiceSpec)
    status: ServiceStatus = field(default_factory=ServiceStatus)
    template: Any = None


class DaemonSetSpec(Struct, rename="camel", gc=False):
    template: PodTemplate = field(default_factory=PodTemplate)


class DaemonSetObject(KubeObject, gc=False):
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)


class BudgetSpec(Struct, rename="camel", gc=False):
    selector: LabelSelector | None = None


class BudgetStatus(Struct, rename="camel", gc=False):
    disruptions_allowed: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class BudgetObject(KubeObject, gc=False):
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)


class JobSpec(Struct, rename="camel", gc=False):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class JobStatus(Struct, rename="camel", gc=False):
    succeeded: int = 0
    failed: int = 0
    failed_indexes: str | None = None  # "0,3-5": with backoffLimitPerIndex, those that are not tried again
    conditions: list[Condition] | None = None


class JobObject(KubeObject, gc=False):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class JobTemplate(Struct, gc=False):
    spec: JobSpec = field(default_factory=JobSpec)


class ReplicatedJob(Struct, rename="camel", gc=False):
    name: str = ""
    replicas: int | None = None
    template: JobTemplate = field(default_factory=JobTemplate)
    depends_on: list[Named] | None = None  # those that must be ready or complete before it is made


class StartupPolicy(Struct, rename="camel", gc=False):
    startup_policy_order: str = ""  # AnyOrder or InOrder


class JobSetSpec(Struct, rename="camel", gc=False):
    suspend: bool = False
    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | None = None


class PartStatus(Struct, gc=False):
    """How many Jobs of a replicated job, or pods of a replica type, have succeeded."""

    name: str = ""
    succeeded: int = 0


class JobSetStatus(Struct, rename="camel", gc=False):
    conditions: list[Condition] | None = None
    replicated_jobs_status: list[PartStatus] | None = None


class JobSetObject(KubeObject, gc=False):
    spec: JobSetSpec = field(default_factory=JobSetSpec)
    status: JobSetStatus = field(default_factory=JobSetStatus)


class ReplicaSpec(Struct, gc=False):
    replicas: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class RunPolicy(Struct, rename="camel", gc=False):
    suspend: bool = False
    active_deadline_seconds: int | None = None


class PyTorchJobSpec(Struct, rename="camel", gc=False):
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    replica_specs: dict[str, ReplicaSpec] | None = field(default=None, name="pytorchReplicaSpecs")


class PyTorchJobStatus(Struct, rename="camel", gc=False):
    conditions: list[Condition] | None = None
    replica_statuses: dict[str, PartStatus] | None = None


class PyTorchJobObject(KubeObject, gc=False):
    spec: PyTorchJobSpec = field(default_factory=PyTorchJobSpec)
    status: PyTorchJobStatus = field(default_factory=PyTorchJobStatus)


# --- volumes and ranks ----------------------------------------------------------------------------------


class VolumeName(Struct, rename="camel", gc=False):
    volume_name: str = ""


class ClaimObject(KubeObject, gc=False):
    """A PersistentVolumeClaim."""

    spec: VolumeName = field(default_factory=VolumeName)


class NodeTerm(Struct, rename="camel", gc=False):
    match_expressions: list[SelectorRule] | None = None


class NodeTerms(Struct, rename="camel", gc=False):
    node_selector_terms: list[NodeTerm] | None = None


class VolumeAffinity(Struct, gc=False):
    required: NodeTerms | None = None


class VolumeSpec(Struct, rename="camel", gc=False):
    node_affinity: VolumeAffinity | None = None


class VolumeObject(KubeObject, gc=False):
    """A PersistentVolume."""

    spec: VolumeSpec = field(default_factory=VolumeSpec)


class NamespaceObject(KubeObject, gc=False):
    """Its labels: affinity may select namespaces by them."""


class PriorityClassObject(KubeObject, rename="camel", gc=False):
    value: int = 0
    global_default: bool = False
