"""The CapacityPlan document: what a pool needs when, as windows or as a calendar.

Weeks and times of day are UTC, as block starts are. What the amounts mean for blocks is the planner's business.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from tidemill.model.ec2_facts import FARTHEST_START
from tidemill.spec.model import Document, Model, Name
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
    """So much: whole instances, or GPUs (Neuron devices)."""

    instances: Count | None = Field(default=None, gt=0)
    """Only where all instance types of the calendar have as many GPUs."""
    gpus: Count | None = Field(default=None, gt=0)
    """Instead of instances."""

    @model_validator(mode="after")
    def _one_unit(self) -> Amount:
        if (self.instances is None) == (self.gpus is None):
            raise ValueError("give either 'instances' or 'gpus'")
        return self


class ConstantDemand(Amount):
    """Always, or between two instants."""

    start: Instant | None = Field(default=None, alias="from")
    """Not given: already."""
    end: Instant | None = Field(default=None, alias="to")
    """Not given: for ever."""

    @model_validator(mode="after")
    def _runs_forward(self) -> ConstantDemand:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class WeeklyDemand(Amount):
    """On these days of every week, between two times of day."""

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(min_length=1)
    start: TimeOfDay = Field(default=timedelta(0), alias="from")
    """UTC, in quotes."""
    end: TimeOfDay = Field(default=DAY, alias="to")
    """UTC, in quotes. Not after `from`: on the next day."""


class WindowDemand(Amount):
    """Once, between two instants."""

    start: Instant = Field(alias="from")
    end: Instant = Field(alias="to")

    @model_validator(mode="after")
    def _runs_forward(self) -> WindowDemand:
        if self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class LearnedDemand(Model):
    """What the pool's blocks were used for so far, and the standing queue; read anew at every planning."""

    most_instances: Count = Field(gt=0)
    """Never plan for more than this, however long the queue. Instances of the first type."""
    waiting_for: Duration = timedelta(hours=1)
    """Pods that wait longer than this are standing demand."""


class CalendarEntry(Model):
    """One line of the calendar; lines add up."""

    name: Name
    constant: ConstantDemand | None = None
    """So much, always."""
    weekly: WeeklyDemand | None = None
    """A pattern that repeats every week."""
    window: WindowDemand | None = None
    """So much, once."""
    learned: LearnedDemand | None = None
    """Whatever was used, and what waits."""

    @property
    def demand(self) -> ConstantDemand | WeeklyDemand | WindowDemand | LearnedDemand:
        found = self.constant or self.weekly or self.window or self.learned
        assert found is not None
        return found

    @model_validator(mode="after")
    def _one_kind(self) -> CalendarEntry:
        given = (self.constant, self.weekly, self.window, self.learned)
        if sum(one is not None for one in given) != 1:
            raise ValueError("give exactly one of 'constant', 'weekly', 'window' and 'learned'")
        return self


class DemandCalendar(Model):
    """What a pool needs over time. The planner finds the least-cost way to cover it, and buys it step by step."""

    entries: tuple[CalendarEntry, ...] = Field(min_length=1)
    instance_types: tuple[str, ...] = Field(min_length=1)
    """Any of these will do."""
    zones: tuple[str, ...] = ()
    """Empty: any zone the platform has subnets in."""
    one_zone: bool = False
    """For multi-node work: only what stands together in one zone counts."""
    penalty_usd_per_gpu_hour: float | None = Field(default=None, ge=0)
    """What an uncovered GPU-hour is worth: the planner pays up to this to cover it. Not given: the price on demand of
    the dearest type, or twice its price in a block where it is not sold on demand."""
    on_demand: Literal["allowed", "never"] = "never"
    """Whether hours on demand count as cover. The pool needs an on-demand source, whose caps hold."""
    horizon: Length = FARTHEST_START
    """How far ahead to plan; EC2 sells at most 8 weeks ahead."""
    buy_ahead: Length = timedelta(days=7)
    """A chosen purchase is proposed this long before it starts; until then it may still change."""
    replan_every: Length = timedelta(hours=6)
    """How often EC2 is asked and all is planned anew while something is missing within `buyAhead`."""
    warm_up: Duration = timedelta(minutes=15)
    """From a block's start until it serves: boot, registration, model load."""

    @model_validator(mode="after")
    def _can_be_kept(self) -> DemandCalendar:
        if len({entry.name for entry in self.entries}) < len(self.entries):
            raise ValueError("its entries must have different names")
        if self.replan_every < timedelta(hours=1):
            raise ValueError("'replanEvery' must be at least 1h: every round asks EC2 dozens of questions")
        return self


# --- the document ----------------------------------------------------------------------


class DemandWindow(Model):
    """So many instances from an instant to another."""

    name: Name
    start: Instant = Field(alias="from")
    end: Instant = Field(alias="to")
    """Rounded up to a length EC2 sells; at most 182 days after `from`."""
    instance_type: str
    instances: Count = Field(gt=0)
    """At most 64: EC2 sells no larger block."""
    zones: tuple[str, ...] = ()
    """Empty: any zone the platform has subnets in."""
    max_fee_usd: Count = Field(default=0, ge=0)
    """The most this window may cost; 0: the platform's per-purchase ceiling."""

    @model_validator(mode="after")
    def _runs_forward(self) -> DemandWindow:
        if self.end <= self.start:
            raise ValueError("'to' must be after 'from'")
        return self


class Extending(Model):
    """More time on a block that is there keeps its nodes: no boot, no hand-over."""

    policy: Literal["prefer", "never"] = "prefer"
    """Ask for extension offers first and fall back to a new block; or always buy new blocks."""
    min_utilisation: float = Field(default=0, ge=0, le=1)
    """Let a block lapse whose accelerators were used less than this share of the time since it started."""


class CapacityPlanSpec(Model):
    pool: Name
    """The ComputePool that will use the blocks."""
    demand: tuple[DemandWindow, ...] = ()
    """Windows, each bought as it is written: when how many instances are needed."""
    calendar: DemandCalendar | None = None
    """Instead of windows: what is needed over time, bought as the planner finds cheapest."""
    propose_before: Duration = FARTHEST_START
    """Start to search this long before a window opens; EC2 sells at most 8 weeks ahead."""
    extend: Extending = Extending()
    """Whether a block that ends before its demand is extended, which comes before a new one is bought."""
    overlap: Duration = timedelta(0)
    """How long before its window a block must start, to run beside the one before it while services move. Blocks lie on
    the 11:30 UTC grid, so that it may cost a day more. A block that is extended needs none."""
    budget: Budget | None = None
    """Can only lower the platform's ceilings. Its month counts the fees of what is bought for this plan."""

    @model_validator(mode="after")
    def _windows_or_a_calendar(self) -> CapacityPlanSpec:
        if bool(self.demand) == (self.calendar is not None):
            raise ValueError("a plan has either 'demand' (windows) or a 'calendar'")
        if self.calendar is not None and "propose_before" in self.model_fields_set:
            raise ValueError("'proposeBefore' is about windows; a calendar has 'buyAhead'")
        return self


class CapacityPlan(Document):
    kind: Literal["CapacityPlan"] = "CapacityPlan"
    spec: CapacityPlanSpec
