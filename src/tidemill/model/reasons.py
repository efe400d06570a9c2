"""Why the engine acts, as data: no sentence is made here, and no program reads one.

Each family is a closed enum of kinds and a frozen dataclass with the facts the kinds speak of. A fact that a kind
does not use keeps its default. `tidemill.wording` has exactly one sentence for every kind. The reasons of purchases
and of warnings have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import isfinite

from tidemill.model.labels import Pairs
from tidemill.model.resources import Amounts

# --- instances that AWS ends ------------------------------------------------------------------------------


class InstanceEndKind(StrEnum):
    """Who announced that an instance ends, and how."""

    SPOT_INTERRUPTION = "spot-interruption"
    RETIREMENT = "retirement"  # a scheduled event of EC2
    STOP = "stop"  # a scheduled event of EC2
    GROUP_SHRUNK = "group-shrunk"  # its Auto Scaling group was made smaller, and chose this instance
    SCHEDULED_ACTION = "scheduled-action"  # of its Auto Scaling group, to 0
    EKS_SCALE_DOWN = "eks-scale-down"  # EKS's own scheduled action on its node group


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    kind: InstanceEndKind
    group: str = ""
    action: str = ""


# --- drains -------------------------------------------------------------------------------------------


class DrainKind(StrEnum):
    """The values are stored in a taint: at most 63 characters of [A-Za-z0-9._-]."""

    SOURCE_ENDS = "source-ends"  # a reservation's; name: its id; pool; at: by when the node must be empty
    MONEY_ENDS = "money-ends"  # of capacity by the hour; name: the source's label; pool; at
    INSTANCE_ENDS = "instance-ends"  # AWS ends this instance alone; instance_end: why; at
    NODE_CHECK_FAILED = "node-check-failed"  # detail: the check's words
    DRIFTED_TYPE = "drifted-instance-type"  # name: the instance type; pool
    DRIFTED_LABEL = "drifted-label"  # name: key=value that the node lacks; pool
    DRIFTED_TAINT = "drifted-taint"  # name: the taint's key that the node lacks; pool
    DRIFTED_NODE_CLASS = "drifted-node-class"  # name: the node class
    EMPTY = "empty"  # idle
    UNDERUTILIZED = "underutilized"  # saves_usd_h
    MAKES_WAY = (
        "makes-way"  # for prepaid capacity that the pool's limits keep out; name: the reservation; pool
    )


# Ends that nobody can hold back. All other drains are the engine's own choice.
ENDS = frozenset({DrainKind.SOURCE_ENDS, DrainKind.MONEY_ENDS, DrainKind.INSTANCE_ENDS})


# All annotations of an object together have 256 KiB in Kubernetes; a node check may print more than that.
_MAX_DETAIL = 1_000
_MAX_IDLE_S = 10 * 365 * 86_400.0  # more than any node lives


@dataclass(frozen=True, slots=True)
class DrainReason:
    """Why a node is drained. On a Kubernetes node the kind is the taint's value, the rest are annotations."""

    kind: DrainKind
    at: datetime | None = None
    name: str = ""
    pool: str = ""
    detail: str = ""  # the words of the node check: shown to people, never read
    instance_end: InstanceEnd | None = None
    idle: timedelta | None = None
    saves_usd_h: float | None = None

    @property
    def is_end(self) -> bool:
        return self.kind in ENDS

    def to_annotations(self) -> dict[str, str]:
        """Everything but the kind, under short keys; the adapter puts its prefix before each."""
        written = {
            "at": self.at.isoformat() if self.at is not None else "",
            "name": self.name,
            "pool": self.pool,
            "detail": self.detail[:_MAX_DETAIL],
            "idle-s": repr(self.idle.total_seconds()) if self.idle is not None else "",
            "saves-usd-h": repr(self.saves_usd_h) if self.saves_usd_h is not None else "",
        }
        if (end := self.instance_end) is not None:
            written |= {"end": end.kind.value, "end-group": end.group, "end-action": end.action}
        return {key: value for key, value in written.items() if value}

    @classmethod
    def from_annotations(cls, kind: str, annotations: Mapping[str, str]) -> DrainReason | None:
        """None: the taint's value is no kind that this version knows. A value that nobody can read is left out."""
        if kind not in DrainKind.__members__.values():
            return None
        idle_s = _number(annotations.get("idle-s", ""))
        end, group, action = (annotations.get(key, "") for key in ("end", "end-group", "end-action"))
        known_end = end in InstanceEndKind.__members__.values()
        return cls(
            DrainKind(kind),
            instance_end=InstanceEnd(InstanceEndKind(end), group, action) if known_end else None,
            at=_instant(annotations.get("at", "")),
            name=annotations.get("name", ""),
            pool=annotations.get("pool", ""),
            detail=annotations.get("detail", ""),
            idle=timedelta(seconds=idle_s) if idle_s is not None and 0 <= idle_s <= _MAX_IDLE_S else None,
            saves_usd_h=_number(annotations.get("saves-usd-h", "")),
        )


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


@dataclass(frozen=True, slots=True)
class EvictReason:
    drain: DrainReason | None  # None: the node is drained for a reason that nobody noted
    checkpoint_unanswered: bool = False
    preempted_by: str = ""  # the pod with a higher priority that it makes room for; its node is not drained


# --- launches and admission ---------------------------------------------------------------------------


class LaunchKind(StrEnum):
    PODS_WAIT = "pods-wait"  # name: the first pod; count: how many others
    BLOCK_ACTIVE = "block-active"  # name: the block; count: nodes
    ANSWER_LOST = "answer-lost"
    CONSOLIDATION = "consolidation"  # nodes: those it replaces; saves_usd_h
    TRIED_ALONE = (
        "tried-alone"  # name: a pod of the gang that wants more; count: nodes that never became Ready
    )


@dataclass(frozen=True, slots=True)
class LaunchReason:
    kind: LaunchKind
    name: str = ""
    count: int = 0
    nodes: tuple[str, ...] = ()
    saves_usd_h: float = 0.0


class SettleKind(StrEnum):
    ALL_SEEN = "all-seen"
    NEVER_SEEN = "never-seen"  # count: instances that never appeared
    GROUP_LATE = "group-late"  # count of `of` instances came in time
    TOO_OLD = "too-old"


@dataclass(frozen=True, slots=True)
class SettleReason:
    """Why a launch intent no longer counts as in flight."""

    kind: SettleKind
    count: int = 0
    of: int = 0


class AdmitKind(StrEnum):
    NODE_FREE = "node-free"  # name: the node
    NODES_FREE = "nodes-free"  # name: the source's label; count: nodes, one for each pod of a gang
    KARPENTER_LAUNCHES = "karpenter-launches"  # name: the source's label


@dataclass(frozen=True, slots=True)
class AdmitReason:
    """With `capped_to` the pod expects to run longer than its pool plans for, and may be drained before it is done."""

    kind: AdmitKind
    name: str
    count: int = 0
    pool: str = ""
    expected: timedelta | None = None
    capped_to: timedelta | None = None


# --- pods and services that leave ---------------------------------------------------------------------


class EndKind(StrEnum):
    SOURCE_ENDS = "source-ends"
    END_MOVED = "end-moved"
    LAST_SAFE_MOMENT = "last-safe-moment"
    BUDGET_NEVER_ALLOWS = "budget-never-allows"


@dataclass(frozen=True, slots=True)
class EndReason:
    """`at`: by when the node must be empty."""

    kind: EndKind
    at: datetime


class RecreateKind(StrEnum):
    GANG_LOST_PODS = "gang-lost-pods"  # name: the gang; count of `of` pods are lost
    NO_ROOM_LEFT = "no-room-left"  # name: the source it was admitted to


@dataclass(frozen=True, slots=True)
class RecreateReason:
    kind: RecreateKind
    name: str
    count: int = 0
    of: int = 0


class HandoverKind(StrEnum):
    ROLLOUT = "rollout"  # sources
    SURGE = "surge"  # count: replicas that are added; sources
    READY_ELSEWHERE = "ready-elsewhere"  # count: Ready replicas; sources
    SURGE_NOT_NEEDED = "surge-not-needed"
    PAIR_STARTS = "pair-starts"  # name: the workload it takes over from; sources
    PAIR_STARTS_NO_NODES = "pair-starts-no-nodes"  # name: the workload that has no nodes left
    PAIR_READY = "pair-ready"  # name: the pair; count: its Ready replicas


@dataclass(frozen=True, slots=True)
class HandoverReason:
    kind: HandoverKind
    name: str = ""
    count: int = 0
    sources: tuple[str, ...] = ()  # labels of the sources that end


# --- nodes --------------------------------------------------------------------------------------------


class TerminateKind(StrEnum):
    DRAINED = "drained"  # drain: why it was drained
    SOURCE_ENDS = "source-ends"  # it never joined; name: the source's label; at: by when it must be empty
    NEVER_JOINED = "never-joined"  # limit
    NOT_READY = "not-ready"  # limit
    NEVER_REGISTERED = "never-registered"  # limit
    NEVER_CHECKED = "never-checked"  # limit
    NODE_CHECK_FAILED = "node-check-failed"  # detail: the check's words
    KUBELET_LOST = "kubelet-lost"


@dataclass(frozen=True, slots=True)
class TerminateReason:
    kind: TerminateKind
    name: str = ""
    at: datetime | None = None
    limit: timedelta | None = None
    detail: str = ""  # the node check's words: shown to people, never read
    drain: DrainReason | None = None


class StepKind(StrEnum):
    NODE_CHECK_PASSED = "node-check-passed"
    NODE_REGISTERED = "node-registered"  # no node check reports on it, and its pool requires none
    NODE_DRAINS = "node-drains"
    PREEMPTED = "preempted"  # name: the pod with a higher priority that it makes room for
    SERVICES_LEAVE = "services-leave"  # name: the label of the source that ends
    SOURCE_EXTENDED = "source-extended"  # name: the source's label
    INSTANCE_GONE = "instance-gone"  # name: the instance


@dataclass(frozen=True, slots=True)
class StepReason:
    """For actions that have one possible reason."""

    kind: StepKind
    name: str = ""


ActionReason = (
    DrainReason
    | EvictReason
    | LaunchReason
    | SettleReason
    | AdmitReason
    | EndReason
    | RecreateReason
    | HandoverReason
    | TerminateReason
    | StepReason
)


# --- pods that wait -----------------------------------------------------------------------------------


class HoldKind(StrEnum):
    # The pod fits no pool.
    NO_POOL = "no-pool"
    NAMESPACE_NOT_ALLOWED = "namespace-not-allowed"  # name: the namespace
    TAINT_NOT_TOLERATED = "taint-not-tolerated"  # name: the taint's key
    ADMITTED_PODS_ONLY = "admitted-pods-only"
    NO_NODE_WITH_LABELS = "no-node-with-labels"  # pairs: the node selector
    TOO_LARGE = "too-large"  # requests
    TOO_LARGE_WITH_DAEMONS = "too-large-with-daemons"  # requests, daemons
    # The pool may not launch for it.
    POOL_WITHOUT_LIMITS = "pool-without-limits"
    LIMITS_REACHED = "limits-reached"  # pairs: the limits
    NOT_OPTED_IN = "not-opted-in"
    OVERFLOW_SPENT = "overflow-spent"
    OVERFLOW_TOO_SHORT = "overflow-too-short"
    MONTH_SPENT = "month-spent"  # of a pool that has only sources by the hour
    MONTH_TOO_SHORT = "month-too-short"
    UNREACHABLE = "unreachable"
    POOL_REFUSED = "pool-refused"  # name: who else drains or scales its nodes
    PAUSED = "paused"  # name: who paused it; since; detail: their words
    NAMESPACE_LIMIT_REACHED = (
        "namespace-limit-reached"  # name: the namespaces; count: GPUs in use; of: that they may use
    )
    OVER_NAMESPACE_LIMIT = (
        "over-namespace-limit"  # name; count: GPUs it asks for at once; of: that they may use
    )
    # There is no room for it now.
    NO_ACTIVE_CAPACITY = "no-active-capacity"
    NO_EC2_CAPACITY = "no-ec2-capacity"  # at: when EC2 is asked again
    BLOCK_NOT_FILLED = (
        "block-not-filled"  # name: the block, which has free slots; since; at: when EC2 is asked again
    )
    NODES_NEVER_READY = (
        "nodes-never-ready"  # name: the type; count: of how many; at: the next try, None: it runs
    )
    LAUNCH_FAILED = "launch-failed"  # for another reason; name: the label of the error; at
    LAUNCHING_AGAIN = "launching-again"  # the last launch failed; name: the instance type; source
    NODES_TAKEN = "nodes-taken"
    NODES_TAKEN_OR_TOO_SHORT = "nodes-taken-or-too-short"  # need
    NOTHING_LASTS = "nothing-lasts"  # need
    KEPT_FOR_LARGER = "kept-for-larger"  # at: from when
    KEPT_FOR_IT = "kept-for-it"  # name: the source; at: when the last of its nodes is free
    BLOCK_NEEDS_LIMITS = "block-needs-limits"  # name: the reservation; at: when it has nodes
    ROOM_COMES = "room-comes"  # instead of a node by the hour; name: the node or reservation; at: from when
    PREEMPTING = "preempting"  # count: pods of lower priority that leave for it; name: the source; at: when
    POD_RULES = "pod-rules"
    # Its gang.
    GANG_OVER_POOL_LIMIT = "gang-over-pool-limit"  # count: nodes it needs; of: nodes the limits allow
    GANG_OVER_SOURCE_SIZE = "gang-over-source-size"  # count; of: nodes the largest source has
    GANG_OVER_LIMITS_LEFT = "gang-over-limits-left"  # count; pairs: the limits
    GANG_WITHOUT_SOURCE = "gang-without-source"  # count
    GANG_TOO_LARGE = "gang-too-large"  # name: the gang; it has `of` pods, and count is the most
    GANG_INCOMPLETE = "gang-incomplete"  # name: the gang; count of `of` pods exist
    GANG_STOPS = "gang-stops"  # name
    GANG_LOST_POD = "gang-lost-pod"  # name
    GANG_KEEPS_APART = "gang-keeps-apart"  # name
    GANG_WAITS_FOR_REST = "gang-waits-for-rest"  # name: the node that is held for it
    # Its node is on the way.
    LAUNCHING = "launching"  # name: the instance type; source; both empty: not known
    KARPENTER_LAUNCHES = "karpenter-launches"  # name, source
    SLOT_IS_CLEANED = "slot-is-cleaned"  # name: the source
    NODE_JOINS = "node-joins"  # name: the node
    NODE_NOT_READY = "node-not-ready"  # name
    NODE_REGISTERS = "node-registers"  # name
    NODE_IS_CHECKED = "node-is-checked"  # name
    # It was admitted and lost its place.
    NO_ROOM_LEFT = "no-room-left"  # name: the source it was admitted to
    NO_ROOM_LEFT_FOR_GOOD = "no-room-left-for-good"  # name
    TAKEN_BACK_OFTEN = "taken-back-often"  # count: so many times; at: when it is admitted again


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why a pod waits. `next_block` starts at `next_start` and would last long enough for it."""

    kind: HoldKind
    pool: str = ""
    name: str = ""
    source: str = ""  # a source's label
    count: int = 0
    of: int = 0
    at: datetime | None = None
    need: timedelta | None = None  # from a Ready node to the end of its work, or to its first checkpoint
    requests: Amounts = ()
    daemons: Amounts = ()
    pairs: Pairs = ()
    next_block: str = ""
    next_start: datetime | None = None
    since: datetime | None = None
    detail: str = ""  # a person's words: shown to people, never read
