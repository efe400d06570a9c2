"""What the purchase planner answers: the plan, its cost, the runner-up, and what would change the answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.purchasing.planner.inputs import DatedExtensionOffer
from tidemill.decide.purchasing.planner.mitigations import Mitigation
from tidemill.model.capacity import Reservation
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import OfferRefusal


@dataclass(frozen=True, slots=True)
class Cost:
    fees_usd: int
    on_demand_usd: float
    penalty_usd: float  # not money: the stated worth of the uncovered hours

    @property
    def spent_usd(self) -> float:
        return self.fees_usd + self.on_demand_usd

    @property
    def total_usd(self) -> float:
        return self.spent_usd + self.penalty_usd


@dataclass(frozen=True, slots=True)
class Buy:
    """An offer to take, for one pool."""

    offer: Offer
    pool: str


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Instances paid by the hour, from an instant to another, and what they cost with their warm-up."""

    pool: str
    instance_type: str
    instances: int
    start: datetime
    end: datetime
    usd: float


@dataclass(frozen=True, slots=True)
class Uncovered:
    pool: str
    gpus: int
    start: datetime
    end: datetime
    penalty_usd: float

    @property
    def gpu_hours(self) -> float:
        return self.gpus * (self.end - self.start) / timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Cover:
    """One way to meet the demand, priced."""

    buys: tuple[Buy, ...]
    extends: tuple[DatedExtensionOffer, ...]
    on_demand: tuple[OnDemand, ...]
    uncovered: tuple[Uncovered, ...]
    cost: Cost

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the offers and extension offers it takes."""
        return frozenset([buy.offer.id for buy in self.buys] + [extend.id for extend in self.extends])


@dataclass(frozen=True, slots=True)
class RejectedOffer:
    """An offer that was not considered, and why."""

    id: str
    why: OfferRefusal


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best cover that differs in at least one offer."""

    cover: Cover
    dearer_usd: float
    why: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What one purchase saves while all others stay, and the prices at which it would no longer be made."""

    id: str
    saves_usd: float
    gpu_hours: float  # of demand that only it covers
    on_demand_below_usd_h: float | None  # per instance; None: it replaces nothing
    penalty_below_usd_gpu_h: float | None


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What would change the answer."""

    worths: tuple[Worth, ...]
    budget_binds: bool
    unlimited: Cover | None  # the best cover without budgets; None: it is this one
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """Block `before` ends while its pool still needs it, and `after` takes over (empty: nothing does)."""

    pool: str
    before: str
    after: str
    at: datetime  # the end of `before`
    gpus: int  # that would be missing in the gap
    gap: timedelta  # with the blocks of this plan alone
    gap_back_to_back: timedelta  # without any overlap: what `ways` avoid
    ways: tuple[Mitigation, ...]  # the cheapest first, unavailable ones last


@dataclass(frozen=True, slots=True)
class PurchasePlan:
    at: datetime
    until: datetime
    cover: Cover
    bound_usd: float  # nothing can cost less than this, of the offers that were given
    demand_gpu_hours: float
    usd_per_gpu_h_bought: float | None  # money over the GPU-hours it pays for, used or not
    usd_per_gpu_h_used: float | None  # ... over those that meet demand
    runner_up: RunnerUp | None
    sensitivity: Sensitivity
    hand_overs: tuple[HandOver, ...]
    left_out: tuple[RejectedOffer, ...]
    extended: tuple[Reservation, ...] = ()  # the blocks of `cover.extends`, as they are now

    @property
    def gap(self) -> float:
        """The share of the cost that could at most be saved; 0: it is certainly the cheapest."""
        total = self.cover.cost.total_usd
        return max(0.0, total - self.bound_usd) / total if total > 0 else 0.0
