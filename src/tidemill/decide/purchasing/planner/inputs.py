"""What the purchase planner is asked: who needs how much and when, what may be bought at what price and limits.

A calendar is anything that answers `steps`: constant, by the week, in explicit windows, or several of these together.
Plain facts, dated where they age. Where they come from (documents, EC2's answers, the ledger) is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, Protocol

from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import EARLIEST_START, TERMINATES_BEFORE_END
from tidemill.model.errors import SpecError
from tidemill.model.offers import Offer, OfferSearch

WEEK = timedelta(weeks=1)
_A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)  # any Monday 00:00 UTC: weeks are counted from it


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """So much from an instant to another."""

    start: datetime
    end: datetime
    amount: int

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise SpecError(f"demand must end after it starts, not {self.end} after {self.start}")
        if self.amount < 0:
            raise SpecError(f"demand cannot be negative: {self.amount}")


class Calendar(Protocol):
    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        """What is needed between two instants: clipped to them; overlapping steps add up."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    amount: int

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return (Step(start, end, self.amount),)


@dataclass(frozen=True, slots=True)
class BoundedConstant:
    """So much from an instant on, until another, or both; None: no limit on that side."""

    start: datetime | None
    end: datetime | None
    amount: int

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        first, last = max(start, self.start or start), min(end, self.end or end)
        return (Step(first, last, self.amount),) if first < last else ()


@dataclass(frozen=True, slots=True)
class Windows:
    windows: tuple[Step, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return _clipped(self.windows, start, end)


@dataclass(frozen=True, slots=True)
class WeekSpan:
    """From and to are counted from Monday 00:00 UTC; a span over the end of the week is written as two."""

    start: timedelta
    end: timedelta
    amount: int

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.start < self.end <= WEEK:
            raise SpecError(f"a weekly span lies inside one week, not {self.start} to {self.end}")


@dataclass(frozen=True, slots=True)
class Weekly:
    spans: tuple[WeekSpan, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        monday = _A_MONDAY + (start - _A_MONDAY) // WEEK * WEEK
        found: list[Step] = []
        while monday < end:
            found += (Step(monday + span.start, monday + span.end, span.amount) for span in self.spans)
            monday += WEEK
        return _clipped(found, start, end)


@dataclass(frozen=True, slots=True)
class CombinedCalendar:
    """The sum of several: a service that always runs, and a training run in March."""

    calendars: tuple[Calendar, ...]

    def steps(self, start: datetime, end: datetime) -> tuple[Step, ...]:
        return tuple(step for calendar in self.calendars for step in calendar.steps(start, end))


def levels(calendar: Calendar, start: datetime, end: datetime) -> tuple[Step, ...]:
    """One step after the other without overlap, from start to end, zeros included."""
    steps = calendar.steps(start, end)
    changes: dict[datetime, int] = {start: 0, end: 0}
    for step in steps:
        changes[step.start] = changes.get(step.start, 0) + step.amount
        changes[step.end] = changes.get(step.end, 0) - step.amount
    found: list[Step] = []
    amount = 0
    for here, there in pairwise(sorted(changes)):
        amount += changes[here]
        if found and found[-1].amount == amount:
            found[-1] = Step(found[-1].start, there, amount)
        else:
            found.append(Step(here, there, amount))
    return tuple(found)


def _clipped(steps: Iterable[Step], start: datetime, end: datetime) -> tuple[Step, ...]:
    return tuple(
        Step(max(step.start, start), min(step.end, end), step.amount)
        for step in steps
        if step.start < end and step.end > start
    )


# --- the question -------------------------------------------------------------------------------------


HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What one pool needs, of which types, where, and what it costs not to have it.

    A block serves from `warm_up` after its start (boot, registration, model load: measured) until `wind_down`
    before its paid end (EC2 terminates 30 minutes before it, managed node groups and Karpenter act 40 before,
    UltraServers end 60 before). Between two blocks back to back nobody serves for the sum of both.
    """

    pool: str
    calendar: Calendar
    types: tuple[str, ...]
    penalty_usd_gpu_h: float  # what an uncovered GPU-hour is worth; the planner pays up to this to cover it
    unit: Literal["gpus", "instances"] = "gpus"
    zones: tuple[str, ...] = ()  # empty: any
    one_zone: bool = False  # multi-node work: at any instant only what stands in one zone counts
    warm_up: timedelta = timedelta(0)
    wind_down: timedelta = TERMINATES_BEFORE_END
    # A purchase is made this long before it starts, and its fee counts in that month; None: at once.
    buy_ahead: timedelta | None = None
    per_purchase_usd: int | None = None  # ceilings of its own, where they are lower than those of the whole
    monthly_usd: int | None = None
    # For each type how many its pool could use in one new block; a type that is not named: none. None: any number.
    usable_counts: tuple[tuple[str, float], ...] | None = None

    def could_use(self, instance_type: str, count: int) -> bool:
        return self.usable_counts is None or count <= dict(self.usable_counts).get(instance_type, 0)


@dataclass(frozen=True, slots=True)
class TypePrice:
    """An instance type: its accelerators, and the on-demand alternative. No price: not to be had, or not allowed."""

    gpus: int
    on_demand_usd_h: float | None = None
    on_demand_most: int | None = None  # instances at once (a quota); None: as many as are needed


Prices = Mapping[str, TypePrice]


@dataclass(frozen=True, slots=True)
class DatedOffer:
    """An offer, and when EC2 showed it."""

    offer: Offer
    at: datetime


@dataclass(frozen=True, slots=True)
class DatedExtensionOffer:
    """What EC2 asks for moving the end of a block we hold to a later one."""

    id: str
    block: str  # the reservation's id
    end: datetime
    fee_usd: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Money that may go out. Fees count in the month they are paid, hours on demand when they run."""

    per_purchase_usd: int
    monthly_usd: int
    spent_usd: float = 0.0  # this calendar month (UTC), purchases in doubt included
    whole_usd: float | None = None  # everything this plan may cost, if that is limited too
    spent_for_usd: tuple[tuple[str, float], ...] = ()  # of the month's, by the pool it was spent for


@dataclass(frozen=True, slots=True)
class Policy:
    now: datetime
    until: datetime  # demand after it is not seen, and a block that outlasts it is charged in full
    ceilings: Ceilings
    # EC2 sells from about 30 minutes ahead; whoever waits for approvals plans further ahead than that.
    lead: timedelta = EARLIEST_START
    offers_fresh: timedelta = timedelta(minutes=30)  # first come, first served: what is older may be gone
    held_elsewhere: int = 0  # instances on blocks of other accounts of the organization, against the 256
    gap: float = 0.005  # stop when this share of the cost is all that could still be saved; 1 % is promised
    most_nodes: int = 2000  # of the search tree. A limit on work, not on time: the same answer on any machine


@dataclass(frozen=True, slots=True)
class PlannerInputs:
    """All that a plan is made of."""

    demand: tuple[PoolDemand, ...]
    owned: tuple[Reservation, ...]
    offers: tuple[DatedOffer, ...]
    extensions: tuple[DatedExtensionOffer, ...]
    prices: Prices
    policy: Policy


def newest_offers(searches: Iterable[OfferSearch]) -> tuple[DatedOffer, ...]:
    """What the latest answer to each question showed; an offer shown by several counts as seen last."""
    latest: dict[object, OfferSearch] = {}
    for search in searches:
        before = latest.get(search.query)
        if before is None or search.at > before.at:
            latest[search.query] = search
    found: dict[str, DatedOffer] = {}
    for search in sorted(latest.values(), key=lambda one: one.at):
        found |= {offer.id: DatedOffer(offer, search.at) for offer in search.offers}
    return tuple(found[id_] for id_ in sorted(found))
