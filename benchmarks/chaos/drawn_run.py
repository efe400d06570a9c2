"""One run, drawn from its seed: policy and budget, what is needed, what people do when, how often calls fail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Literal

from tidemill.catalog import Catalog, load
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Market, OwnedReservation

START = datetime(2026, 11, 24, 8, 0, tzinfo=UTC)  # a week before the month ends: budgets are by the month
FAULTS_LAST = (timedelta(days=5), timedelta(days=5), timedelta(days=9))  # the longest: into the next month
WITHOUT_FAULTS = timedelta(days=4)  # in which every payment, list and approval has its time
TYPE = "p5.48xlarge"
ULTRASERVER = "p6e-gb200.36xlarge"
POOL, PLAN = "train", "plan"
PEOPLE = ("ana", "bo", "cy")


@dataclass(frozen=True, slots=True)
class Intervention:
    """A person looks at what is proposed and decides, or buys and extends by hand."""

    at: timedelta
    who: str
    does: Literal["approve", "refuse", "buy-by-hand", "extend-by-hand"]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often each thing goes wrong, per call."""

    crash: float
    no_answer: float  # the call happened, or did not, and nobody can tell
    fails: float
    broken_after: (
        float  # the call happened, and the answer is an error: of the service, or one nobody foresaw
    )
    stale: float  # a read shows what was true a while ago
    doubled: float  # a read shows things twice, or in another order
    second_engine: float  # another engine, which believes that it leads, ticks in between


@dataclass(frozen=True, slots=True)
class DrawnRun:
    seed: int
    spec: Spec
    market: Market
    owned: tuple[OwnedReservation, ...]
    interventions: tuple[Intervention, ...]
    fault_rates: FaultRates
    shown_late: timedelta
    payment_failures: tuple[timedelta, ...]
    faults_last: timedelta
    away: tuple[timedelta, timedelta] | None  # no engine runs from then until then
    hasty: bool  # somebody calls every unknown outcome "not bought" at once
    hidden: tuple[tuple[timedelta, timedelta], ...] = ()  # when lists lose what was adopted, and for how long


@cache
def _catalog() -> Catalog:
    return load()


def draw(seed: int) -> DrawnRun:
    rng = Random(f"chaos-money/{seed}")
    owned, demand = _demand(rng)
    rough = rng.choice((0.3, 1.0, 1.0, 2.0))
    lasts = rng.choice(FAULTS_LAST)
    return DrawnRun(
        seed=seed,
        spec=_spec(rng, demand),
        market=Market(offers=rng.choice(("plenty", "plenty", "plenty", "scarce"))),
        owned=owned,
        interventions=tuple(sorted(_interventions(rng, lasts), key=lambda intervention: intervention.at)),
        fault_rates=FaultRates(
            crash=0.03 * rough,
            no_answer=0.10 * rough,
            fails=0.03 * rough,
            broken_after=0.05 * rough,
            stale=0.05 * rough,
            doubled=0.05 * rough,
            second_engine=0.02 * rough,
        ),
        shown_late=timedelta(minutes=rng.choice((2, 5, 20, 45))),
        payment_failures=tuple(_at(rng, lasts) for _ in range(rng.choice((0, 0, 1, 2)))),
        faults_last=lasts,
        away=_away(rng, lasts) if rng.random() < 0.2 else None,
        hasty=rng.random() < 0.15,
        # From the second hour on: nothing can be remembered that was never shown.
        hidden=_hidden(Random(f"chaos-money/{seed}/hidden"), lasts),
    )


def _at(rng: Random, lasts: timedelta) -> timedelta:
    return timedelta(seconds=rng.randint(60, int(lasts.total_seconds())))


def _away(rng: Random, lasts: timedelta) -> tuple[timedelta, timedelta]:
    gone = _at(rng, lasts - timedelta(days=1))
    return gone, gone + timedelta(hours=rng.randint(12, 72))


def _hidden(rng: Random, lasts: timedelta) -> tuple[tuple[timedelta, timedelta], ...]:
    """From a stream of its own, so that the rest of a run stays what its seed always gave."""
    return tuple(
        (timedelta(hours=2) + _at(rng, lasts), timedelta(minutes=rng.choice((10, 60, 300))))
        for _ in range(rng.choice((0, 0, 1, 4)))
    )


def _demand(rng: Random) -> tuple[tuple[OwnedReservation, ...], list[dict[str, Any]]]:
    """One to three windows; some can be covered by more time on a block that is there."""
    demand: list[dict[str, Any]] = []
    owned: list[OwnedReservation] = []
    if rng.random() < 0.6:
        lasts = timedelta(days=rng.randint(2, 6))
        block = {"name": "there", "instanceType": TYPE, "count": 2, "zone": "us-west-2a", "duration": lasts}
        owned.append(OwnedReservation.model_validate({**block, "pool": POOL}))
        until = START + lasts + timedelta(days=rng.randint(1, 6))
        demand.append(_window("longer", START, until, TYPE, 2))
    for name in ("first", "second")[: rng.randint(0 if demand else 1, 2)]:
        type_ = ULTRASERVER if rng.random() < 0.15 else TYPE
        count = 9 * rng.choice((1, 2)) if type_ == ULTRASERVER else rng.choice((1, 4, 8))
        start = START + timedelta(days=rng.randint(0, 12), hours=rng.randint(0, 23))
        demand.append(_window(name, start, start + timedelta(days=rng.randint(1, 9)), type_, count))
    return tuple(owned), demand


def _window(name: str, start: datetime, end: datetime, type_: str, count: int) -> dict[str, Any]:
    return {"name": name, "from": start, "to": end, "instanceType": type_, "instances": count}


def _spec(rng: Random, demand: list[dict[str, Any]]) -> Spec:
    approval = {
        "mode": rng.choice(("one", "one", "two", "auto", "auto", "propose")),
        "autoMaxFeeUsd": rng.choice((10_000, 60_000, 400_000)),
        "autoMonthlyUsd": rng.choice((None, 100_000, 500_000)),
        "twoAboveUsd": rng.choice((None, None, 40_000)),
        "approvers": rng.choice((PEOPLE, PEOPLE[:2])),
        "expiresAfter": rng.choice(("6h", "24h", "3d")),
    }
    budget = {
        "perPurchaseUsd": rng.choice((50_000, 400_000, 2_000_000)),
        "monthlyUsd": rng.choice((60_000, 500_000, 4_000_000)),
    }
    platform = {
        "region": "us-west-2", "deployment": "chaos", "cluster": {"name": "ml"},
        "subnets": {"us-west-2a": ["subnet-a"], "us-west-2b": ["subnet-b"]},
        "approval": approval, "budget": budget,
    }  # fmt: skip
    pool = {
        "nodeClassName": "gpu", "sources": [{"type": "block"}], "limits": {"nodes": 64}, "warm": False,
        "requirements": {"instanceTypes": [TYPE, ULTRASERVER]},
    }  # fmt: skip
    plan = {"pool": POOL, "demand": demand, "extend": {"policy": rng.choice(("prefer", "prefer", "never"))}}
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "chaos"}, "spec": platform}),
        catalog=_catalog(),
        pools={POOL: ComputePool.model_validate({"metadata": {"name": POOL}, "spec": pool})},
        plans={PLAN: CapacityPlan.model_validate({"metadata": {"name": PLAN}, "spec": plan})},
    )


def _interventions(rng: Random, lasts: timedelta) -> list[Intervention]:
    """People are quick or slow, approve twice, refuse; the engine tries to approve under its own name."""
    interventions = []
    for _ in range(rng.randint(2, 14)):
        who = rng.choice((*PEOPLE, "tidemill-engine"))
        interventions.append(
            Intervention(_at(rng, lasts), who, "refuse" if rng.random() < 0.1 else "approve")
        )
    for person in PEOPLE if rng.random() < 0.7 else ():  # somebody looks every few hours
        hours = rng.randint(2, 9)
        interventions += [
            Intervention(timedelta(hours=at), person, "approve")
            for at in range(hours, lasts.days * 24, hours)
        ]
    if rng.random() < 0.2:
        interventions.append(Intervention(_at(rng, lasts), rng.choice(PEOPLE), "buy-by-hand"))
    if rng.random() < 0.2:
        interventions.append(Intervention(_at(rng, lasts), rng.choice(PEOPLE), "extend-by-hand"))
    return interventions
