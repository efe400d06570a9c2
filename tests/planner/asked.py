"""Words for questions to the planner: a pool that needs instances, offers on the grid, blocks already held."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.decide.purchasing.planner import plan
from tidemill.decide.purchasing.planner.inputs import (
    Ceilings,
    DatedExtensionOffer,
    DatedOffer,
    PlannerInputs,
    Policy,
    PoolDemand,
    Step,
    TypePrice,
    Windows,
)
from tidemill.decide.purchasing.planner.result import PurchasePlan
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.offers import Offer

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
GRID = NOW.replace(hour=11, minute=30)
DAY = timedelta(days=1)
P5 = "p5.48xlarge"


def day(number: float) -> datetime:
    return GRID + number * DAY


def offer(id_: str, start: float, days: float, fee_usd: int, **fields: Any) -> Offer:
    defaults: dict[str, Any] = {"instance_type": P5, "zone": "a", "count": 4}
    return Offer(id_, start=day(start), end=day(start + days), fee_usd=fee_usd, **{**defaults, **fields})


def block(id_: str, start: float, end: float, **fields: Any) -> Reservation:
    defaults: dict[str, Any] = {
        "kind": SourceKind.BLOCK, "instance_type": P5, "zone": "a", "count": 4, "available": 4,
        "state": ReservationState.ACTIVE, "pool": "serve",
    }  # fmt: skip
    return Reservation(id_, start=day(start), end=day(end), **{**defaults, **fields})


def extension(id_: str, of: str, end: float, fee_usd: int, at: datetime = NOW) -> DatedExtensionOffer:
    return DatedExtensionOffer(id_, of, day(end), fee_usd, at)


def needs(*windows: tuple[float, float, int], pool: str = "serve", **fields: Any) -> PoolDemand:
    """Instances of p5.48xlarge, in days from the first 11:30 UTC; to be served to the minute."""
    defaults: dict[str, Any] = {"types": (P5,), "penalty_usd_gpu_h": 50.0, "unit": "instances"}
    calendar = Windows(tuple(Step(day(start), day(end), count) for start, end, count in windows))
    return PoolDemand(pool, calendar, **{**defaults, **fields})


@dataclass(frozen=True)
class Asked:
    """A question with everything at hand; `but` changes some of it."""

    demand: tuple[PoolDemand, ...] = ()
    owned: tuple[Reservation, ...] = ()
    offers: tuple[Offer, ...] = ()
    extensions: tuple[DatedExtensionOffer, ...] = ()
    prices: dict[str, TypePrice] = field(default_factory=lambda: {P5: TypePrice(8)})
    policy: Policy = field(
        default_factory=lambda: Policy(NOW, day(14), Ceilings(10_000_000, 10_000_000), gap=0.0)
    )

    def but(self, **fields: Any) -> Asked:
        own = {name: fields.pop(name) for name in list(fields) if hasattr(self, name)}
        return replace(self, **own, policy=replace(own.get("policy", self.policy), **fields))

    @property
    def seen(self) -> tuple[DatedOffer, ...]:
        return tuple(DatedOffer(one, self.policy.now) for one in self.offers)

    @property
    def inputs(self) -> PlannerInputs:
        return PlannerInputs(self.demand, self.owned, self.seen, self.extensions, self.prices, self.policy)

    def plan(self) -> PurchasePlan:
        return plan(self.inputs)


def asked(*demand: PoolDemand, on_demand_usd_h: float | None = None, **fields: Any) -> Asked:
    found = Asked(demand, prices={P5: TypePrice(8, on_demand_usd_h)})
    return found.but(**fields) if fields else found
