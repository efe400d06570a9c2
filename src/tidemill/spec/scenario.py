"""The Scenario document: what a rehearsal plays out around the platform's own documents.

Times written `26h` are offsets from `start`. Everything random is drawn from one seeded stream per line, so
that adding a line changes nothing about the others.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemill.model.ec2_facts import DAY, grid_at_or_after, is_on_grid, nearest_on_grid
from tidemill.spec.faults import Call, FaultKind
from tidemill.spec.model import Document, Model, Name
from tidemill.spec.node_class import AmiTerm
from tidemill.spec.podspec import Placement
from tidemill.spec.units import Count, CpuMilli, Duration, Instant, Length, MemoryBytes


class Spread(Model):
    """A length of time drawn per job: exactly one of the three."""

    fixed: Duration | None = None
    uniform: tuple[Duration, Duration] | None = None
    """The shortest and the longest."""
    lognormal: Lognormal | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Spread:
        if sum(part is not None for part in (self.fixed, self.uniform, self.lognormal)) != 1:
            raise ValueError("give exactly one of 'fixed', 'uniform' and 'lognormal'")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("'uniform' is the shortest and then the longest, and these are reversed")
        return self


class Lognormal(Model):
    median: Length
    sigma: float = Field(gt=0, le=3)
    max: Duration | None = None


Spread.model_rebuild()  # it names Lognormal before that exists, and others read its fields


class Arrivals(Model):
    """When jobs of a stream come: exactly one of the three, bounded by `count` and `until`."""

    every: Length | None = None
    per_hour: float | None = Field(default=None, ge=0.0001)  # one a year; rarer gaps leave the calendar
    """Poisson arrivals on whole seconds: each comes at least 1s after the one before, so that a stream never has
    more than 3600 an hour. Split what comes faster into several streams."""
    at: tuple[Duration, ...] = ()
    """These instants."""
    start: Duration = Field(default=timedelta(0), alias="from")
    until: Duration | None = None
    count: Count | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_three(self) -> Arrivals:
        if sum((self.every is not None, self.per_hour is not None, bool(self.at))) != 1:
            raise ValueError("give exactly one of 'every', 'perHour' and 'at'")
        if self.until is not None and self.until <= self.start:
            raise ValueError("'until' must be after 'from'")
        return self


class PodTemplate(Placement):
    """What each pod of a job or service asks for, and where it may run, the latter spelled as in Kubernetes.

    Pods of a job are in the namespace of its team, or in `training`; those of a service in `serving`.
    """

    gpus: Count = Field(default=0, ge=0)
    neuron: Count = Field(default=0, ge=0)
    efa: Count = Field(default=0, ge=0)
    cpu: CpuMilli = 1000
    memory: MemoryBytes = 2**30
    tolerate: tuple[str, ...] = ("nvidia.com/gpu",)
    """Taint keys it tolerates, whatever their value and effect, beside its `tolerations`."""
    grace: Duration = timedelta(seconds=30)
    """terminationGracePeriodSeconds: what it needs to stop cleanly."""
    load: Duration = timedelta(0)
    """From container start to useful work: image, model load."""
    overflow: bool = False
    """May run on capacity that is paid by the hour beside a block."""
    do_not_disrupt: bool | Duration = False
    """Not moved for consolidation or drift, for good or for so long."""
    priority: Count = 0
    team: str = ""
    """Whom its cost is charged to."""


class JobStream(PodTemplate):
    name: Name
    arrivals: Arrivals
    """When its jobs come."""
    duration: Spread
    """How long they truly take."""
    expected: Duration | None = None
    """What the job says it takes; default: the truth."""
    says_nothing: bool = False
    """The job does not say how long it takes."""
    nodes: Count = Field(default=1, gt=0)
    """Pods per job; more than one is a gang."""
    checkpoint_every: Length | None = None
    """It saves its progress this often, so it can be resumed; none: it starts over."""
    checkpoint_time: Duration = timedelta(0)
    """How long writing a checkpoint takes."""
    checkpoint_on: Literal["shared", "instance-store"] = "shared"
    """Shared storage outlives the node. What is on its local disks is gone with it, so that such a job starts over."""
    acknowledges: bool = True
    """Answers a checkpoint request; false: the engine must wait it out."""
    deadline: Duration | None = None
    """After arrival; a job not finished by then counts as late."""
    backoff_limit: Count = Field(default=6, ge=0)

    @property
    def resumes_every(self) -> timedelta | None:
        """How much work it can lose by moving; None: all of it."""
        return self.checkpoint_every if self.checkpoint_on == "shared" else None


IntOrPercent = Count | Annotated[str, Field(pattern=r"^\d{1,3}%$")]


class HandOver(Model):
    """How a service leaves a source that ends: its annotations, and what of its own settings they need."""

    method: Literal["rollout", "scale", "paired", "evict"] = "evict"
    """`tidemill.dev/handover`. Without what a method needs, nothing is promised and it is evicted."""
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    max_surge: IntOrPercent = "25%"
    """rollout: at least 1. A StatefulSet has none."""
    max_unavailable: IntOrPercent = "25%"
    """rollout: must be 0."""
    may_scale: bool = False
    """scale and paired: `tidemill.dev/may-scale`, nobody else minds its number of replicas."""
    pair_node_selector: dict[str, str] = {}
    """paired: where the second set runs, another pool than the first. Without it there is no second set."""
    min_available: Count | None = Field(default=None, gt=0)
    """`tidemill.dev/min-available`, for a service without a PodDisruptionBudget."""


class Service(PodTemplate):
    name: Name
    replicas: Count = Field(gt=0)
    start: Duration = Field(default=timedelta(0), alias="from")
    until: Duration | None = None
    min_available: Count = Field(default=0, ge=0)
    """Of its PodDisruptionBudget; 0: it has none."""
    handover: HandOver = HandOver()
    """How its replicas move when their source ends."""
    declared_load: Duration | None = None
    """What it says its `load` is; default: the truth."""
    zero_downtime: bool = False
    """Promised never to drop below minAvailable once it was first reached."""

    @model_validator(mode="after")
    def _runs_forward(self) -> Service:
        if self.until is not None and self.until <= self.start:
            raise ValueError("'until' must be after 'from'")
        return self


class OwnedReservation(Model):
    """A block or an on-demand reservation that exists when the rehearsal begins."""

    name: Name
    type: Literal["block", "odcr"] = "block"
    instance_type: str
    count: Count = Field(gt=0)
    zone: str
    start: Duration = Field(default=timedelta(0), alias="from")
    duration: Duration | None = None
    """Blocks: rounded so that the block ends at 11:30 UTC, as EC2 does."""
    pool: str = ""
    """The ComputePool it is meant for; empty: whichever may use it."""
    owned: bool = True
    """False: bought elsewhere, without our owner tag."""
    delivered: Count | None = Field(default=None, ge=0)
    """Fewer than `count`: a short delivery."""
    id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{17}$")] | None = None
    """Its reservation id, for pools that are pinned to it; default: made up from the seed."""


# A block that is there when a rehearsal begins began a little earlier, unless it begins on the grid.
_ALREADY_RUNNING_FOR = timedelta(minutes=5)


def block_window(now: datetime, offset: timedelta, duration: timedelta) -> tuple[datetime, datetime]:
    """Start and end of a block that starts so long after `now`. Later today is kept (EC2 sells "now" at any minute), a
    later day moves to the grid; the end is always on the grid."""
    start = now + offset
    if start == now:
        start = now if is_on_grid(now) else now - _ALREADY_RUNNING_FOR
    elif start.date() != now.date():
        start = grid_at_or_after(start)
    end = nearest_on_grid(start + duration)
    return start, end if end > start else end + DAY


class Market(Model):
    """What EC2 has to sell and to lend."""

    offers: Literal["plenty", "scarce", "none"] = "plenty"
    """Capacity Blocks for sale."""
    on_demand: dict[str, Count] = {}
    """Instance type -> how many can be had in each zone; not listed: plenty."""
    spot: dict[str, Count] = {}
    """The same for spot."""


class Decision(Model):
    """A person's word on the proposal of a plan's window, at an instant."""

    at: Duration
    window: Name
    verdict: Literal["approve", "refuse"]
    by: str = "approver"
    note: str = ""


class Extension(Model):
    """Somebody extends a block by hand at an instant."""

    at: Duration
    block: Name
    by: Duration
    payment: Literal["succeeds", "fails"] = "succeeds"
    """The block's end moves only when it succeeds."""
    settles_after: Duration = timedelta(minutes=10)
    """How long the payment takes."""


class Roll(Model):
    """Somebody gives a node class another image at an instant: the nodes made before have drifted."""

    at: Duration
    node_class: Name
    ami: AmiTerm


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
    """The instant at which virtual time begins."""
    duration: Length
    """How much of it is played."""
    reservations: tuple[OwnedReservation, ...] = ()
    """Capacity that exists already."""
    jobs: tuple[JobStream, ...] = ()
    services: tuple[Service, ...] = ()
    market: Market = Market()
    decisions: tuple[Decision, ...] = ()
    """What people answer to proposals."""
    extensions: tuple[Extension, ...] = ()
    rolls: tuple[Roll, ...] = ()
    deadline_agent: bool = False
    """Every node has an agent of its own that ends its pods in time, also while the engine is away."""
    faults: tuple[Fault, ...] = ()
    random_faults: RandomFaults | None = None
    """More faults, drawn from the seed."""


class Scenario(Document):
    kind: Literal["Scenario"] = "Scenario"
    spec: ScenarioSpec
