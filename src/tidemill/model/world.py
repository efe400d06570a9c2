"""What is true now: one frozen snapshot, `now` included.

`observe` builds it from the ports, `decide` reads nothing else. Facts only: no rule lives here, and
nothing here knows where a fact came from. Objects are shared between snapshots when nothing about them
changed, so identity may be used as a cheap "is it still the same?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from tidemill.model.offers import Extension as Extension
from tidemill.model.offers import ExtensionOffer as ExtensionOffer
from tidemill.model.offers import ExtensionQuery as ExtensionQuery
from tidemill.model.offers import ExtensionSearch as ExtensionSearch
from tidemill.model.offers import ExtensionState as ExtensionState
from tidemill.model.offers import Offer as Offer
from tidemill.model.offers import OfferQuery as OfferQuery
from tidemill.model.offers import OfferSearch as OfferSearch

# Part of the snapshot, and imported from here by everybody else; only their text lives elsewhere.
from tidemill.model.planner_result import Advice as Advice
from tidemill.model.planner_result import Choice as Choice
from tidemill.model.purchases import NOTHING_SPENT
from tidemill.model.purchases import Adoption as Adoption
from tidemill.model.purchases import BlockHours as BlockHours
from tidemill.model.purchases import BlockUse as BlockUse
from tidemill.model.purchases import Caps as Caps
from tidemill.model.purchases import CostLine as CostLine
from tidemill.model.purchases import Envelope as Envelope
from tidemill.model.purchases import LaunchIntent as LaunchIntent
from tidemill.model.purchases import LaunchState as LaunchState
from tidemill.model.purchases import PurchaseIntent as PurchaseIntent
from tidemill.model.purchases import PurchaseState as PurchaseState
from tidemill.model.purchases import Shown as Shown
from tidemill.model.purchases import Spending as Spending
from tidemill.model.purchases import Verdict as Verdict
from tidemill.model.scheduling import Amounts as Amounts
from tidemill.model.scheduling import Expression as Expression
from tidemill.model.scheduling import Pairs as Pairs
from tidemill.model.scheduling import PodShape as PodShape
from tidemill.model.scheduling import PodTerm as PodTerm
from tidemill.model.scheduling import Selector as Selector
from tidemill.model.scheduling import Spread as Spread
from tidemill.model.scheduling import Taint as Taint
from tidemill.model.scheduling import Toleration as Toleration
from tidemill.model.scheduling import amount as amount
from tidemill.model.source import Source as Source
from tidemill.model.source import SourceKind as SourceKind

# --- where capacity comes from ------------------------------------------------------------------------


class ReservationState(StrEnum):
    PAYMENT_PENDING = "payment-pending"
    PAYMENT_FAILED = "payment-failed"
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A Capacity Block, or an on-demand capacity reservation (then `end` may be None).

    `count` is what was bought and what will come (the future count before the start); `available` what EC2
    would let us launch this instant, 0 before the start. A short delivery shows as `count` smaller than
    the envelope asked for. `end` is the paid end: an extension moves it only once its payment succeeded.
    """

    id: str
    kind: Literal[SourceKind.BLOCK, SourceKind.ODCR]
    instance_type: str
    zone: str
    count: int
    available: int
    state: ReservationState
    start: datetime
    end: datetime | None
    owner: str = ""  # the deployment it belongs to: tagged so and known to the ledger; empty: not ours
    pool: str = ""  # of its tag, or of its adoption; empty: any pool whose requirements allow the type
    intent_id: str = ""
    fee_usd: int = 0
    ultraserver: bool = False
    extension_pending_to: datetime | None = None  # an extension asked for but not paid: plan for its failure
    tags: Pairs = ()
    listed: bool = True  # False: AWS's list leaves it out just now, and it is counted on all the same

    @property
    def source(self) -> Source:
        return Source(self.kind, self.id)


# --- nodes --------------------------------------------------------------------------------------------


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance. Owner, pool, intent and provisioner are its tags; empty means the tag is absent."""

    id: str
    instance_type: str
    zone: str
    source: Source
    state: InstanceState
    launched_at: datetime
    owner: str = ""
    pool: str = ""
    intent_id: str = ""
    provisioner: str = ""
    ends_at: datetime | None = None  # announced by AWS: spot interruption, retirement
    ends_why: str = ""
    leaves: bool = (
        False  # somebody waits until it is empty: its drain begins at once, and may take until `ends_at`
    )


@dataclass(frozen=True, slots=True)
class KubeNode:
    """The Kubernetes side of a node."""

    name: str
    instance_id: str
    joined_at: datetime
    ready: bool
    allocatable: Amounts  # lists an accelerator only once the device plugin registered it
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready_changed_at: datetime | None = None  # when the Ready condition last turned; None: at joining
    accelerators_registered_at: datetime | None = None  # of a type without any: when it joined
    check: Literal["", "passed", "failed"] = ""  # the node check's verdict; it can turn to failed later
    check_message: str = ""
    draining_since: datetime | None = None
    drain_reason: str = ""
    # By when its own deadline agent empties it, whether an engine is there or not; None: it has no agent, or no end.
    ends_at: datetime | None = None
    opened_at: datetime | None = None  # when the startup taint came off; None: it has not, or nobody noted it
    # When a non-daemon pod last came or went. After an engine restart it may be later than the truth
    # (never earlier), so that an idle timer errs on the long side.
    last_pod_event_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One life: an instance, and the Kubernetes node it became. At least one side is there."""

    instance: Instance | None
    kube: KubeNode | None

    @property
    def key(self) -> str:
        """Stable from launch to end: the instance id, or the node name where no instance is known."""
        if self.instance is not None:
            return self.instance.id
        assert self.kube is not None
        return self.kube.name

    @property
    def name(self) -> str:
        return self.kube.name if self.kube is not None else self.key


# --- pods ---------------------------------------------------------------------------------------------


class PodPhase(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a pod says about its own time, money and rank. Pods of one template share one terms object."""

    grace: timedelta = timedelta(seconds=30)
    expected: timedelta | None = None  # whole run time of the work, restarts not counted; None: no end known
    checkpoint_time: timedelta = timedelta(0)
    checkpoint_every: timedelta | None = None  # set: resumable
    load: timedelta = timedelta(0)
    overflow: bool = False
    do_not_disrupt: bool | timedelta = False
    priority: int = 0
    team: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that run all or not at all, in one zone and on one source."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Pod:
    uid: str
    namespace: str
    name: str
    shape: PodShape
    terms: Terms
    phase: PodPhase
    created_at: datetime
    workload: str = ""  # "Job/train-7": the controller that would create it again; empty: nobody would
    daemon: bool = False
    gang: Gang | None = None
    gated: bool = False  # carries our admission gate
    held_by_others: bool = False  # somebody else's gate or suspend: not demand yet
    pinned_to: str = ""  # a source label, once admitted
    node: str = ""  # name of the Kubernetes node it is bound to
    bound_at: datetime | None = None  # when the scheduler gave it its node
    started_at: datetime | None = None
    ready: bool = False
    ready_at: datetime | None = None  # when it last became Ready
    deleting_until: datetime | None = None  # deletion asked for; its grace ends then
    ends_at: datetime | None = None  # as announced to the pod
    checkpoint_requested_at: datetime | None = None
    checkpoint_done_at: datetime | None = None
    message: str = ""  # the last thing the kubelet or the scheduler said about it

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget over the pods of one workload, with what it allows this instant.

    A minimum that only an annotation asks for is one too: nobody but the engine keeps to it, and the engine does.
    """

    workload: str  # "Deployment/chat"
    min_available: int
    allowed: int


class Method(StrEnum):
    """How a service leaves a source that ends."""

    ROLLOUT = "rollout"  # its template is touched: new pods surge elsewhere, old ones go as the new are Ready
    SCALE = "scale"  # more replicas elsewhere, then fewer here
    PAIRED = "paired"  # a second set is brought up elsewhere, then the first goes
    EVICT = "evict"  # one by one, within its budget


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet whose replicas run on: what of it a hand-over must know."""

    name: str  # "Deployment/chat", as pods name it
    namespace: str
    replicas: int  # asked for
    ready: int
    shape: PodShape  # of its template
    terms: Terms
    method: Method | None = None  # None: it says nothing
    min_available: int | None = None  # of its annotation; a disruption budget comes before it
    max_surge: int = 0  # of its rolling update; a StatefulSet has none
    max_unavailable: int = 1
    may_scale: bool = False  # it says that nobody else minds its number of replicas
    pair: str = ""  # the workload that takes over from it, and it from that
    added: int = 0  # of its replicas: those a hand-over added, and takes back
    restarted_for: str = ""  # what its template was last touched for
    rolling: bool = False  # pods of an older template are still there


@dataclass(frozen=True, slots=True)
class Overhead:
    """What daemon pods took on the last node of a pool and type, remembered for when there is none."""

    pool: str
    instance_type: str
    taken: Amounts
    seen_at: datetime  # when such a node was last there


@dataclass(frozen=True, slots=True)
class World:
    """Everything `decide` may know."""

    now: datetime
    reservations: tuple[Reservation, ...] = ()
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    workloads: tuple[Workload, ...] = ()
    launches: tuple[LaunchIntent, ...] = ()  # open ones, and those that failed in the last hour
    purchases: tuple[PurchaseIntent, ...] = ()
    searches: tuple[OfferSearch, ...] = ()
    extensions: tuple[Extension, ...] = ()
    extension_searches: tuple[ExtensionSearch, ...] = ()
    uses: tuple[BlockUse, ...] = ()
    advice: Advice | None = None  # the newest of the purchase planner
    spending: Spending = NOTHING_SPENT
    overheads: tuple[Overhead, ...] = ()
    ledger_ok: bool = True  # False: no purchases and no new launches; drains and terminations go on
    cloud_ok: bool = True  # False: reservations and instances are the last known ones, likewise
    pods_by_node: Mapping[str, tuple[Pod, ...]] = field(
        default_factory=dict
    )  # index of `pods`, bound ones only
