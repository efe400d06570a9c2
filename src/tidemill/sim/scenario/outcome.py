"""The outcome of a rehearsal: plain data, computed from the state of the simulator.

`as_json()` is the contract of `tidemill rehearse --json`: keys are only ever added. Instants are RFC 3339
strings in UTC there, durations are seconds, money is dollars.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from tidemill.report.costs import NO_COSTS, Costs
from tidemill.report.savings import NOTHING_PAID, Savings
from tidemill.sim.cluster.kubelet import Eviction
from tidemill.sim.invariants.truth import Violation
from tidemill.spec.units import format_instant


@dataclass(frozen=True, slots=True)
class BlockRow:
    id: str
    name: str
    pool: str
    type: str
    count: int
    zone: str
    state: str
    start: datetime
    end: datetime
    kill_at: datetime  # EC2 starts terminating
    deadline: datetime  # kill time, or earlier where the provisioner acts earlier
    drain_from: datetime | None  # first node of it tainted for the end of the block
    drained_at: datetime | None  # last non-daemon pod gone from its nodes
    fee_usd: int
    gpus: int
    gpu_hours_paid: float
    gpu_hours_used: float
    delivered_on_demand_usd: float | None = None  # what the hours paid for would have cost on demand
    used_on_demand_usd: float | None = None  # and the used ones; None: no on-demand price is known
    fee_drawn: bool = False  # the simulator drew its fee, around the catalog's rate
    catalog_fee_usd: int | None = None  # the fee at the catalog's rate; None: it has none


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """The phases of one node in order, each with the instant it began; the last ends at `gone_at`."""

    id: str
    pool: str
    source: str  # source label
    type: str
    phases: tuple[tuple[str, datetime], ...]
    gone_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobRow:
    name: str
    stream: str
    team: str
    gpus: int
    pods: int
    arrived: datetime
    started: datetime | None
    finished: datetime | None
    state: Literal["finished", "running", "held", "pending", "failed"]
    late: bool
    restarts: int
    sources: tuple[str, ...]
    reason: str  # why it failed, or what it waited for longest; empty when it finished


@dataclass(frozen=True, slots=True)
class ServiceRow:
    name: str
    replicas: int
    min_available: int
    promised: bool
    downtime_s: int  # seconds below minAvailable (at least 1), once it could be expected to be there
    lowest_ready: int
    series: tuple[tuple[datetime, int], ...]  # ready replicas, at each change
    down: tuple[tuple[datetime, datetime], ...] = ()  # the spans `downtime_s` is the sum of
    waiting: int = 0  # replicas that wait at the end
    reason: str = ""  # what they waited for longest


@dataclass(frozen=True, slots=True)
class KillRow:
    """A pod that died with its node. `grace_had_s` counts from its deletion; 0 where nobody asked it to go."""

    at: datetime
    pod: str
    node: str
    grace_s: int
    grace_had_s: int
    full_grace: bool  # it had all of its grace, or had not started


@dataclass(frozen=True, slots=True)
class PurchaseRow:
    """A block the engine proposed to buy for a demand window, and what became of it."""

    id: str
    window: str
    plan: str
    type: str
    count: int
    state: str
    proposed_at: datetime
    max_fee_usd: int  # the most the proposal could have cost
    fee_usd: int  # 0 unless it was bought
    reservations: tuple[str, ...]
    note: str  # why it was not bought; empty when it was, or when nobody has decided yet
    verdicts: tuple[str, ...]  # what people said, in order


@dataclass(frozen=True, slots=True)
class WarningRow:
    """What the engine warned of. Sentences that differ only in their figures are one row, with the last."""

    about: str
    sentence: str
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class AlertRow:
    """What people would have been told; nothing is sent in a rehearsal. `targets` are the platform's, by name."""

    key: str
    kind: str
    severity: str
    about: str
    title: str
    text: str
    facts: tuple[tuple[str, str], ...]
    raised_at: datetime
    resolved_at: datetime | None  # None: it was not over, or it merely happened
    times: int  # how often it came back
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnDemandEquivalent:
    """What the blocks' hours so far would have cost on demand, beside the fees paid for the same hours."""

    delivered_usd: float = 0.0
    used_usd: float = 0.0
    fees_usd: float = 0.0
    unpriced: tuple[str, ...] = ()  # types without a known on-demand price: not in the sums


UnservedKind = Literal["uncovered", "down", "failed", "late", "waiting"]


@dataclass(frozen=True, slots=True)
class Unserved:
    """What people asked for and did not get: demand windows without their instances, services that were down, jobs that
    failed, were late, or still wait although there was time for them."""

    kind: UnservedKind
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Safe: no invariant was violated. Served: nothing is in `unserved`; None: the run stopped at a violation. Worth
    it: it cost less than the same work on demand; None: nothing was paid in advance, or no price is known."""

    safe: bool = True
    served: bool | None = True
    worth_it: bool | None = None
    unserved: tuple[Unserved, ...] = ()
    savings: Savings = NOTHING_PAID


@dataclass(frozen=True, slots=True)
class Series:
    """Step functions over time: each value holds until the next instant."""

    at: tuple[datetime, ...] = ()
    paid: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    used: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    scenario: str
    seed: int
    commit: str
    start: datetime
    end: datetime
    simulated_hours: float
    wall_s: float
    ticks: int
    actions: int
    invariant_violations: tuple[Violation, ...]
    blocks: tuple[BlockRow, ...]
    nodes: tuple[NodeSpan, ...]
    jobs: tuple[JobRow, ...]
    services: tuple[ServiceRow, ...]
    evictions: tuple[Eviction, ...]
    gpu_hours: dict[str, float]  # paid, ready, used, idle
    cost_usd: dict[str, float]  # blocks, on_demand, spot, total, idle (of all of them, up to the end)
    prices_as_of: str
    series: Series
    journal: tuple[tuple[datetime, str, str, str], ...] = field(repr=False)  # at, kind, about, sentence
    kills: tuple[KillRow, ...] = ()
    purchases: tuple[PurchaseRow, ...] = ()
    warnings: tuple[WarningRow, ...] = ()
    on_demand_equivalent: OnDemandEquivalent = OnDemandEquivalent()
    alerts: tuple[AlertRow, ...] = ()
    costs: Costs = NO_COSTS  # what everything cost, by pool, team and workload
    verdict: Verdict = Verdict()
    files: tuple[str, ...] = ()  # that it was read from

    def as_json(self) -> dict[str, Any]:
        """One JSON object; jobs are counted, the rows are under `job_rows`."""
        body: dict[str, Any] = _plain(asdict(self))
        rows = body.pop("jobs")
        body["job_rows"] = rows
        body["jobs"] = {
            **{
                state: sum(row["state"] == state for row in rows)
                for state in ("finished", "running", "held", "pending", "failed")
            },
            "late": sum(row["late"] for row in rows),
            "evicted_forced": sum(row.forced for row in self.evictions),
            "evicted": len(self.evictions),
            "killed": len(self.kills),
            "killed_without_grace": sum(not row.full_grace for row in self.kills),
        }
        return body


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
