"""The rows that people and programs read: plain data, the same in the terminal, on pages and as JSON.

Instants are aware UTC datetimes, money is in dollars. Fields may be added, never renamed or removed: programs read
them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal

from tidemill.report.savings import Savings
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A Capacity Block or an On-Demand Capacity Reservation of ours. `name` is for people, `id` is EC2's."""

    id: str
    name: str
    kind: str
    pool: str
    type: str
    count: int
    zone: str
    state: str
    gpus: int
    fee_usd: int
    start: datetime
    drain_from: datetime | None
    deadline: datetime | None
    kill_at: datetime | None
    end: datetime | None
    nodes_up: int
    pods: int
    delivered_on_demand_usd: float | None = None  # what its hours so far would have cost on demand
    used_on_demand_usd: float | None = None  # the same for the used hours; None: no price, or not counted
    drain_lead_s: int | None = None  # from drain_from to the deadline
    drain_lead_for: tuple[str, ...] = ()  # which pods make it that long; empty: it is the shortest lead


@dataclass(frozen=True, slots=True)
class NodeRow:
    name: str
    instance: str
    pool: str
    type: str
    source: str
    zone: str
    phase: str
    gpus: int
    gpus_used: int
    pods: tuple[str, ...]
    drain_from: datetime | None
    deadline: datetime | None
    why: str  # why it drains


@dataclass(frozen=True, slots=True)
class PoolRow:
    """`gpus_wanted` are the GPUs of running and waiting pods; `blocks` are the active ones, the soonest end first."""

    name: str
    types: tuple[str, ...]
    gpus_ready: int
    gpus_used: int
    gpus_wanted: int
    nodes: dict[str, int]  # phase -> number of nodes, in the order of the phases
    blocks: tuple[str, ...]
    drain_from: datetime | None
    deadline: datetime | None
    ends_at: datetime | None
    waiting: int
    usd_per_hour: float
    month_usd: float
    pinned_to: tuple[str, ...] = ()  # the reservations that its documents name
    pin_inherited_by: tuple[str, ...] = ()  # bought for it, and so used beside those


@dataclass(frozen=True, slots=True)
class TypePrice:
    """An instance type and its on-demand price per hour; None: not known. `accelerators` as in `8 x H100`."""

    type: str
    accelerators: str
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PodPrice:
    """On-demand list prices: of a pod's node, and of the cheapest type that would hold the pod alone."""

    in_pools: TypePrice | None  # None: no type of its pools holds it
    in_catalog: TypePrice | None  # of all types; only if it is cheaper, or no type of its pools holds the pod
    node: TypePrice | None = None  # None: it has no node, or its type is unknown
    paid_as: str = ""  # block | odcr | spot | on-demand, once it has a node
    prepaid: bool = False  # another hour of its node costs nothing
    neighbours: int = 0  # other pods on its node, without daemons


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod that waits (`reason`, `earliest`) or has a node (`node`, `until`)."""

    name: str  # namespace/name
    state: str  # waiting | starting | running | stopping
    workload: str
    pool: str
    node: str
    source: str
    gpus: int
    since: datetime
    until: datetime | None
    code: str
    reason: str
    earliest: datetime | None
    price: PodPrice | None = None


@dataclass(frozen=True, slots=True)
class PurchaseRow:
    id: str
    plan: str
    window: str
    pool: str
    state: str
    type: str
    count: int
    max_fee_usd: int
    fee_usd: int
    proposed_at: datetime
    state_at: datetime | None
    verdicts: tuple[str, ...]
    reservations: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Money:
    """This calendar month (UTC) from the ledger, and the current hourly rate."""

    fees_usd: int
    hourly_usd: float
    budget_usd: int
    usd_per_hour: float
    delivered_on_demand_usd: float = 0.0  # what the blocks' hours so far would have cost on demand
    used_on_demand_usd: float | None = None  # the same for the used hours; None: not counted
    unpriced: tuple[str, ...] = ()  # types of blocks without an on-demand price, which are not in these sums
    other_fees_usd: int = 0  # of our blocks that this ledger did not buy: held before, or adopted
    unknown_fees: tuple[str, ...] = ()  # those of them whose fee nobody told us
    savings: Savings | None = None  # of everything until now, as `costs` and a rehearsal's verdict have it


@dataclass(frozen=True, slots=True)
class WarningRow:
    about: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Status:
    at: datetime
    pools: tuple[PoolRow, ...]
    blocks: tuple[BlockRow, ...]
    nodes: tuple[NodeRow, ...]
    waiting: tuple[PodRow, ...]
    purchases: tuple[PurchaseRow, ...]
    money: Money
    warnings: tuple[WarningRow, ...]
    wake_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        return plain(self)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One action of a plan. `about` names everything that it changes."""

    action: str
    about: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change to something that launches need: templates, groups, Karpenter objects."""

    verb: Literal["create", "change", "remove"]
    about: str
    reason: str


@dataclass(frozen=True, slots=True)
class NextSteps:
    at: datetime
    steps: tuple[StepRow, ...]
    waiting: tuple[PodRow, ...]
    warnings: tuple[WarningRow, ...]
    wake_at: datetime | None
    changes: tuple[ChangeRow, ...] = ()  # templates, groups, node groups, Karpenter's objects

    def as_json(self) -> dict[str, Any]:
        return plain(self)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """As JSON values; instants become RFC 3339 strings."""
    if isinstance(value, datetime):
        return format_instant(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
