"""The CapacityPlan document: what a pool needs when, as windows or as a calendar.

Weeks and times of day are UTC, as block starts are. What the amounts mean for blocks is the planner's business.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from tidemill.model.ec2_facts import FARTHEST_START
from tidemill.spec.document import Document, Model, Name
from tidemill.spec.platform import Budget
from tidemill.spec.units import Count, Duration, Instant, Length

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
DAY = timedelta(days=1)
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def parse_time_of_day(value: Any) -> timedelta:
    """Since midnight UTC; `24:00` is the end of the day."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or not _TIME_OF_DAY.fullmatch(value):
        raise ValueError(f"{value!r} is not a time of day; write it in quotes, such as '08:00' or '24:00'")
    hours, minutes = value.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def format_time_of_day(value: timedelta) -> str:
    minutes = int(value.total_seconds()) // 60
    return f"{minutes // 60:02}:{minutes % 60:02}"


TimeOfDay = Annotated[
    timedelta,
    BeforeValidator(parse_time_of_day),
    PlainSerializer(format_time_of_day, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^(([01]\d|2[0-3]):[0-5]\d|24:00)$"}),
]


class Amount(Model):
    """An amount in instances or in GPUs (Neuron devices)."""

    instances: Count | None = Field(default=None, gt=0)
    """Only if all instance types of the calendar have the same number of GPUs."""
    gpus: Count | None = Field(default=None, gt=0)
    """Instead of instances."""

    @model_validator(mode="after")
    def _one_unit(self) -> Amount:
        if (self.instances is None) == (self.gpus is None):
            raise ValueError("give either 'instances' or 'gpus'")
        return self


class ConstantDemand(Amount):
    """Demand that does not change, always or between two instants."""

    start: Instant | None = Field(default=None, alias="from")
    """Not given: it has already begun."""
    end: Instant | None = Field(default=None, alias="to")
    """Not given: it has no end."""

    @model_validator(mode="after")
    def _runs_forward(self) -> ConstantDemand:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class WeeklyDemand(Amount):
    """Demand on some days of every week, between two times of day."""

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(min_length=1)
    """Days of the week (UTC)."""
    start: TimeOfDay = Field(default=timedelta(0), alias="from")
    """UTC, in quotes."""
    end: TimeOfDay = Field(default=DAY, alias="to")
    """UTC, in quotes. If not after `from`: on the next day."""


class WindowDemand(Amount):
    """Demand between two instants, once."""

    start: Instant = Field(alias="from")
    end: Instant = Field(alias="to")

    @model_validator(mode="after")
    def _runs_forward(self) -> WindowDemand:
        if self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class LearnedDemand(Model):
    """Demand derived from how the pool's blocks were used and from pods that wait. Computed at every replan."""

    most_instances: Count = Field(gt=0)
    """Never plan for more than this, in instances of the first type, however long the queue is."""
    waiting_for: Duration = timedelta(hours=1)
    """Pods that wait longer than this count as demand."""


class CalendarEntry(Model):
    """One entry of the calendar. Entries add up."""

    name: Name
    """Unique in the calendar."""
    constant: ConstantDemand | None = None
    """A constant amount."""
    weekly: WeeklyDemand | None = None
    """A pattern that repeats every week."""
    window: WindowDemand | None = None
    """An amount between two instants, once."""
    learned: LearnedDemand | None = None
    """What was used, and what waits."""

    @property
    def demand(self) -> ConstantDemand | WeeklyDemand | WindowDemand | LearnedDemand:
        demand = self.constant or self.weekly or self.window or self.learned
        assert demand is not None
        return demand

    @model_validator(mode="after")
    def _one_kind(self) -> CalendarEntry:
        given = (self.constant, self.weekly, self.window, self.learned)
        if sum(demand is not None for demand in given) != 1:
            raise ValueError("give exactly one of 'constant', 'weekly', 'window' and 'learned'")
        return self


class DemandCalendar(Model):
    """What a pool needs over time. The planner finds the cheapest blocks that cover it and proposes them one by one."""

    entries: tuple[CalendarEntry, ...] = Field(min_length=1)
    """What is needed when. Entries add up."""
    instance_types: tuple[str, ...] = Field(min_length=1)
    """The demand may be covered by any of these."""
    zones: tuple[str, ...] = ()
    """Empty: any zone the platform has subnets in."""
    one_zone: bool = False
    """For multi-node jobs: only capacity that is in one zone covers the demand."""
    penalty_usd_per_gpu_hour: float | None = Field(default=None, ge=0)
    """The cost of a GPU-hour that is not covered: the planner pays up to this to cover it. Not given: the on-demand
    price of the most expensive type, or twice its block price if it is not sold on demand."""
    on_demand: Literal["allowed", "never"] = "never"
    """Whether on-demand instances may cover demand. The pool needs an on-demand source, whose caps apply."""
    horizon: Length = FARTHEST_START
    """How far ahead to plan; EC2 sells at most 8 weeks ahead."""
    buy_ahead: Length = timedelta(days=7)
    """A block is proposed this long before it starts. Until then the plan may still change."""
    replan_every: Length = timedelta(hours=6)
    """How often to query EC2 and plan again while demand within `buyAhead` is not covered."""
    warm_up: Duration = timedelta(minutes=15)
    """Time from a block's start until it is useful: boot, registration, model load."""

    @model_validator(mode="after")
    def _can_be_kept(self) -> DemandCalendar:
        if len({entry.name for entry in self.entries}) < len(self.entries):
            raise ValueError("entries must have different names")
        if self.replan_every < timedelta(hours=1):
            raise ValueError("'replanEvery' must be at least 1h: every replan makes dozens of calls to EC2")
        return self


# --- the document ----------------------------------------------------------------------


class DemandWindow(Model):
    """A number of instances that is needed between two instants."""

    name: Name
    """Unique over all plans: approvals name it."""
    start: Instant = Field(alias="from")
    """When the instances are needed."""
    end: Instant = Field(alias="to")
    """Rounded up to a length EC2 sells; at most 182 days after `from`."""
    instance_type: str
    """Such as `p5.48xlarge`. EC2 must sell it as Capacity Blocks."""
    instances: Count = Field(gt=0)
    """At most 64: EC2 sells no larger block."""
    zones: tuple[str, ...] = ()
    """Empty: any zone the platform has subnets in."""
    max_fee_usd: Count = Field(default=0, ge=0)
    """The highest fee for this window. 0: the platform's `perPurchaseUsd`."""

    @model_validator(mode="after")
    def _runs_forward(self) -> DemandWindow:
        if self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class Extending(Model):
    """Whether a block is extended instead of replaced. An extension keeps the nodes: no boot, no hand-over."""

    policy: Literal["prefer", "never"] = "prefer"
    """prefer: search extension offers first, then new blocks. never: always buy new blocks."""
    min_utilisation: float = Field(default=0, ge=0, le=1)
    """Do not extend a block whose accelerators were used for less than this share of the time since it started."""


class CapacityPlanSpec(Model):
    pool: Name
    """The ComputePool that uses the blocks."""
    demand: tuple[DemandWindow, ...] = ()
    """Windows in which instances are needed. One block is bought for each."""
    calendar: DemandCalendar | None = None
    """Instead of windows: what is needed over time. The planner chooses the blocks."""
    propose_before: Duration = FARTHEST_START
    """Start to search for offers this long before a window begins. EC2 sells at most 8 weeks ahead."""
    extend: Extending = Extending()
    """Whether a block that ends before the demand does is extended."""
    overlap: Duration = timedelta(0)
    """How long before its window a block must start, so that services can move from the block before. Blocks start
    and end at 11:30 UTC, so this may cost an extra day. An extended block needs no overlap."""
    budget: Budget | None = None
    """Can only lower the platform's limits. `monthlyUsd` counts the fees of blocks bought for this plan."""

    @model_validator(mode="after")
    def _windows_or_a_calendar(self) -> CapacityPlanSpec:
        if bool(self.demand) == (self.calendar is not None):
            raise ValueError("a plan must have either 'demand' (windows) or a 'calendar'")
        if self.calendar is not None and "propose_before" in self.model_fields_set:
            raise ValueError("'proposeBefore' applies to windows; set 'buyAhead' in the calendar")
        return self


class CapacityPlan(Document):
    kind: Literal["CapacityPlan"] = "CapacityPlan"
    spec: CapacityPlanSpec
