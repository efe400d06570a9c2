"""How near is the purchase planner to the best that the simulated market sells, and how much does it ask for that?

    python -m benchmarks.planner_market [--calendars 50] [--first 1] [--shape stairs] [--one-zone]

Draws calendars of many shapes and puts each to `plan-blocks`' planner in a simulated market: it may ask only what its
budget of searches allows, six offers an answer. Beside it an integer program of its own that knows every legal offer
(every start, length, zone and size), solved to the end. Exits 1 if the planner is more than 2 % dearer on any calendar,
asks more than its budget, or states a bound that is above the optimum. With `--one-zone` work must run in one zone at
any instant; the optimum beside it may mix zones, and so costs at most as much as the best in one zone.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from statistics import mean
from typing import Any, cast

from tidemill import catalog
from tidemill.decide.purchasing.offer_queries import MAX_SEARCHES
from tidemill.decide.purchasing.planner.demand import calendar_demand
from tidemill.decide.purchasing.planner.inputs import PoolDemand, levels
from tidemill.linear_program import INFINITE, Program
from tidemill.model import ec2_facts
from tidemill.model.offers import Offer, OfferQuery
from tidemill.model.world import World
from tidemill.ports import Cloud
from tidemill.report.purchase_outlook import PurchaseOutlook, outlook
from tidemill.sim.cloud.market import OfferMarket
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Market

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
WORKING_DAYS = ["mon", "tue", "wed", "thu", "fri"]
MOST_DEARER = 0.02
P5, P4D = "p5.48xlarge", "p4d.24xlarge"


@dataclass(frozen=True, slots=True)
class Drawn:
    shape: str
    spec: Spec
    now: datetime
    seed: int


# --- calendars drawn by chance ------------------------------------------------------------------------


def _constant(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    return [{"name": "always", "constant": {"instances": chance.randint(1, 24)}}]


def _stairs(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    at, days = now + chance.randint(0, 3) * DAY, chance.randint(3, 10)
    steps = [chance.randint(1, 8) for _ in range(chance.randint(3, 6))]
    return [
        _window(f"step-{n}", at + n * days * DAY, at + len(steps) * days * DAY, more)
        for n, more in enumerate(steps)
    ]


def _pyramid(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    days, high = chance.randint(2, 5), chance.randint(3, 5)
    return [
        _window(f"step-{n}", now + (1 + n * days) * DAY, now + (1 + (2 * high - n) * days) * DAY, 2 + n)
        for n in range(high)
    ]


def _working_days(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    week = {"days": WORKING_DAYS, "from": "07:00", "to": "19:00", "instances": chance.randint(2, 12)}
    service = {"name": "service", "constant": {"instances": chance.randint(1, 4)}}
    return [*([service] if chance.random() < 0.7 else []), {"name": "training", "weekly": week}]


def _nights(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    night = {"days": WORKING_DAYS[: chance.randint(2, 5)], "from": "20:00", "to": "06:00"}
    return [{"name": "nights", "weekly": {**night, "instances": chance.randint(2, 16)}}]


def _bursts(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    found = []
    for n in range(chance.randint(3, 7)):
        start = now + chance.uniform(0.5, 45) * DAY
        end = start + chance.uniform(0.5, 9) * DAY
        found.append(_window(f"run-{n}", start, end, chance.randint(1, 20)))
    return found


def _large(chance: random.Random, now: datetime) -> list[dict[str, Any]]:
    start = (now + chance.randint(1, 20) * DAY).replace(hour=chance.choice([0, 8, 12]))
    return [
        _window("large", start, start + chance.randint(2, 4) * DAY, chance.choice([100, 128, 150, 150, 180]))
    ]


SHAPES: dict[str, Callable[[random.Random, datetime], list[dict[str, Any]]]] = {
    "constant": _constant, "stairs": _stairs, "working-days": _working_days, "nights": _nights,
    "bursts": _bursts, "large": _large, "pyramid": _pyramid,
}  # fmt: skip
KINDS = (*SHAPES, "two-pools", "on-demand", "three-zones")


def _window(name: str, start: datetime, end: datetime, instances: int) -> dict[str, Any]:
    start, end = (one.replace(second=0, microsecond=0) for one in (start, end))
    return {"name": name, "window": {"from": start, "to": end, "instances": instances}}


def draw(number: int, only: str | None = None, *, one_zone: bool = False) -> Drawn:
    chance = random.Random(number)
    shape = only or KINDS[(number - 1) % len(KINDS)]
    now = MONDAY + chance.randint(0, 6) * DAY + chance.choice([0, 6, 9, 14]) * HOUR
    pools = [("p5", P5), ("p4", P4D)] if shape == "two-pools" else [("p5", P5)]
    zones = "abc" if shape == "three-zones" else "ab"
    calendars = {
        name: (kind, SHAPES[shape if shape in SHAPES else chance.choice(list(SHAPES)[:5])](chance, now))
        for name, kind in pools
    }
    by_the_hour = shape == "on-demand"
    spec = _spec(chance, calendars, zones, by_the_hour=by_the_hour, one_zone=one_zone)
    return Drawn(shape, spec, now, number)


def _spec(
    chance: random.Random,
    calendars: dict[str, tuple[str, list[dict[str, Any]]]],
    zones: str,
    *,
    by_the_hour: bool,
    one_zone: bool,
) -> Spec:
    platform = Platform.model_validate(
        {
            "metadata": {"name": "bench"},
            "spec": {
                "region": "us-east-1",
                "deployment": "bench",
                "cluster": {"name": "ml"},
                "subnets": {f"us-east-1{zone}": [f"subnet-{zone}"] for zone in zones},
                "budget": {"perPurchaseUsd": 50_000_000, "monthlyUsd": 50_000_000},
            },
        }
    )
    sources = [{"type": "block"}, *([{"type": "on-demand"}] if by_the_hour else [])]
    penalty = chance.choice([8, 12, 20, 40])
    pools = {
        name: ComputePool.model_validate(
            {
                "metadata": {"name": name},
                "spec": {
                    "nodeClassName": "gpu",
                    "sources": sources,
                    "requirements": {"instanceTypes": [kind]},
                    "limits": {"nodes": 400},
                },
            }
        )
        for name, (kind, _) in calendars.items()
    }
    plans = {
        name: CapacityPlan.model_validate(
            {
                "metadata": {"name": name},
                "spec": {
                    "pool": name,
                    "calendar": {
                        "instanceTypes": [kind],
                        "penaltyUsdPerGpuHour": penalty,
                        "onDemand": "allowed" if by_the_hour else "never",
                        "oneZone": one_zone,
                        "entries": entries,
                    },
                },
            }
        )
        for name, (kind, entries) in calendars.items()
    }
    gpu = NodeClass.model_validate(
        {"metadata": {"name": "gpu"}, "spec": {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]}}
    )
    return Spec(platform, catalog.load(), {"gpu": gpu}, pools, plans)


class MarketAlone:
    """What the planner asks of a cloud: offers, and no extensions, for nothing is held."""

    def __init__(self, drawn: Drawn) -> None:
        self._now = drawn.now
        self._market = OfferMarket(
            drawn.spec.catalog,
            seed=drawn.seed,
            zones=sorted(drawn.spec.platform.spec.subnets),
            market=Market(offers="plenty"),
            held=tuple,
        )
        self.searches = 0

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        self.searches += 1
        return self._market.search(query, self._now)


# --- the optimum over everything that is sold ---------------------------------------------------------


def every_offer(drawn: Drawn, kind: str, until: datetime) -> Iterator[Offer]:
    """Of every zone, start and length, at the largest size: whatever the size, an instance costs the same."""
    market = MarketAlone(drawn)
    first, seen = ec2_facts.grid_at_or_after(drawn.now + ec2_facts.EARLIEST_START), set()
    starts = [first + n * DAY for n in range(57) if first + n * DAY < until]
    for zone in sorted(drawn.spec.platform.spec.subnets):
        for duration in (one for one in ec2_facts.LEGAL_DURATIONS if one <= until - drawn.now + 8 * DAY):
            size = ec2_facts.MAX_INSTANCES_PER_BLOCK
            for start in [drawn.now, *starts]:
                end = start + duration + (2 * DAY if start == drawn.now else timedelta(0))
                for offer in market.search_offers(OfferQuery(kind, size, duration, start, end, (zone,))):
                    if (zone, offer.start, offer.end) not in seen:
                        seen.add((zone, offer.start, offer.end))
                        yield offer


def optimum(drawn: Drawn) -> float:
    """An integer program over instances in every offer: each pool for itself, for they share neither type nor money."""
    return sum(_of_pool(drawn, name) for name in drawn.spec.plans)


def _of_pool(drawn: Drawn, name: str) -> float:
    plan, demand = drawn.spec.plans[name].spec.calendar, calendar_demand(drawn.spec, name, 0)
    assert plan is not None
    until = drawn.now + plan.horizon
    kind = drawn.spec.catalog.types[demand.types[0]]
    steps = levels(demand.calendar, drawn.now, until)
    peak = max(step.amount for step in steps) / kind.gpus
    last = max((step.end for step in steps if step.amount), default=until)
    offers = [one for one in every_offer(drawn, kind.name, until) if one.start < last]
    spans = [(one.start + demand.warm_up, one.end - demand.wind_down) for one in offers]
    cuts = {drawn.now, until, *(step.start for step in steps)} | {at for span in spans for at in span}
    slots = [(a, b) for a, b in pairwise(sorted(cuts)) if drawn.now <= a and b <= until]
    program = Program()
    take = [program.column(one.fee_usd / one.count, upper=one.count, whole=True) for one in offers]
    rows: list[dict[int, float]] = [{} for _ in slots]
    number = {a: n for n, (a, _) in enumerate(slots)}
    for column, (first, end) in zip(take, spans, strict=True):
        for n in range(number.get(max(first, drawn.now), len(slots)), number.get(end, len(slots))):
            rows[n][column] = float(kind.gpus)
    _rest(
        program, demand, kind.on_demand_usd_h if plan.on_demand == "allowed" else None, kind.gpus, slots, rows
    )
    for (start, _), terms in zip(slots, rows, strict=True):
        need = next(step.amount for step in steps if step.start <= start < step.end)
        program.row(need, INFINITE, terms)
    for day in {day for one in offers for day in _dates(one)}:
        on_day = {column: 1.0 for column, one in zip(take, offers, strict=True) if day in _dates(one)}
        if sum(offers[column].count for column in on_day) > ec2_facts.MAX_INSTANCES_ON_A_DATE < peak * 2:
            program.row(-INFINITE, ec2_facts.MAX_INSTANCES_ON_A_DATE, on_day)
    found = program.minimum()
    assert found is not None
    return found


def _dates(offer: Offer) -> set[date]:
    """On which it counts against EC2's limit, the day of its end too."""
    return {offer.start.date() + n * DAY for n in range((offer.end.date() - offer.start.date()).days + 1)}


def _rest(
    program: Program,
    demand: PoolDemand,
    usd_h: float | None,
    gpus: int,
    slots: list[tuple[datetime, datetime]],
    rows: list[dict[int, float]],
) -> None:
    """What no block covers is short, or runs on demand: that pays for its warm-up too."""
    before: int | None = None
    for (start, end), terms in zip(slots, rows, strict=True):
        hours = (end - start) / HOUR
        terms[program.column(demand.penalty_usd_gpu_h * hours)] = 1.0
        if usd_h is not None:
            up, new = program.column(usd_h * hours), program.column(usd_h * (demand.warm_up / HOUR))
            program.row(-INFINITE, 0, {up: 1.0, new: -1.0, **({} if before is None else {before: -1.0})})
            terms[up], before = float(gpus), up


# --- the comparison -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    drawn: Drawn
    told: PurchaseOutlook
    searches: int
    optimum_usd: float
    took_s: float

    @property
    def dearer(self) -> float:
        return self.told.total_usd / self.optimum_usd - 1 if self.optimum_usd else 0.0

    @property
    def bound_holds(self) -> bool:
        """Fees are whole dollars; the optimum is of fractions of them."""
        return self.told.bound_usd <= self.optimum_usd + 1.0 + 1e-4 * self.optimum_usd

    @property
    def good(self) -> bool:
        return self.dearer <= MOST_DEARER and self.searches <= MAX_SEARCHES and self.bound_holds


def compare(drawn: Drawn) -> Compared:
    market = MarketAlone(drawn)
    began = time.process_time()
    told = outlook(drawn.spec, World(drawn.now), cast(Cloud, market))
    took_s = time.process_time() - began
    return Compared(drawn, told, market.searches, optimum(drawn), took_s)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calendars", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--shape", choices=KINDS)
    parser.add_argument("--one-zone", action="store_true")
    arguments = parser.parse_args()
    print("calendar            |     plan $ |  optimum $ |  dearer | bound says | searches | blocks |    s")
    found: list[Compared] = []
    for number in range(arguments.first, arguments.first + arguments.calendars):
        one = compare(draw(number, arguments.shape, one_zone=arguments.one_zone))
        found.append(one)
        saving = 1 - one.told.bound_usd / one.told.total_usd if one.told.total_usd else 0.0
        print(
            f"{number:>3} {one.drawn.shape:<15} | {one.told.total_usd:>10,.0f} | {one.optimum_usd:>10,.0f} | "
            f"{100 * one.dearer:>5.2f} % | {100 * saving:>8.2f} % | {one.searches:>8} | {len(one.told.choices):>6} | "
            f"{one.took_s:>4.1f}{'' if one.good else '  <--'}",
            flush=True,
        )
    print(
        f"mean {100 * mean(one.dearer for one in found):.2f} %, most {100 * max(one.dearer for one in found):.2f} %; "
        f"searches: mean {mean(one.searches for one in found):.1f}, most {max(one.searches for one in found)}; "
        f"{sum(not one.good for one in found)} of {len(found)} calendars are not good"
    )
    return 0 if all(one.good for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
