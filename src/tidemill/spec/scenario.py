"""The Scenario document: what happens around the platform in a rehearsal.

Times such as `26h` are offsets from `start`. Each line has its own seeded random stream, so that adding a line does not
change the others.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemill.model.ec2_facts import DAY, grid_at_or_after, is_on_grid, nearest_on_grid
from tidemill.spec.document import Document, Model, Name
from tidemill.spec.faults import Call, FaultKind
from tidemill.spec.node_class import AmiTerm
from tidemill.spec.pod_placement import Placement
from tidemill.spec.units import Count, CpuMilli, Duration, Instant, Length, MemoryBytes


class RandomDuration(Model):
    """A duration that is drawn for each job: exactly one of the three."""

    fixed: Duration | None = None
    """Always the same."""
    uniform: tuple[Duration, Duration] | None = None
    """The shortest and the longest duration."""
    lognormal: Lognormal | None = None
    """A lognormal distribution."""

    @model_validator(mode="after")
    def _one_of_three(self) -> RandomDuration:
        if sum(part is not None for part in (self.fixed, self.uniform, self.lognormal)) != 1:
            raise ValueError("give exactly one of 'fixed', 'uniform' and 'lognormal'")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("'uniform' must be the shortest and then the longest duration; swap them")
        return self


class Lognormal(Model):
    median: Length
    sigma: float = Field(gt=0, le=3)
    """Standard deviation of the logarithm."""
    max: Duration | None = None
    """The longest duration. Not given: no limit."""


RandomDuration.model_rebuild()  # it refers to Lognormal, which is defined after it


class Arrivals(Model):
    """When the jobs of a stream arrive: exactly one of `every`, `perHour` and `at`, limited by `count` and `until`."""

    every: Length | None = None
    """Time between two jobs."""
    per_hour: float | None = Field(
        default=None, ge=0.0001
    )  # about one a year; rarer ones would overflow dates
    """Poisson arrivals on whole seconds, at least 1s apart, so a stream has at most 3600 an hour. For more, write
    several streams."""
    at: tuple[Duration, ...] = ()
    """One job at each of these times."""
    start: Duration = Field(default=timedelta(0), alias="from")
    """When the first job may arrive."""
    until: Duration | None = None
    """When arrivals stop. Not given: never."""
    count: Count | None = Field(default=None, gt=0)
    """The most jobs of the stream."""

    @model_validator(mode="after")
    def _one_of_three(self) -> Arrivals:
        if sum((self.every is not None, self.per_hour is not None, bool(self.at))) != 1:
            raise ValueError("give exactly one of 'every', 'perHour' and 'at'")
        if self.until is not None and self.until <= self.start:
            raise ValueError("'until' must be after 'from'")
        return self


class PodTemplate(Placement):
    """What each pod of a job or service requests, and where it may run (in Kubernetes' own fields).

    Pods of a job are in the namespace of its team, or in `training`. Pods of a service are in `serving`.
    """

    gpus: Count = Field(default=0, ge=0)
    """NVIDIA GPUs."""
    neuron: Count = Field(default=0, ge=0)
    """Neuron devices."""
    efa: Count = Field(default=0, ge=0)
    """EFA interfaces."""
    cpu: CpuMilli = 1000
    memory: MemoryBytes = 2**30
    tolerate: tuple[str, ...] = ("nvidia.com/gpu",)
    """Taint keys that it tolerates, with any value and effect, in addition to `tolerations`."""
    grace: Duration = timedelta(seconds=30)
    """terminationGracePeriodSeconds: how long it takes to stop."""
    load: Duration = timedelta(0)
    """Time from container start to useful work: image pull, model load."""
    overflow: bool = False
    """May run on spot or on-demand instances of a pool with blocks."""
    do_not_disrupt: bool | Duration = False
    """Not moved for consolidation or drift: never, or not before this age."""
    priority: Count = 0
    """Pods with a higher priority are placed first."""
    team: str = ""
    """The team that pays for it."""


class JobStream(PodTemplate):
    name: Name
    arrivals: Arrivals
    """When its jobs arrive."""
    duration: RandomDuration
    """How long they really take."""
    expected: Duration | None = None
    """How long the job says it takes. Not given: its real duration."""
    says_nothing: bool = False
    """The job does not say how long it takes."""
    nodes: Count = Field(default=1, gt=0)
    """Pods per job. More than one is a gang: all of them start, or none."""
    checkpoint_every: Length | None = None
    """It writes a checkpoint this often and can be resumed. Not given: it starts over after an interruption."""
    checkpoint_time: Duration = timedelta(0)
    """How long it takes to write a checkpoint."""
    checkpoint_on: Literal["shared", "instance-store"] = "shared"
    """Where checkpoints are. Those on instance store are lost with the node, so the job starts over."""
    acknowledges: bool = True
    """Whether it reports that a requested checkpoint is done. false: the engine waits for the whole checkpoint time."""
    deadline: Duration | None = None
    """A job that has not finished this long after its arrival counts as late."""
    backoff_limit: Count = Field(default=6, ge=0)
    """The job fails after more failures than this."""

    @property
    def resumes_every(self) -> timedelta | None:
        """How much work it can lose by moving; None: all of it."""
        return self.checkpoint_every if self.checkpoint_on == "shared" else None


IntOrPercent = Count | Annotated[str, Field(pattern=r"^\d{1,3}%$")]


class HandOver(Model):
    """How a service leaves a source that ends: its annotations, and the settings that they need."""

    method: Literal["rollout", "scale", "paired", "evict"] = "evict"
    """The annotation `tidemill.dev/handover`. If what the method needs is missing, the pods are evicted."""
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    """The kind of workload."""
    max_surge: IntOrPercent = "25%"
    """rollout: must be at least 1. A StatefulSet has none."""
    max_unavailable: IntOrPercent = "25%"
    """rollout: must be 0."""
    may_scale: bool = False
    """scale and paired: the annotation `tidemill.dev/may-scale`: nothing else changes its number of replicas."""
    pair_node_selector: dict[str, str] = {}
    """paired: where the second set runs; another pool than the first. Not given: there is no second set."""
    min_available: Count | None = Field(default=None, gt=0)
    """The annotation `tidemill.dev/min-available`, for a service without a PodDisruptionBudget."""


class Service(PodTemplate):
    name: Name
    replicas: Count = Field(gt=0)
    """Number of replicas."""
    start: Duration = Field(default=timedelta(0), alias="from")
    """When it is created."""
    until: Duration | None = None
    """When it is deleted. Not given: never."""
    min_available: Count = Field(default=0, ge=0)
    """minAvailable of its PodDisruptionBudget. 0: it has none."""
    handover: HandOver = HandOver()
    """How its replicas move when their source ends."""
    declared_load: Duration | None = None
    """The load time that it states. Not given: its real `load`."""
    zero_downtime: bool = False
    """The rehearsal fails if it drops below minAvailable after it first reached it."""

    @model_validator(mode="after")
    def _runs_forward(self) -> Service:
        if self.until is not None and self.until <= self.start:
            raise ValueError("'until' must be after 'from'")
        return self


class OwnedReservation(Model):
    """A block or an on-demand reservation that exists when the rehearsal begins."""

    name: Name
    """Name of the block in the rehearsal."""
    type: Literal["block", "odcr"] = "block"
    instance_type: str
    count: Count = Field(gt=0)
    """Number of instances."""
    zone: str
    """Availability zone."""
    start: Duration = Field(default=timedelta(0), alias="from")
    """When it starts."""
    duration: Duration | None = None
    """Blocks: rounded so that the block ends at 11:30 UTC, as EC2's blocks do."""
    overlap: Duration = timedelta(0)
    """Blocks: it starts this long before 11:30 UTC of the day of `from`, as a block does that somebody buys to start at
    once; AWS lists it from then on. Less than a day. 0: at `from` on the first day, else at 11:30 UTC."""
    pool: str = ""
    """The ComputePool that it is for. Empty: every pool that may use it."""
    owned: bool = True
    """false: somebody else bought it; it does not have the owner tag."""
    delivered: Count | None = Field(default=None, ge=0)
    """How many instances EC2 delivers. Less than `count`: a short delivery."""
    id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{17}$")] | None = None
    """Its reservation id, for pools that are pinned to it. Not given: generated from the seed."""


# A block that is there when a rehearsal begins began a little earlier, unless it begins on the grid.
_ALREADY_RUNNING_FOR = timedelta(minutes=5)


def block_window(
    now: datetime, offset: timedelta, duration: timedelta, overlap: timedelta = timedelta(0)
) -> tuple[datetime, datetime]:
    """Start and end of a block that starts so long after `now`. Later today is kept (EC2 sells "now" at any minute), a
    later day moves to the grid; the end is always on the grid. With `overlap` it starts before the grid, and ends as it
    would without: EC2 offers a block that starts now as a little longer than asked."""
    start = now + offset
    if overlap:
        on_grid = grid_at_or_after(start)
        return on_grid - overlap, nearest_on_grid(on_grid + duration)
    if start == now:
        start = now if is_on_grid(now) else now - _ALREADY_RUNNING_FOR
    elif start.date() != now.date():
        start = grid_at_or_after(start)
    end = nearest_on_grid(start + duration)
    return start, end if end > start else end + DAY


class Market(Model):
    """How much capacity EC2 has."""

    offers: Literal["plenty", "scarce", "none"] = "plenty"
    """Capacity Blocks for sale."""
    on_demand: dict[str, Count] = {}
    """How many on-demand instances each zone has, by instance type. A type that is not listed is always available."""
    spot: dict[str, Count] = {}
    """How many spot instances each zone has, by instance type."""


class Decision(Model):
    """Somebody approves or refuses the proposal for a window at this time."""

    at: Duration
    window: Name
    """The demand window of the proposal."""
    verdict: Literal["approve", "refuse"]
    by: str = "approver"
    """Who decides."""
    note: str = ""


class Extension(Model):
    """Somebody extends a block by hand at this time."""

    at: Duration
    block: Name
    """Name of the block."""
    by: Duration
    """How much longer. EC2 must sell this length."""
    payment: Literal["succeeds", "fails"] = "succeeds"
    """The end of the block changes only if the payment succeeds."""
    settles_after: Duration = timedelta(minutes=10)
    """How long the payment takes."""


class Roll(Model):
    """Somebody changes the image of a node class at this time. Nodes made before have drifted."""

    at: Duration
    node_class: Name
    ami: AmiTerm
    """The new image."""


class Fault(Model):
    """One fault at one instant. `count` is how often it strikes, `duration` how long it lasts, `target` what it hits
    (a pool, a block's name, an instance type; empty: whatever comes first)."""

    at: Duration
    fault: FaultKind
    count: Count = Field(default=1, gt=0)
    duration: Duration = timedelta(minutes=10)
    target: str = ""
    call: Call = "launch"
    """lost-answer, lost-request: which call is not answered."""
    step: str = ""
    """engine-crash: before or after which call, e.g. `after:purchase`, `before:launch`; empty: at a tick."""


class RandomFaults(Model):
    """Faults drawn from the seed: so many of the listed kinds, spread over the run."""

    count: Count = Field(gt=0)
    kinds: tuple[FaultKind, ...] = Field(min_length=1)
    start: Duration = Field(default=timedelta(0), alias="from")
    until: Duration | None = None


class ScenarioSpec(Model):
    """Offsets such as `26h` count from `start`."""

    start: Instant
    """When virtual time begins."""
    duration: Length
    """How long the rehearsal plays."""
    reservations: tuple[OwnedReservation, ...] = ()
    """Reservations that exist when the rehearsal begins."""
    jobs: tuple[JobStream, ...] = ()
    """Streams of jobs that arrive."""
    services: tuple[Service, ...] = ()
    """Services that run all the time."""
    market: Market = Market()
    """How much capacity EC2 has."""
    decisions: tuple[Decision, ...] = ()
    """Approvals and refusals of proposals."""
    extensions: tuple[Extension, ...] = ()
    """Extensions that people buy by hand."""
    rolls: tuple[Roll, ...] = ()
    """Changes of node images."""
    deadline_agent: bool = False
    """Every node has an agent that ends its pods in time, even while the engine is down."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, and when."""
    random_faults: RandomFaults | None = None
    """More faults, drawn from the seed."""


class Scenario(Document):
    kind: Literal["Scenario"] = "Scenario"
    spec: ScenarioSpec
