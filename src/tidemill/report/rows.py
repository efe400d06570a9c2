"""The rows people and programs read: plain data, the same in the terminal, on pages and as JSON.

Instants are aware UTC datetimes, money is dollars. Fields are only ever added: programs read them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal

from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A Capacity Block or an on-demand reservation of ours. `name` is for people, `id` is EC2's."""

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
    used_on_demand_usd: float | None = None  # and the used ones; None: unknown price, or nobody counted
    drain_lead_s: int | None = None  # from drain_from to the deadline
    drain_lead_for: tuple[str, ...] = ()  # who makes it that long; empty: it is the shortest there is


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
    why: str  # what it drains for


@dataclass(frozen=True, slots=True)
class PoolRow:
    """`gpus_wanted` is what pods run with and wait for; `blocks` are the active ones, soonest end first."""

    name: str
    types: tuple[str, ...]
    gpus_ready: int
    gpus_used: int
    gpus_wanted: int
    nodes: dict[str, int]  # phase -> how many, in the order of a node's life
    blocks: tuple[str, ...]
    drain_from: datetime | None
    deadline: datetime | None
    ends_at: datetime | None
    waiting: int
    usd_per_hour: float
    month_usd: float


@dataclass(frozen=True, slots=True)
class TypePrice:
    """A type and what an hour of it costs on demand; None: nobody knows. `accelerators` as in `8 x H100`."""

    type: str
    accelerators: str
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PodPrice:
    """What a pod's node costs and the cheapest type that would hold the pod alone, at list prices on demand."""

    in_pools: TypePrice | None  # None: no type of the pools it may use holds it
    in_catalog: TypePrice | None  # of all types, only where that is cheaper, or no pool's holds it
    node: TypePrice | None = None  # None: it has no place, or one on a type nobody knows
    paid_as: str = ""  # block | odcr | spot | on-demand, once it has a place
    prepaid: bool = False  # then an hour more of its node costs nothing
    neighbours: int = 0  # other pods on its node, daemons not counted


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod that waits (`reason`, `earliest`) or has a place (`node`, `until`)."""

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
    """This calendar month (UTC), as the ledger has it, and the rate of what runs by the hour now."""

    fees_usd: int
    hourly_usd: float
    budget_usd: int
    usd_per_hour: float
    delivered_on_demand_usd: float = 0.0  # what the blocks' hours so far would have cost on demand
    used_on_demand_usd: float | None = None  # and the used ones; None: nobody counted them
    unpriced: tuple[str, ...] = ()  # types of blocks without a known on-demand price: not in these sums


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
    """One action of a plan. `about` names what it touches, as many as it touches."""

    action: str
    about: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Something that launches need and that is not as the documents and the blocks want it."""

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
    """What JSON can say; instants become RFC 3339 strings."""
    if isinstance(value, datetime):
        return format_instant(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
