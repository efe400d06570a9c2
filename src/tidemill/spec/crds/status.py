"""What the engine writes into the status of its objects: a projection of what it knows, for people and their tools.

`decide` never reads it: AWS, the API server's pods and nodes, and the ledger are the truth.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemill.spec.document import Model
from tidemill.spec.units import Instant


class Condition(Model):
    """As in every Kubernetes object."""

    type: str
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    reason: str
    """One word, for programs."""
    message: str = ""
    """A sentence, for people."""
    last_transition_time: Instant
    """When `status` changed."""
    observed_generation: int
    """The version of the object that it is about."""


class ObjectStatus(Model):
    observed_generation: int = Field(default=0, ge=0)
    """The newest version of the object that the engine has read."""
    conditions: tuple[Condition, ...] = Field(default=(), max_length=8)
    """`Accepted`: the engine works by this version. False: it works by the last good one, and the message says why."""


class PlatformStatus(ObjectStatus):
    month_usd: float | None = None
    """Fees and hourly prices of this calendar month (UTC) so far."""
    budget_usd: float | None = None
    """What the month may cost: the lower of `budget.monthlyUsd` and the controller's own ceiling."""
    approval: str = ""
    """The approval mode in force: the stricter of `approval.mode` and the controller's own."""
    waiting_purchases: int = 0
    """Proposals that wait for an approval."""


class NodeClassStatus(ObjectStatus):
    pools: tuple[str, ...] = ()
    """The pools whose nodes are made from it."""


class ComputePoolStatus(ObjectStatus):
    gpus_ready: int = 0
    """GPUs (Neuron devices) of nodes that take pods."""
    gpus_used: int = 0
    """GPUs that pods have."""
    gpus_wanted: int = 0
    """GPUs that pods have or wait for."""
    gpus: str = ""
    """Ready and wanted, for a column: `32/40`."""
    nodes: dict[str, int] = {}
    """Number of nodes by phase."""
    waiting_pods: int = 0
    """Pods that wait for this pool."""
    block: str = ""
    """The active block that ends next."""
    drain_from: Instant | None = None
    """When its nodes begin to drain."""
    ends_at: Instant | None = None
    """When it ends."""
    ends_in: str = ""
    """Until then, rounded: for a column."""
    usd_per_hour: float = 0
    """What its nodes by the hour cost now."""


class WindowStatus(Model):
    name: str
    """Of the window, or of the calendar's entry."""
    state: str
    """Of its purchase: proposed, approved, submitted, purchased, ..."""
    purchase: str = ""
    """The purchase's id: `tidemill approve` takes it."""
    blocks: tuple[str, ...] = ()
    """What was bought."""
    fee_usd: int = 0
    """The upfront fee, or the most it may be while nothing is bought."""
    message: str = ""
    """What it waits for."""


class CapacityPlanStatus(ObjectStatus):
    windows: tuple[WindowStatus, ...] = Field(default=(), max_length=256)
    """Its purchases, the newest first."""
    purchases: str = ""
    """Bought and all, for a column: `1/3`."""


class CapacityBlockSpec(Model):
    """Written by the engine. Nothing in it can be changed: a block is bought by a CapacityPlan or `tidemill buy`."""

    reservation_id: str
    """EC2's id of the reservation."""


class CapacityBlockStatus(ObjectStatus):
    name: str = ""
    """For people: the window that it was bought for, or its Name tag."""
    pool: str = ""
    """The ComputePool that uses it."""
    purchase: str = ""
    """The purchase that made it; empty if somebody else bought it."""
    type: str = ""
    """Instance type."""
    count: int = 0
    """Instances."""
    zone: str = ""
    state: str = ""
    """As EC2 says: payment-pending, scheduled, active, expired, ..."""
    start: Instant | None = None
    end: Instant | None = None
    """When EC2 takes the instances at the latest. EC2 begins 30 minutes earlier (UltraServers: 60)."""
    drain_from: Instant | None = None
    """When its nodes begin to drain."""
    ends_in: str = ""
    """Until its end, rounded: for a column."""
    nodes: int = 0
    """Nodes that are up."""
    used: str = ""
    """GPUs that pods have and all of the block's, for a column: `24/32`."""
    fee_usd: int = 0
    """The upfront fee."""
