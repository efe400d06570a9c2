"""What people should know before it happens, as data: the reasons of a plan's warnings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemill.model.purchase_reasons import PurchaseReason, PurchaseWarning
from tidemill.model.reasons import DrainReason, RecreateReason


class WarningKind(StrEnum):
    FAILED_NODE_WAITS = "failed-node-waits"  # drain: why the node is drained
    DO_NOT_DISRUPT_ENDS = "do-not-disrupt-ends"  # name: the source; at: by when it must be empty
    BUDGET_BLOCKS_EVICTION = "budget-blocks-eviction"  # at: when the pods that are left are deleted
    DOUBLE_NODE = (
        "double-node"  # name: the newer Node object of the same instance, which is the one that counts
    )
    GANG_POD_NOT_RECREATED = "gang-pod-not-recreated"  # recreate: why it should be
    KARPENTER_SPLITS_GANG = "karpenter-splits-gang"  # name: the pool
    DRIFT_DO_NOT_DISRUPT = "drift-do-not-disrupt"  # drain: the drift; name: the pod that stays
    DRIFT_NOT_RECREATED = "drift-not-recreated"  # drain, name
    DRIFT_GANG_OPEN_END = "drift-gang-open-end"  # drain, name; gang: whose end is not known
    POOL_REFUSED = "pool-refused"  # name: who else drains or scales its nodes
    PAUSED = "paused"  # name: who paused the engine; at: since when; detail: their words


@dataclass(frozen=True, slots=True)
class WarningReason:
    kind: WarningKind
    name: str = ""
    gang: str = ""
    at: datetime | None = None
    drain: DrainReason | None = None
    recreate: RecreateReason | None = None
    detail: str = ""  # a person's words: shown to people, never read


class RequirementKind(StrEnum):
    """What a hand-over method needs of a workload."""

    ROLLOUT_OF_STATEFULSET = "rollout-of-statefulset"
    SCALE_OF_STATEFULSET = "scale-of-statefulset"
    MAX_SURGE = "max-surge"
    MAX_UNAVAILABLE = "max-unavailable"  # count: replicas it comes to
    MAY_SCALE = "may-scale"
    PAIR_NAMED = "pair-named"
    PAIR_DEPLOYED = "pair-deployed"  # name: the pair
    PAIR_ON_OTHER_NODES = "pair-on-other-nodes"  # name: the pair


@dataclass(frozen=True, slots=True)
class MissingRequirement:
    kind: RequirementKind
    name: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class MethodUnavailable:
    """A service asks for a hand-over method and lacks what it needs: its replicas are evicted instead."""

    method: str
    missing: tuple[MissingRequirement, ...]


class ShortKind(StrEnum):
    NO_SUCCESSOR = "no-successor"
    MINIMUM_IS_ALL = "minimum-is-all"  # each replica is missed while it moves
    BRIDGE_IN_WAVES = "bridge-in-waves"  # nodes by the hour are launched for it, one wave after the other
    SUCCESSOR_LATE = "successor-late"


@dataclass(frozen=True, slots=True)
class ServiceShort:
    """A service will have fewer Ready replicas than its minimum when its block ends."""

    kind: ShortKind
    minimum: int
    since: datetime
    lasts: timedelta | None  # None: nothing takes over
    block: str
    deadline: datetime  # when the block must be empty
    method: str
    leaving: int  # replicas on the block
    successor: str  # empty: none is known
    ready_from: datetime | None  # when the successor takes pods
    remedies: tuple[tuple[str, float], ...]  # what would help, and about how many dollars it costs


@dataclass(frozen=True, slots=True)
class PinMustMove:
    """A pool is pinned to reservations by id, and a block that follows them is not among them."""

    block: str  # the one that stays unused
    ids: tuple[str, ...]  # what the pool should be pinned to
    last: str = ""  # the pinned reservation that ends last; empty: none is left
    ends: datetime | None = None  # when it must be empty


@dataclass(frozen=True, slots=True)
class BlockNotFilled:
    """EC2 says that paid capacity has free slots, and refuses to launch into them."""

    block: str
    pool: str
    free: int
    count: int  # of all its instances
    since: datetime  # the first launch that failed, with none that came since
    answer: str  # what AWS said last, as it said it; empty: a group was asked, and launched nothing


@dataclass(frozen=True, slots=True)
class ProvisionerMessage:
    """What a provisioner has to say about its groups or NodePools: shown to people as it is, never read."""

    text: str


AnyWarning = (
    WarningReason
    | MethodUnavailable
    | ServiceShort
    | PinMustMove
    | BlockNotFilled
    | PurchaseReason
    | PurchaseWarning
    | ProvisionerMessage
)
